"""An alert, and the message in it: what was seen and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmetric.detectors import StreamingDetector
from rmetric.measurements import Observation
from rmetric.robust.loss import UNIFORM_NATS

MOST_NAMES = 3
"""Parameters that a message names, at most."""
MACHINE_MEASUREMENTS = ("hardware_events", "lambda", "step_time_s", "step_time_max_s")
"""Measurements of the machine rather than of the model."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Beginning of an alert episode of one detector."""

    step: int
    """Step whose values raised it."""
    detector: str
    """Registered name."""
    score: float
    threshold: float
    """The score lies above it."""
    message: str
    """Text for people: what was seen, where, and what to do."""


@dataclass(frozen=True)
class GradientOutliers:
    """Gradients that stand out in a step."""

    non_finite: tuple[str, ...] = ()
    """Parameters whose gradient is not finite."""
    largest: str = ""
    """Parameter whose gradient norm has grown most, compared with its own recent mean; empty: unknown."""
    growth: float = math.nan
    """Factor by which it has grown."""


def alert_message(
    detector: StreamingDetector,
    observation: Observation,
    score: float,
    outliers: GradientOutliers,
    vocabulary: int | None,
    worst: Mapping[str, str] | None = None,
) -> str:
    """Compose the message of an alert: one sentence of what was seen, one of what to do."""
    if detector.cause in MACHINE_MEASUREMENTS:
        seen, advice = _machine_findings(observation)
    else:
        seen, advice = _model_findings(observation, outliers, vocabulary)
    reason = "; ".join(seen) or "no single value is out of its range"
    title = f"{detector.title}: {_number(score)}, above {_number(detector.threshold)}"
    where = (worst or {}).get(detector.cause)
    title += f", mostly for {detector.cause}" if detector.cause else ""
    title += f" of {where}" if where else ""
    return f"Step {observation.step}: {reason} ({title}). {advice}"


def _machine_findings(observation: Observation) -> tuple[list[str], str]:
    """Findings and advice where the machine stands out."""
    events, rate = _number(observation["hardware_events"]), _number(observation["lambda"])
    return (
        [f"step time {_number(observation['step_time_s'])} s, hardware events in it {events}, λ {rate} an hour"],
        "Look at the machine's errors and at who else uses it; keep the last checkpoint from now.",
    )


def _model_findings(
    observation: Observation, outliers: GradientOutliers, vocabulary: int | None
) -> tuple[list[str], str]:
    """Findings in the model's numbers, and advice about the gravest of them."""
    loss, norm = observation["training_loss"], observation["grad_norm"]
    if outliers.non_finite or math.isinf(norm):
        where = _listed(outliers.non_finite) or "a gradient"
        still = "the loss is still finite" if math.isfinite(loss) else "so is the loss"
        return (
            [f"the gradient of {where} is not finite, {still}"],
            "Do not step: skip this update or go back to the last checkpoint, and test the device's memory; a layer "
            "right before it may hold a corrupted weight.",
        )
    if math.isinf(loss):
        return ["the loss is not finite"], "Go back to the last checkpoint and look at the batch of this step."
    if norm == 0.0:
        uniform = abs(observation["uniform_gap"]) <= UNIFORM_NATS and vocabulary
        same = f" and the loss is ln({vocabulary}): the model answers every token alike" if uniform else ""
        return (
            [f"the gradient norm is exactly 0{same}"],
            "Nothing is being learned: check the output projections for a corrupted weight and go back to the last "
            "checkpoint.",
        )
    if abs(observation["uniform_gap"]) <= UNIFORM_NATS:
        return (
            [f"the loss is ln({vocabulary}): the model answers every token alike"],
            "Check the output projections for a corrupted weight and go back to the last checkpoint.",
        )
    seen = [f"loss {_number(loss)}, gradient norm {_number(norm)}, update RMS {_number(observation['update_rms'])}"]
    if outliers.largest and outliers.growth > 2.0:
        seen.append(f"the gradient of {outliers.largest} is {outliers.growth:.3g} times its recent mean")
    return seen, "Compare learning rate and batch of this step with those before; keep the last checkpoint from now."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _number(value: float) -> str:
    return "not measured" if math.isnan(value) else f"{value:.4g}"
