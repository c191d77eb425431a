"""Model files: what is written comes back exactly, what is damaged or foreign is refused with the
reason, and a failed write leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import struct
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as serialize

import cvxnn
from cvxnn import GatedReLUNetwork, ModelFileError
from cvxnn.modelfile import FORMAT, VERSION

PARTS = ("gates", "gate_bias", "W1", "b1", "W2", "b2")


def make_network(m=3, d=2, C=2, bias=True, b2=True, **flags):
    rng = np.random.default_rng(0)
    return GatedReLUNetwork(
        gates=rng.standard_normal((d, m)),
        gate_bias=rng.standard_normal(m),
        W1=rng.standard_normal((m, d)),
        b1=rng.standard_normal(m) if bias else None,
        W2=rng.standard_normal((m, C)),
        b2=rng.standard_normal(C) if b2 else None,
        **flags,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cvxnn"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a sound model file."""
    path = tmp_path_factory.mktemp("sound") / "model.cvxnn"
    make_network().save(path)
    return path.read_bytes()


def header_length(content):
    return int.from_bytes(content[:8], "little")


def split(content):
    """The safetensors header as a dictionary, and the bytes of the tensors."""
    end = 8 + header_length(content)
    return json.loads(content[8:end]), content[end:]


def assemble(header, tensors):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + tensors


def with_metadata(content, metadata):
    header, tensors = split(content)
    return assemble(header | {"__metadata__": metadata}, tensors)


def with_fields(content, **changes):
    """The file with other fields in cvxnn's own header; None removes one."""
    fields = json.loads(split(content)[0]["__metadata__"]["cvxnn"]) | changes
    kept = {name: value for name, value in fields.items() if value is not None}
    return with_metadata(content, {"cvxnn": json.dumps(kept)})


def with_tensors(content, **changes):
    """The file with other tensors; None removes one."""
    tensors = parse_tensors(content) | changes
    kept = {name: np.ascontiguousarray(t) for name, t in tensors.items() if t is not None}
    return serialize(kept, split(content)[0]["__metadata__"])


def assert_refused(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=reason) as caught:
        cvxnn.load(path)
    assert str(path) in str(caught.value)


# ------------------------------------------------------------------------------ round trip

# A file as version 1 wrote it.
VERSION_1 = (
    b"\xb8\x01\0\0\0\0\0\0"
    b'{"__metadata__":{"cvxnn":"{\\"format\\": \\"cvxnn-model\\", \\"version\\": 1, '
    b'\\"kind\\": \\"gated-relu\\", \\"strict\\": true, \\"flat_output\\": true}"},'
    b'"W1":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]},'
    b'"W2":{"dtype":"F64","shape":[2,1],"data_offsets":[16,32]},'
    b'"b1":{"dtype":"F64","shape":[2],"data_offsets":[32,48]},'
    b'"gate_bias":{"dtype":"F64","shape":[2],"data_offsets":[48,64]},'
    b'"gates":{"dtype":"F64","shape":[1,2],"data_offsets":[64,80]}}    '
) + np.array([2.0, 3.0, 1.0, 4.0, -1.0, 0.25, 0.5, 0.0, 1.0, -1.0]).tobytes()

