"""Estimators on a Dask cluster: real workers, one of which is killed."""

import errno
import json
import multiprocessing
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import cvxnn
from extras import required

required("torch")
required("distributed")
dask = required("dask")
da = required("dask.array")
pd = required("pandas")
dd = required("dask.dataframe")

from click.testing import CliRunner  # noqa: E402
from dask.distributed import Client, LocalCluster  # noqa: E402

from cvxnn.cli import main  # noqa: E402
from cvxnn.dask import (  # noqa: E402
    ClusterError,
    DaskGatedReLUClassifier,
    DaskGatedReLUClassifierCV,
    DaskGatedReLURegressor,
)
from cvxnn.dask.attempts import _named  # noqa: E402
from cvxnn.dask.estimators import _as_array, _parts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, of workers that are killed
N, D = 900, 4
SETTINGS = {"alpha": 0.03, "n_patterns": 12, "tol": 1e-3}


@pytest.fixture(scope="module")
def client():
    """Two workers, in processes of their own, which come back when they are killed."""
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
        memory_limit=0,
    )
    with cluster, Client(cluster) as made:
        yield made


def data(n=N):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, D)) * [1, 5, 0.1, 1] + [0, 3, 0, 0]
    y = np.maximum(X[:, 0], 0) - 10 * X[:, 2] + 0.3 * rng.standard_normal(n)
    return X, y


def test_a_classifier_is_that_of_one_process(client):
    X, values = data()
    y = np.where(values > 0.5, "yes", "no")
    dX, dy = da.from_array(X, chunks=(200, 2)), da.from_array(y, chunks=300)
    weight = np.random.default_rng(1).random(N)
    here = cvxnn.GatedReLUClassifier(class_weight="balanced", **SETTINGS).fit(X, y, weight)
    seen = []
    there = DaskGatedReLUClassifier(
        client=client, callback=seen.append, class_weight="balanced", **SETTINGS
    ).fit(dX, dy, da.from_array(weight, chunks=200))
    assert there.converged_
    assert there.certificate_.proven
    assert_allclose(there.certificate_.objective, here.certificate_.objective, rtol=1e-3)
    assert_allclose(there.lambda_max_, here.lambda_max_, rtol=1e-9)
    assert seen
    assert seen[-1].relative_gap <= 1e-3
    assert_array_equal(there.classes_, ["no", "yes"])
    lazy = there.predict_proba(dX)
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (N, 2)
    local = there.to_local()
    assert type(local) is cvxnn.GatedReLUClassifier
    assert_allclose(lazy.compute(), local.predict_proba(X), rtol=1e-12)
    assert_array_equal(there.predict(dX).compute(), local.predict(X))
    assert_allclose(there.decision_function(dX).compute(), local.decision_function(X), rtol=1e-9)
    assert there.score(dX, dy) == pytest.approx(local.score(X, y))


def test_a_regressor_takes_dataframes_with_empty_parts(client):
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(target=y)
    parts = dd.from_pandas(frame, npartitions=3)
    parts = dd.concat(
        [parts.partitions[:2], parts.partitions[1][parts.partitions[1].a > 99], parts.partitions[2]]
    )
    features = parts[list("abcd")]
    there = DaskGatedReLURegressor(max_memory="1GB", **SETTINGS).fit(features, parts["target"])
    here = cvxnn.GatedReLURegressor(**SETTINGS).fit(frame[list("abcd")], y)
    assert_allclose(there.certificate_.objective, here.certificate_.objective, rtol=1e-3)
    assert_array_equal(there.feature_names_in_, list("abcd"))
    predicted = there.predict(features).compute()
    assert_allclose(predicted, there.to_local().predict(frame[list("abcd")]), rtol=1e-9)
    assert there.score(features, parts["target"]) == pytest.approx(
        here.score(frame[list("abcd")], y), abs=1e-3
    )
    with pytest.raises(ValueError, match=r"a, b, c, d are expected"):
        there.predict(parts[list("abdc")])


