"""What is said about the package in several places is the same in all of them."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open

import cvxnn
from cvxnn.kernels import native

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(file):
    """The exact versions of a file of constraints, by normalised name."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and line[0] != "#"]
    return {normalised(name): version for name, version in (line.split("==") for line in lines)}


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def lower_bounds(*extras):
    """What pyproject.toml asks for at least, by name."""
    wanted = [*PROJECT["dependencies"]]
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    bounds = (re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement) for requirement in wanted)
    return {normalised(bound[1]): bound[2] for bound in bounds if bound}


def same_version(one, other):
    """2.0 is 2.0.0."""
    numbers = [[int(part) for part in version.split(".")] for version in (one, other)]
    length = max(map(len, numbers))
    first, second = (part + [0] * (length - len(part)) for part in numbers)
    return first == second


def test_the_oldest_versions_are_those_that_the_package_allows():
    oldest = pins("constraints-oldest.txt")
    bounds = lower_bounds("test-core", "cvx", "plot", "data", "onnx", "test")
    assert set(oldest) == set(bounds)
    for name, bound in bounds.items():
        assert same_version(oldest[name], bound), name


def test_everything_that_is_asked_for_has_an_exact_version():
    extras = PROJECT["optional-dependencies"]
    assert set(lower_bounds(*extras)) <= set(pins("constraints.txt"))


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {cvxnn.__version__}\n" in citation
    assert cvxnn.__version__ == PROJECT["version"]


@pytest.fixture
def hatch_build(monkeypatch):
    """The build hook, with nothing for the class that it derives from: no test builds anything."""
    name = "hatchling.builders.hooks.plugin.interface"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(BuildHookInterface=object))
    monkeypatch.delenv("ARCHFLAGS", raising=False)
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("platform", "machine", "flags", "tag"),
    [
        ("linux-x86_64", "x86_64", "", "linux_x86_64"),
        ("macosx-11.0-arm64", "arm64", "-arch arm64", "macosx_11_0_arm64"),
        ("macosx-10.13-universal2", "arm64", "", "macosx_11_0_arm64"),
        ("macosx-10.13-universal2", "x86_64", "", "macosx_10_13_x86_64"),
        ("macosx-10.13-universal2", "arm64", "-arch arm64 -arch x86_64", "macosx_10_13_universal2"),
    ],
)
def test_a_wheel_is_named_after_what_was_compiled(
    hatch_build, monkeypatch, platform, machine, flags, tag
):
    monkeypatch.setattr("sysconfig.get_platform", lambda: platform)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setenv("ARCHFLAGS", flags)
    assert hatch_build.platform_tag() == tag


def test_the_digest_of_the_build_is_that_of_the_loader(hatch_build):
    files = [ROOT / file for file in hatch_build.FILES]
    assert int(hatch_build.version_of(files).rstrip("u"), 16) == native.source_version(files)


@pytest.fixture(scope="module")
def model_files(tmp_path_factory):
    """Files that have every field between them: of cross-validation, texts, a gated network."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(60)
    lines = [f"{x:.3f},{'ab'[i % 2]},{'no' if x < 0 else 'yes'}" for i, x in enumerate(numbers)]
    (folder / "data.csv").write_text("\n".join(["size,kind,label", *lines]))
    table = cvxnn.read_table(folder / "data.csv")
    chosen = cvxnn.Model.fit(table, "label", n_patterns=8, n_alphas=3, cv=2)
    gated = cvxnn.Model.fit(table, "size", kind="gated", alpha=0.01, n_patterns=8)
    chosen.save(folder / "chosen.cvxnn")
    gated.save(folder / "gated.cvxnn")
    return [folder / "chosen.cvxnn", folder / "gated.cvxnn"]


def test_the_page_on_model_files_has_every_field(model_files):
    page = (ROOT / "docs" / "model-file.md").read_text()
    named = set(re.findall(r"`([\w.-]+)`", page))
    for file in model_files:
        with safe_open(file, framework="numpy") as content:
            header = json.loads(content.metadata()["cvxnn"])
            fields = set(header) | set(content.keys())
        model = header["model"]
        fields |= set(model) | set(model["fitted"]) | set(model["certificate"])
        fields |= set(model["target"]) | {name for column in model["columns"] for name in column}
        assert fields <= named, fields - named
    assert f"format version {header['version']}" in page
