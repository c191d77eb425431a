"""Losses and penalties as objects: the library's own are what their names are, and those of a user
go through every part without being entered anywhere."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import cvxnn
from conftest import PENALTIES, expanded_matrix, make_data, make_problem
from cvxnn.losses import LOSSES, Huber, Logistic, LossChoice, Softmax, Squared, WeightedLoss
from cvxnn.penalties import L1, L2, FeatureGroups, NeuronGroups, NoPenalty, ScaledPenalty
from extras import needs, optional

cp = optional("cvxpy")

KINDS = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}


class SquaredHingeLoss(WeightedLoss):
    """1/(2s) sum w (m - y z)_+^2; with q = -s/w y Theta, f*(Theta) = 1/s sum w (q^2/2 - m q) for
    q >= 0, and infinite elsewhere."""

    def _slack(self, Z):
        distance = self.settings["margin"] - self.Y * Z
        return np.maximum(distance, 0), np.maximum(-distance, 0)

    def value(self, Z):
        return self._weighted_sum(self._slack(Z)[0] ** 2) / 2

    def gradient(self, Z):
        return -self.Y * self._slack(Z)[0] * self.row_weight

    def bregman(self, Z_new, Z):
        (new, beyond), (old, _) = self._slack(Z_new), self._slack(Z)
        return self._weighted_sum((new - old) ** 2 / 2 + old * beyond)

    def best_dual(self, Theta, limit, quadratic):
        q = -self.Y * Theta / self.row_weight
        if np.any(q < 0):
            return np.zeros_like(limit), 0.0
        slope = self.settings["margin"] * np.sum(self.row_weight * q, axis=0)
        curvature = np.sum(self.row_weight * q * q, axis=0)
        if len(limit) == 1:
            slope, curvature = slope.sum(keepdims=True), curvature.sum(keepdims=True)
        curvature = curvature + 2 * quadratic
        tau = np.clip(slope / np.maximum(curvature, 1e-300), 0, limit)
        return tau, float(np.sum(tau * (slope - tau * curvature / 2)))


@dataclass(frozen=True)
class SquaredHinge(LossChoice):
    name = "squared hinge"
    bound = SquaredHingeLoss

    margin: float = 1.0


class WeightedNeurons(ScaledPenalty):
    """lam sum_i w_i sum_k ||U_i^k||: patterns that count differently. It says nothing about its
    rounding."""

    def __init__(self, weights, lam=1.0):
        super().__init__(lam)
        self.weights = np.asarray(weights, dtype=float)

    def _thresholds(self):
        return self.lam * self.weights[:, None, None]

    def _norms(self, U):
        return np.sqrt(np.sum(U * U, axis=1, keepdims=True))

    def value(self, U):
        return float(np.sum(self._thresholds() * self._norms(U)))

    def prox(self, U, step):
        norms, threshold = self._norms(U), step * self._thresholds()
        return U * np.where(norms > threshold, 1 - threshold / np.maximum(norms, 1e-300), 0)

    def min_norm_subgradient(self, U, gradient):
        norms = self._norms(U)
        at_zero = WeightedNeurons(self.weights, self.lam).prox(gradient, 1.0)
        elsewhere = gradient + self._thresholds() * U / np.where(norms > 0, norms, 1.0)
        return np.where(norms > 0, elsewhere, at_zero)

    def dual_norm(self, G):
        return np.max(self._norms(G)[:, 0] / self.weights[:, None], axis=0)

    def dual_limit(self, G):
        return self.lam / np.maximum(self.dual_norm(G), 1e-300)

    def conjugate(self, G):
        return np.zeros(G.shape[2])


class MyNeurons(NeuronGroups):
    """A subclass that changes nothing, and has no name."""


def oracle_value(problem, loss, penalty):
    """The optimal value by CVXPY, for functions of the predictions and the weights of outputs."""
    M = expanded_matrix(problem)
    n, p, d = M.shape
    U = [cp.Variable((p, d)) for _ in range(problem.weight_shape[2])]
    fits = [M.reshape(n, p * d) @ cp.reshape(u, (p * d,), order="C") for u in U]
    program = cp.Problem(cp.Minimize(loss(fits) + penalty(U)))
    with warnings.catch_warnings():  # old versions of Clarabel end close to these tolerances
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        return program.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)


def squares(problem):
    Y = problem.loss.Y
    pairs = enumerate(Y.T)
    return lambda fits: sum(cp.sum_squares(fits[k] - y) for k, y in pairs) / (2 * Y.size)


def hinge_problem(kind="gated", share=0.1, C=1, **settings):
    X, Y = make_data(40, 3, C)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    loss = SquaredHinge(settings.pop("margin", 1.0))
    signs = np.where(np.median(Y) < Y, 1.0, -1.0)
    problem = KINDS[kind](X, signs, patterns, 1.0, loss=loss, **settings)
    return problem.with_lam(share * cvxnn.lambda_max(problem))


# ---- the library's own -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("squared", Squared()),
        ("huber", Huber()),
        ("logistic", Logistic()),
        ("softmax", Softmax()),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_object_is_what_its_name_is(kind, name, choice):
    X, Y = make_data(30, 3, C=2)
    targets = {"logistic": np.sign(Y), "softmax": np.eye(2)[(Y[:, 0] > 0).astype(int)]}.get(name, Y)
    patterns = cvxnn.sample_patterns(X, 6, random_state=0)
    weight = np.arange(1, 31)
    one, two = (
        cvxnn.solve(
            KINDS[kind](
                X, targets, patterns, 0.01, loss=loss, output_bias=True, sample_weight=weight
            )
        )
        for loss in (name, choice)
    )
    assert repr(one.problem) == repr(two.problem)
    assert np.array_equal(one.weights, two.weights)
    assert one.certificate == two.certificate
    assert two.certificate.proven
    assert cvxnn.verify(two).agrees


@pytest.mark.parametrize(
    ("name", "penalty"),
    [("neuron", NeuronGroups()), ("feature", FeatureGroups()), ("l1", L1()), ("l2", L2(77.0))],
)
def test_a_penalty_object_is_what_its_name_is(name, penalty):
    """The problem's strength counts, whatever the object came with."""
    one, two = (cvxnn.solve(make_problem(penalty=given)) for given in (name, penalty))
    assert one.problem.penalty.lam == two.problem.penalty.lam == two.problem.lam
    assert repr(one.problem) == repr(two.problem)
    assert one.solver == two.solver
    assert np.array_equal(one.weights, two.weights)
    assert one.certificate == two.certificate


