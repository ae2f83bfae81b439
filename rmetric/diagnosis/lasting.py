"""Whether what an event was about is so still at the end of the run: detectors get used to what lasts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.diagnosis.events import Event
from rmetric.records import Observations

LATEST = 5
"""Losses whose median is where a run stands."""
EXPLODED = 1000.0
"""Multiple of the largest loss before an event, above which what it was about is no matter of harder data."""


def lasts(event: Event, history: Observations) -> bool:
    """Whether it is so still, with or without alerts, as far as the records of a run tell.

    Whether it has exploded, and what the log says of settings in it, is known by now. Of losses that are above 0
    throughout, the state WORSE_LEVEL tells it.
    """
    if event.kept:
        return True
    if event.kind == "NOT_FINITE" and event.measurement == "validation_loss":
        known = history["validation_loss"]
        return bool(np.isinf(known[~np.isnan(known)][-1:]).any())
    if event.kind != "LOSS_RISE" or event.measurement != "training_loss":
        return False
    losses = _finite(history["training_loss"])
    below_zero = len(losses) > 0 and float(losses.min()) <= 0.0
    return event.exploded or (below_zero and _end(losses) >= 0.5 * (event.before + event.value) > event.before)


def exploded(event: Event, history: Observations) -> bool:
    """Whether the loss has come to stand orders of magnitude above all that it was before a rise."""
    if event.kind != "LOSS_RISE":
        return False
    before = _finite(history["training_loss"][history.step < event.step])
    return len(before) > 0 and _end(_finite(history["training_loss"])) > EXPLODED * float(np.abs(before).max())


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _end(losses: NDArray[np.float64]) -> float:
    return float(np.median(losses[-LATEST:]))
