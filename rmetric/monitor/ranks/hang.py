"""What ranks say of themselves, past the collectives that may hang, and which of them holds up the others by that."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from rmetric.errors import LOGGER
from rmetric.log_writer import encode_event
from rmetric.monitor.processes import Processes
from rmetric.monitor.ranks.phases import ENDED, EVALUATION, EXCHANGE, PAUSED, UPDATE
from rmetric.monitor.ranks.worker_times import BACKWARD, FORWARD, INPUT
from rmetric.records import Event

ORDER = {UPDATE: 0, INPUT: 1, EVALUATION: 1, PAUSED: 1, FORWARD: 2, BACKWARD: 3, EXCHANGE: 4, ENDED: 5}
"""Phase → its place in a step. Ranks in a later one wait for those in an earlier one."""
WHERE = {
    UPDATE: "in {its} update",
    INPUT: "in {its} input (data loading, or whatever comes between two steps)",
    FORWARD: "in {its} forward pass",
    BACKWARD: "in {its} backward pass",
    EXCHANGE: "in the exchange of gradients",
    EVALUATION: "in an evaluation",
    PAUSED: "in a pause",
    ENDED: "after {its} last step",
}
"""Phase → where a rank is in it; ``{its}`` for one or several."""
SERIAL = itertools.count()
"""Number of the next monitor; the same in every process that makes the same ones."""
STORE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Beat:
    """What a rank says of itself."""

    count: int
    """Number of this beat: one that stays the same is silence."""
    step: int
    phase: str
    stuck_s: float
    """Seconds since it last changed its phase."""
    overdue: bool = False
    """True if that is longer than its patience."""
    excuse: str = ""
    """What it does that may take long; empty: nothing of the kind."""
    stack: Sequence[str] = ()
    """Frames of the thread that trains, once it has been stuck for a while."""

    @property
    def position(self) -> tuple[int, int]:
        return self.step, ORDER.get(self.phase, 0)


class Heartbeats:
    """Exchanges beats through the key-value store of the process group, in a thread of its own.

    The thread may be stuck in the store when the process that keeps it is; what was heard before stays readable.

    ``own`` makes the beat of this rank.
    """

    def __init__(self, processes: Processes, own: Callable[[int], Beat], interval_s: float) -> None:
        self._rank, self._own, self._interval_s = processes.rank, own, interval_s
        self._key = f"rmetric/beats/{next(SERIAL)}"
        self._others = [rank for rank in range(processes.count) if rank != processes.rank]
        self._heard: dict[int, tuple[Beat, float]] = {}
        self._reached_s = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self._others:
            self._thread = threading.Thread(target=self._run, name="rmetric-heartbeats", daemon=True)
            self._thread.start()

    def heard(self) -> tuple[dict[int, Beat], dict[int, float]]:
        """Latest beat of every other rank that was ever heard, and for how many seconds it was none.

        While the store does not answer, nobody's silence counts.
        """
        until, heard = self._reached_s, dict(self._heard)
        return {rank: beat for rank, (beat, _) in heard.items()}, {rank: until - at for rank, (_, at) in heard.items()}

    @property
    def unreachable_s(self) -> float:
        """Seconds since the store last answered; 0 where there is nobody to exchange with."""
        return time.monotonic() - self._reached_s if self._others else 0.0

    @property
    def keeper(self) -> int | None:
        """Rank of the process that keeps the store; ``None``: a launcher does, or a file."""
        by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return None if by_launcher else 0

    def close(self) -> None:
        """Say good-bye; waits for a stuck store no longer than half a second."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(0.5)

    def _run(self) -> None:
        try:
            store: Any = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
            store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
            for count in itertools.count(1):
                self._exchange(store, count)
                if self._stop.wait(self._interval_s):
                    self._exchange(store, count + 1)
                    return
        except Exception:  # noqa: BLE001 - the store went with the process that kept it: silence is all there is
            return

    def _exchange(self, store: Any, count: int) -> None:
        store.set(f"{self._key}/{self._rank}", json.dumps(asdict(self._own(count))))
        known = [rank for rank in self._others if rank in self._heard or store.check([f"{self._key}/{rank}"])]
        answers: Any = store.multi_get([f"{self._key}/{rank}" for rank in known]) if known else []
        now = time.monotonic()
        self._reached_s = now
        for rank, answer in zip(known, answers, strict=True):
            beat = Beat(**json.loads(answer))
            if rank not in self._heard or self._heard[rank][0].count != beat.count:
                self._heard[rank] = (beat, now)


