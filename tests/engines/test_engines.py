"""Engines: the same results in the same order, whatever dies on the way."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rmetric.engines import engine, parallel_map
from rmetric.errors import UserError


def square(number: int) -> int:
    return number * number


def square_or_die_once(marker: Path, number: int) -> int:
    """The process that comes to 5 first is killed as by the kernel."""
    if number == 5 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


GROWN: list[bytearray] = []


def grow(number: int) -> int:
    """Work after which joblib replaces the process that did it: 400 MB more, and a second for it to see that."""
    GROWN.append(bytearray(os.urandom(1) * 400_000_000))
    time.sleep(1.1)
    return number


def onto_a_full_disk(number: int) -> int:
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(bytes([number]))
    return number


@pytest.fixture(params=["dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[request.param])
    with engine(request.param, jobs=2):
        yield request.param


def test_local_results_come_in_order() -> None:
    with engine("local", jobs=2):
        assert list(parallel_map(square, range(20), 2)) == [number**2 for number in range(20)]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_a_killed_worker_costs_nothing_and_a_full_disk_is_said(cluster: str, tmp_path: Path) -> None:
    work = partial(square_or_die_once, tmp_path / "marker")
    assert list(parallel_map(work, range(20), 2)) == [number**2 for number in range(20)]
    assert (tmp_path / "marker").exists()
    with pytest.raises(OSError, match="No space left") as caught:
        list(parallel_map(onto_a_full_disk, range(3), 2))
    assert caught.value.errno == errno.ENOSPC


def test_an_address_needs_a_cluster() -> None:
    with pytest.raises(UserError, match="add --engine dask"), engine("local", 1, "tcp://127.0.0.1:8786"):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(UserError, match="no Dask scheduler answers"), engine("dask", 1, "tcp://127.0.0.1:9"):
        pass


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_local_process_that_is_replaced_holds_nobody_up_where_warnings_are_errors() -> None:
    with warnings.catch_warnings(), engine("local", jobs=2):
        warnings.simplefilter("error")
        assert list(parallel_map(grow, range(5), 2)) == [*range(5)]
        with pytest.raises(UserWarning, match="upside down"):  # all others are what they were
            warnings.warn("the loss is upside down", UserWarning, stacklevel=1)


def test_a_killed_local_process_is_one_line(tmp_path: Path) -> None:
    work = partial(square_or_die_once, tmp_path / "marker")
    with engine("local", jobs=2), pytest.raises(UserError, match="--resume"):
        list(parallel_map(work, range(20), 2))
