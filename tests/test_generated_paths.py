"""Paths over generated patterns: patterns of each point, checkpoints, ends, what is refused."""

import numpy as np
import pytest

import cvxnn
from cvxnn.bounds.base import EXACT, GIVEN
from cvxnn.checkpoints import packed_patterns, unpacked_patterns
from cvxnn.generation import programs
from cvxnn.generation.training import first_patterns
from extras import needs

rng = np.random.default_rng(0)
X = rng.standard_normal((50, 3))
y = np.abs(X[:, 0]) - np.maximum(X[:, 1] + X[:, 2], 0) + 0.1 * rng.standard_normal(50)
pytestmark = pytest.mark.usefixtures("quick_search")
GRID = {"lams": [0.3, 0.1, 0.03], "tol": 1e-3, "patterns": "generate"}


def problem(cls=cvxnn.CReLU, **settings):
    return cls(X, y, first_patterns(X, True), 1.0, bias=True, **settings)


@pytest.mark.parametrize("cls", [cvxnn.CReLU, cvxnn.CGReLU])
def test_every_point_has_a_certificate_and_patterns_of_its_own(cls):
    path = cvxnn.path(problem(cls), **GRID)
    assert path.complete
    assert path.relative_gaps.max() <= 1e-3
    sampled = cvxnn.sample_patterns(X, 200, bias=True, random_state=0)
    numbers = []
    for lam, point, bound in zip(path.lams, path, path.bounds, strict=True):
        assert point.problem.lam == lam
        assert isinstance(point.problem, cls)
        assert point.certificate.scope.startswith(f"{cls.kind} over {len(point.problem.patterns)}")
        assert bound.scope == GIVEN
        assert bound.lower_bound == point.certificate.lower_bound
        numbers.append(len(point.problem.patterns))
        again = cvxnn.certify(point.problem, point.weights, point.dual)
        claimed = point.certificate.lower_bound
        # what the point carries proves its bound; projections made afresh may prove a little more
        assert cvxnn.verify(point).lower_bound == pytest.approx(claimed, rel=1e-9)
        assert (1 - 1e-9) * claimed <= again.lower_bound <= point.certificate.objective
        if cls is cvxnn.CReLU:
            other = cvxnn.solve(cvxnn.CReLU(X, y, sampled, lam, bias=True), tol=1e-4)
            assert point.certificate.objective < other.certificate.objective * (1 + 1e-9)
    assert len(set(numbers)) > 1
    with pytest.raises(ValueError, match="the points have patterns of their own"):
        _ = path.coefs


def test_points_start_from_the_last(monkeypatch):
    starts, original = [], programs.generate

    def spy(given, **options):
        starts.append((len(given.patterns), options["warm_start"]))
        return original(given, **options)

    monkeypatch.setattr(programs, "generate", spy)
    path = cvxnn.path(problem(), **GRID)
    assert starts[0][1] is None
    for (n_patterns, weights), point in zip(starts[1:], path, strict=False):
        assert n_patterns == len(point.problem.patterns)
        np.testing.assert_array_equal(weights[0], point.weights[0])


def test_the_grid_starts_where_a_search_finds_the_first_neuron():
    path = cvxnn.path(problem(), 3, 0.1, 1e-3, patterns="generate")
    assert path[0].n_active == 0
    assert path[1].n_active > 0
    many = cvxnn.CReLU(X, y, cvxnn.sample_patterns(X, 500, bias=True, random_state=0), 1, bias=True)
    assert path.lams[0] >= cvxnn.lambda_max(many) * (1 - 1e-9)


def test_equal_seeds_give_equal_paths():
    first, second = (cvxnn.path(problem(), **GRID, random_state=5) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.weights[0], other.weights[0])
        np.testing.assert_array_equal(one.problem.patterns.gates, other.problem.patterns.gates)