def test_parquet_files_are_parts_whatever_columns_are_asked_for(tmp_path):
    X, y = data(90)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(target=y)
    for k in range(3):
        frame[k * 30 : (k + 1) * 30].to_parquet(tmp_path / f"{k}.parquet")
    rows = dd.read_parquet(str(tmp_path / "*.parquet"))
    features, target = rows[list("abcd")], rows["target"]
    parts = [
        (len(X), len(y))
        for X, y in dask.compute(*((X, y) for X, y, _ in _parts(features, target, None)))
    ]
    assert parts == [(30, 30)] * 3
    assert _as_array(features).numblocks == (3, 1)
    assert _as_array(target).numblocks == (3,)


def test_parameters_and_errors_are_those_of_users(client):
    model = DaskGatedReLURegressor(client=client, alpha=0.3)
    assert model.get_params()["alpha"] == 0.3
    assert clone(model).client is client
    assert pickle.loads(pickle.dumps(model)).client is None
    with pytest.raises(NotFittedError, match="call fit first"):
        model.to_local()
    with pytest.raises(TypeError, match="did you mean 'n_patterns'"):
        DaskGatedReLURegressor(n_pattern=3)
    X, y = data(60)
    dX, dy = da.from_array(X, chunks=(20, D)), da.from_array(y, chunks=20)
    with pytest.raises(TypeError, match="X must be a Dask array or DataFrame, got ndarray"):
        model.fit(X, y)
    with pytest.raises(TypeError, match="y must be a Dask collection"):
        model.fit(dX, y)
    with pytest.raises(ValueError, match="X has 60 rows, but y has 40"):
        model.fit(dX, dy[:40])
    X[37, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN or infinity, first in part 1, row 17, column 2"):
        model.fit(da.from_array(X, chunks=(20, D)), dy)
    frame = dd.from_pandas(pd.DataFrame({"a": y, "b": ["x"] * 60}), npartitions=2)
    with pytest.raises(ValueError, match=r"column 'b' of X holds .* in part"):
        model.fit(frame, frame["a"])
    with pytest.raises(ValueError, match="at least two classes"):
        DaskGatedReLUClassifier(client=client).fit(dX, (dy > -1e9).astype(int))


def test_alpha_is_chosen_as_in_one_process(client):
    X, values = data(400)
    y = (values > 0.5).astype(int)
    settings = {"alphas": [0.1, 0.02, 0.004], "cv": 3, "n_patterns": 10, "tol": 1e-3}
    here = cvxnn.GatedReLUClassifierCV(**settings, random_state=0).fit(X, y)
    dX, dy = da.from_array(X, chunks=(400, D)), da.from_array(y, chunks=400)
    there = DaskGatedReLUClassifierCV(client=client, **settings, random_state=0).fit(dX, dy)
    assert there.alpha_ == here.alpha_
    assert_array_equal(there.alphas_, here.alphas_)
    assert type(there.to_local()) is cvxnn.GatedReLUClassifierCV
    assert there.certificate_.proven
    parts = da.from_array(X, chunks=(150, D)), da.from_array(y, chunks=150)
    apart = DaskGatedReLUClassifierCV(client=client, **settings, random_state=0).fit(*parts)
    assert apart.alpha_ in here.alphas_
    assert_allclose(apart.predict_proba(dX).compute().sum(axis=1), 1)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Parquet files, with texts, missing values, and labels."""
    folder = tmp_path_factory.mktemp("rows")
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        town=np.random.default_rng(3).choice(["Oslo", "Rome", None], N),
        label=np.where(y > 0.5, "yes", "no"),
    )
    for k in range(3):
        frame[k * 300 : (k + 1) * 300].to_parquet(folder / f"{k}.parquet")
    return folder


def fit_by_command(client, data, output, *options):
    arguments = ["fit", data, "--target", "label", "--cluster", client.scheduler.address]
    arguments += ["--alpha", "0.02", "--patterns", "15", "--json", "-o", output, *options]
    answer = CliRunner().invoke(main, list(map(str, arguments)))
    return answer.exit_code, json.loads(answer.stdout)


def test_the_command_line_trains_on_a_cluster(client, rows, tmp_path):
    code, told = fit_by_command(client, rows / "*.parquet", tmp_path / "m.cvxnn")
    assert code == 0, told
    settings = {"kind": "gated", "alpha": 0.02, "n_patterns": 15, "on_data": list}
    here = cvxnn.Model.fit(rows, "label", **settings)
    there = cvxnn.load(tmp_path / "m.cvxnn")
    assert there.encoder == here.encoder
    assert told["notes"][1:] == list(here.notes)  # the first says that the network is gated
    assert_array_equal(there.rows, here.rows)
    assert_allclose(there.certificate.objective, here.certificate.objective, rtol=2e-4)
    assert_allclose(there.predict_proba(rows), here.predict_proba(rows), atol=0.02)


def test_files_that_cannot_be_used_are_named(client, rows, tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.parquet").write_bytes((rows / f"{k}.parquet").read_bytes())
    bad = tmp_path / "1.parquet"
    content = bytearray(bad.read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page
    bad.write_bytes(content)
    code, told = fit_by_command(client, tmp_path, tmp_path / "m.cvxnn")
    assert code == 2
    assert f"{bad} is a damaged Parquet file" in told["error"]
    frame = dd.read_parquet(str(tmp_path / "*.parquet"))
    with pytest.raises(ValueError, match=r"part 1 of the rows, .*1.parquet, could not be read"):
        DaskGatedReLURegressor(client=client, **SETTINGS).fit(frame[list("abcd")], frame["a"])
    pd.read_parquet(rows / "1.parquet").assign(a="x").to_parquet(bad)
    code, told = fit_by_command(client, tmp_path, tmp_path / "m.cvxnn")
    assert code == 2
    assert f"{bad}, column 'a' holds texts, but numbers in" in told["error"]


# -- faults


def test_a_full_disk_and_a_lost_scheduler_have_names(tmp_path):
    full = _named(OSError(errno.ENOSPC, "No space left on device"), "tcp://w:1")
    assert "worker tcp://w:1 has no space left on its disk" in str(full)
    assert type(_named(ValueError("x"), "tcp://w:1")) is ValueError
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve_cluster, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    with Client(mine.recv(), set_as_default=False) as away:
        model, chunks = slow(away, lambda: os.kill(process.pid, signal.SIGKILL))
        start = time.monotonic()
        with pytest.raises(ClusterError, match=r"the scheduler tcp://.* is lost"):
            model.fit(*chunks)
        assert time.monotonic() - start < 120
    process.join()


def serve_cluster(pipe):
    """A scheduler with a worker, in one process."""
    local = {"dashboard_address": None, "host": "127.0.0.1", "protocol": "tcp://"}
    with LocalCluster(n_workers=1, processes=False, **local) as own:
        pipe.send(own.scheduler_address)
        time.sleep(600)


def test_ctrl_c_before_there_is_a_point_ends_at_once(client):
    """While the rows are read."""
    X, y = data(60)

    def slowly(block):
        time.sleep(4)
        return block

    lazy = da.from_array(X, chunks=(30, D)).map_blocks(slowly, dtype=float, meta=np.ones((0, D)))
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        DaskGatedReLURegressor(client=client, **SETTINGS).fit(lazy, da.from_array(y, chunks=30))


def slow(client, on_progress):
    """A fit that takes a while, with a callback at its third iteration."""
    X, y = data(6000)
    chunks = [da.from_array(X, chunks=(1000, D)), da.from_array(y, chunks=1000)]
    done = []

    def callback(progress):
        if progress.n_iter >= 3 and not done:
            done.append(progress)
            on_progress()

    model = DaskGatedReLURegressor(
        client=client, callback=callback, alpha=1e-4, n_patterns=200, tol=1e-5, solver="rfista"
    )
    return model, chunks


def pids(client):
    return list(client.run(os.getpid).values())


def test_a_fit_outlives_a_worker_that_is_killed(client):
    model, chunks = slow(client, lambda: os.kill(victim, signal.SIGKILL))
    victim = pids(client)[1]
    model.fit(*chunks)
    assert model.converged_
    assert victim not in pids(client)
