"""Fits in children and threads, after the parent has solved something large enough for threads."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes import WAYS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PROGRAM = Path(__file__).with_name("processes.py")


def run_program(*arguments, seconds=120):
    """A program in a session of its own, of which nothing is left if it takes too long."""
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},  # threads, on a single processor too
        start_new_session=True,
    )
    try:
        output, _ = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        pytest.fail(f"hangs: {program.communicate()[0]}")
    assert program.returncode == 0, output
    return output


def test_a_fork_on_every_back_end():
    """Compiled, NumPy, float32, sparse, array-api-strict, PyTorch, CVXPY, and an estimator."""
    run_program("fork")


def test_forks_wherever_they_happen():
    """In a fork, beside solves of other threads, in a callback, in the middle of a piece of work;
    and other ways to run many fits at once. One program, because importing takes the longest."""
    ways = [way for way in WAYS if way != "fork"]
    lines = run_program(*ways).splitlines()
    assert [line.split(":")[0] for line in lines] == ways
