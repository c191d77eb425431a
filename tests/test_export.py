"""Exported networks compute what the network does, in torch and in onnxruntime."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import cvxnn
from cvxnn import GatedReLUNetwork, ReLUNetwork
from extras import required

onnx = required("onnx")
onnxruntime = required("onnxruntime")
torch = required("torch")

D = 4


def make_network(kind="relu", m=9, C=3, b1=True, b2=True, seed=0, **flags):
    rng = np.random.default_rng(seed)
    layers = {
        "W1": rng.standard_normal((m, D)),
        "W2": rng.standard_normal((m, C)),
        "b1": rng.standard_normal(m) if b1 else None,
        "b2": rng.standard_normal(C) if b2 else None,
    }
    if kind == "relu":
        return ReLUNetwork(**layers, **flags)
    gates, gate_bias = rng.standard_normal((D, m)), rng.standard_normal(m)
    strict = kind == "strict"
    return GatedReLUNetwork(gates=gates, gate_bias=gate_bias, strict=strict, **layers, **flags)


KINDS = ("relu", "gated", "strict")
NETWORKS = {
    f"{kind}, {name}": make_network(kind, **settings)
    for kind in KINDS
    for name, settings in {
        "plain": {},
        "no b1": {"b1": False},
        "no b2": {"b2": False},
        "no bias": {"b1": False, "b2": False},
        "no neurons": {"m": 0},
        "no neurons, no bias": {"m": 0, "b1": False, "b2": False},
        "one output": {"C": 1},
        "flat": {"C": 1, "flat_output": True},
    }.items()
}
networks = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
kinds = pytest.mark.parametrize("kind", KINDS)
LINKED = [(kind, link) for kind in KINDS for link in ("logistic", "softmax")]
linked = pytest.mark.parametrize(("kind", "link"), LINKED)


def make_rows(n=50, dtype=np.float64):
    return np.random.default_rng(7).standard_normal((n, D)).astype(dtype)


def expected(network, X):
    """By the definition, with outputs (n, C)."""
    pre = X @ network.W1.T + (0 if network.b1 is None else network.b1)
    if isinstance(network, ReLUNetwork):
        on = pre > 0
    else:
        gate = X @ network.gates + network.gate_bias
        on = gate > 0 if network.strict else gate >= 0
    return (on * pre) @ network.W2 + (0 if network.b2 is None else network.b2)


def probabilities(Z):
    """Of the classes: -1 and +1 for a single score."""
    scores = np.column_stack([np.zeros(len(Z)), Z]) if Z.shape[1] == 1 else Z
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def run(path, X):
    """The outputs of an ONNX model by name."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


# ----------------------------------------------------------------------------------- torch


@networks
def test_torch_modules_predict_the_same(network):
    X = make_rows()
    with torch.no_grad():
        Z = network.to_torch()(torch.tensor(X)).numpy()
    assert Z.dtype == np.float64
    assert Z.shape == (50, network.n_outputs)
    np.testing.assert_allclose(Z, expected(network, X), atol=1e-12)
    np.testing.assert_allclose(Z.reshape(network.predict(X).shape), network.predict(X), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, "float32"])
@kinds
def test_torch_modules_in_single_precision(kind, dtype):
    network, X = make_network(kind), make_rows(dtype=np.float32)
    module = network.to_torch(dtype=dtype)
    tensors = [*module.parameters(), *module.buffers()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    Z = module(torch.tensor(X)).detach().numpy()
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, expected(network, X.astype(np.float64)), atol=1e-5)


def test_relu_networks_become_the_layers_everyone_knows():
    module = make_network().to_torch()
    assert type(module) is torch.nn.Sequential
    assert [type(layer) for layer in module] == [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]
    assert (module[0].in_features, module[0].out_features) == (D, 9)
    assert (module[2].in_features, module[2].out_features) == (9, 3)
    assert make_network(b1=False).to_torch()[0].bias is None
    assert make_network(b2=False).to_torch()[2].bias is None


