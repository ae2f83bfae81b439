"""Events judged by all records of the run: whether what they were about lasts, came back, or was a rise for good."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rmetric.diagnosis.events import OF_MACHINE, PER_RATE, Event
from rmetric.episodes import REARM_STEPS
from rmetric.records import Observations
from rmetric.robust.loss import LOST_RECORDS
from rmetric.states.series import Series, finite, since_planned, stands_at

TOLD_TIMES = 10.0
"""Multiple of the largest loss before an event above which a loss that stays is told, however good the model is."""


def lasts(event: Event, history: Observations) -> bool:
    """Whether what an event was about is so still at the end of the run: detectors get used to what lasts.

    Whether it has exploded or come back, and what the log says of settings in it, is known by now. Of losses that are
    above 0 throughout, the state WORSE_LEVEL tells it.
    """
    if event.kept or event.exploded:
        return True
    if event.kind == "NOT_FINITE" and event.measurement == "validation_loss":
        known = history["validation_loss"]
        return bool(np.isinf(known[~np.isnan(known)][-1:]).any())
    if event.kind != "LOSS_RISE" or event.measurement != "training_loss":
        return False
    losses = finite(history, "training_loss").values
    below_zero = len(losses) > 0 and float(losses.min()) <= 0.0
    return below_zero and event.back is None and event.is_up(stands_at(losses))


def back_at(event: Event, history: Observations) -> int | None:
    """Step by which an event was over for good; ``None``: it may go on.

    By then the measurement has had its old level since the last alert for longer than it stayed up since the first, by
    medians of 50 records; of a long run, of as many means (:class:`~rmetric.states.history.History`).
    """
    values = _series(history, event.measurement)
    first, after = np.searchsorted(values.steps, (event.step, event.until + 1))
    whole = values.part(slice(int(after), len(values) - (len(values) - int(after)) % REARM_STEPS))
    medians = np.median(whole.values.reshape(-1, REARM_STEPS), axis=1)
    over = np.flatnonzero(REARM_STEPS * np.cumsum(np.where(event.is_back(medians), 1, -1)) > after - first)
    return int(whole.steps[REARM_STEPS * (over[0] + 1) - 1]) if len(over) else None


def rise_to_the_end(events: Sequence[Event], history: Observations) -> tuple[Event | None, float]:
    """The event with which the loss came to stand manifold above all that it was before, whatever rose first; how many.

    Of those before which it was so low, and during or soon after which it was so high, that is the last. An alert comes
    with the third high loss at the earliest. What was before a change that somebody has announced is no measure.
    """
    history = since_planned(history)
    loss = finite(history, "training_loss")
    if not len(loss):
        return None, 0.0
    for event in reversed([event for event in events if event.kind not in OF_MACHINE]):
        begin, after = np.searchsorted(loss.steps, (event.step, event.until + 1))
        highest = float(np.abs(loss.values[: max(0, begin + 1 - LOST_RECORDS)]).max(initial=0.0))
        soon = loss.values[begin : after + REARM_STEPS].max(initial=-math.inf)
        if min(soon, stands_at(loss.values)) > TOLD_TIMES * highest > 0.0:
            return event, stands_at(loss.values) / highest
    return None, 0.0


def _series(history: Observations, measurement: str) -> Series:
    if measurement != PER_RATE:
        return finite(history, measurement)
    rates = history["learning_rate"]
    known = np.isfinite(history["update_rms"]) & np.isfinite(rates) & (rates > 0.0)
    return Series(history.step[known], history["update_rms"][known] / rates[known])
