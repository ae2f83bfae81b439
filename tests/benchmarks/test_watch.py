"""What a watch costs: less than a tick of the system's clock a minute, so it is counted finer than by ticks."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers import ROOT

WAITS = "import time; print(time.process_time(), flush=True); input()"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system counts no nanoseconds")
def test_processor_time_is_not_rounded_down_to_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        own_count, process = float(child.stdout.readline()), psutil.Process(child.pid)
        while process.status() != psutil.STATUS_SLEEPING:
            time.sleep(0.001)
        assert importlib.import_module("watch").processor_s(process) >= own_count
        child.communicate("\n")