def test_every_name_has_an_object():
    assert [choice().name for choice in LOSSES.values()] == list(LOSSES)
    assert {cvxnn.penalties.PENALTIES[name]().name for name in PENALTIES} == set(PENALTIES)


@needs("cvxpy")
def test_huber_delta_is_the_delta_of_the_object():
    X, y = make_data(30, 3)
    patterns = cvxnn.sample_patterns(X, 6, random_state=0)
    one = cvxnn.CGReLU(X, y, patterns, 0.01, loss="huber", huber_delta=0.3)
    two = cvxnn.CGReLU(X, y, patterns, 0.01, loss=Huber(delta=0.3), output_bias=True)
    assert one.loss.settings == two.loss.settings == {"delta": 0.3}
    assert [part.settings for part in two.loss.by_output()] == [{"delta": 0.3}]
    by_oracle = cvxnn.solve(two, "cvxpy").certificate
    assert cvxnn.solve(two).certificate.objective == pytest.approx(by_oracle.objective, rel=1e-4)
    network = cvxnn.solve(one).network()
    values = (network.objective(X, y, 0.01, loss=Huber(0.3)),
              network.objective(X, y, 0.01, loss="huber", huber_delta=0.3))  # fmt: skip
    assert values[0] == values[1]


def test_improve_takes_a_loss_object():
    X, y = make_data(40, 3)
    network = cvxnn.solve(make_problem(40, 3, p=3)).network()
    by_name = cvxnn.improve(network, X, y, 0.01, loss="huber", huber_delta=0.3)
    by_object = cvxnn.improve(network, X, y, 0.01, loss=Huber(0.3))
    assert (by_object.after, by_object.loss) == (by_name.after, "huber")
    own = cvxnn.improve(network, X, np.sign(y), 0.01, loss=SquaredHinge())
    assert own.after <= own.before
    assert own.loss == "squared hinge"
    assert "up to rounding: no network" in str(own)


