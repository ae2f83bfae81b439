"""Processes end with the work that they were started for."""

from __future__ import annotations

import threading
import time
from multiprocessing import active_children

import pytest

from rmetric.engines.processes import pool_for


def test_an_error_leaves_neither_a_process_nor_a_thread_behind() -> None:
    threads, processes = {*threading.enumerate()}, {*active_children()}
    with pytest.raises(OSError, match="disk"), pool_for(time.sleep, 2) as pool:
        for _ in range(8):
            pool.submit(time.sleep, 10_000.0)  # nobody waits for that
        raise OSError("the disk is full")
    assert {*threading.enumerate()} <= threads
    assert {*active_children()} <= processes
