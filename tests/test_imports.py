"""The import graph has layers: no circle, nothing that imports from above."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def drawing():
    spec = importlib.util.spec_from_file_location("draw_imports", ROOT / "docs/draw_imports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graph(drawing):
    return drawing.import_graph(ROOT / "src")


def test_no_imports_go_round_in_a_circle(drawing, graph):
    assert drawing.cycles(graph) == []


def test_no_module_imports_from_a_layer_above(drawing, graph):
    assert drawing.upward_imports(graph) == []


def test_a_circle_and_an_upward_import_would_be_found(drawing, tmp_path):
    package = tmp_path / "cvxnn"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "arrays.py").write_text("def late():\n    from cvxnn.cli import main\n")
    (package / "cli.py").write_text("import cvxnn.arrays\n")
    found = drawing.import_graph(tmp_path)
    assert found == {"arrays": {"cli"}, "cli": {"arrays"}}
    assert drawing.cycles(found) == [["arrays", "cli"]]
    assert drawing.upward_imports(found) == [("arrays", "cli")]


def test_imports_for_type_checkers_alone_do_not_count(drawing, tmp_path):
    package = tmp_path / "cvxnn"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "cli.py").write_text("")
    (package / "arrays.py").write_text("if TYPE_CHECKING:\n    from cvxnn.cli import main\n")
    assert drawing.import_graph(tmp_path)["arrays"] == set()


def test_a_module_imports_the_package_around_another(drawing, tmp_path):
    room = tmp_path / "cvxnn" / "room"
    room.mkdir(parents=True)
    (room.parent / "__init__.py").write_text("")
    (room.parent / "user.py").write_text("from cvxnn.room.tool import use\n")
    (room / "__init__.py").write_text("from cvxnn.user import whoever\n")
    (room / "tool.py").write_text("")
    assert drawing.cycles(drawing.import_graph(tmp_path)) == [["room", "user"]]


@pytest.mark.parametrize("module", ["decompositions", "plots", "solvers.base", "estimators.rows"])
def test_modules_can_be_imported_first(module):
    subprocess.run([sys.executable, "-c", f"import cvxnn.{module}"], check=True, timeout=60)
