"""Step times leave out what the thread that trains waits for a processor, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.monitor import step_clock
from rmetric.monitor.step_clock import StepClock, ThreadWaits, Waits, own_clock

BUSY = """
import os
os.sched_setaffinity(0, %s)
print(flush=True)
while True:
    pass
"""


def test_a_clock_is_told_of_waits_and_leaves_them_out() -> None:
    now = waits = 0.0
    clock = StepClock(lambda: now, waited=lambda: waits)
    now, waits = 3.0, 2.0
    clock.tick()  # what was before the first step counts for none
    now, waits = 10.25, 9.0
    clock.tick()
    assert clock.read() == pytest.approx(0.25)
    for _ in range(4):
        now, waits = now + 0.5, waits + 0.25
        clock.tick()
    assert clock.read() == pytest.approx(0.25)
    now += 0.5
    clock.tick()
    assert clock.read() == pytest.approx(0.5)


def test_waits_in_a_pause_are_no_step_s_and_those_before_it_are() -> None:
    now = waits = 0.0
    clock = StepClock(lambda: now, waited=lambda: waits)
    clock.tick()
    now, waits = 1.0, 0.75
    with clock.paused():
        now, waits = 6.0, 4.0
    now += 0.5
    clock.tick()
    assert clock.read() == pytest.approx(0.75)
    clock.leave_out()
    now, waits = 10.0, 7.0
    clock.tick()
    now += 1.0
    clock.tick()
    assert clock.read() == pytest.approx(1.0)


def test_waits_of_another_thread_are_not_taken_for_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {threading.get_native_id(): 1.0}
    monkeypatch.setattr(ThreadWaits, "seconds", lambda self: counts.get(self.number, 1_000.0))
    waited = Waits()
    assert waited() == 0.0
    thread = threading.Thread(target=waited)
    thread.start()
    thread.join()
    counts[threading.get_native_id()] = 1.5
    assert waited() == 0.0  # begins anew with the thread
    counts[threading.get_native_id()] = 1.75
    assert waited() == pytest.approx(0.25)


FILES = Path("/proc/self/fd")


@pytest.mark.skipif(not FILES.is_dir(), reason="this system does not tell which files are open")
def test_a_forked_process_counts_its_own_waits_and_no_file_is_left_open() -> None:
    def files() -> int:  # of the waits alone: other threads open files when they like
        return sum(file.is_symlink() and file.readlink().name == "schedstat" for file in FILES.iterdir())

    before = files()
    waited = Waits()
    open_in_use = files()
    assert open_in_use == before + Path(step_clock.COUNTED).exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads may hold locks: the child takes none
        child = os.fork()
    if not child:
        waited()
        os._exit(0 if waited._thread.number == threading.get_native_id() and files() == open_in_use else 1)
    assert os.waitpid(child, 0)[1] == 0
    del waited
    assert files() == before


def test_where_nobody_counts_waits_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for content in (None, "", "not numbers here"):
        path = tmp_path / "schedstat"
        if content is not None:
            path.write_text(content)
        monkeypatch.setattr(step_clock, "COUNTED", str(path))
        waited = Waits()
        assert waited() == waited() == 0.0


@pytest.fixture
def crowded() -> Iterator[None]:
    """This thread and a busy process on one processor."""
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    busy = subprocess.Popen([sys.executable, "-c", BUSY % one], stdout=subprocess.PIPE)
    busy.stdout.readline()
    os.sched_setaffinity(0, one)
    yield
    os.sched_setaffinity(0, allowed)
    busy.kill()
    busy.communicate()


counted = pytest.mark.skipif(
    not Path(step_clock.COUNTED).exists(), reason="this system does not count waits for a processor"
)


@counted
def test_the_system_counts_what_another_process_costs(crowded: None) -> None:
    waited = Waits()
    while waited() < 0.05:  # ends, for the two share a processor
        sum(range(10_000))


@counted
def test_a_clock_of_one_s_own_stands_still_meanwhile(crowded: None) -> None:
    own = own_clock()
    begin, own_begin = time.perf_counter(), own()
    waited = Waits()
    while waited() < 0.05:
        sum(range(10_000))
    own_end, end = own(), time.perf_counter()
    assert end - begin - (own_end - own_begin) >= 0.05
