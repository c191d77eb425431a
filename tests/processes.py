"""Fits in other processes and threads than the one that solved before: `python processes.py WAY`
compares their answers with its own, to the last bit. It is a program of its own because a fork that
goes wrong hangs, and because a child that is not forked imports what it runs."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np

import cvxnn
from cvxnn import threads
from cvxnn.kernels import native
from cvxnn.operators.dense import ExpandedMatrix

SECONDS = 40  # after which a child counts as hanging
N, D, P = 150, 4, 12


def data(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)).astype(dtype)
    return X, np.maximum(X[:, 0], 0) - X[:, 1], cvxnn.sample_patterns(X, P, random_state=0)


def weights(problem, *solver, **settings):
    return np.asarray(cvxnn.solve(problem, *solver, **settings).weights).tobytes()


def compiled():
    """Small and large: a solve, and a product of the size that the pool works on."""
    X, y, patterns = data()
    relu = weights(cvxnn.CReLU(X, y, patterns, lam=0.02))
    return relu, weights(cvxnn.CGReLU(X, y, patterns, lam=0.02)), large_product()


def large_product():
    rng = np.random.default_rng(0)
    operator = ExpandedMatrix(rng.standard_normal((3000, 20)), rng.random((3000, 2000)) > 0.5)
    return operator.forward(rng.standard_normal((2000, 20, 1))).tobytes()


def plain():
    X, y, patterns = data()
    os.environ["CVXNN_NATIVE"] = "0"
    native.library.cache_clear()
    try:
        return weights(cvxnn.CReLU(X, y, patterns, lam=0.02))
    finally:
        del os.environ["CVXNN_NATIVE"]
        native.library.cache_clear()


def single():
    X, y, patterns = data(np.float32)
    return weights(cvxnn.CGReLU(X, y.astype(np.float32), patterns, lam=0.02))


def sparse():
    from scipy.sparse import csr_array

    X, y, patterns = data()
    return weights(cvxnn.CReLU(csr_array(X), y, patterns, lam=0.02))


def strict():
    from array_api_strict import asarray

    X, y, patterns = data()
    return weights(cvxnn.CGReLU(asarray(X), asarray(y), patterns, lam=0.02))


def torch():
    """The large product is what PyTorch uses its threads for, which no child inherits."""
    from torch import asarray

    X, y, patterns = data()
    with threads.single_blas():
        (asarray(np.ones((1000, 1000))) @ asarray(np.ones((1000, 1000)))).sum()
        problem = cvxnn.CGReLU(asarray(X), asarray(y), patterns, lam=0.02)
        return weights(problem, max_iter=5, on_failure="ignore")


def cvxpy():
    X, y, patterns = data()
    return weights(cvxnn.CReLU(X, y, patterns, lam=0.02), "cvxpy")


def fit():
    model = cvxnn.ReLURegressor(n_patterns=P, random_state=0)
    X, y, _ = data()
    return model.fit(X, y).predict(X).tobytes()


EXTRAS = tuple(back_end for back_end in (torch, cvxpy) if find_spec(back_end.__name__))
BACK_ENDS = (compiled, plain, single, sparse, strict, *EXTRAS, fit)


def everything():
    return [back_end() for back_end in BACK_ENDS]


def forked(task):
    """What `task` returns in a child; a child that hangs is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        signal.alarm(SECONDS)
        try:
            with open(writer, "wb") as answer:
                pickle.dump(task(), answer)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        received = answer.read()
    assert not os.waitpid(child, 0)[1], "the child hangs, or has crashed"
    return pickle.loads(received)


def threads_in_fork():
    def run():
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: compiled(), range(3)))
        assert answers[1:] == answers[:-1]
        return answers[0]

    return forked(run)


