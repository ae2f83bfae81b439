from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest

from rmetric.monitor.hardware import HardwareReport, HardwareSource, HardwareUnavailable, HardwareWatch, KernelLogSource
from rmetric.monitor.hardware.watch import QUEUE_LENGTH
from rmetric.twins.watching import close_hardware_watch
from tests.monitor.hardware.fake_nvml import FakeGpu, FakeNvml

LOST = HardwareReport("Faulty GPU", "fatal", 0, "Xid 79", identity="lost 0000:65:00")
DISK = HardwareReport("SSD", "correctable", 0, "I/O error")
PATIENCE_S = 20.0


class Script:
    """A source that answers what it was told to, poll by poll; then nothing."""

    def __init__(self, *answers: list[HardwareReport] | Exception, name: str = "a script") -> None:
        self.name = name
        self.answers = list(answers)
        self.polls = 0
        self.closed = 0

    def poll(self) -> list[HardwareReport]:
        self.polls += 1
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1


class Stuck(Script):
    """A source whose poll does not come back until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.go = threading.Event(), threading.Event()

    def poll(self) -> list[HardwareReport]:
        self.inside.set()
        self.go.wait(PATIENCE_S)
        return []


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def by_hand(*sources: HardwareSource, clock: Callable[[], float] = time.monotonic) -> HardwareWatch:
    return HardwareWatch(sources, interval_s=None, clock=clock)


@pytest.fixture(autouse=True, scope="module")
def _no_watch_of_other_tests() -> None:
    """Recorded runs share one watch a process, which earlier tests may have left open."""
    close_hardware_watch()


def polling_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rmetric-hardware"]


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not any(thread.name == "rmetric-hardware" for thread in threading.enumerate()))


def test_reports_are_drained_once_and_in_order() -> None:
    watch = by_hand(Script([DISK, LOST], [DISK]), Script([LOST]))
    assert watch.drain() == []
    assert watch.poll_once()
    assert watch.drain() == [DISK, LOST]
    watch.poll_once()
    assert watch.drain() == [DISK]
    assert watch.drain() == watch.notes() == []


def test_an_event_that_two_sources_see_is_one_event() -> None:
    clock = Clock()
    nvml, log = Script([LOST], [], [LOST], [LOST], name="NVML"), Script([LOST], [LOST], [], [], [LOST], name="log")
    watch = by_hand(nvml, log, clock=clock)
    found = []
    for _ in range(5):
        watch.poll_once()
        found.append(len(watch.drain()))
        clock.now_s += 4.0
    # Seen by NVML at 0, 8 and 12 s; the log's at 0, 4 and 16 s are within 5 s of one of those.
    assert found == [1, 0, 1, 1, 0]


def test_an_event_that_comes_again_later_is_another() -> None:
    clock = Clock()
    watch = by_hand(Script([LOST], name="NVML"), Script([], [LOST], name="log"), clock=clock)
    watch.poll_once()
    clock.now_s = 5.1
    watch.poll_once()
    assert watch.drain() == [LOST, LOST]


def test_reports_without_an_identity_are_all_kept() -> None:
    watch = by_hand(Script([DISK], name="one"), Script([DISK], name="other"))
    watch.poll_once()
    assert watch.drain() == [DISK, DISK]


@pytest.mark.parametrize(
    ("error", "warning"),
    [
        (HardwareUnavailable("every watched GPU is lost"), "every watched GPU is lost; λ counts slow steps only"),
        (
            RuntimeError("no\nluck"),
            "a script failed: RuntimeError: no luck; λ counts slow steps only",
        ),
    ],
)
def test_a_source_that_fails_is_taken_out_with_one_warning(error: Exception, warning: str) -> None:
    source = Script([DISK], error, [LOST])
    watch = by_hand(source)
    assert watch.poll_once()
    assert not watch.poll_once()
    assert not watch.poll_once()
    assert watch.drain() == [DISK]
    assert watch.notes() == [warning]
    assert watch.notes() == []
    assert (source.polls, source.closed) == (2, 1)


def test_the_other_sources_go_on() -> None:
    watch = by_hand(Script(OSError("gone")), Script([DISK], [DISK], name="the kernel log"))
    assert watch.poll_once() and watch.poll_once()
    assert watch.drain() == [DISK, DISK]
    assert watch.notes() == ["a script failed: OSError: gone; λ counts the kernel log and slow steps"]


def test_a_source_that_does_not_close_does_no_harm() -> None:
    class Clinging(Script):
        def close(self) -> None:
            raise OSError("no")

    sources = Clinging(), Script()
    by_hand(*sources).close()
    assert sources[1].closed == 1


def test_nothing_grows_while_nobody_fetches() -> None:
    clock = Clock()
    flood = [
        [HardwareReport("SSD", "correctable", 0, identity=f"{poll} {n}") for n in range(100)] for poll in range(50)
    ]
    watch = by_hand(Script(*flood), clock=clock)
    for _ in flood:
        watch.poll_once()
        clock.now_s += 10.0
    assert len(watch._seen) <= 100
    reports = watch.drain()
    assert len(reports) == QUEUE_LENGTH
    assert reports[-1].identity == "49 99"
    assert watch.notes() == [f"more than {QUEUE_LENGTH} hardware reports wait to be fetched; the oldest are dropped"]


@pytest.mark.usefixtures("no_thread_is_left")
def test_the_thread_polls_by_itself_and_closes_its_sources() -> None:
    source = Script([DISK], [LOST])
    with HardwareWatch([source], interval_s=0.001) as watch:
        found: list[HardwareReport] = []
        until(lambda: found.extend(watch.drain()) or len(found) == 2)
        until(lambda: source.polls > 3)
    assert found == [DISK, LOST]
    assert source.closed == 1
    polls = source.polls
    watch.close()
    assert (source.polls, source.closed) == (polls, 1)


@pytest.mark.usefixtures("no_thread_is_left")
def test_the_thread_ends_with_its_last_source() -> None:
    watch = HardwareWatch([Script(HardwareUnavailable("gone"))], interval_s=0.001)
    until(lambda: not polling_threads())
    assert watch.notes() == ["gone; λ counts slow steps only"]
    watch.close()


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_stuck_source_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmetric.monitor.hardware.watch.CLOSE_WAIT_S", 0.01)
    source = Stuck()
    watch = HardwareWatch([source], interval_s=60.0)
    assert source.inside.wait(PATIENCE_S)
    assert watch.drain() == watch.notes() == []
    watch.close()
    assert source.closed == 0  # it may be inside the driver
    assert not source.go.is_set()
    source.go.set()
    until(lambda: source.closed == 1)


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_watch_that_nobody_closed_goes_with_its_thread() -> None:
    source = Script()
    watch = HardwareWatch([source], interval_s=0.001)
    until(lambda: source.polls > 1)
    del watch
    gc.collect()
    until(lambda: source.closed == 1)


def test_without_sources_there_is_no_thread() -> None:
    with HardwareWatch([]) as watch:
        assert not polling_threads()
        assert not watch.poll_once()


@pytest.mark.parametrize("interval_s", [0.0, -1.0, float("nan")])
def test_an_interval_that_makes_no_sense_is_refused(interval_s: float) -> None:
    with pytest.raises(ValueError, match="interval_s must be above 0"):
        HardwareWatch([], interval_s=interval_s)


def _in_a_child(watch: HardwareWatch, answer: SimpleQueue[object]) -> None:
    found = watch.drain(), watch.notes(), watch.poll_once()
    watch.close()
    answer.put(found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_process_sees_an_empty_watch_and_never_waits() -> None:
    source = Stuck()
    with HardwareWatch([Script([DISK]), source], interval_s=60.0, notes=["a warning"]) as watch:
        assert source.inside.wait(PATIENCE_S)  # its lock is held while the process forks
        context = multiprocessing.get_context("fork")
        answer = context.SimpleQueue()
        child = context.Process(target=_in_a_child, args=(watch, answer))
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 0
        assert answer.get() == ([], [], False)
        assert watch.drain() == [DISK]
        assert watch.notes() == ["a warning"]
        source.go.set()
    assert source.closed == 1


def test_a_program_ends_though_a_watch_is_left_open() -> None:
    code = (
        "import time\n"
        "from rmetric.monitor.hardware import HardwareWatch\n"
        "class Source:\n"
        "    name = 'a source'\n"
        "    def poll(self): return []\n"
        "    def close(self): print('closed', flush=True)\n"
        "watch = HardwareWatch([Source()], interval_s=3600.0)\n"
        "print('end', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["end", "closed"], "")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text("")
    return path


def test_automatic_watches_what_there_is_without_a_warning(log: Path) -> None:
    gpu = FakeGpu()
    with HardwareWatch.automatic(library=FakeNvml(gpu), kernel_log=str(log), interval_s=None, worker=3) as watch:
        assert watch.notes() == []
        watch.poll_once()
        assert watch.readings()[3]["power_w"] == 300.0
        gpu.events.append(94)
        log.write_text(
            "NVRM: Xid (PCI:0000:65:00): 94, Contained memory error\n"
            "NVRM: Xid (PCI:0000:77:00): 94, of somebody else\n"
            "I/O error, dev sda, sector 1\n"
        )
        watch.poll_once()
        assert [(report.component, report.worker) for report in watch.drain()] == [("GPU HBM3 memory", 3), ("SSD", 3)]


def test_automatic_says_in_one_warning_what_there_is_not(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = str(log.with_name("missing"))
    with HardwareWatch.automatic(kernel_log=missing) as watch:
        assert watch.notes() == [
            "nvidia-ml-py is not installed; the kernel log cannot be read (No such file or directory); "
            "λ counts slow steps only"
        ]
    with HardwareWatch.automatic(kernel_log=str(log), interval_s=None) as watch:
        assert watch.notes() == ["nvidia-ml-py is not installed; λ counts the kernel log and slow steps"]
        assert watch.readings() == {}
    with HardwareWatch.automatic(library=FakeNvml(FakeGpu()), kernel_log=missing, interval_s=None) as watch:
        assert watch.notes() == [
            "the kernel log cannot be read (No such file or directory); λ counts NVML and slow steps"
        ]
    with HardwareWatch.automatic(library=FakeNvml(FakeGpu()), kernel_log=None, interval_s=None) as watch:
        assert watch.notes() == []


def test_a_library_that_is_no_library_does_not_stop_the_training() -> None:
    with HardwareWatch.automatic(library=object(), kernel_log=None) as watch:
        assert watch.notes() == [
            "AttributeError: 'object' object has no attribute 'NVMLError'; λ counts slow steps only"
        ]


def test_a_gpu_lost_mid_run_leaves_the_step_times_with_one_warning() -> None:
    gpu = FakeGpu()
    with HardwareWatch.automatic(library=FakeNvml(gpu), kernel_log=None, interval_s=None) as watch:
        watch.poll_once()
        gpu.lost = FakeNvml.NVML_ERROR_GPU_IS_LOST
        for _ in range(4):
            watch.poll_once()
        assert [(report.component, report.kind) for report in watch.drain()] == [("Faulty GPU", "fatal")]
        assert watch.notes() == ["every watched GPU is lost; λ counts slow steps only"]
        assert watch.readings() == {}


def test_a_lost_gpu_is_one_event_though_the_kernel_says_so_too(log: Path) -> None:
    gpus = FakeGpu(), FakeGpu(bus_id="00000000:66:00.0")
    with HardwareWatch.automatic(library=FakeNvml(*gpus), kernel_log=str(log), interval_s=None) as watch:
        watch.poll_once()
        log.write_text("NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.\n")
        gpus[1].lost = FakeNvml.NVML_ERROR_GPU_IS_LOST
        watch.poll_once()
        watch.poll_once()
        (report,) = watch.drain()
        assert (report.component, report.worker) == ("Faulty GPU", 1)


def test_sources_fulfil_their_contract(log: Path) -> None:
    source: HardwareSource = KernelLogSource(str(log))
    assert source.name
    source.close()