NETWORKS = {
    "plain": make_network(),
    "without intercepts": make_network(bias=False),
    "without output bias": make_network(b2=False),
    "without any bias": make_network(bias=False, b2=False),
    "no neurons": make_network(m=0),
    "no neurons, no bias": make_network(m=0, bias=False, b2=False),
    "one of everything": make_network(m=1, d=1, C=1),
    "strict": make_network(strict=True),
    "flat output": make_network(C=1, flat_output=True),
    "flags of NumPy": make_network(C=1, strict=np.True_, flat_output=np.True_),
    "extreme values": GatedReLUNetwork(
        gates=[[1e308, 5e-324]],
        gate_bias=[-0.0, 0.1],
        W1=[[1e-308], [np.pi]],
        b1=None,
        W2=[[1], [2]],
        b2=[-1e308],
    ),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("as_text", [False, True], ids=["Path", "str"])
def test_what_is_saved_comes_back_bit_by_bit(network, path, as_text):
    target = str(path) if as_text else path
    network.save(target)
    loaded = cvxnn.load(target)
    assert type(loaded) is GatedReLUNetwork
    assert (loaded.strict, loaded.flat_output) == (network.strict, network.flat_output)
    for name in PARTS:
        saved, read = getattr(network, name), getattr(loaded, name)
        if saved is None:
            assert read is None
        else:
            assert (read.dtype, read.shape) == (np.float64, saved.shape)
            assert read.tobytes() == np.ascontiguousarray(saved).tobytes()
    assert os.listdir(path.parent) == [path.name]


def test_files_of_version_1_are_still_read(path):
    path.write_bytes(VERSION_1)
    network = cvxnn.load(path)
    assert type(network) is GatedReLUNetwork
    assert network.b2 is None
    assert network.strict
    # 1(x + 0.5 > 0) (2x - 1) + 4 1(-x > 0) (3x + 0.25), row by row
    np.testing.assert_array_equal(network.predict([[1.0], [-2.0], [0.0]]), [1.0, -23.0, -1.0])
    network.save(path)
    assert json.loads(split(path.read_bytes())[0]["__metadata__"]["cvxnn"])["version"] == VERSION
    np.testing.assert_array_equal(cvxnn.load(path).predict([[1.0]]), [1.0])


def test_a_trained_network_predicts_the_same_after_the_round_trip(path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    patterns = cvxnn.sample_patterns(X, 20, bias=True, random_state=0)
    problem = cvxnn.CGReLU(X, y, patterns, lam=0.05, bias=True, normalize=True)
    network = cvxnn.solve(problem).network()
    network.save(path)
    np.testing.assert_array_equal(cvxnn.load(path).predict(X), network.predict(X))


def test_views_and_fortran_order_are_saved_by_value(path):
    network = make_network()
    turned = dataclasses.replace(
        network, gates=np.asfortranarray(network.gates), W1=network.W1[::-1].copy()[::-1]
    )
    turned.save(path)
    np.testing.assert_array_equal(cvxnn.load(path).gates, network.gates)
    np.testing.assert_array_equal(cvxnn.load(path).W1, network.W1)


def test_saving_replaces_an_older_file(path):
    make_network(m=50).save(path)
    with path.open("rb") as reader:
        make_network(m=2).save(path)
        assert len(reader.read()) > path.stat().st_size  # who reads the old file reads all of it
    assert cvxnn.load(path).n_neurons == 2


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_model_files_are_as_readable_as_any_other_new_file(path):
    (path.parent / "other").write_bytes(b"")
    make_network().save(path)
    assert path.stat().st_mode == (path.parent / "other").stat().st_mode


# --------------------------------------------------------------------- foreign and damaged

FOREIGN = {
    "empty": b"",
    "text": b"this is no model\n" * 20,
    "short text": b"model",
    "pickle": pickle.dumps({"W1": np.ones((3, 2))}),
    "zip": b"PK\x03\x04" + bytes(100),
    "zeros": bytes(1000),
    "npy": b"\x93NUMPY\x01\x00v\x00" + bytes(200),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_files_of_other_kinds_are_refused(foreign, path):
    assert_refused(path, foreign, "not a model file, or damaged|but not a cvxnn model")


def test_a_pickle_is_never_executed(path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was executed",))

    assert_refused(path, pickle.dumps(Trap()), "not a model file")


def test_a_plain_safetensors_file_is_refused(path):
    assert_refused(path, serialize({"W1": np.ones(3)}), "but not a cvxnn model")
    network = make_network()
    tensors = {name: getattr(network, name) for name in PARTS}
    assert_refused(path, serialize(tensors), "but not a cvxnn model")
    assert_refused(path, serialize(tensors, {"format": "pt"}), "but not a cvxnn model")


@pytest.mark.parametrize("part", [k / 40 for k in range(40)])
def test_truncated_files_are_refused(content, path, part):
    assert_refused(path, content[: int(part * len(content))], "not a model file, or damaged")


def test_one_byte_less_or_more_is_refused(content, path):
    assert_refused(path, content[:-1], "damaged")
    assert_refused(path, content + b"\0", "damaged")
    assert_refused(path, b"\0" + content, "damaged")


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bits_in_the_header_are_refused(content, path, bit):
    text_end = len(content[: 8 + header_length(content)].rstrip(b" "))
    for position in range(bit % 3, text_end, 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            cvxnn.load(path)


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bits_in_the_numbers_are_refused(content, path, bit):
    for position in range(8 + header_length(content) + bit % 3, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        assert_refused(path, damaged, "do not match their checksum|holds NaN or infinity")


def test_lost_renamed_and_exchanged_tensors_are_noticed(content, path):
    assert_refused(path, with_tensors(content, b2=None), "do not match their checksum")
    make_network(m=2, C=2, bias=False).save(path)
    tensors = parse_tensors(path.read_bytes())
    renamed = with_tensors(path.read_bytes(), b1=tensors["b2"], b2=None)
    assert_refused(path, renamed, "do not match their checksum")
    tensors = parse_tensors(content)
    exchanged = with_tensors(content, W1=tensors["W2"], W2=tensors["W1"])  # of one shape
    assert_refused(path, exchanged, "do not match their checksum")


BAD_FIELDS = {
    "other format": ({"format": "other-model"}, "but not a cvxnn model"),
    "no format": ({"format": None}, "but not a cvxnn model"),
    "newer version": ({"version": VERSION + 1}, f"format version {VERSION + 1}, .* update cvxnn"),
    "far newer version": ({"version": 10**30}, "update cvxnn"),
    "version 1 with b2": ({"version": 1}, r"missing \[\], unknown \['b2'\]"),
    "version 0": ({"version": 0}, "no valid version number: 0"),
    "negative version": ({"version": -1}, "no valid version number: -1"),
    "boolean version": ({"version": True}, "no valid version number: True"),
    "text version": ({"version": "1"}, "no valid version number: '1'"),
    "fractional version": ({"version": 1.0}, r"no valid version number: 1\.0"),
    "no version": ({"version": None}, "no valid version number: None"),
    "no checksum": ({"sha256": None}, "do not match their checksum"),
    "other checksum": ({"sha256": "0" * 64}, "do not match their checksum"),
    "checksum of another type": ({"sha256": [1]}, "do not match their checksum"),
    "unknown kind": ({"kind": "transformer"}, "unknown kind 'transformer'"),
    "no kind": ({"kind": None}, "unknown kind None"),
    "list of kinds": ({"kind": ["gated-relu"]}, "unknown kind"),
    "object as kind": ({"kind": {}}, "unknown kind"),
    "strict is a number": ({"strict": 1}, "strict must be true or false, got 1"),
    "no strict": ({"strict": None}, "strict must be true or false, got None"),
    "flat_output is text": ({"flat_output": "no"}, "flat_output must be true or false"),
    "flat output of two": ({"flat_output": True}, "inconsistent: flat_output needs one output"),
}


@pytest.mark.parametrize(("changes", "reason"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_bad_fields_are_refused(content, path, changes, reason):
    assert_refused(path, with_fields(content, **changes), reason)


BAD_HEADERS = {
    "not JSON": ("{", "damaged header"),
    "empty": ("", "damaged header"),
    "a list": ("[1]", "damaged header: not a JSON object"),
    "a number": ("1", "damaged header: not a JSON object"),
    "null": ("null", "damaged header: not a JSON object"),
    "nested without end": ("[" * 100_000, "damaged header"),
    "endless number": ('{"version": ' + "1" * 10_000 + "}", "damaged header"),
    "fields of no model": ("{}", "but not a cvxnn model"),
}


@pytest.mark.parametrize(("text", "reason"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_headers_that_are_no_object_are_refused(content, path, text, reason):
    assert_refused(path, with_metadata(content, {"cvxnn": text}), reason)


def test_metadata_of_the_wrong_type_are_refused(content, path):
    fields = {"format": FORMAT, "version": VERSION}
    for metadata in ({"cvxnn": fields}, "cvxnn", [], 5):
        assert_refused(path, with_metadata(content, metadata), "damaged|not a cvxnn model")


NAN = np.array([[0.0, np.nan], [0.0, 0.0], [0.0, 0.0]])
BAD_TENSORS = {
    "missing tensor": ({"W2": None}, r"missing \['W2'\], unknown \[\]"),
    "missing tensors": ({"W2": None, "gates": None}, r"missing \['W2', 'gates'\]"),
    "extra tensor": ({"W3": np.ones(2)}, r"missing \[\], unknown \['W3'\]"),
    "single precision": ({"W1": np.ones((3, 2), np.float32)}, "W1 has dtype float32"),
    "integers": ({"W1": np.ones((3, 2), np.int64)}, "W1 has dtype int64"),
    "1-d": ({"W1": np.ones(6)}, r"W1 has dtype float64, shape \(6,\)"),
    "3-d": ({"W2": np.ones((3, 2, 1))}, r"W2 has dtype float64, shape \(3, 2, 1\)"),
    "gates transposed": ({"gates": np.ones((3, 2))}, r"inconsistent: gates must have shape \(2, 3"),
    "fewer neurons": ({"W2": np.ones((2, 2))}, "inconsistent: W2 must have shape"),
    "fewer intercepts": ({"b1": np.ones(2)}, "inconsistent: b1 must have shape"),
    "fewer output biases": ({"b2": np.ones(1)}, r"inconsistent: b2 must have shape \(2,\)"),
    "output biases of neurons": ({"b2": np.ones(3)}, "inconsistent: b2 must have shape"),
    "no output biases": ({"b2": np.ones(0)}, "inconsistent: b2 must have shape"),
    "2-d output bias": ({"b2": np.ones((1, 2))}, r"b2 has dtype float64, shape \(1, 2\)"),
    "output bias in single": ({"b2": np.ones(2, np.float32)}, "b2 has dtype float32"),
    "boolean output bias": ({"b2": np.ones(2, bool)}, "b2 has dtype bool"),
    "nan in the output bias": ({"b2": np.array([0.0, np.nan])}, "b2 holds NaN or infinity"),
    "inf in the output bias": ({"b2": np.array([-np.inf, 0.0])}, "b2 holds NaN or infinity"),
    "fewer gate biases": ({"gate_bias": np.ones(2)}, "inconsistent: gate_bias must have shape"),
    "no outputs": ({"W2": np.ones((3, 0))}, "inconsistent: W2 must have a row"),
    "no features": ({"W1": np.ones((3, 0)), "gates": np.ones((0, 3))}, "inconsistent: W1 must"),
    "nan": ({"W1": NAN}, "W1 holds NaN or infinity"),
    "inf": ({"gate_bias": np.array([0.0, np.inf, 0.0])}, "gate_bias holds NaN or infinity"),
}


@pytest.mark.parametrize(("changes", "reason"), BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_bad_tensors_are_refused(content, path, changes, reason):
    assert_refused(path, with_tensors(content, **changes), reason)


@pytest.mark.parametrize(("dtype", "bytes_each"), [("BF16", 2), ("F8_E4M3", 1), ("I8", 1)])
def test_tensors_of_foreign_dtypes_are_refused(content, path, dtype, bytes_each):
    header, tensors = split(content)
    d, m = header["gates"]["shape"]
    header["gates"] |= {"dtype": dtype, "shape": [d, m * 8 // bytes_each]}
    assert_refused(path, assemble(header, tensors), "dtype")


# ----------------------------------------------------------------------- what is not there


def test_a_missing_file_is_a_file_not_found_error(path):
    with pytest.raises(FileNotFoundError, match=r"model\.cvxnn"):
        cvxnn.load(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    folder = tmp_path / "missing"
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing to write m"):
        make_network().save(folder / "m.cvxnn")
    assert os.listdir(tmp_path) == []


def test_saving_onto_a_folder_leaves_nothing_behind(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        make_network().save(tmp_path / "taken")
    assert os.listdir(tmp_path) == ["taken"]
    assert os.listdir(tmp_path / "taken") == []


@pytest.mark.skipif(os.name != "posix", reason="file size limits are POSIX")
def test_a_write_that_fails_half_way_leaves_the_old_file_intact(path):
    make_network(m=2).save(path)
    before = path.read_bytes()
    program = f"""
        import resource
        import numpy as np
        from cvxnn import GatedReLUNetwork

        large = GatedReLUNetwork(
            gates=np.ones((9, 999)),
            gate_bias=np.ones(999),
            W1=np.ones((999, 9)),
            b1=None,
            W2=np.ones((999, 1)),
        )
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # the disk is full, so to say
        try:
            large.save({str(path)!r})
        except OSError as error:
            raise SystemExit(f"refused: {{error.strerror}}")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stderr.startswith("refused: File too large"), result.stderr
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
