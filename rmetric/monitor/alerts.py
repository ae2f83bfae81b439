"""An alert, and the message in it: what was seen, its likely causes, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rmetric.advice import ADVICE, WEIGHTS_MOVED, Advice, advice_on_settings, possible, setting_in_words
from rmetric.detectors import StreamingDetector
from rmetric.detectors.numerics import broken_evaluation, zero_gradient
from rmetric.measurements import MACHINE_MEASUREMENTS, Observation
from rmetric.monitor.changes import SettingChange
from rmetric.plain_numbers import number_in_words
from rmetric.robust.loss import UNIFORM_NATS

Cause = Literal[
    "not_finite",
    "no_gradient",
    "no_update",
    "uniform_answer",
    "machine",
    "setting_changed",
    "gradient_repeats",
    "off_course",
]
"""What an alert is about. Detectors that see the same are one alert for people."""
_COMPARE = "Compare learning rate and batch of this step with those before; keep the last checkpoint from now."
_BROKEN_BATCH = "Leave this batch out, and find out where its NaN or infinity comes from."
_LIKELY_NAN = (
    "Likely causes, the most frequent first: a learning rate that is too high{rate}, an overflow in half precision, "
    "a bad batch (look at the one of this step); only then the device's memory"
)


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Beginning of an alert episode of one detector and one cause."""

    step: int
    """Step whose values raised it."""
    detector: str
    """Registered name."""
    score: float
    """Infinite for what no healthy step shows, such as a loss that is not finite; JSON has no such number, and the log
    names it in ``non_finite`` instead."""
    threshold: float
    """The score lies above it."""
    message: str
    """Text for people: what was seen, where, and what to do."""
    cause: Cause
    """What it is about."""
    repeats: str = ""
    """Detector whose alert has told people of this cause already; empty: this one tells them."""


@dataclass(frozen=True)
class GradientOutliers:
    non_finite: tuple[str, ...] = ()
    """Parameters whose gradient is not finite, in the order of the model."""
    tensors: int = 0
    """Parameters that have a gradient."""
    largest: str = ""
    """Parameter whose gradient norm has grown most, compared with its own recent mean; empty: unknown."""
    growth: float = math.nan
    """Factor by which it has grown."""


@dataclass(frozen=True)
class Explanation:
    cause: Cause
    seen: Sequence[str]
    advice: str


def explanation_of(
    detector: StreamingDetector,
    observation: Observation,
    outliers: GradientOutliers,
    vocabulary: int | None,
    changes: Sequence[SettingChange] = (),
    *,
    finite_inputs: bool = True,
    moved_elsewhere: bool = False,
) -> Explanation:
    """The gravest thing that a record shows, of those that the detector looks at.

    ``finite_inputs``: False if inputs of the step's batch are seen not to be. ``moved_elsewhere``: whether weights were
    moved by something else than the optimizer since the step before.
    """
    if detector.cause in MACHINE_MEASUREMENTS:
        return _machine(observation, detector.cause)
    return (
        _broken(observation, outliers, finite_inputs=finite_inputs)
        or _dead_or_uniform(observation, vocabulary)
        or _by_cause(detector.cause, observation, outliers, changes, moved_elsewhere=moved_elsewhere)
    )


def _broken(observation: Observation, outliers: GradientOutliers, *, finite_inputs: bool) -> Explanation | None:
    """Explanation of the values that are not finite; ``None`` if all that was measured is finite."""
    loss, norm = observation["training_loss"], observation["grad_norm"]
    if math.isinf(loss) or math.isinf(norm) or outliers.non_finite:
        found = _not_finite(observation, outliers)
        return found if finite_inputs else _of_broken_batch(found, observation)
    if broken_evaluation(observation):
        still = "" if math.isnan(loss) else f", the training loss is still ({number_in_words(loss)})"
        return Explanation(
            "not_finite",
            [f"the validation loss is not finite{still}"],
            "Look at what evaluation alone uses: running statistics of batch norm, other precision, an example that no "
            "training batch has.",
        )
    return None


def _dead_or_uniform(observation: Observation, vocabulary: int | None) -> Explanation | None:
    """That no gradient is left, that every token is answered alike, or both; ``None``: neither."""
    dead, uniform = zero_gradient(observation), abs(observation["uniform_gap"]) <= UNIFORM_NATS
    if not dead and not uniform:
        return None
    seen = ["the gradient norm is exactly 0"] if dead else []
    seen += [f"the loss is ln({vocabulary}): the model answers every token alike"] if uniform else []
    return Explanation(
        "no_gradient" if dead else "uniform_answer",
        [" and ".join(seen)],
        _in_full(ADVICE["UNIFORM_ANSWER" if uniform else "ZERO_GRADIENT"]),
    )


def _by_cause(
    cause: str,
    observation: Observation,
    outliers: GradientOutliers,
    changes: Sequence[SettingChange],
    *,
    moved_elsewhere: bool,
) -> Explanation:
    """What the detector's measurement of the model shows, where all is finite and gradients are left."""
    if cause == "settings_changed":
        advice = advice_on_settings([change.setting for change in changes])
        return Explanation("setting_changed", [setting_in_words(*change) for change in changes], _in_full(advice))
    if cause == "grad_agreement":
        agreement = number_in_words(observation["grad_agreement"])
        return Explanation(
            "gradient_repeats",
            [f"gradients point where those before did (agreement {agreement} of 1)"],
            _in_full(ADVICE["GRADIENT_REPEATS"]),
        )
    updated = cause == "update_rms"
    # beside another cause an update of 0 may be one that a loss scaler left out
    stands = (updated or not cause) and observation["update_rms"] == 0.0
    seen = _off_course(observation, outliers, with_rate=updated or stands)
    if stands:
        return Explanation("no_update", seen, _on_no_update(observation))
    return Explanation("off_course", seen, _in_full(WEIGHTS_MOVED) if updated and moved_elsewhere else _COMPARE)


