"""What a detector got wrong, one row each: its false alarms, the failures and the instabilities that it missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.protocols import HEALTHY, WARNING
from studies.abroad.scoring import Judged, instabilities
from studies.abroad.sources import RunSet


class Mistake(TypedDict):
    """A row of ``abroad_mistakes.csv``; the detector stands beside it."""

    set: str
    run: str
    kind: str
    """Kind of training, or model."""
    fault: str
    mistake: str
    """``false alarm``, ``missed failure`` or ``missed instability``."""
    record: int
    """The false alarm's, or the first in which an alert would have been right; numbered from 0."""
    step: int
    score: float
    """The highest from ``record`` to the last in which an alert would have been right."""
    records_since_alert: int | None
    instabilities_before: int


def mistakes(source: RunSet, scores: NDArray[np.float64], threshold: float, judged: Judged) -> Iterator[Mistake]:
    """Mistakes of a detector with these scores, shape (records,), in the runs that a group of the source has.

    ``judged``: what :func:`~studies.abroad.scoring.judge` says of them.
    """
    timeline = source.timeline
    grouped = np.any([group.runs for group in source.groups], axis=0)
    starts = timeline.starts(scores)
    for at in np.flatnonzero(starts.at(threshold) & (starts.zone == HEALTHY) & grouped[starts.run]).tolist():
        run = int(starts.run[at])
        record = int(np.searchsorted(timeline.step[timeline.records(run)], starts.step[at]))
        yield _mistake(source, scores, threshold, "false alarm", run, slice(record, record + 1))
    for run in np.flatnonzero((judged.missed > 0) & grouped).tolist():
        zone = np.flatnonzero(timeline.zone[timeline.records(run)] == WARNING)
        yield _mistake(source, scores, threshold, "missed failure", run, slice(int(zone[0]), int(zone[-1]) + 1))
    for run, due in instabilities(source):
        if grouped[run] and not (scores[timeline.records(run)][due] > threshold).any():
            yield _mistake(source, scores, threshold, "missed instability", run, due)


def _mistake(
    source: RunSet, scores: NDArray[np.float64], threshold: float, mistake: str, number: int, due: slice
) -> Mistake:
    run, of_run = source.study.runs[number], scores[source.timeline.records(number)]
    alerts = np.flatnonzero(of_run[: due.start] > threshold)
    labels = source.labels[number].excursions if source.labels else ()
    return {
        "set": source.name,
        "run": run.name,
        "kind": run.model_type,
        "fault": run.fault,
        "mistake": mistake,
        "record": due.start,
        "step": int(run.observations.step[due.start]),
        "score": float(np.fmax.reduce(of_run[due])),
        "records_since_alert": due.start - int(alerts[-1]) if len(alerts) else None,
        "instabilities_before": sum(item.end < due.start for item in labels),
    }
