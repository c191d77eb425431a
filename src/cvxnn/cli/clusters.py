"""Dask clusters for the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cvxnn.cli.outcomes import BAD_INPUT, LOST, Failure

REACHED = 15.0  # seconds to find the scheduler
WORKERS = 30.0  # seconds to wait for its first worker


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, once there are workers."""
    try:
        from distributed import Client
    except ImportError as error:
        raise Failure("--cluster needs Dask: pip install 'cvxnn[dask]'", BAD_INPUT) from error
    for name in ("distributed", "distributed.client", "tornado"):  # what is wrong is told here
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=REACHED, set_as_default=False)
    except ValueError as error:
        raise Failure(f"--cluster: {error}", BAD_INPUT) from error
    except OSError as error:
        raise Failure(
            f"no scheduler answers at {address} within {REACHED:.0f} s; is that its address?", LOST
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=WORKERS)
        except TimeoutError as error:
            raise Failure(f"the cluster at {address} has no workers", LOST) from error
        yield client
    finally:
        client.close(timeout=2)
