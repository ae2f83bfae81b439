"""Strangers' runs on one timeline, as the protocols count: a record is a step of one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmetric.evaluation.ground_truth import DIVERGED, Truth
from rmetric.evaluation.protocols import HEALTHY, Timeline
from rmetric.records import Run
from studies.abroad.labels import AHEAD, Label, label_of


def record_timeline(runs: Sequence[Run]) -> Timeline:
    """Timeline of labelled runs, whose clock is the record: one stands for 1 to 500 steps, and episodes are of records.

    Zones are those of :meth:`studies.abroad.labels.Label.zones`; healthy steps are healthy records.
    """
    lengths = [len(run.observations) for run in runs]
    labels = [label_of(run) for run in runs]
    zones = [label.zones(length) for label, length in zip(labels, lengths, strict=True)]
    return Timeline(
        truths=tuple(_truth(label, length) for label, length in zip(labels, lengths, strict=True)),
        step=np.concatenate([np.empty(0, np.int64), *(np.arange(length) for length in lengths)]),
        run=np.repeat(np.arange(len(runs)), lengths),
        bounds=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        zone=np.concatenate([np.empty(0, np.int8), *zones]),
        healthy_steps=np.array([int((zone == HEALTHY).sum()) for zone in zones], dtype=np.int64),
    )


def _truth(label: Label, records: int) -> Truth:
    """An alarm warns of a failure if it comes within the :data:`~studies.abroad.labels.AHEAD` records before it."""
    if label.failure is None:
        return Truth("clean", None, None, records)
    return Truth("failed", max(label.failure - AHEAD, 0), label.failure, records, DIVERGED)
