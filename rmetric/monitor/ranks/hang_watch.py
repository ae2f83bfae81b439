"""Watch from a thread that training goes on; where it does not, say which rank holds it up, and where."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from rmetric.errors import LOGGER, UserError, on_one_line
from rmetric.monitor.processes import Processes
from rmetric.monitor.ranks.hang import Beat, Hang, Heartbeats, culprits
from rmetric.monitor.ranks.phases import ENDED, EVALUATION, PAUSED, PhaseClock
from rmetric.records import Event

SILENT_BEATS = 5
"""Beats that a rank must miss to be silent."""
SILENT_S = 3.0
"""Seconds that it must be silent at least."""
FACTOR = 10.0
WINDOW = 300
"""Patience as a multiple of the longest of so many recent pauses."""
SETTLED_STEPS = 10
"""Steps after which the run's own pauses are known; the first ones allocate, compile, find each other."""
MOST_FRAMES = 25
SLOW_WORK = {
    "torch.serialization": "a checkpoint",
    "torch.distributed.checkpoint": "a checkpoint",
    "safetensors": "a checkpoint",
    "torch._dynamo": "compilation",
    "torch._inductor": "compilation",
    "torch.export": "compilation",
    "triton.compiler": "compilation",
}
"""Package → what takes long in it, in the order of its healthy use: none of it is a hang."""


@dataclass(frozen=True, kw_only=True)
class HangWatch:
    """Settings of the watch for hangs: ``TrainingMonitor(..., hang=HangWatch(floor_s=30.0))``."""

    floor_s: float = 60.0
    """Shortest time without progress that is a hang, seconds; ten times the run's own longest recent pause if that is
    more."""
    startup_s: float = 600.0
    """The same before the tenth step, seconds: processes find each other, memory is allocated, code is compiled."""
    slow_s: float = 3600.0
    """The same in an evaluation, a pause, a checkpoint or a compilation, seconds."""
    interval_s: float = 1.0
    """Seconds between two looks, and between two messages to the other ranks."""
    on_hang: Callable[[Hang], object] | None = None
    """Called once for each hang, on every rank that is alive, from the watching thread."""

    def __post_init__(self) -> None:
        for name in ("floor_s", "startup_s", "slow_s", "interval_s"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"{name} must be above 0 s, not {getattr(self, name)}")


class Patience:
    r"""An adaptive time-out.

    .. math:: \max(floor,\; 10 \max(\text{pauses between two changes of phase, among the recent}))

    A pause that turned out to be harmless thus makes it longer.

    >>> patience = Patience(floor_s=60.0, startup_s=600.0)
    >>> patience.seconds(steps=3), patience.seconds(steps=50)
    (600.0, 60.0)
    >>> patience.note(12.0)
    >>> patience.seconds(steps=50)
    120.0
    """

    def __init__(self, floor_s: float, startup_s: float) -> None:
        self._floor_s, self._startup_s = floor_s, startup_s
        self._pauses_s: deque[float] = deque(maxlen=WINDOW)

    def note(self, pause_s: float) -> None:
        """Take in the longest pause since the last call."""
        self._pauses_s.append(pause_s)

    def seconds(self, steps: int) -> float:
        """The patience of a process that has made so many steps."""
        if steps < SETTLED_STEPS:
            return self._startup_s
        return max(self._floor_s, FACTOR * max(self._pauses_s, default=0.0))


