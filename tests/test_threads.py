"""Work shared among threads, and the limit on those of the BLAS."""

import itertools
import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401, brings a BLAS of its own
from threadpoolctl import threadpool_info, threadpool_limits

from cvxnn import threads
from cvxnn.budget import Budget, OutOfTimeError, spend


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


@pytest.fixture
def three():
    """Libraries with a limit other than one thread at the start."""
    with threadpool_limits(3, user_api="blas"):
        yield


def limits(api="blas"):
    """The limits of the libraries that have threads; some are built without."""
    return {
        info["num_threads"]
        for info in threadpool_info()
        if info["user_api"] == api and info.get("threading_layer") != "disabled"
    }


def pieces_of(seconds, count=6):
    """A run that can be stopped, how to stop it, and which pieces have begun and ended."""
    stopped, begun, ended = threading.Event(), [], []

    def run(piece):
        begun.append(piece)
        stopped.wait(seconds)
        ended.append(piece)

    return run, range(count), stopped, begun, ended


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_every_piece_is_run_once(seconds):
    run, pieces, _, _, ended = pieces_of(0.001, 50)
    threads.share(run, pieces, seconds)
    assert sorted(ended) == list(pieces)


def test_small_work_stays_in_the_thread_that_asked():
    where = []
    threads.share(lambda _: where.append(threading.current_thread()), range(3), threads.ALONE)
    assert set(where) == {threading.current_thread()}
    threads.share(lambda _: where.append(threading.current_thread()), range(3), 2 * threads.ALONE)
    assert threading.current_thread() not in where[3:]


def test_work_inside_a_piece_stays_in_its_thread():
    """A pool that waits for itself would wait forever."""
    pairs = []

    def run(_):
        outer = threading.current_thread()
        threads.share(lambda _: pairs.append((outer, threading.current_thread())), range(3), 1.0)

    threads.share(run, range(4), 1.0)
    assert len(pairs) == 12
    assert all(outer is inner for outer, inner in pairs)


def test_an_error_in_a_piece_stops_the_others():
    run, pieces, stopped, begun, ended = pieces_of(60.0)

    def fails(piece):
        if piece == 1:
            raise MemoryError("no memory")
        run(piece)

    with pytest.raises(MemoryError, match="no memory"):
        threads.share(fails, pieces, 1.0, stopped.set)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 5


def test_out_of_time_within_one_wait(monkeypatch):
    """The first look is in time, the second is not. Nothing is left running."""
    run, pieces, stopped, begun, ended = pieces_of(60.0)
    clock = itertools.chain([0.0, 0.0], itertools.repeat(10.0))
    monkeypatch.setattr("cvxnn.budget.clock", lambda: next(clock))
    with (
        spend(Budget(5.0)) as budget,
        pytest.raises(OutOfTimeError),
    ):
        threads.share(run, pieces, 1.0, stopped.set)
    assert budget.left < 0
    assert sorted(begun) == sorted(ended)
    assert len(begun) <= 2


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_nothing_is_begun_after_the_time_is_up(monkeypatch, seconds):
    run, pieces, _, begun, _ = pieces_of(0.0)
    clock = itertools.chain([0.0], itertools.repeat(10.0))
    monkeypatch.setattr("cvxnn.budget.clock", lambda: next(clock))
    with spend(Budget(5.0)), pytest.raises(OutOfTimeError):
        threads.share(run, pieces, seconds)
    assert not begun


@pytest.mark.parametrize("threads_to_be_had", [0, 1])
def test_a_system_without_more_threads(monkeypatch, threads_to_be_had):
    """Pieces that the pool does not take are run all the same, and once."""
    monkeypatch.setattr(threads, "_pool", None)
    start, started = threading.Thread.start, []

    def refuse(thread):
        if len(started) == threads_to_be_had:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    run, pieces, _, _, ended = pieces_of(0.01)
    threads.share(run, pieces, 1.0)
    assert sorted(ended) == list(pieces)


