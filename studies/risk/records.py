"""Records of a study that the risk model is fitted to and judged on, with what came of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import ROBUST, Detector, make_detector
from rmetric.episodes import episodes
from rmetric.evaluation.ground_truth import UNDECIDED_STEPS
from rmetric.evaluation.protocols import HEALTHY, IGNORED, Timeline
from rmetric.evaluation.scoring import Scores, by_run, score_study
from rmetric.evaluation.split import groups
from rmetric.evaluation.studies import Study, in_parallel
from rmetric.records import Run
from rmetric.risk.features import FEATURES, features_of
from rmetric.risk.model import family_of

AFTER_ALERT = (0, 1, 2, 3, 5, 8, 13, 20, 35, 50)
"""Steps after an alert at which the model learns to judge it: close together at first, when it matters most."""
AFTER = (0, 5, 20)
"""Steps after an alert at which healing and diagnosis are judged; some of :data:`AFTER_ALERT`."""
HEALING_RATE = "heals, {after} steps after the alert, {asked}"
"""Name of a base rate; ``asked`` is ``all runs`` or ``faulty runs``."""


def default_detector() -> Detector:
    """The detector whose alerts are judged, at its published threshold."""
    return make_detector(ROBUST)


@dataclass(frozen=True)
class Records:
    """Records that count, with what came of them: arrays of shape (n,), features of shape (n, F)."""

    features: NDArray[np.float64]
    run: NDArray[np.int64]
    """Index of the run."""
    group: NDArray[np.int64]
    """Runs that share a seed share a group: they are never torn apart by cross-validation."""
    step: NDArray[np.int64]
    after: NDArray[np.int64]
    """Steps since the alert; −1 where no alert is asked about."""
    failure_step: NDArray[np.float64]
    """+inf for a run that does not fail."""
    observed_until: NDArray[np.float64]
    """Last step at which it is known whether the run has failed."""
    fault_on: NDArray[np.bool_]
    """Whether a fault had been injected by then."""
    family: NDArray[np.str_]
    """Family of the run's fault; ``benign`` without one."""

    def __len__(self) -> int:
        return len(self.run)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        return type(self)(**{item.name: getattr(self, item.name)[chosen] for item in fields(self)})

    @property
    def heals(self) -> NDArray[np.bool_]:
        """Whether the run does not fail after all."""
        return np.isinf(self.failure_step)

    def known_within(self, steps: int) -> NDArray[np.bool_]:
        """Whether it is known what happens within so many steps.

        It depends on the clock alone, not on the outcome, so that leaving the others out favours neither.
        """
        return self.step + steps <= self.observed_until

    def fails_within(self, steps: int) -> NDArray[np.bool_]:
        """Whether the run fails at most so many steps later."""
        return self.failure_step <= self.step + steps


Tables = Mapping[int, NDArray[np.float64]]
"""Index of a run → features of all its records."""


def feature_tables(study: Study, runs_R: NDArray[np.bool_], jobs: int | None = None) -> Tables:
    """Features of some runs."""
    indices = np.flatnonzero(runs_R).tolist()
    tables = in_parallel(features_of, [study.runs[index].observations for index in indices], jobs, "features", "run")
    return dict(zip(indices, tables, strict=True))


def all_records(study: Study, tables: Tables) -> Records:
    """Every record of the runs with features that the strict protocol counts, once.

    These are the healthy ones (those that forks share stand in their control run), those of a fault that ends in
    failure, from the onset to the last before the failure, and those of a fault that heals, to the end; and of control
    runs all that follow a disturbance. Censored and incomplete runs are left out, as everywhere.
    """
    timeline = Timeline.of(study.runs)
    wanted = {}
    for index in _counted(timeline, tables):
        run, zone = study.runs[index], timeline.zone[timeline.records(index)]
        disturbed = run.disturbed_at
        after = np.zeros(len(zone), bool) if disturbed is None else run.observations.step >= disturbed
        rows = np.flatnonzero((zone != IGNORED) | (after & (run.onset is None)))
        wanted[index] = (rows, np.full(len(rows), -1))
    return _records(study, timeline, wanted, tables)


