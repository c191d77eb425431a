"""Models of tables as ONNX models and torch modules, which encode the columns themselves."""

from __future__ import annotations

import io

import numpy as np
import pytest

import cvxnn
from cvxnn.tables.columns import CategoryColumn, DateColumn
from cvxnn.tables.frames import as_table
from extras import needs, optional

ort, torch = optional("onnxruntime"), optional("torch")
N = 80
TARGETS = ("two", "three", "number", "truth", "grade")
SETTINGS = {"n_patterns": 10, "alpha": 1e-3, "tol": 1e-3}


def frame_of(n=N, seed=0):
    """Columns of all kinds, with missing values, and categories that training has not seen."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2022-03-01T06:00") + (37 * np.arange(n)).astype("timedelta64[h]")
    city = rng.choice(["Lima", "Oslo", "Rome", "Bonn"][: 3 + seed], n).astype(object)
    price = rng.uniform(900, 2000, n)
    x, sun = rng.standard_normal(n), rng.integers(0, 2, n)
    score = x + (city == "Oslo")
    return {
        "price": [None if k % 9 == 4 else f"${v:,.2f}" for k, v in enumerate(price)],
        "X": [None if seed and k == 3 else v for k, v in enumerate(x)],
        "city": [None if k % 7 == 2 else v for k, v in enumerate(city)],
        "sunny": [None if seed and k == 5 else bool(v) for k, v in enumerate(sun)],
        "when": [None if k % 11 == 5 else str(day) for k, day in enumerate(days)],
        "at": [f"{k % 24:02}:{k % 60:02}" for k in range(n)],
        "two": np.where(score > 0.3, "yes", "no"),
        "three": np.where(score > 0.8, "high", np.where(score > 0, "middle", "low")),
        "number": 10 * score,
        "truth": score > 0.3,
        "grade": np.where(score > 0.8, 3.0, np.where(score > 0, 2.0, 1.0)),
    }


@pytest.fixture(scope="module", params=TARGETS)
def model(request):
    drop = [name for name in TARGETS if name != request.param]
    task = "regression" if request.param == "number" else "classification"
    return cvxnn.Model.fit(frame_of(), request.param, task=task, drop=drop, **SETTINGS)


def columns_for(model, frame, texts):
    """The columns as exported models take them."""
    table = as_table(frame)
    for column in model.encoder.columns:
        if isinstance(column, CategoryColumn):
            given = table.texts(column.name)
            if texts:
                yield column, np.array([text or "" for text in given], dtype=object)
            else:
                known = [*column.categories, None]
                places = [
                    np.nan if t is None else known.index(t) if t in known else -1 for t in given
                ]
                yield column, np.array(places)
        elif isinstance(column, DateColumn):
            yield column, column.days(table)
        else:
            yield column, table.numbers(column.name)


@needs("onnxruntime")
@pytest.mark.filterwarnings("ignore::cvxnn.tables.notes.TableWarning")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_onnx_model_takes_the_columns_of_the_table(model, dtype, tmp_path):
    model.to_onnx(tmp_path / "model.onnx", dtype=dtype)
    session = ort.InferenceSession(tmp_path / "model.onnx")
    names = [given.name for given in session.get_inputs()]
    assert names == ["price", "column X", "city", "sunny", "when", "at"]
    for seed in (0, 1):
        frame = frame_of(seed=seed)
        given = [values[:, None] for _, values in columns_for(model, frame, texts=True)]
        outputs = [output.name for output in session.get_outputs()]
        found = dict(
            zip(outputs, session.run(None, dict(zip(names, given, strict=True))), strict=True)
        )
        close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float32" else {"rtol": 1e-9}
        if model.task == "regression":
            np.testing.assert_allclose(found["prediction"][:, 0], model.predict(frame), **close)
            continue
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(frame), **close)
        assert found["label"].tolist() == model.predict(frame).tolist() or dtype == "float32"


@needs("onnxruntime")
@pytest.mark.parametrize("target", ["two", "three"])
def test_labels_without_probabilities(target, tmp_path):
    drop = [name for name in TARGETS if name != target]
    model = cvxnn.Model.fit(frame_of(), target, loss="squared", drop=drop, **SETTINGS)
    model.to_onnx(tmp_path / "model.onnx")
    session = ort.InferenceSession(tmp_path / "model.onnx")
    names = [given.name for given in session.get_inputs()]
    given = [values[:, None] for _, values in columns_for(model, frame_of(), texts=True)]
    label = session.run(["label"], dict(zip(names, given, strict=True)))[0]
    assert label.tolist() == model.predict(frame_of()).tolist()


@needs("torch")
@pytest.mark.filterwarnings("ignore::cvxnn.tables.notes.TableWarning")
def test_a_torch_module_takes_a_matrix_of_the_columns(model):
    module = model.to_torch()
    for seed in (0, 1):
        frame = frame_of(seed=seed)
        rows = np.column_stack([values for _, values in columns_for(model, frame, texts=False)])
        found = module(torch.tensor(rows)).detach().numpy()
        if model.task == "regression":
            expected = model.predict(frame)[:, None]
        else:
            expected = model.predict_proba(frame)
            expected = expected[:, 1:] if expected.shape[1] == 2 else expected
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@needs("torch")
def test_a_torch_module_with_columns_can_be_saved(model):
    rows = torch.zeros((2, len(model.encoder.columns)), dtype=torch.float64)
    module = model.to_torch().requires_grad_(False)
    shapes = ({0: torch.export.Dim("rows", min=1)},)
    content = io.BytesIO()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(module, (rows,), dynamic_shapes=shapes), content)
        again = torch.export.load(io.BytesIO(content.getvalue())).module()
    more = torch.ones((5, rows.shape[1]), dtype=torch.float64)
    np.testing.assert_array_equal(again(more).numpy(), module(more).numpy())


def test_extras_are_named(model, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    monkeypatch.delitem(__import__("sys").modules, "cvxnn.tables.onnx_columns", raising=False)
    monkeypatch.delitem(__import__("sys").modules, "cvxnn.export.onnx_models", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'cvxnn\[onnx\]'"):
        model.to_onnx(tmp_path / "model.onnx")
