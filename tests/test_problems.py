"""Problems over other patterns and at other strengths: what is shared, and what is carried over."""

import numpy as np
import pytest
from scipy import sparse

import cvxnn
from cvxnn import CGReLU, CReLU, Patterns, sample_patterns

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 4))
Y = rng.standard_normal((30, 2))
PATTERNS = sample_patterns(X, 12, bias=True, random_state=0)
OTHERS = PATTERNS.select([9, 3, 5]).join(sample_patterns(X, 6, bias=True, random_state=1))
BOTH = pytest.mark.parametrize("cls", [CGReLU, CReLU])


def posed(cls, patterns=PATTERNS, data=X, **settings):
    return cls(data, Y, patterns, 0.02, bias=True, output_bias=True, **settings)


@BOTH
@pytest.mark.parametrize("data", [X, X.astype(np.float32), sparse.csr_array(X)])
def test_other_patterns_make_the_problem_that_is_posed_with_them(cls, data):
    other, direct = posed(cls, data=data).with_patterns(OTHERS), posed(cls, OTHERS, data)
    assert other.scope == direct.scope
    weights = rng.standard_normal(direct.weight_shape)
    assert other.objective(weights) == direct.objective(weights)
    assert cvxnn.lambda_max(other) == cvxnn.lambda_max(direct)


@BOTH
def test_data_and_loss_are_shared(cls):
    problem = posed(cls)
    other = problem.with_patterns(OTHERS)
    assert other.operator.rows() is problem.operator.rows()
    assert other.loss is problem.loss
    assert len(problem.patterns) == len(PATTERNS)  # which stays as it is


@BOTH
@pytest.mark.parametrize("normalize", [False, True])
def test_weights_of_common_patterns_are_carried_over(cls, normalize):
    """All others are zero, so the new point has the value of the old one without them."""
    problem = posed(cls, normalize=normalize)
    U = problem.check_weights(cvxnn.solve(problem, tol=1e-6).weights).copy()
    gone = [i for i in range(len(PATTERNS)) if i not in (9, 3, 5)]
    for sign in range(len(U) // len(PATTERNS)):
        U[np.array(gone) + sign * len(PATTERNS)] = 0.0
    other, carried = problem.with_patterns(OTHERS, U)
    V = other.check_weights(carried)
    assert np.any(V != 0)
    assert other.objective(carried) == pytest.approx(problem.objective(U), rel=1e-12)
    assert other.max_violation(V) == problem.max_violation(U)
    again, back = other.with_patterns(PATTERNS, carried)
    np.testing.assert_array_equal(again.check_weights(back), U)


@BOTH
def test_more_patterns_start_from_the_optimum_of_fewer(cls):
    few = posed(cls, OTHERS)
    optimum = cvxnn.solve(few, tol=1e-8)
    more, start = few.with_patterns(OTHERS.join(PATTERNS), optimum.weights)
    assert more.objective(start) == pytest.approx(optimum.certificate.objective, rel=1e-9)
    better = cvxnn.solve(more, warm_start=start, tol=1e-8)
    assert better.certificate.objective < optimum.certificate.objective
    cold = cvxnn.solve(more, tol=1e-8)
    assert better.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-7)


def test_singular_patterns_are_treated_as_the_problem_was_told_to():
    """A row and its opposite that are both on leave a cone without an interior."""
    data, targets = np.vstack([X, -X[0]]), np.vstack([Y, Y[0]])
    regular = sample_patterns(data, 6, random_state=0)
    singular = Patterns(np.column_stack([regular.mask, np.ones(31, dtype=bool)]))
    kept = CReLU(data, targets, regular, 0.02, singular="keep").with_patterns(singular)
    np.testing.assert_array_equal(kept.patterns.mask, singular.mask)
    assert CReLU.from_gated(kept.gated).with_patterns(singular).singular == "keep"
    with pytest.raises(ValueError, match="are singular"):
        CReLU(data, targets, regular, 0.02, singular="raise").with_patterns(singular)
    problem = CReLU(data, targets, regular, 0.02)
    with pytest.warns(cvxnn.PatternWarning) as caught:
        replaced = problem.with_patterns(singular)
    assert caught[0].filename == __file__
    assert not replaced.cones.singular.any()
    assert replaced.notes


@BOTH
def test_patterns_of_other_rows_are_refused(cls):
    problem = posed(cls)
    with pytest.raises(ValueError, match="patterns belong to other data"):
        problem.with_patterns(sample_patterns(X[:20], 5, bias=True, random_state=0))
    with pytest.raises(ValueError, match="patterns belong to other data"):
        problem.with_patterns(sample_patterns(X[::-1] + 1, 5, bias=True, random_state=0))
    with pytest.raises(TypeError, match="patterns must be Patterns, got ndarray"):
        problem.with_patterns(PATTERNS.mask)
    with pytest.raises(ValueError, match="weights must have shape"):
        problem.with_patterns(OTHERS, np.zeros((3, 5, 2)))


@BOTH
def test_a_start_hands_on_what_a_solution_does_without_its_data(cls):
    problem = posed(cls)
    solution = cvxnn.solve(problem, tol=1e-6)
    start = solution.start()
    np.testing.assert_array_equal(start.weights, problem.check_weights(solution.weights))
    nearby = problem.with_lam(0.019)
    from_solution = cvxnn.solve(nearby, warm_start=solution, tol=1e-6)
    from_start = cvxnn.solve(nearby, warm_start=start, tol=1e-6)
    assert from_start.n_iter == from_solution.n_iter < cvxnn.solve(nearby, tol=1e-6).n_iter
    np.testing.assert_array_equal(from_start.dual, from_solution.dual)
    assert not any(value is problem for value in vars(start).values())
