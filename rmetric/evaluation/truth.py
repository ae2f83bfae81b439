"""The truth about a run, read from its log: how it ended, when its fault began, when it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from rmetric.evaluation.ground_truth import is_undecided
from rmetric.records import DIVERGED, FAILURE, Run, step_of, whole_step

TruthKind = Literal["failed", "recovered", "clean", "censored", "incomplete"]
KINDS: tuple[TruthKind, ...] = get_args(TruthKind)


@dataclass(frozen=True)
class Truth:
    """The truth about a run, as its log states it."""

    kind: TruthKind
    """Kind as in :class:`~rmetric.evaluation.ground_truth.Outcome`; ``incomplete``: the log has no last line that says
    how the run ended."""
    onset: int | None
    """Step at which a fault was injected; ``None`` for a control, or if the run ended before."""
    failure_step: int | None
    """``None`` unless failed."""
    horizon: int
    """Step at which training was to end; the last one of a log that does not say."""
    reason: str | None = None
    """Reason of the failure, as the log has it."""

    @property
    def counted(self) -> bool:
        """True if the run enters the scores; censored and incomplete runs do not."""
        return self.kind in ("failed", "recovered", "clean")

    @property
    def incubation(self) -> int | None:
        """Steps from the onset to the failure, the longest lead there could be; ``None`` unless both are known."""
        return None if self.onset is None or self.failure_step is None else self.failure_step - self.onset


def truth_of(run: Run) -> Truth:
    """The truth about a run, from its log.

    A log without a last line is incomplete, never a success. A faulty run that succeeds is *recovered* unless the log
    says ``"outcome": "censored"``; a run into which no fault was injected, and which succeeds, is *clean*. A divergence
    in the last 50 steps is *censored* whatever the log says of it (:mod:`rmetric.evaluation.ground_truth` writes no
    such log, others do), but not where the log does not say when training was to end: it stops at its failure.
    """
    terminal, onset = run.terminal, _onset(run)
    stated = whole_step(run.config.get("total_training_steps"))
    horizon = stated or run.last_step
    if terminal is None:
        return Truth("incomplete", onset, None, horizon)
    if terminal["event"] == FAILURE:
        step = step_of(terminal)
        failure_step = run.last_step if step is None else step
        reason = terminal.get("reason")
        if reason == DIVERGED and stated and is_undecided(failure_step, stated):
            return Truth("censored", onset, None, horizon)
        if onset is not None and onset > failure_step:  # nothing that this fault did
            onset = None
        return Truth("failed", onset, failure_step, horizon, None if reason is None else str(reason))
    outcome = terminal.get("outcome")
    if outcome not in ("clean", "recovered", "censored"):
        outcome = "clean" if onset is None else "recovered"
    return Truth(cast(TruthKind, outcome), onset, None, horizon)


def _onset(run: Run) -> int | None:
    """Step of FAULT_INJECTED, or of the plan in ``config`` if that line is lost and the run got so far."""
    if run.onset is not None or run.is_control:
        return run.onset
    planned = whole_step(run.injection.get("trigger_step"))
    return planned if planned is not None and planned <= run.last_step else None