@linked
def test_torch_links_append_a_module(kind, link):
    network, X = make_network(kind, C=1 if link == "logistic" else 3), make_rows()
    module = network.to_torch(link=link)
    last = torch.nn.Sigmoid if link == "logistic" else torch.nn.Softmax
    assert type(module[-1]) is last
    P = probabilities(expected(network, X))
    got = module(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(got, P[:, 1:] if link == "logistic" else P, atol=1e-12)


@pytest.mark.parametrize("compiler", ["script", "trace"])
@pytest.mark.parametrize("link", [None, "softmax"])
@kinds
def test_torch_modules_script_and_trace(kind, link, compiler, tmp_path):
    module, X = make_network(kind).to_torch(link=link), torch.tensor(make_rows())
    script = compiler == "script"
    compiled = torch.jit.script(module) if script else torch.jit.trace(module, X[:2])
    compiled.save(tmp_path / "module.pt")
    loaded = torch.jit.load(tmp_path / "module.pt")
    torch.testing.assert_close(loaded(X), module(X), rtol=0, atol=1e-14)


@kinds
def test_torch_state_goes_from_module_to_module(kind, tmp_path):
    module, other = (make_network(kind, seed=seed).to_torch() for seed in (0, 1))
    X = torch.tensor(make_rows())
    assert not torch.allclose(module(X), other(X))
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.testing.assert_close(module(X), other(X), rtol=0, atol=0)


@kinds
def test_torch_modules_train_without_touching_network_or_gates(kind):
    network, X = make_network(kind), make_rows()
    before, module = network.predict(X), network.to_torch()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    gates = [buffer.clone() for buffer in module.buffers()]
    losses = []
    for _ in range(20):
        loss = (module(torch.tensor(X)) ** 2).mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_array_equal(network.predict(X), before)
    for old, new in zip(gates, module.buffers(), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0)


def test_torch_export_leaves_the_random_generator_alone():
    state = torch.random.get_rng_state()
    make_network("gated").to_torch()
    assert torch.equal(state, torch.random.get_rng_state())


# ------------------------------------------------------------------------------------ ONNX


@networks
def test_onnx_models_predict_the_same(network, path):
    network.to_onnx(path)
    X = make_rows()
    outputs = run(path, X)
    assert list(outputs) == ["prediction"]
    Z = outputs["prediction"]
    assert Z.dtype == np.float64
    assert Z.shape == (50, network.n_outputs)
    np.testing.assert_allclose(Z, expected(network, X), atol=1e-12)
    np.testing.assert_allclose(Z.reshape(network.predict(X).shape), network.predict(X), atol=1e-12)


@linked
@pytest.mark.parametrize("m", [0, 9])
def test_onnx_probabilities(kind, link, m, path):
    network, X = make_network(kind, m=m, C=1 if link == "logistic" else 3), make_rows()
    network.to_onnx(path, link=link)
    outputs = run(path, X)
    assert list(outputs) == ["prediction", "probabilities"]
    Z = expected(network, X)
    np.testing.assert_allclose(outputs["prediction"], Z, atol=1e-12)
    np.testing.assert_allclose(outputs["probabilities"], probabilities(Z), atol=1e-12)


def test_small_probabilities_do_not_round_to_zero(path):
    ReLUNetwork(W1=[[1.0]], W2=[[1.0]]).to_onnx(path, link="logistic")
    P = run(path, np.array([[50.0]]))["probabilities"]
    np.testing.assert_allclose(P, [[np.exp(-50), 1]], rtol=1e-12)


@kinds
def test_onnx_models_in_single_precision(kind, path):
    network, X = make_network(kind), make_rows(dtype=np.float32)
    network.to_onnx(path, link="softmax", dtype="float32")
    outputs = run(path, X)
    assert {output.dtype for output in outputs.values()} == {np.dtype(np.float32)}
    Z = expected(network, X.astype(np.float64))
    np.testing.assert_allclose(outputs["prediction"], Z, atol=1e-5)
    np.testing.assert_allclose(outputs["probabilities"], probabilities(Z), atol=1e-5)


@kinds
def test_onnx_models_take_any_number_of_rows(kind, path):
    network = make_network(kind)
    network.to_onnx(path)
    for n in (1, 2, 333):
        X = make_rows(n)
        np.testing.assert_allclose(run(path, X)["prediction"], expected(network, X), atol=1e-12)


@pytest.mark.parametrize(("strict", "value"), [(False, 2.0), (True, 0.0)])
def test_rows_on_a_gate_are_switched_as_in_the_network(strict, value, path):
    network = GatedReLUNetwork(
        gates=[[1.0], [-1.0]], gate_bias=[0.0], W1=[[1.0, 1.0]], W2=[[1.0]], strict=strict
    )
    tie = np.array([[1.0, 1.0]])
    assert network.predict(tie).item() == value
    network.to_onnx(path)
    assert run(path, tie)["prediction"].item() == value
    assert network.to_torch()(torch.tensor(tie)).item() == value


@kinds
def test_onnx_models_are_sound_and_say_where_they_come_from(kind, path):
    network = make_network(kind)
    network.to_onnx(path, link="softmax")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.producer_version) == ("cvxnn", cvxnn.__version__)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about == {"producer": "cvxnn", "version": cvxnn.__version__, "kind": network.kind}
    # fixed, so that a newer onnx writes nothing that an older runtime refuses
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    shapes = {
        info.name: [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in [*model.graph.input, *model.graph.output]
    }
    assert shapes == {"X": ["n", D], "prediction": ["n", 3], "probabilities": ["n", 3]}


def test_equal_networks_give_equal_files(path):
    make_network("gated").to_onnx(path)
    first = path.read_bytes()
    make_network("gated").to_onnx(str(path))
    assert path.read_bytes() == first
    assert os.listdir(path.parent) == [path.name]


def test_a_failed_export_leaves_the_old_file_and_nothing_else(path):
    make_network().to_onnx(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="link"):
        make_network().to_onnx(path, link="logistic")
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing to write m\.onnx"):
        make_network().to_onnx(path.parent / "missing" / "m.onnx")


# --------------------------------------------------------------------------------- refusals


@pytest.fixture(params=["torch", "onnx"])
def export(request, path):
    """Export a network to either format."""

    def to_format(network, **settings):
        if request.param == "torch":
            return network.to_torch(**settings)
        return network.to_onnx(path, **settings)

    return to_format


@pytest.mark.parametrize(
    ("C", "settings", "error", "message"),
    [
        (3, {"link": "logistic"}, ValueError, "^link 'logistic' needs one output, .* has 3$"),
        (1, {"link": "softmax"}, ValueError, "^link 'softmax' needs at least two outputs"),
        (3, {"link": "sofmax"}, ValueError, "^unknown link 'sofmax'; did you mean 'softmax'"),
        (3, {"link": True}, TypeError, "^link must be one of"),
        (3, {"dtype": "float16"}, ValueError, "^unknown dtype 'float16'.*float64, float32"),
        (3, {"dtype": torch.bfloat16}, ValueError, "^unknown dtype 'bfloat16'"),
    ],
)
def test_bad_settings_are_refused(export, C, settings, error, message):
    with pytest.raises(error, match=message):
        export(make_network(C=C), **settings)


def test_weights_beyond_single_precision_are_refused(export):
    network = ReLUNetwork(W1=[[1e39]], W2=[[1e-39]], b2=[1.0])
    with pytest.raises(ValueError, match=r"^W1 holds numbers too large for float32"):
        export(network, dtype="float32")


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("torch", "network.to_torch()", "to_torch needs PyTorch: pip install 'cvxnn[torch]'"),
        ("onnx", "network.to_onnx('m')", "to_onnx needs onnx: pip install 'cvxnn[onnx]'"),
        ("torch", "cvxnn.ReLUNetwork.from_torch(1)", "PyTorch: pip install 'cvxnn[torch]'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package, call, message, tmp_path):
    program = f"""
import sys
import cvxnn
network = cvxnn.ReLUNetwork(W1=[[1.0]], W2=[[1.0]])
assert not {{"torch", "onnx"}} & set(sys.modules)
sys.modules[{package!r}] = None
try:
    {call}
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert message in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []
