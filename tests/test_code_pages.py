"""The programs that measure and trace the code, on small examples."""

import importlib.util
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
SOURCE = '''"""Two functions."""

from typing import Any


def first(a: int, b: "dict[str, Any]") -> float:
    # a comment
    return a  # and another


def second(*c: Any, d=None) -> None:
    x: float = 1.0
'''


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_measures_of_a_small_file():
    found = script("measure_code").Measures.of({"small.py": SOURCE})
    assert (found.files, found.lines, found.functions) == (1, 12, 2)
    assert (found.longest, found.longest_name) == (3, "first in small.py")
    assert found.median == 2.5
    assert (found.annotations, found.anys) == (6, 2)
    assert found.comments == 100 * 2 / 7


def test_a_walk_lists_calls_in_order_and_once(tmp_path):
    module = script("trace_walks")
    code = """
def top():
    inner(), inner(), [inner() for _ in "ab"], other()
def inner():
    other()
def other():
    pass
"""
    names = {}
    exec(compile(code, str(tmp_path / "room" / "part.py"), "exec"), names)
    tracer = module.Tracer(tmp_path)
    sys.setprofile(tracer)
    names["top"]()
    sys.setprofile(None)
    walk = {"room.part: inner": {"room.part: other": {}}, "room.part: other": {}}
    assert tracer.walk == {"room.part: top": walk}
    assert module.lines_of(tracer.walk)[:2] == ["room.part: top", "  room.part: inner"]
