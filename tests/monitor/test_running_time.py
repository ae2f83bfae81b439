"""The clock stands still while its thread waits for a processor, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.monitor import running_time
from rmetric.monitor.running_time import RunningTime, Waits

BUSY = """
import os
os.sched_setaffinity(0, %s)
print(flush=True)
while True:
    pass
"""


class Machine:
    """A time, and waits of the calling thread, that a test sets."""

    def __init__(self) -> None:
        self.time_s = self.waited_s = 0.0
        self.interrupted_s: list[float] = []
        """Waits to come, each between the reading of the time and that of the waits."""

    def waits(self, thread: Waits) -> float:
        if self.interrupted_s:
            self.pass_time(waiting=self.interrupted_s.pop())
        return self.waited_s

    def pass_time(self, running: float = 0.0, waiting: float = 0.0) -> None:
        self.time_s += running + waiting
        self.waited_s += waiting


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(Waits, "seconds", lambda thread: machine.waits(thread))
    monkeypatch.setattr(running_time.time, "perf_counter", lambda: machine.time_s)
    return machine


def test_what_a_thread_waits_for_a_processor_is_no_time(machine: Machine) -> None:
    now = RunningTime()
    machine.pass_time(running=3.0, waiting=2.0)  # before the first call
    began = now()
    machine.pass_time(running=0.25, waiting=7.0)
    assert now() - began == pytest.approx(0.25)
    machine.pass_time(running=0.5)
    assert now() - began == pytest.approx(0.75)


def test_a_wait_in_the_midst_of_a_call_is_taken_out_as_well(machine: Machine) -> None:
    now = RunningTime()
    began = now()
    machine.pass_time(running=1.0)
    machine.interrupted_s = [0.5]
    assert now() - began == pytest.approx(1.0)
    machine.pass_time(running=1.0)
    assert now() - began == pytest.approx(2.0)


def test_waits_of_another_thread_are_not_taken_for_ones_own(machine: Machine) -> None:
    now = RunningTime()
    began = now()
    machine.pass_time(running=1.0)

    def elsewhere() -> None:
        machine.waited_s += 1_000.0  # another thread's count
        now()
        machine.waited_s -= 1_000.0

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert now() - began == pytest.approx(1.0)


FILES = Path("/proc/self/fd")


@pytest.mark.skipif(not FILES.is_dir(), reason="this system does not tell which files are open")
def test_a_forked_process_counts_its_own_waits_and_no_file_is_left_open() -> None:
    def files() -> int:
        return len([*FILES.iterdir()])

    before = files()
    now = RunningTime()
    open_in_use = files()
    child = os.fork()
    if not child:
        now()
        os._exit(0 if now._thread.number == threading.get_native_id() and files() == open_in_use else 1)
    assert os.waitpid(child, 0)[1] == 0
    del now
    assert files() == before


def test_where_nobody_counts_waits_it_is_the_plain_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for content in (None, "", "not numbers here"):
        path = tmp_path / "schedstat"
        if content is not None:
            path.write_text(content)
        monkeypatch.setattr(running_time, "WAITS", str(path))
        assert Waits().seconds() == 0.0
        assert RunningTime()() <= time.perf_counter()


@pytest.fixture
def crowded() -> Iterator[None]:
    """This thread and a busy process on one processor."""
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    busy = subprocess.Popen([sys.executable, "-c", BUSY % one], stdout=subprocess.PIPE)
    assert busy.stdout is not None
    busy.stdout.readline()
    os.sched_setaffinity(0, one)
    yield
    os.sched_setaffinity(0, allowed)
    busy.kill()
    busy.communicate()


@pytest.mark.skipif(not Path(running_time.WAITS).exists(), reason="this system does not count waits for a processor")
def test_the_system_counts_what_another_process_costs(crowded: None) -> None:
    thread = Waits()
    before = thread.seconds()
    while thread.seconds() - before < 0.05:  # ends, for the two share a processor
        sum(range(10_000))
