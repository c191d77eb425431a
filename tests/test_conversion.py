"""Networks of torch and scikit-learn: the same function here, or refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline

import cvxnn
from cvxnn import ReLUNetwork
from extras import required

torch = required("torch")
Linear, ReLU, Sequential = torch.nn.Linear, torch.nn.ReLU, torch.nn.Sequential

D = 4


def make_rows(n=50):
    return np.random.default_rng(7).standard_normal((n, D))


def layers(m=6, C=3, b1=True, b2=True, dtype=torch.float64):
    torch.manual_seed(0)
    return [Linear(D, m, bias=b1, dtype=dtype), ReLU(), Linear(m, C, bias=b2, dtype=dtype)]


def outputs(module, X):
    with torch.no_grad():
        return module(torch.tensor(X)).numpy()


class Custom(torch.nn.Module):
    """Modules with a `forward` of their own; the tests put other functions around the layers."""

    def __init__(self, before=lambda x: x, after=lambda z: z, **settings):
        super().__init__()
        self.first, self.relu, self.second = layers(**settings)
        self.before, self.after = before, after

    def forward(self, x):
        return self.after(self.second(self.relu(self.first(self.before(x)))))


# ----------------------------------------------------------------------------------- torch

MODULES = {
    "plain": Sequential(*layers()),
    "no first bias": Sequential(*layers(b1=False)),
    "no second bias": Sequential(*layers(b2=False)),
    "no bias": Sequential(*layers(b1=False, b2=False)),
    "one output": Sequential(*layers(C=1)),
    "one neuron": Sequential(*layers(m=1)),
    "nested": Sequential(Sequential(*layers()[:2]), Sequential(Sequential(layers()[2]))),
    "a class": Custom(),
    "in training mode": Sequential(*layers()).train(),
    "frozen": Sequential(*layers()).requires_grad_(False),
}


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_torch_modules_become_the_same_function(module):
    network, X = ReLUNetwork.from_torch(module), make_rows()
    Z = outputs(module, X)
    assert type(network) is ReLUNetwork
    assert network.predict(X).shape == Z.shape
    np.testing.assert_allclose(network.predict(X), Z, atol=1e-12)
    first, second = (part for part in module.modules() if isinstance(part, Linear))
    assert (network.b1 is None) == (first.bias is None)
    assert (network.b2 is None) == (second.bias is None)


def test_one_layer_may_be_used_twice():
    square = Linear(D, D, dtype=torch.float64)
    module, X = Sequential(square, ReLU(), square), make_rows()
    np.testing.assert_allclose(ReLUNetwork.from_torch(module).predict(X), outputs(module, X))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_weights_of_any_precision_are_taken_as_they_are(dtype):
    module, X = Sequential(*layers(dtype=dtype)), make_rows()
    network = ReLUNetwork.from_torch(module)
    assert network.W1.dtype == np.float64
    assert module[0].weight.dtype == dtype  # the module stays as it was
    np.testing.assert_allclose(network.predict(X), outputs(module.double(), X), atol=1e-12)


def test_constant_and_dead_neurons_are_kept():
    module, X = Sequential(*layers(m=3)), make_rows()
    with torch.no_grad():
        module[0].weight[:2] = 0
        module[0].bias[:2] = torch.tensor([2.0, -1.0])
    network = ReLUNetwork.from_torch(module)
    assert network.n_neurons == 3
    np.testing.assert_allclose(network.predict(X), outputs(module, X), atol=1e-12)
    assert network.balanced().n_neurons == 3
    np.testing.assert_allclose(network.balanced().predict(X), outputs(module, X), atol=1e-12)


def test_the_network_does_not_follow_the_module():
    module, X = Sequential(*layers()), make_rows()
    network = ReLUNetwork.from_torch(module)
    before = network.predict(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1.0
    np.testing.assert_array_equal(network.predict(X), before)


def test_the_module_is_not_changed():
    module = Custom(dtype=torch.float32).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    ReLUNetwork.from_torch(module)
    assert module.training
    assert module.first.weight.dtype == torch.float32
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_module_is_taken_as_it_is_after_training():
    class WithDropout(Custom):
        def forward(self, x):
            return super().forward(torch.nn.functional.dropout(x, training=self.training))

    module, X = WithDropout().train(), make_rows()
    network = ReLUNetwork.from_torch(module)
    np.testing.assert_allclose(network.predict(X), outputs(module.eval(), X), atol=1e-12)


@pytest.mark.parametrize("m", [0, 5])
@pytest.mark.parametrize("bias", [False, True])
def test_there_and_back(m, bias):
    rng = np.random.default_rng(0)
    network = ReLUNetwork(
        W1=rng.standard_normal((m, D)),
        W2=rng.standard_normal((m, 2)),
        b1=rng.standard_normal(m) if bias else None,
        b2=rng.standard_normal(2) if bias else None,
    )
    back, X = ReLUNetwork.from_torch(network.to_torch()), make_rows()
    np.testing.assert_allclose(back.predict(X), network.predict(X), atol=1e-12)
    assert (back.b1 is None, back.b2 is None) == (not bias, not bias)


OTHER_LAYERS = {
    "Linear": layers()[0],
    "Linear, Linear": Sequential(layers()[0], layers()[2]),
    "Linear, ReLU": Sequential(*layers()[:2]),
    "Linear, Tanh, Linear": Sequential(layers()[0], torch.nn.Tanh(), layers()[2]),
    "Linear, ReLU, Linear, Softmax": Sequential(*layers(), torch.nn.Softmax(dim=1)),
    "Flatten, Linear, ReLU, Linear": Sequential(torch.nn.Flatten(), *layers()),
    "Linear, ReLU, Linear, ReLU, Linear": Sequential(*layers(C=4), ReLU(), Linear(4, 1)),
    "LazyLinear, ReLU, Linear": Sequential(torch.nn.LazyLinear(6), *layers()[1:]),
    "Sequential": Sequential(),
}


@pytest.mark.parametrize(("found", "module"), OTHER_LAYERS.items(), ids=OTHER_LAYERS)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_modules_of_other_layers_are_refused_by_name(found, module):
    with pytest.raises(ValueError, match=f"made of Linear, ReLU, Linear; found {found}$"):
        ReLUNetwork.from_torch(module)


OTHER_FUNCTIONS = {
    "tanh of the inputs": Custom(torch.tanh),
    "a link": Custom(after=lambda z: torch.softmax(z, dim=1)),
    "a small shift": Custom(after=lambda z: z + 1e-6),
    "clipped": Custom(before=lambda x: x.clamp(-100, 100)),
    "another shape": Custom(C=1, after=lambda z: z[:, 0]),
    "not a number": Custom(after=lambda z: z * torch.nan),
    "random": Custom(lambda x: torch.nn.functional.dropout(x, training=True)),
}


@pytest.mark.parametrize("module", OTHER_FUNCTIONS.values(), ids=OTHER_FUNCTIONS)
def test_modules_that_do_more_than_their_layers_are_refused(module):
    message = r"computes something else than Linear, ReLU, Linear; pass torch\.nn\.Sequential"
    with pytest.raises(ValueError, match=message):
        ReLUNetwork.from_torch(module)
    advice = Sequential(module.first, module.relu, module.second)
    np.testing.assert_allclose(
        ReLUNetwork.from_torch(advice).predict(make_rows()), outputs(advice, make_rows())
    )


@pytest.mark.parametrize(
    "module",
    [
        Custom(before=lambda x: x.reshape(7, -1)),
        Custom(before=lambda x: x.no_such_attribute),
        Custom(after=lambda z: (z, z)),
    ],
    ids=["reshape", "attribute", "tuple"],
)
def test_modules_that_do_not_take_rows_are_refused(module):
    with pytest.raises(ValueError, match="module does not turn rows of features into outputs"):
        ReLUNetwork.from_torch(module)


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match=r"do not fit together: the first has 6 outputs, the second 5"
    ):
        ReLUNetwork.from_torch(Sequential(Linear(D, 6), ReLU(), Linear(5, 1)))


def test_weights_that_are_not_finite_are_refused():
    module = Sequential(*layers())
    with torch.no_grad():
        module[2].bias[1] = torch.nan
    with pytest.raises(ValueError, match="b2 holds NaN or infinity"):
        ReLUNetwork.from_torch(module)


@pytest.mark.parametrize("other", [5, None, np.ones((2, 2)), "module"])
def test_what_is_no_module_is_refused(other):
    with pytest.raises(TypeError, match=r"module must be a torch\.nn\.Module, got"):
        ReLUNetwork.from_torch(other)


# ---------------------------------------------------------------------------- scikit-learn


def fitted(cls, target, hidden=(7,), **settings):
    """An estimator after a few steps, on targets of the given kind."""
    X = make_rows(60)
    targets = {
        "numbers": X[:, 0] ** 2,
        "two numbers": X[:, :2] ** 2,
        "counts": np.round(X[:, 0] ** 2),
        "two classes": np.where(X[:, 0] > 0, "yes", "no"),
        "three classes": np.digitize(X[:, 0], [-0.5, 0.5]),
        "labels": (X[:, :3] > 0).astype(int),
    }
    mlp = cls(hidden_layer_sizes=hidden, max_iter=30, random_state=0, **settings)
    with pytest.warns(ConvergenceWarning):
        return mlp.fit(X, targets[target])


@pytest.mark.parametrize("target", ["numbers", "two numbers"])
def test_regressors_become_the_same_function(target):
    mlp, X = fitted(MLPRegressor, target), make_rows()
    network = ReLUNetwork.from_sklearn(mlp)
    assert network.n_neurons == 7
    assert network.predict(X).shape == mlp.predict(X).shape
    np.testing.assert_allclose(network.predict(X), mlp.predict(X), atol=1e-12)


def test_two_classes_have_one_logit():
    mlp, X = fitted(MLPClassifier, "two classes"), make_rows()
    network = ReLUNetwork.from_sklearn(mlp)
    Z = network.predict(X)
    assert Z.shape == (50,)
    assert np.ptp(Z) > 0.1
    np.testing.assert_allclose(1 / (1 + np.exp(-Z)), mlp.predict_proba(X)[:, 1], atol=1e-12)


def test_several_classes_have_a_logit_each():
    mlp, X = fitted(MLPClassifier, "three classes"), make_rows()
    Z = ReLUNetwork.from_sklearn(mlp).predict(X)
    powers = np.exp(Z)
    P = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(P, mlp.predict_proba(X), atol=1e-12)
    # the softmax would hide a common shift of all logits, the weights do not
    hidden = np.maximum(X @ mlp.coefs_[0] + mlp.intercepts_[0], 0)
    np.testing.assert_allclose(Z, hidden @ mlp.coefs_[1] + mlp.intercepts_[1], atol=1e-12)


def test_labels_have_a_logit_each():
    mlp, X = fitted(MLPClassifier, "labels"), make_rows()
    Z = ReLUNetwork.from_sklearn(mlp).predict(X)
    np.testing.assert_allclose(1 / (1 + np.exp(-Z)), mlp.predict_proba(X), atol=1e-12)


def test_poisson_regressors_become_logarithms():
    mlp, X = fitted(MLPRegressor, "counts", loss="poisson"), make_rows()
    network = ReLUNetwork.from_sklearn(mlp)
    np.testing.assert_allclose(np.exp(network.predict(X)), mlp.predict(X), rtol=1e-12)


def test_constant_neurons_of_scikit_learn_are_kept():
    mlp, X = fitted(MLPRegressor, "numbers"), make_rows()
    mlp.coefs_[0][:, 2], mlp.intercepts_[0][2] = 0.0, 3.0
    network = ReLUNetwork.from_sklearn(mlp)
    assert network.n_neurons == 7
    np.testing.assert_allclose(network.predict(X), mlp.predict(X), atol=1e-12)


def test_the_network_does_not_follow_the_estimator():
    mlp, X = fitted(MLPRegressor, "numbers"), make_rows()
    network = ReLUNetwork.from_sklearn(mlp)
    before = network.predict(X)
    for array in (*mlp.coefs_, *mlp.intercepts_):
        array += 1.0
    np.testing.assert_array_equal(network.predict(X), before)


def test_estimators_that_are_not_fitted_are_refused():
    with pytest.raises(NotFittedError, match="MLPRegressor instance is not fitted yet"):
        ReLUNetwork.from_sklearn(MLPRegressor())


def test_several_or_other_layers_are_refused():
    with pytest.raises(ValueError, match="mlp must have one hidden layer, got 2"):
        ReLUNetwork.from_sklearn(fitted(MLPRegressor, "numbers", hidden=(3, 3)))
    with pytest.raises(ValueError, match="mlp must have one hidden layer, got 0"):
        ReLUNetwork.from_sklearn(fitted(MLPRegressor, "numbers", hidden=()))
    with pytest.raises(ValueError, match="mlp must have activation='relu', got 'tanh'"):
        ReLUNetwork.from_sklearn(fitted(MLPRegressor, "numbers", activation="tanh"))


@pytest.mark.parametrize(
    "other", [LogisticRegression(), make_pipeline(MLPClassifier()), MLPClassifier, None]
)
def test_other_estimators_are_refused(other):
    with pytest.raises(TypeError, match="mlp must be an MLPClassifier or MLPRegressor, got"):
        ReLUNetwork.from_sklearn(other)


def test_converted_networks_are_networks_like_any_other(tmp_path):
    X = make_rows()
    network = ReLUNetwork.from_sklearn(fitted(MLPRegressor, "two numbers"))
    network.save(tmp_path / "m.cvxnn")
    np.testing.assert_array_equal(cvxnn.load(tmp_path / "m.cvxnn").predict(X), network.predict(X))
    np.testing.assert_allclose(network.merged(X).predict(X), network.predict(X), atol=1e-10)