def _counted(timeline: Timeline, tables: Tables) -> list[int]:
    counted = timeline.counted("strict")
    return [index for index in tables if counted[index]]


def alert_steps(study: Study, detector: Detector, jobs: int | None = 1) -> dict[int, list[int]]:
    """Run → steps at which an alert episode of a detector begins, for the runs that have any."""
    return begins_of(study, score_study(study, {detector.name: detector}, jobs=jobs)[detector.name], detector.threshold)


def begins_of(study: Study, scores: Scores, threshold: float) -> dict[int, list[int]]:
    """The same of scores of all records."""
    found = {}
    for index, (run, values) in enumerate(zip(study.runs, by_run(study, scores), strict=True)):
        step = run.observations.step
        begins = episodes(step, values > threshold)
        if len(begins):
            found[index] = step[begins].tolist()
    return found


def alert_records(
    study: Study, tables: Tables, alerts: Mapping[int, Sequence[int]], after: Sequence[int] = AFTER_ALERT
) -> Records:
    """The records some steps after the alerts that count.

    Of a faulty run, the first alert at or after the onset and before the failure; of a control run, every alert (there
    is nothing to heal from but a disturbance, or nothing at all). An alert in the healthy part of a faulty run stands
    in its control run as well and is left out here. Each alert gives the last record at or before ``alert + n`` for
    every ``n`` in ``after`` that lies before the failure and the end of the log.
    """
    timeline = Timeline.of(study.runs)
    wanted: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    for index in _counted(timeline, tables):
        moments = _moments(study.runs[index], timeline, index, alerts.get(index, ()), after)
        if moments:
            rows, since = zip(*moments, strict=True)
            wanted[index] = (np.array(rows, np.int64), np.array(since, np.int64))
    return _records(study, timeline, wanted, tables)


def _moments(
    run: Run, timeline: Timeline, index: int, alerts: Sequence[int], after: Sequence[int]
) -> list[tuple[int, int]]:
    step, truth = run.observations.step, timeline.truths[index]
    zone = timeline.zone[timeline.records(index)]
    end = np.inf if truth.failure_step is None else truth.failure_step
    if truth.onset is None:
        disturbed = run.disturbed_at
        carried = {int(item) for item in step[zone == HEALTHY]}
        usable = [alert for alert in alerts if alert in carried or (disturbed is not None and alert >= disturbed)]
    else:
        usable = [alert for alert in alerts if truth.onset <= alert < end][:1]
    moments = []
    for alert in usable:
        for steps in after:
            row = int(np.searchsorted(step, alert + steps, side="right")) - 1
            if alert + steps < end and alert + steps <= step[-1]:
                moments.append((row, steps))
    return moments


def _records(
    study: Study,
    timeline: Timeline,
    wanted: Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]],
    tables: Tables,
) -> Records:
    indices = list(wanted)
    lengths = [len(wanted[index][0]) for index in indices]
    features = [tables[index][wanted[index][0]] for index in indices]
    steps = [study.runs[index].observations.step[wanted[index][0]] for index in indices]
    step = np.concatenate([*steps, np.empty(0, np.int64)])
    onset = np.repeat([timeline.onset[index] for index in indices], lengths)
    failure = np.repeat([timeline.failure_step[index] for index in indices], lengths)
    families = [family_of(study.runs[index].fault) for index in indices]
    return Records(
        features=np.concatenate([*features, np.empty((0, len(FEATURES)))]),
        run=np.repeat(np.array(indices, np.int64), lengths),
        group=np.repeat(groups(study.runs)[np.array(indices, np.int64)], lengths),
        step=step,
        after=np.concatenate([*(wanted[index][1] for index in indices), np.empty(0, np.int64)]),
        failure_step=np.where(np.isnan(failure), np.inf, failure),
        # An excess that begins in the last steps is undecided, so nothing is known of them.
        observed_until=np.repeat([float(timeline.truths[at].horizon - UNDECIDED_STEPS) for at in indices], lengths),
        fault_on=step >= onset,
        family=np.repeat(np.array(families, dtype=np.str_), lengths),
    )