# ---- a user's own loss -------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [1.0, 0.3])
@pytest.mark.parametrize("C", [1, 2])
def test_an_own_loss_reaches_the_optimum(margin, C):
    problem = hinge_problem(margin=margin, C=C)
    solution = cvxnn.solve(problem, tol=1e-7)  # "auto" finds a solver that needs no Hessian
    assert solution.converged
    Y = problem.loss.Y
    value = oracle_value(
        problem,
        lambda fits: sum(
            cp.sum_squares(cp.pos(margin - cp.multiply(Y[:, k], fit))) for k, fit in enumerate(fits)
        ) / (2 * Y.size),
        lambda U: problem.lam * sum(cp.sum(cp.norm(u, 2, axis=1)) for u in U),
    )  # fmt: skip
    assert solution.certificate.objective == pytest.approx(value, rel=1e-6)
    assert solution.certificate.lower_bound <= value * (1 + 1e-8)
    assert not solution.certificate.proven
    assert solution.certificate.caveats == ("'squared hinge' does not declare its rounding errors",)


@pytest.mark.parametrize("kind", KINDS)
def test_an_own_loss_goes_through_every_part(kind, tmp_path):
    problem = hinge_problem(kind)
    assert "loss 'squared hinge'" in repr(problem)
    tol = {"gated": 1e-4, "relu": 1e-2}[kind]  # without a Hessian, cones take long
    path = cvxnn.path(problem, n_lams=3, tol=tol, checkpoint=tmp_path / "path")
    assert path.complete
    last = path[-1]
    assert cvxnn.certify(last.problem, last.weights, last.dual).relative_gap <= tol
    X, Y = problem.operator.rows(), problem.loss.Y[:, 0]
    value = last.network().objective(X, Y, last.problem.lam, loss=SquaredHinge())
    assert value == pytest.approx(last.certificate.objective, rel=1e-9)
    again = cvxnn.path(problem, n_lams=3, tol=tol, checkpoint=tmp_path / "path")
    assert np.array_equal(again[-1].weights, last.weights)


def test_settings_of_an_own_loss_are_part_of_a_checkpoint(tmp_path):
    grid = [0.02, 0.01]
    cvxnn.path(hinge_problem(margin=1.0), lams=grid, checkpoint=tmp_path / "path")
    with pytest.raises(cvxnn.CheckpointError, match="belongs to another problem"):
        cvxnn.path(hinge_problem(margin=0.5), lams=grid, checkpoint=tmp_path / "path")


def test_an_own_loss_says_what_it_lacks():
    problem = hinge_problem()
    message = "'newton' does not handle C-GReLU with loss 'squared hinge'.*use one of: rfista$"
    with pytest.raises(ValueError, match=message):
        cvxnn.solve(problem, "newton")
    with pytest.raises(ValueError, match="'cvxpy' does not handle"):
        cvxnn.solve(problem, "cvxpy")
    with pytest.raises(NotImplementedError, match="loss 'squared hinge'"):
        cvxnn.verify(cvxnn.solve(problem))
    with pytest.raises(ValueError, match=r"'squared hinge' has no output bias: .*best_intercept"):
        hinge_problem(output_bias=True)


def test_a_loss_that_inherits_a_name_goes_by_that_of_its_class():
    """It must not be mistaken for its parent: what is known about that may not hold."""

    class Sharper(Huber):
        pass

    problem = make_problem(loss=Sharper(0.5))
    solution = cvxnn.solve(problem)
    assert (problem.loss_name, solution.solver.name) == ("Sharper", "newton")
    assert solution.certificate.proven  # its bounds are those of the class that it is bound to
    with pytest.raises(NotImplementedError, match="loss 'Sharper'"):
        cvxnn.verify(solution)