@pytest.mark.parametrize("cls", [cvxnn.CReLU, cvxnn.CGReLU])
def test_a_path_goes_on_from_its_file(cls, tmp_path):
    settings = {**GRID, "checkpoint": tmp_path / "file"}
    whole = cvxnn.path(problem(cls), **GRID)
    part = cvxnn.path(problem(cls), **settings, callback=lambda point: point.problem.lam < 0.2)
    assert len(part) == 2
    resumed = cvxnn.path(problem(cls), **settings)
    assert resumed.complete
    assert len(resumed.bounds) == 3
    for k in range(3 if cls is cvxnn.CReLU else 2):  # gated: the ReLU network was not kept
        np.testing.assert_array_equal(
            resumed[k].problem.patterns.mask, whole[k].problem.patterns.mask
        )
        assert resumed.objectives[k] == pytest.approx(whole.objectives[k], rel=1e-12)
    assert resumed.objectives[2] == pytest.approx(whole.objectives[2], rel=3e-2)
    with pytest.raises(cvxnn.CheckpointError, match="another problem, grid, tolerance or seed"):
        cvxnn.path(problem(cls), **settings, random_state=1)
    with pytest.raises(cvxnn.CheckpointError, match="belongs to another"):
        cvxnn.path(problem(cls), lams=GRID["lams"], tol=1e-3, checkpoint=tmp_path / "file")


def test_points_of_one_input_are_proven_over_all_patterns():
    x = X[:, :1]
    given = cvxnn.CReLU(x, y, first_patterns(x, True), 1.0, bias=True)
    path = cvxnn.path(given, **GRID, prove="auto")
    assert [bound.scope for bound in path.bounds] == [EXACT] * 3
    assert max(bound.relative_gap for bound in path.bounds) <= 1e-3


def test_patterns_of_a_file_are_checked():
    patterns = cvxnn.sample_patterns(X, 9, random_state=0)
    arrays = packed_patterns(patterns)
    again = unpacked_patterns(arrays, patterns)
    np.testing.assert_array_equal(again.mask, patterns.mask)
    for mask in (arrays["mask"][:-1], arrays["mask"].astype(np.int64), arrays["mask"][0]):
        with pytest.raises(ValueError, match="patterns of 50 rows as"):
            unpacked_patterns({**arrays, "mask": mask}, patterns)
    with pytest.raises(ValueError, match="the patterns have no gates"):
        packed_patterns(cvxnn.Patterns.from_mask(patterns.mask))


def test_a_path_ends_early_and_says_so():
    late = cvxnn.path(problem(), **GRID, min_loss=0.9)
    assert len(late) < 3
    assert "loss is below" in late.message

    def interrupt(record):
        raise KeyboardInterrupt

    stopped = cvxnn.path(problem(), **GRID, on_round=interrupt, on_failure="ignore")
    assert stopped.interrupted
    assert len(stopped) == len(stopped.bounds) == 0
    short = cvxnn.path(problem(), **GRID, max_seconds=1e-3, on_failure="ignore")
    assert len(short) < 3
    assert "time limit" in short.message


def test_what_cannot_be_generated_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown patterns"):
        cvxnn.path(problem(), patterns="sampled")
    with pytest.raises(ValueError, match="C-ReLU has the neuron penalty"):
        cvxnn.path(problem(cvxnn.CGReLU, penalty="l1"), **GRID)
    with pytest.raises(TypeError, match="its file keeps no proofs"):
        cvxnn.path(problem(), **GRID, prove="auto", checkpoint=tmp_path / "file")
    with pytest.raises(TypeError, match="is for ReLU networks"):
        cvxnn.path(problem(cvxnn.CGReLU), **GRID, prove="auto")
    with pytest.raises(TypeError, match="warm_start"):
        cvxnn.path(problem(), **GRID, warm_start=None)


@needs("matplotlib")
def test_plots_of_generated_paths_show_bounds():
    path = cvxnn.path(problem(), **GRID)
    top, _ = cvxnn.plot_path(path)
    labels = [text.get_text() for text in top.get_legend().get_texts()]
    assert labels == ["objective (upper bound)", "lower bound, over the patterns of each point"]
    with pytest.raises(ValueError, match="patterns of their own"):
        cvxnn.plot_path(path, show="norms")
    model = cvxnn.ReLURegressor(0.1, patterns="generate").fit(X, y)
    with pytest.raises(ValueError, match="rounds of generation"):
        cvxnn.plot_convergence(model)
