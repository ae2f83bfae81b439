"""Estimate λ, σ² and ΔL from the numbers of a step, and make its observation."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from rmetric.advice import TRAINED
from rmetric.log_writer import at_log_precision
from rmetric.measurements import MECHANISM, Observation, in_convention
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.hardware import SLOW_STEPS
from rmetric.monitor.pending_step import ArrivedStep
from rmetric.monitor.step_numbers import StepNumbers
from rmetric.signals import GradientNoiseScale, HardwareFailureRate, ValidationDrift, event_worker, gradient_variance

VALIDATION, TRAINING = "validation loss", "smoothed training loss"
SMOOTHING = 2.0 / 51.0
"""Weight of a new training loss in its running mean: a memory of about 50 steps."""


class LossDrift:
    """Latest ΔL, and the kind of loss it was made of.

    Two drifts are kept apart, so that no mean ever mixes training and validation losses.
    """

    def __init__(self) -> None:
        self._validation, self._training = ValidationDrift(), ValidationDrift()
        self._smoothed = math.nan
        self._latest = math.nan
        self.source = TRAINING
        """Kind of loss that :meth:`update` uses."""

    def validation(self, loss: float) -> None:
        """Take in a new validation loss, nats."""
        drift = self._validation.update(loss)
        if not math.isnan(drift):
            self._latest, self.source = drift, VALIDATION

    def update(self, training_loss: float) -> float:
        """ΔL after a step with this training loss, nats; NaN in the first step."""
        if self.source == VALIDATION:
            return self._latest
        if not math.isfinite(training_loss):
            return math.inf
        first = math.isnan(self._smoothed)
        self._smoothed = training_loss if first else self._smoothed + SMOOTHING * (training_loss - self._smoothed)
        return self._training.update(self._smoothed)


WINDOW = "window"
WINDOW_STEPS = 8
"""Gradient norms in the variance of a run without workers or micro-batches: as many as the paper has workers."""
FROZEN_RECORDS = 32
"""Records in a row in which fewer parameters than before require a gradient, from which on fewer are trained."""
SCALER_PATIENCE = 8
"""Non-finite steps in a row that a gradient scaler may need to find its scale: no first guess is off by over 2^8."""


class TrainedTensors:
    """How many tensors are trained, and whether these have just become fewer.

    An expert may go without a gradient for a while, and networks that are trained in turn require none in turn: neither
    is frozen. What was announced since the last of more is no news, nor is a number that was told of before.

    >>> trained = TrainedTensors()
    >>> numbers = [trained.update(4, required, planned=False) for required in [4] * 9 + [2] * FROZEN_RECORDS]
    >>> numbers[0], numbers[-1], trained.news
    (4.0, 2.0, SettingChange(setting='the number of tensors that are trained', before=4.0, now=2.0))
    """

    def __init__(self) -> None:
        self._number, self._fewer_records = 0.0, 0
        self._since_planned, self._known = FROZEN_RECORDS, list[float]()
        self.news: SettingChange | None = None
        """That they have become fewer, in the record that says so."""

    def update(self, parameters: int, required: float, *, planned: bool) -> float:
        """The highest number with a gradient since layers were frozen, where it has changed; else NaN.

        ``planned``: whether a change was announced since the record before.
        """
        before, self.news = self._number, None
        self._fewer_records = self._fewer_records + 1 if required < before else 0
        self._since_planned = 0 if planned else self._since_planned + 1
        if self._fewer_records == FROZEN_RECORDS:
            self._number, self._fewer_records = float(required), 0
            if self._since_planned >= FROZEN_RECORDS and self._number not in self._known:
                self.news = SettingChange(TRAINED, before, self._number)
            self._known.append(self._number)
        else:  # what is frozen may keep the zeros of its last gradient
            self._number = max(before, float(min(parameters, required)))
        return math.nan if self._number == before else self._number


class Estimators:
    """The streaming estimators of one run. Values are at log precision, so that a replay computes with the same ones.

    Where a gradient scaler skips steps that are not finite (``scaled``), a few in a row are its normal work and not
    measured. Between two measurements of σ² from parts of a batch (``sigma_sq_every`` observations) the latest value
    holds.
    """

    _record_every = 1
    """In checkpoints of older versions alone."""

    def __init__(self, vocabulary: int | None, *, scaled: bool = False, sigma_sq_every: int = 1) -> None:
        self.keep_sigma_sq(sigma_sq_every)
        self._steps_kept, self._latest_sigma_sq = 0, math.nan
        self._uniform_loss = math.nan if vocabulary is None else math.log(vocabulary)
        self._patience = SCALER_PATIENCE if scaled else 0
        self._non_finite_run = 0
        self._rate = HardwareFailureRate(start_s=0.0)
        self._drift = LossDrift()
        self._norms: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._noise = GradientNoiseScale()
        self._validation_loss = math.nan
        self.trained = TrainedTensors()
        self.elapsed_s = 0.0
        """Training time so far, seconds: what λ counts in."""
        self.sources = {"sigma_sq": WINDOW, "delta_l": self._drift.source}
        """Signal → its source in the latest step."""
        self.noise_scale = math.nan
        """Gradient noise scale B_simple in parts (workers' batches or micro-batches); NaN: not defined."""

    def keep_sigma_sq(self, observations: int) -> None:
        """Let σ² be measured in every so many observations from now on."""
        self._longest_kept = observations - 1

    def observe(self, step: ArrivedStep) -> Observation:
        pending, numbers = step.pending, step.numbers
        for _ in step.reports:
            self._rate.update(self.elapsed_s)
        for validation_loss in pending.since.validation_losses:
            self._validation_loss = in_convention(validation_loss)
            self._drift.validation(validation_loss)
        events = [report for report in step.reports if report.component not in SLOW_STEPS]
        mechanism = step.inside.values if step.inside else {}
        changed = math.nan if pending.changed_settings is None else float(len(step.changes))
        if pending.step_time_s > 0:
            self.elapsed_s += pending.step_time_s * pending.steps
        loss = numbers.scalars.get("training_loss")
        norm, non_finite = self._gradient(numbers)
        update = numbers.scalars.get("update_rms")
        if update == 0.0 and pending.may_be_rounded_away:  # no evidence that none was made
            update = None
        values = {
            "training_loss": in_convention(loss),
            "validation_loss": self._validation_loss,
            "learning_rate": pending.learning_rate * pending.rate_factor,
            "grad_norm": norm,
            "update_rms": in_convention(update),
            "grad_agreement": numbers.scalars.get("grad_agreement", math.nan),
            "step_time_s": pending.step_time_s,
            "lambda_": self._rate.value,
            "sigma_sq": self._sigma_sq(numbers, norm, pending.dispersion_source),
            "delta_l": math.nan if loss is None else self._drift.update(loss),
            "non_finite_count": non_finite,
            "settings_changed": changed,
            "trained_parameters": self.trained.update(
                len(numbers.norms), pending.required_gradients, planned=pending.since.planned_changes > 0
            ),
            "planned_changes": float(pending.since.planned_changes) or math.nan,
            "uniform_gap": loss - self._uniform_loss if loss is not None and math.isfinite(loss) else math.nan,
            "attention_logit_max": in_convention(  # of a sample, where not all were looked at
                numbers.scalars.get("attention_logit_max", mechanism.get("attention_logit_max"))
            ),
            "hardware_events": float(len(events)),
            "event_worker": event_worker([report.worker for report in events if report.worker is not None]),
            "reward": in_convention(pending.since.reward),
        }
        self.sources["delta_l"] = self._drift.source
        # + 0.0: no -0.0
        known = {name: at_log_precision(value) + 0.0 for name, value in values.items() if not math.isnan(value)}
        inside = {name: at_log_precision(value) + 0.0 for name, value in mechanism.items() if name in MECHANISM}
        return Observation(pending.step, **known, evaluated=bool(pending.since.validation), mechanism=inside)

    def _gradient(self, numbers: StepNumbers) -> tuple[float, float]:
        """Global gradient norm (infinite if any is not finite) and the number of gradients that are not finite."""
        if not len(numbers.norms):
            return in_convention(numbers.scalars.get("grad_norm")), math.nan
        broken = len(numbers.norms) - int(np.count_nonzero(np.isfinite(numbers.norms)))
        self._non_finite_run = self._non_finite_run + 1 if broken else 0
        if broken and self._non_finite_run <= self._patience:
            return math.nan, math.nan
        return (math.inf if broken else numbers.norm), float(broken)

    def _sigma_sq(self, numbers: StepNumbers, norm: float, dispersion_source: str) -> float:
        parts = numbers.parts
        if len(parts) > 1:
            self.sources["sigma_sq"] = dispersion_source
            self.noise_scale = self._noise.update(parts, norm)
            self._steps_kept = 0
            self._latest_sigma_sq = float(gradient_variance(parts)) if np.isfinite(parts).all() else math.inf
            return self._latest_sigma_sq
        if math.isfinite(self._latest_sigma_sq) and self._steps_kept < self._longest_kept:
            self._steps_kept += 1
            return math.inf if math.isinf(norm) else self._latest_sigma_sq
        self.sources["sigma_sq"] = WINDOW
        if math.isfinite(norm):
            self._norms.append(norm)
        if math.isinf(norm):
            return math.inf
        return float(gradient_variance(np.array(self._norms))) if len(self._norms) > 1 else math.nan
