"""Detectors beside a flip: which of them saw it, and when."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmetric.detectors import make_detector
from rmetric.measurements import MACHINE_MEASUREMENTS
from rmetric.records import Observations

SCORED = (
    "update_rms_threshold", "numerics", "r_metric_robust", "robust_z", "zclip", "grad_norm", "loss_spike", "r_metric"
)  # fmt: skip
"""Detectors that are scored, at their published thresholds; nothing is fitted to flips."""
WITHIN_STEPS = 10
"""A detector has seen a flip if it alarms within so many steps, the faulty one included."""

Alarms = dict[str, np.ndarray]
"""Detector → steps at which its score is above its threshold."""


def alarms_of(observations: Observations) -> Alarms:
    """Every detector over a whole run, without measurements of the machine, in which no flip shows."""
    found = {}
    for name in SCORED:
        scores, threshold = _scores(name, observations)
        found[name] = observations.step[scores > threshold]
    return found


def judged_steps_of(observations: Observations) -> dict[str, tuple[int, int]]:
    """Detector → number of records above its threshold, number of records that it could judge."""
    found = {}
    for name in SCORED:
        scores, threshold = _scores(name, observations)
        found[name] = int((scores > threshold).sum()), int((~np.isnan(scores)).sum())
    return found


def _scores(name: str, observations: Observations) -> tuple[np.ndarray, float]:
    detector = make_detector(name)
    kept = {key: column for key, column in observations.columns.items() if key not in MACHINE_MEASUREMENTS}
    return detector.score_run(Observations(observations.step, kept, observations.evaluated)), detector.threshold


def first_seen(own: Alarms, twin: Alarms, onset: int) -> Mapping[str, int | None]:
    """Detector → steps from the flip to its first alarm that the twin has not at the same step; None: not seen.

    What the detectors score are records. A record holds the gradient of its step but the update of the step before, so
    the update's size can alarm one step late at the earliest.
    """
    delays: dict[str, int | None] = {}
    for name, steps in own.items():
        new = [int(step) for step in steps if onset <= step < onset + WITHIN_STEPS and step not in twin[name]]
        delays[name] = new[0] - onset if new else None
    return delays