def test_cached_properties_are_kept_and_share_no_lock():
    first, second = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, comes, awaited):
            self.comes, self.awaited = comes, awaited

        @threads.cached_property
        def met(self):
            self.comes.set()
            return [self.awaited.wait(5)]

    one, other = Slow(first, second), Slow(second, first)
    thread = threading.Thread(target=lambda: one.met)
    thread.start()
    assert other.met == [True]
    thread.join()
    assert one.met == [True]
    assert one.met is one.met


@pytest.mark.usefixtures("three")
def test_one_thread_for_the_blas_as_long_as_wanted():
    openmp = limits("openmp")
    with threads.single_blas():
        assert limits() == {1}
        assert limits("openmp") == openmp  # others' threads are their own
        with threads.single_blas():
            assert limits() == {1}
        assert limits() == {1}
    assert limits() == {3}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:5])
def test_the_last_to_leave_restores_what_the_first_found(order):
    """Runs in three threads that come one after another and leave in some order."""
    leave = [threading.Event() for _ in order]
    inside = [threading.Event() for _ in order]

    def hold(which):
        with threads.single_blas():
            inside[which].set()
            assert leave[which].wait(30)

    holders = [threading.Thread(target=hold, args=(which,)) for which in range(len(order))]
    for holder, event in zip(holders, inside, strict=True):
        holder.start()
        assert event.wait(30)
    for which in order:
        assert limits() == {1}
        leave[which].set()
        holders[which].join()
    assert limits() == {3}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OutOfTimeError])
def test_the_limit_ends_with_an_exception(error):
    with pytest.raises(error), threads.single_blas():
        raise error
    assert limits() == {3}


def take_and_release(limit):
    limit.take("it")
    limit.release("it")


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("number", [1, 3])
def test_an_interruption_while_the_limit_is_set_or_restored(monkeypatch, number):
    """The next run finds what the interrupted one left."""
    limit, interrupted, set_threads = threads._BlasLimit(), [], threads._set_threads

    def interrupt_once(library, to):
        if to == number and not interrupted:
            interrupted.append(library)
            raise KeyboardInterrupt
        set_threads(library, to)

    monkeypatch.setattr(threads, "_set_threads", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        take_and_release(limit)
    limit.release("it")
    assert limits() == {3}
    limit.take("next")
    assert limits() == {1}
    limit.release("next")
    assert limits() == {3}


@pytest.mark.usefixtures("three")
def test_libraries_that_come_later_are_limited_too(monkeypatch):
    """In the middle of a run, and after one, and they are looked for only when modules came."""
    limit, scans = threads._BlasLimit(), []
    controller = threads.ThreadpoolController

    def threaded(chosen):
        return [
            library
            for library in chosen.lib_controllers
            if library.info().get("threading_layer") != "disabled"
        ]

    if len(threaded(controller().select(user_api="blas"))) < 2:
        pytest.skip("NumPy and SciPy share one BLAS here, or one of theirs has no threads")

    class FewAtFirst(controller):
        def select(self, **api):
            scans.append(api)
            chosen = super().select(**api)
            chosen.lib_controllers = threaded(chosen)[: len(scans)]
            return chosen

    monkeypatch.setattr(threads, "ThreadpoolController", FewAtFirst)
    limit.take("first")
    assert limits() == {1, 3}
    limit.take("same modules")
    assert len(scans) == 1
    monkeypatch.setitem(threads.sys.modules, "a new module", threads)
    limit.take("second")
    assert limits() == {1}
    for holder in ("first", "same modules"):
        limit.release(holder)
        assert limits() == {1}
    limit.release("second")
    assert limits() == {3}
    assert len(scans) == 2


def test_products_are_the_same_under_the_limit():
    """What a solve computes with one thread is what it would with one thread from the start."""
    A = np.random.default_rng(0).standard_normal((300, 300))
    with threadpool_limits(1, user_api="blas"):
        expected = A @ A
    with threads.single_blas():
        np.testing.assert_array_equal(A @ A, expected)