# ---- a user's own penalty ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_subclass_of_a_penalty_is_solved_as_that_is(kind):
    own = make_problem(penalty=MyNeurons(), C=2)
    plain = make_problem(penalty="neuron", C=2)
    if kind == "relu":
        own, plain = cvxnn.CReLU.from_gated(own), cvxnn.CReLU.from_gated(plain)
    assert own.penalty_name == "MyNeurons"
    one, two = cvxnn.solve(own, tol=1e-6), cvxnn.solve(plain, tol=1e-6)
    assert one.solver.name == "newton"
    assert np.array_equal(one.weights, two.weights)
    assert one.certificate == two.certificate
    assert one.network().n_neurons == two.network().n_neurons
    assert type(cvxnn.path(own, n_lams=2)[-1].problem.penalty) is MyNeurons
    others = {
        "gated": "newton, working-sets, stochastic, rfista",
        "relu": "newton, working-sets, al, decomposition",
    }[kind]
    with pytest.raises(ValueError, match=f"penalty 'MyNeurons'.*use one of: {others}$"):
        cvxnn.solve(own, "cvxpy")


def weighted_problem(weights, C=1, share=0.1):
    problem = make_problem(p=8, C=C, penalty=WeightedNeurons(weights))
    return problem.with_lam(share * cvxnn.lambda_max(problem))


@pytest.mark.parametrize("C", [1, 2])
def test_an_own_penalty_reaches_the_optimum(C):
    weights = np.linspace(0.5, 2.0, 8)
    problem = weighted_problem(weights, C)
    solution = cvxnn.solve(problem, tol=1e-7)
    assert (solution.solver.name, solution.converged) == ("rfista", True)
    value = oracle_value(
        problem,
        squares(problem),
        lambda U: problem.lam * sum(weights @ cp.norm(u, 2, axis=1) for u in U),
    )
    assert solution.certificate.objective == pytest.approx(value, rel=1e-6)
    assert solution.certificate.lower_bound <= value * (1 + 1e-8)
    caveat = "'WeightedNeurons' does not declare its rounding errors"
    assert solution.certificate.caveats == (caveat,)


def test_an_own_penalty_goes_through_every_part(tmp_path):
    weights = np.linspace(0.5, 2.0, 8)
    problem = weighted_problem(weights)
    assert cvxnn.solve(problem.with_lam(1.001 * cvxnn.lambda_max(problem))).n_active == 0
    assert cvxnn.solve(problem.with_lam(0.98 * cvxnn.lambda_max(problem))).n_active > 0
    path = cvxnn.path(problem, n_lams=4, tol=1e-4, checkpoint=tmp_path / "path")
    assert path.complete
    last = path[-1]
    assert cvxnn.certify(last.problem, last.weights, last.dual).relative_gap <= 1e-4
    X = problem.operator.rows()
    np.testing.assert_allclose(
        last.network().predict(X), problem.operator.forward(last.weights)[:, 0], atol=1e-12
    )
    lams = path.lams
    with pytest.raises(cvxnn.CheckpointError, match="belongs to another problem"):
        cvxnn.path(weighted_problem(2 * weights), lams=lams, checkpoint=tmp_path / "path")


def test_no_strength_of_an_own_penalty_is_no_penalty_and_is_not_for_ever():
    problem = weighted_problem(np.ones(8)).with_lam(0)
    assert isinstance(problem.penalty, NoPenalty)
    assert cvxnn.solve(problem).solver.name == "direct"
    back = problem.with_lam(0.25)
    assert isinstance(back.penalty, WeightedNeurons)
    assert back.penalty.lam == 0.25


def test_cones_are_for_the_norms_of_neurons():
    with pytest.raises(ValueError, match="the gated problem has 'WeightedNeurons'"):
        cvxnn.CReLU.from_gated(weighted_problem(np.ones(8)))
    assert cvxnn.CReLU.from_gated(make_problem(penalty=NoPenalty(), share=0)).lam == 0


def test_a_penalty_without_a_dual_norm_has_no_lambda_max():
    class Ridge(L2):
        pass

    X, y = make_data(30, 3)
    problem = cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, 6, random_state=0), 0.1, penalty=Ridge())
    for ask in (cvxnn.lambda_max, cvxnn.path):
        with pytest.raises(ValueError, match="penalty 'Ridge' has no lambda_max"):
            ask(problem)
    assert cvxnn.solve(problem).solver.name == "direct"


# ---- what a subclass inherits ------------------------------------------------------------------