@dataclass(frozen=True)
class Hang:
    """Ranks that hold up the training."""

    workers: tuple[int, ...]
    """Their numbers; all of them if none is behind the others."""
    step: int
    """Step in which they are, counted from 1."""
    phase: str
    """Phase of the first of them, the last known one of a silent rank."""
    stuck_s: float
    """Seconds without progress on the rank that says so."""
    silent: bool
    """True if they do not even answer: stopped, killed, or their machine is gone."""
    stack: tuple[str, ...] = ()
    """Frames of the first of them, outermost first; empty: it could not tell."""
    seen_by: int = 0

    @property
    def message(self) -> str:
        """The hang as a sentence for people.

        >>> print(Hang((0, 1), 7, BACKWARD, 61.0, silent=False).message)
        Step 7: no progress for 61 s; workers 0, 1 stay in their backward pass.
        """
        several = len(self.workers) > 1
        who = f"worker{'s' if several else ''} {', '.join(map(str, self.workers))}"
        its = "their" if several else "its"
        where = WHERE.get(self.phase, self.phase).replace("{its}", its)
        if self.silent:
            how = f"last seen {where}, without an answer since: stopped or killed, or {its} machine is gone"
        elif self.phase == ENDED:
            how = f"{'have' if several else 'has'} left the training while the others go on"
        else:
            how = f"{'stay' if several else 'stays'} {where}" + (f", at {self.stack[-1]}" if self.stack else "")
        return f"Step {self.step}: no progress for {self.stuck_s:.0f} s; {who} {how}."

    def event(self) -> Event:
        return {
            "event": "HANG",
            "step": self.step,
            "phase": self.phase,
            "stuck_s": round(self.stuck_s, 1),
            "silent": self.silent,
            "seen_by": self.seen_by,
            "worker": self.workers[0],
            "workers": list(self.workers),
            "stack": list(self.stack),
            "message": self.message,
        }


def culprits(
    own: int, beats: Mapping[int, Beat], silence_s: Mapping[int, float], silent_after_s: float
) -> tuple[tuple[int, ...], bool]:
    """Ranks that hold up an overdue rank, and whether they are silent; none: it is too early, or there is a reason.

    ``beats`` are the latest of each rank, the own one included; ``silence_s`` says for how many seconds each was not
    new.

    >>> waits = Beat(9, step=4, phase="exchange", stuck_s=70.0, overdue=True)
    >>> loads = Beat(9, step=4, phase="input", stuck_s=71.0, overdue=True)
    >>> culprits(0, {0: waits, 1: loads}, {0: 0.0, 1: 1.0}, 10.0)
    ((1,), False)
    >>> culprits(0, {0: waits, 1: loads}, {0: 0.0, 1: 30.0}, 10.0)
    ((1,), True)
    """
    ended = tuple(rank for rank, beat in beats.items() if beat.phase == ENDED)
    silent = tuple(rank for rank in beats if rank != own and rank not in ended and silence_s[rank] > silent_after_s)
    if silent:
        return silent, True
    alive = {rank: beat for rank, beat in beats.items() if rank not in ended}
    if any(beat.excuse or not beat.overdue for beat in alive.values()):
        return (), False
    if ended and len(alive) < len(beats):
        return ended, False
    first = min(beat.position for beat in alive.values())
    return tuple(rank for rank, beat in alive.items() if beat.position == first), False


def hang_file(log: str | os.PathLike[str]) -> Path:
    """File in which the ranks that do not write the log tell of hangs: the first one may be the one that hangs.

    >>> hang_file("run.jsonl").name
    'run.hangs.jsonl'
    """
    path = Path(log)
    return path.with_name(f"{path.stem}.hangs{path.suffix}")


def beside_the_log(log: str | os.PathLike[str] | None) -> Callable[[Event], None]:
    """Tell of an event through ``logging`` and in the :func:`hang_file` of a log, each line written whole at once."""

    path = None if log is None else hang_file(log).absolute()  # the program may go to another folder

    def tell(event: Event) -> None:
        if "message" in event:
            LOGGER.warning("R-Metric: %s", event["message"])
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, encode_event(event))
            finally:
                os.close(descriptor)

    return tell