class HangThread:
    """The watch of one rank: a daemon thread that only reads, so that it delays nothing.

    ``tell`` receives the events ``HANG`` and ``HANG_OVER``.
    """

    def __init__(
        self,
        settings: HangWatch,
        processes: Processes,
        phases: PhaseClock,
        tell: Callable[[Event], object],
    ) -> None:
        self._settings, self._rank = settings, processes.rank
        self._phases, self._tell = phases, tell
        self._patience = Patience(settings.floor_s, settings.startup_s)
        self._trains = threading.get_ident()
        self._awake_s = time.monotonic()
        """Since when this process has been running without having been stopped from outside."""
        self._hang: tuple[Hang, int] | None = None
        """The present hang, and the changes of phase at its beginning."""
        self._stop = threading.Event()
        self._heartbeats = Heartbeats(processes, self._beat, settings.interval_s)
        self._thread = threading.Thread(target=self._run, name="rmetric-hang", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch; returns within a second. May be called twice."""
        self._stop.set()
        self._heartbeats.close()
        if self._thread is not threading.current_thread():
            self._thread.join(0.5)

    def _run(self) -> None:
        looked_s = time.monotonic()
        while not self._stop.wait(self._settings.interval_s):
            try:
                now = time.monotonic()
                if now - looked_s > self._settings.interval_s + SILENT_S:
                    self._awake_s = now  # stopped, or starved: what lies before says nothing of the training
                looked_s = now
                self._look()
            except Exception as error:  # noqa: BLE001 - whatever happens here, training goes on
                LOGGER.warning("hangs are not watched any longer: %s", on_one_line(error))
                return

    def _look(self) -> None:
        self._patience.note(self._phases.longest_pause())
        if self._hang is not None:
            if self._phases.place.moves != self._hang[1]:
                self._over()
            return
        own = self._beat(0)
        if not own.overdue or own.excuse:
            return
        others, silence_s = self._heartbeats.heard()
        beats, silence_s[self._rank] = {self._rank: own, **others}, 0.0
        silent_after_s = max(SILENT_S, SILENT_BEATS * self._settings.interval_s)
        if self._heartbeats.unreachable_s > silent_after_s:
            keeper = self._heartbeats.keeper
            found: tuple[int, ...] = (keeper,) if keeper is not None and keeper in others else ()
            silent = True
        else:
            found, silent = culprits(self._rank, dict(sorted(beats.items())), silence_s, silent_after_s)
        if found:
            self._found(found, silent, beats, own)

    def _found(self, workers: tuple[int, ...], silent: bool, beats: dict[int, Beat], own: Beat) -> None:
        first = beats[workers[0]]
        stack = () if silent else tuple(first.stack)
        hang = Hang(workers, first.step + 1, first.phase, own.stuck_s, silent, stack, self._rank)
        self._hang = (hang, self._phases.place.moves)
        if self._settings.on_hang is not None:
            try:
                self._settings.on_hang(hang)
            except Exception as error:  # noqa: BLE001 - whatever a callback does, the others are to be told
                LOGGER.warning("on_hang raised %s", on_one_line(error))
        self._tell(hang.event())

    def _over(self) -> None:
        assert self._hang is not None
        hang, self._hang = self._hang[0], None
        if self._phases.place.phase != ENDED:
            self._tell({"event": "HANG_OVER", "step": hang.step, "workers": list(hang.workers), "seen_by": self._rank})

    def _beat(self, count: int) -> Beat:
        """This rank's place; with a stack only if it has been there for long, because that costs a little."""
        place, now = self._phases.place, time.monotonic()
        stuck_s = now - max(place.since_s, self._awake_s)
        patience_s = self._patience.seconds(self._phases.steps)
        if place.phase == ENDED or stuck_s < patience_s / 2:
            return Beat(count, place.step, place.phase, stuck_s)
        stack = _stack_of(self._trains)
        excuse = _slow_work(stack)
        if place.phase in (EVALUATION, PAUSED) or self._phases.evaluating:
            excuse = excuse or "an evaluation or a pause"
        if stuck_s > self._settings.slow_s:
            excuse = ""
        return Beat(count, place.step, place.phase, stuck_s, stuck_s > patience_s, excuse, stack)


def _stack_of(thread: int) -> list[str]:
    """The frames of a thread of this process, outermost first, as ``module:function:line``; empty if it has ended."""
    frame: FrameType | None = sys._current_frames().get(thread)
    found: list[str] = []
    while frame is not None and len(found) < MOST_FRAMES:
        found.append(f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return found[::-1]


def _slow_work(stack: Sequence[str]) -> str:
    """What a stack is busy with, of :data:`SLOW_WORK`; empty: nothing of the kind.

    >>> _slow_work(["__main__:train:12", "torch.serialization:save:944"])
    'a checkpoint'
    """
    for frame in reversed(stack):
        for package, work in SLOW_WORK.items():
            if frame.startswith((f"{package}:", f"{package}.")):
                return work
    return ""
