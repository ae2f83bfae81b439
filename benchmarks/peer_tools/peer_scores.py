"""Verdicts of the tools as scores of records, so that the project's own protocols count them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.protocols import Counts, Protocol, Timeline
from rmetric.evaluation.scores import Score, false_alarm_bound, summarise
from rmetric.records import Run

WAYS: dict[str, tuple[str, tuple[Protocol, ...]]] = {
    "live": ("live", ("strict", "paper")),
    "named step": ("named", ("strict",)),
    "verdict at the failure": ("verdicts", ("paper",)),
    "verdict afterwards": ("verdicts", ("paper",)),
}
"""Way of use → the part of an answer that it is read from, and the protocols that it can be counted under."""
TIMELESS = Score.undefined("a verdict on a log has no step")
THRESHOLD = 0.5
"""Between 0 (quiet) and 1 (alert)."""

Answer = dict[str, Any]


def broken_part(answer: Answer, way: str) -> str | None:
    """Reason why a tool gave no verdict in this way of use; ``None`` if it gave one."""
    part = WAYS[way][0]
    if "broken" in answer:
        return str(answer["broken"])
    return answer["errors"].get(part)


def scores_of(run: Run, answer: Answer, way: str, alarm: str, cut: int) -> NDArray[np.float64] | None:
    """1 at the records at which the tool alerts, 0 elsewhere, NaN throughout without a verdict; shape (records,).

    A verdict on a log stands at the record of the failure (``cut`` records are up to it), the last one at which the
    paper protocol counts an alert. ``None`` if the tool has no such alarm in this way of use.
    """
    part, records = WAYS[way][0], len(run.observations)
    if broken_part(answer, way) is not None:
        return np.full(records, np.nan)
    scores = np.zeros(records)
    if part == "verdicts":
        raised = answer[part][0 if way == "verdict at the failure" else -1]
        scores[cut - 1] = float(alarm in raised)
        return scores
    if alarm not in answer[part]:
        return None
    steps = answer[part][alarm]["confirmed"] if part == "named" else answer[part][alarm]
    scores[np.isin(run.observations.step, steps)] = 1.0
    return scores


def summary(
    timeline: Timeline,
    scores: NDArray[np.float64],
    protocol: Protocol,
    weights_BR: NDArray[np.float64],
    threshold: float = THRESHOLD,
) -> dict[str, Score]:
    """All scores of one detector or tool with their bootstrap intervals, and the bound of the false-alarm rate."""
    counts = timeline.count(protocol, scores, threshold)
    return {**summarise(counts, weights_BR), **_sums(counts), "false_alarms_upper": false_alarm_bound(counts)}


def timeless(scores: dict[str, Score]) -> dict[str, Score]:
    """The same without leads and shares of the time there was to warn."""
    return {name: TIMELESS if "lead" in name or "share" in name else score for name, score in scores.items()}


def _sums(counts: Counts) -> dict[str, Score]:
    chosen = counts.of(counts.counted)
    return {name: Score(float(getattr(chosen, name).sum())) for name in ("tp", "fp", "fn", "absorbed", "healthy_steps")}


def as_json(score: Score) -> dict[str, Any]:
    """A score without NaN: its value, its interval if there is one, or why it is undefined."""
    if not score.defined:
        return {"undefined": score.reason}
    ends = {"low": rounded(score.low), "high": rounded(score.high)} if score.has_interval else {}
    return {"value": rounded(score.value), **ends}


def rounded(value: float) -> float:
    """Four digits after the point are enough for a benchmark."""
    return round(value, 4)


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of what was measured; ``None`` without any."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return rounded(sum(known) / len(known)) if known else None
