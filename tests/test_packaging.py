"""What is said about the package in several places is the same in all of them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import cvxnn

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
