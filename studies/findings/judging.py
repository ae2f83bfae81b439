"""Right and wrong findings of one tool, and the problems that it found."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rmetric.diagnosis import FAILED, SEVERITIES, diagnose
from rmetric.errors import UserError
from rmetric.records import Run
from rmetric.states import RECOGNISERS
from studies.abroad.scoring import alerts_in, numbers_of
from studies.findings.truth import WHOLE, Labelled, Problem
from studies.states.population import Healthy

EARLY = 3
"""Records before a problem in which a finding about it may begin: an onset is a step, a record a mean of some."""
BLOCKS = 30
"""A state's first step is known to within two of its sixty blocks."""


@dataclass(frozen=True)
class Said:
    """One finding of a tool about a run."""

    kind: str
    first: int
    """First record that it speaks of; 0 if it names none."""
    last: int = WHOLE
    """Last record that it speaks of."""
    dated: bool = True
    """Whether the tool names a step."""
    mild: bool = False
    """Whether it is a mere note: it has passed."""


@dataclass(frozen=True)
class Answer:
    """What a tool says of a run."""

    said: tuple[Said, ...]
    seconds: float
    readable: bool = True


def ours(run: Run) -> Answer:
    """Findings of this project, without the failure that a log states itself: it is no detection, but the label."""
    started = time.perf_counter()
    found = [one for one in diagnose(run).findings if one.name != FAILED]
    seconds = time.perf_counter() - started
    at = [np.searchsorted(run.observations.step, (one.step, one.until)).tolist() for one in found]
    said = (
        Said(one.name, first, last, mild=one.severity == SEVERITIES[0])
        for one, (first, last) in zip(found, at, strict=True)
    )
    return Answer(tuple(said), seconds)


def answers_of(file: Path, runs: Iterable[Labelled]) -> list[Answer]:
    """Answers out of a CSV with columns ``set, run, kind, step, seconds``.

    A row without a kind says that the tool had nothing to say, one of kind ``unreadable`` that it could not read the
    log; a row without a step names a finding without one.

    Raises
    ------
    UserError
        If it is no such file, or a run has no row.
    """
    table = alerts_in(file, "kind", "seconds")
    table = table.assign(seconds=numbers_of(table, "seconds", file, "a number is due"))
    by_run = dict(iter(table.groupby(["set", "run"])))
    found = []
    for labelled in runs:
        rows = by_run.get((labelled.set, labelled.run.name))
        if rows is None:
            raise UserError(f"{file} has no row for run {labelled.run.name!r} of {labelled.set}")
        found.append(_answer(rows, labelled.run))
    return found


def _answer(rows: pd.DataFrame, run: Run) -> Answer:
    step = run.observations.step
    said = []
    for kind, at in zip(rows["kind"], rows["step"], strict=True):
        if isinstance(kind, str) and kind != "unreadable":
            dated = not np.isnan(at)
            first = int(np.searchsorted(step, at)) if dated else 0
            said.append(Said(kind, first, first if dated else WHOLE, dated))
    return Answer(tuple(said), float(rows["seconds"].max()), "unreadable" not in set(rows["kind"]))


def about(said: Said, problem: Problem, records: int) -> bool:
    """Return whether a finding can be about a problem: its kind fits, and it begins within it or is not dated."""
    if problem.kinds and said.kind not in problem.kinds:
        return False
    early = records // BLOCKS if said.kind in RECOGNISERS else EARLY
    return not said.dated or (said.first >= problem.begin - early and said.first <= problem.end)


def verdict(said: Said, labelled: Labelled) -> str:
    """``right``, ``wrong`` in a run with a problem, ``false`` in a healthy one, or ``unknown``.

    Unknown is what a benign disturbance may explain, and overfitting in a run that sees examples more than once.
    """
    records = len(labelled.run.observations)
    if any(about(said, problem, records) for problem in labelled.problems):
        return "right"
    if labelled.disturbed is not None and (not said.dated or said.first >= labelled.disturbed - EARLY):
        return "unknown"
    if not Healthy(labelled.set, labelled.run).counts_for(said.kind):
        return "unknown"
    return "wrong" if labelled.problems else "false"


def verdicts(runs: Sequence[Labelled], answers: Sequence[Answer]) -> pd.DataFrame:
    """One row a finding: ``set, kind, verdict``, and ``run``, its number."""
    rows = [
        (labelled.set, said.kind, verdict(said, labelled), number)
        for number, (labelled, answer) in enumerate(zip(runs, answers, strict=True))
        for said in answer.said
    ]
    return pd.DataFrame(rows, columns=["set", "kind", "verdict", "run"])


def problems(runs: Sequence[Labelled], answers: Sequence[Answer]) -> pd.DataFrame:
    """One row a problem: ``set, problem, outcome``, whether it is ``found``, and the ``kinds`` of these findings."""
    rows = []
    for labelled, answer in zip(runs, answers, strict=True):
        records = len(labelled.run.observations)
        for problem in labelled.problems:
            kinds = {said.kind for said in answer.said if _touches(said, problem, records)}
            rows.append((labelled.set, problem.name, problem.outcome, bool(kinds), kinds))
    return pd.DataFrame(rows, columns=["set", "problem", "outcome", "found", "kinds"])


def _touches(said: Said, problem: Problem, records: int) -> bool:
    """True if a finding is about a problem, or goes on into it: events of one kind are one finding."""
    goes_on = said.dated and said.first < problem.begin <= said.last < WHOLE
    fits = not problem.kinds or said.kind in problem.kinds
    return about(said, problem, records) or (goes_on and fits and problem.end < WHOLE)


MEANT: Mapping[str, tuple[str, ...]] = {
    "NOT_FINITE": ("NAN_BATCH",),
    "LOSS_RISE": ("DATA_CORRUPTION", "LABELS_MISALIGNED", "LABEL_MAP_SHIFT", "LAYER_REINITIALISED", "instability"),
    "GRADIENT_RISE": ("GRADIENT_EXPLOSION", "ACCUMULATION_NOT_DIVIDED"),
    "UPDATE_RISE": ("LR_SPIKE", "LARGE_LR"),
    "GRADIENT_REPEATS": (
        "SAME_BATCH_FOR_EVER",
        "SHUFFLING_OFF",
        "MISSING_ZERO_GRAD",
        "STALE_GRADIENTS",
        "STALE_WEIGHTS",
    ),
    "SETTING_CHANGED": (
        "WEIGHT_DECAY_TOO_LARGE",
        "MOMENTUM_WRONG",
        "DROPOUT_STATE",
        "EVAL_MODE_IN_TRAINING",
        "NORM_STATISTICS_FROZEN",
        "SAME_BATCH_FOR_EVER",
        "MISSING_ZERO_GRAD",
        "WRONG_NORMALISATION",
        "STALE_WEIGHTS",
        "WEIGHTS_ROT",
        "BF16_WEIGHTS",
        "LARGE_LR",
        "SCHEDULE_STEPPED_TWICE",
        "NO_CLIPPING",
        "GRADIENT_CLIPPED_TOO_LOW",
        "WORKERS_SHARE_SEED",
    ),
    "HARDWARE_EVENTS": ("NODE_FAILURE",),
    "SLOW_STEPS": ("NETWORK_DEGRADATION",),
    "WORSE_LEVEL": ("DATA_CORRUPTION", "LABELS_MISALIGNED", "LABEL_MAP_SHIFT", "LARGE_LR", "failure"),
    "NEVER_LEARNS": ("NEVER_LEARNS",),
    "GRADIENT_GROWS": ("GRADIENT_GROWS",),
}
"""Kind of finding → problems that it is meant for."""