def fork_in_callback():
    """The child goes on with the solve of its parent, from inside the callback."""
    X, y, patterns = data()
    problem = cvxnn.CReLU(X, y, patterns, lam=0.02)
    children, first = [], os.getpid()
    reader, writer = os.pipe()

    def fork(progress):
        if not children:
            children.append(os.fork())
            if not children[-1]:
                signal.alarm(SECONDS)

    found = weights(problem, callback=fork)
    product = large_product()
    if os.getpid() != first:
        os.write(writer, found)
        os._exit(product != large_product())
    assert len(children) == 1
    assert not os.waitpid(children[0], 0)[1], "the child hangs, or has crashed"
    assert os.read(reader, len(found)) == found
    return found, weights(cvxnn.CGReLU(X, y, patterns, lam=0.02)), product


def fork_beside_solves():
    """Other threads solve, and are in the middle of it when children are forked."""
    found, enough = limits(), threading.Event()

    def solve():
        while not enough.is_set():
            with threads.single_blas():
                compiled()

    others = [threading.Thread(target=solve) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for pause in (0.02, 0.05):
            time.sleep(pause)
            answer = forked(lambda: (limits(), compiled()))
            assert answer[0] == found, "the limit of other threads is left behind in the child"
    finally:
        enough.set()
        for other in others:
            other.join()
    return answer[1]


def fork_while_pieces_run():
    """Whoever waits for the pool is told of its silence, and forks: child and parent end with all
    pieces done, each once more where it was under way."""
    from cvxnn import budget

    done, begun, children = np.zeros(6), [], []

    def run(piece):
        begun.append(piece)
        time.sleep(0.1)
        done[piece] = piece + 1

    def fork():
        if begun and not children:
            children.append(os.fork())
            if not children[0]:
                signal.alarm(SECONDS)

    now, clock = iter(np.arange(10**6) * (budget.SILENCE + 0.1)), budget.clock
    budget.clock = lambda: next(now)
    with budget.spend(budget.Budget(on_silence=fork)):
        threads.share(run, range(6), 1.0)
    budget.clock = clock
    if not children[0]:
        os._exit(int(done.tolist() != [1, 2, 3, 4, 5, 6]))
    assert not os.waitpid(children[0], 0)[1], "the child hangs, or has missed a piece"
    assert done.tolist() == [1, 2, 3, 4, 5, 6]
    return compiled()


def by_method(method, task):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        return pool.submit(task).result(SECONDS)


def by_joblib(task, **settings):
    from joblib import Parallel, delayed

    answers = Parallel(n_jobs=2, **settings)(delayed(task)() for _ in range(2))
    assert answers[0] == answers[1]
    return answers[0]


WAYS = {
    "fork": (everything, lambda: forked(everything)),
    "fork in fork": (compiled, lambda: forked(lambda: forked(compiled))),
    "fork by multiprocessing": (compiled, lambda: by_method("fork", compiled)),
    "threads in fork": (compiled, threads_in_fork),
    "fork in callback": (compiled, fork_in_callback),
    "fork beside solves": (compiled, fork_beside_solves),
    "fork while pieces run": (compiled, fork_while_pieces_run),
    "spawn": (compiled, lambda: by_method("spawn", compiled)),
    "forkserver": (compiled, lambda: by_method("forkserver", compiled)),
    "loky": (compiled, lambda: by_joblib(compiled, backend="loky")),
    "threading": (compiled, lambda: by_joblib(compiled, backend="threading")),
    "prefer threads": (compiled, lambda: by_joblib(compiled, prefer="threads")),
}


def limits():
    from threadpoolctl import threadpool_info

    return {i["filepath"]: i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for forks beside threads
    expected = {}
    for way in sys.argv[1:]:
        task, answer = WAYS[way]
        if task not in expected:
            expected[task] = task()  # the parent has threads from now on
        started = time.perf_counter()
        assert answer() == expected[task], f"another answer by {way}"
        sys.stdout.write(f"{way}: {time.perf_counter() - started:.1f} s\n")
        sys.stdout.flush()