def _in_full(advice: Advice) -> str:
    return f"Likely causes, the most frequent first: {', '.join(advice.causes)}. {advice.action}"


def note_of_change(step: int, change: SettingChange, records: int) -> str:
    """Compose the message of a change that is no alert, since it is often meant; it has lasted for so many records."""
    advice = _in_full(advice_on_settings([change.setting]))
    return f"Step {step}: {setting_in_words(*change)}, and has been so for {records} records. {advice}"


def alert_message(
    detector: StreamingDetector, observation: Observation, score: float, explanation: Explanation, where: str = ""
) -> str:
    """Compose the message of an alert: what was seen, by whom, and what to do.

    ``where``: part of the model of which the detector's :attr:`~StreamingDetector.cause` is; empty: not known.
    """
    reason = "; ".join(explanation.seen) or "no single value is out of its range"
    found_by = f"found by {detector.title}"
    if math.isfinite(score) and detector.threshold > 0.0:
        found_by += f": {number_in_words(score)}, alerts above {number_in_words(detector.threshold)}"
    if detector.cause and explanation.cause != "not_finite":
        found_by += f", mostly for {detector.cause}" + (f" of {where}" if where else "")
    return f"Step {observation.step}: {reason} ({found_by}). {explanation.advice}"


def _machine(observation: Observation, cause: str) -> Explanation:
    """What the machine did; λ, which counts slow steps too, where it stood out or something else was reported."""
    reported = observation["hardware_events"] > 0.0
    values = {
        "step time {} s": observation["step_time_s"],
        "hardware events in it {}": observation["hardware_events"] if reported else math.nan,
        "most of them of worker {}": observation["event_worker"],
        "λ {} an hour, slow steps counted": observation["lambda"] if reported or cause == "lambda" else math.nan,
    }
    return Explanation(
        "machine",
        _told(values),
        "Look at the machine's errors and at who else uses it; keep the last checkpoint from now.",
    )


def _told(values: Mapping[str, float]) -> list[str]:
    """One part of a message: what was measured, in words."""
    told = ", ".join(text.format(number_in_words(value)) for text, value in values.items() if not math.isnan(value))
    return [told] if told else []


def _not_finite(observation: Observation, outliers: GradientOutliers) -> Explanation:
    loss, rate = observation["training_loss"], observation["learning_rate"]
    gradients = _gradients_in_words(outliers, math.isinf(observation["grad_norm"]))
    if math.isinf(loss):
        seen = f"the loss is not finite; {gradients}" if gradients else "the loss is not finite"
        likely = _LIKELY_NAN.format(rate="" if math.isnan(rate) else f" (it is {number_in_words(rate)})")
        return Explanation("not_finite", [seen], f"Go back to the last checkpoint. {likely}.")
    still = f", the loss is still finite ({number_in_words(loss)})" if not math.isnan(loss) else ""
    return Explanation(
        "not_finite",
        [gradients + still],
        "Do not make this update: skip it or go back to the last checkpoint. Likely causes, the most frequent first: "
        "an overflow in the backward pass (half precision, a loss scale that is too high), a square root or logarithm "
        "of 0, a bad batch; if the same batch, computed again, is finite, the device's memory.",
    )


def _of_broken_batch(found: Explanation, observation: Observation) -> Explanation:
    """The same, where the batch itself is the cause."""
    seen = [*found.seen, "inputs of its batch are not finite"]
    first = (
        "Go back to the last checkpoint." if math.isinf(observation["training_loss"]) else "Do not make this update."
    )
    return Explanation("not_finite", seen, f"{first} {_BROKEN_BATCH}")


def _gradients_in_words(outliers: GradientOutliers, overflow: bool) -> str:
    """How many gradients are not finite, and which: a name for one, first and last in the order of the model for more.

    The backward pass meets the last one first.
    """
    names, tensors = outliers.non_finite, outliers.tensors
    if not names:
        return "the norm of the whole gradient is not finite" if overflow else ""
    if len(names) == 1:
        return f"the gradient of {names[0]} is not finite (1 tensor of {tensors})"
    many = f"all {tensors} gradients" if len(names) == tensors else f"{len(names)} of {tensors} gradients"
    return f"{many} are not finite, in the model's order from {names[0]} to {names[-1]}"


def _off_course(observation: Observation, outliers: GradientOutliers, *, with_rate: bool) -> list[str]:
    values = {
        "loss {}": observation["training_loss"],
        "gradient norm {}": observation["grad_norm"],
        "RMS of the last update {}": observation["update_rms"],
        # a rate that leaps alerts before the update that is made with it
        "learning rate of the next {}": observation["learning_rate"] if with_rate else math.nan,
    }
    seen = _told(values)
    if outliers.largest and outliers.growth > 2.0:
        seen.append(f"the gradient of {outliers.largest} is {outliers.growth:.3g} times its recent mean")
    return seen


def _on_no_update(observation: Observation) -> str:
    """What to do about weights that are not moved."""
    advice = ADVICE["ZERO_UPDATE"]
    if observation["learning_rate"] == 0.0:
        return f"The learning rate is 0: nothing is learned until it rises again. {advice.action}"
    return _in_full(replace(advice, causes=possible(advice.causes, observation["learning_rate"])))
