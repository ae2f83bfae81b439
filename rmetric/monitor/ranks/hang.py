"""Find out from what the ranks say of themselves which of them holds up the others, and tell of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmetric.errors import LOGGER
from rmetric.log_writer import encode_event
from rmetric.monitor.ranks.phases import BACKWARD, ENDED, EVALUATION, EXCHANGE, FORWARD, INPUT, PAUSED, UPDATE
from rmetric.records import Event

ORDER = {UPDATE: 0, INPUT: 1, EVALUATION: 1, PAUSED: 1, FORWARD: 2, BACKWARD: 3, EXCHANGE: 4, ENDED: 5}
"""Phase → its place in a step. Ranks in a later one wait for those in an earlier one."""
WHERE = {
    UPDATE: "in its update",
    INPUT: "in its input (data loading, or whatever comes between two steps)",
    FORWARD: "in its forward pass",
    BACKWARD: "in its backward pass",
    EXCHANGE: "in the exchange of gradients",
    EVALUATION: "in an evaluation",
    PAUSED: "in a pause",
    ENDED: "after its last step",
}


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
        """The hang as a sentence for people."""
        several = len(self.workers) > 1
        who = f"worker{'s' if several else ''} {', '.join(map(str, self.workers))}"
        where = WHERE.get(self.phase, self.phase)
        if self.silent:
            how = f"last seen {where}, and does not answer: the process is stopped or killed, or its machine is gone"
        elif self.phase == ENDED:
            how = "has left the training while the others go on"
        else:
            how = f"stays {where}" + (f", at {self.stack[-1]}" if self.stack else "")
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

    Parameters
    ----------
    own
        The overdue rank.
    beats
        Rank → its latest beat, the own one included.
    silence_s
        Rank → seconds since its latest beat was new.
    silent_after_s
        Seconds after which a rank is silent.

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