class HalfNeurons(NeuronGroups):
    """lam/2 sum ||U_i^k||. What is declared for twice that would be wrong here."""

    def group_norms(self, U):
        return super().group_norms(U) / 2

    def prox(self, U, step):
        return NeuronGroups(self.lam / 2).prox(U, step)

    def min_norm_subgradient(self, U, gradient):
        return NeuronGroups(self.lam / 2).min_norm_subgradient(U, gradient)

    def dual_norm(self, G):
        return 2 * NeuronGroups().dual_norm(G)  # half a norm has twice its dual norm


class DoubledLoss(cvxnn.losses.SquaredLoss):
    """2 f for the squared loss f, with the conjugate 2 f*(Theta/2)."""

    def value(self, Z):
        return 2 * super().value(Z)

    def gradient(self, Z):
        return 2 * super().gradient(Z)

    def bregman(self, Z_new, Z):
        return 2 * super().bregman(Z_new, Z)

    def best_dual(self, Theta, limit, quadratic):
        tau, value = super().best_dual(Theta / 2, limit, quadratic / 2)
        return tau, 2 * value


class Doubled(LossChoice):
    name, bound = "doubled", DoubledLoss


def test_another_formula_inherits_no_declarations():
    assert (MyNeurons.neuron_norms, MyNeurons.declares_rounding) == (True, True)
    assert (HalfNeurons.neuron_norms, HalfNeurons.declares_rounding) == (False, False)

    class OtherAxes(NeuronGroups):
        axes = (1, 2)

    assert (OtherAxes.neuron_norms, OtherAxes.declares_rounding) == (False, True)
    for quality in ("declares_rounding", "affine_gradient", "least_squares", "has_root"):
        assert getattr(DoubledLoss, quality) is False

    class Declared(DoubledLoss):
        declares_rounding = affine_gradient = True

        def value(self, Z):
            return super().value(Z)

    assert Declared.declares_rounding
    assert Declared.affine_gradient


def test_twice_the_loss_and_half_the_penalty_are_solved_as_what_they_are():
    """No formula of their parent classes is used, and nothing is called proven."""
    plain = make_problem()
    reference = cvxnn.solve(plain, tol=1e-8).certificate
    half = make_problem(penalty=HalfNeurons()).with_lam(2 * plain.lam)
    assert cvxnn.lambda_max(half) == pytest.approx(2 * cvxnn.lambda_max(plain))
    doubled = make_problem(loss=Doubled()).with_lam(2 * plain.lam)
    for problem, factor in ((half, 1), (doubled, 2)):
        solution = cvxnn.solve(problem, tol=1e-7)
        assert solution.solver.name == "rfista"
        assert solution.converged
        assert not solution.certificate.proven
        assert solution.certificate.objective == pytest.approx(factor * reference.objective)
    ridge = cvxnn.CGReLU(plain.operator.rows(), plain.loss.Y, plain.patterns, 0.1, loss=Doubled(),
                         penalty="l2")  # fmt: skip
    assert cvxnn.solve(ridge).solver.name == "rfista"  # no least squares


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": Huber}, r"loss must be .*, got the class Huber: write Huber\(...\)"),
        ({"penalty": L1}, r"penalty must be .*, got the class L1: write L1\(...\)"),
        ({"loss": 3}, r"loss must be one of \['squared', .* method 'bind', got int"),
        ({"penalty": None}, r"penalty must be one of \['neuron', .*'with_lam', got None"),
        ({"loss": Huber(0.5), "huber_delta": 0.3}, r"huber_delta is for loss='huber', .*Huber\("),
    ],
    ids=["loss class", "penalty class", "loss number", "penalty None", "two deltas"],
)
def test_what_is_neither_a_name_nor_an_object_is_refused(settings, message):
    with pytest.raises(TypeError, match=message):
        make_problem(**settings)


@pytest.mark.parametrize("delta", [0.0, -1.0, np.nan])
def test_the_delta_of_a_huber_is_positive(delta):
    with pytest.raises(ValueError, match="delta"):
        Huber(delta)


def test_a_penalty_that_is_none_has_no_strength():
    with pytest.raises(ValueError, match=r"lam must be 0, got 0\.1"):
        make_problem(penalty=NoPenalty(), share=0.1)
