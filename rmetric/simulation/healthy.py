"""Healthy training: schedule, loss, noise, and the benign spikes and shifts of the data mix that look like faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import Architecture
from rmetric.streams import RunStreams

FloatsRT = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HealthyParameters:
    """Parameters of healthy training; their values stand in ``parameters.json``, with what each was fitted to."""

    warm_up_share: float
    """Share of the steps in which the learning rate rises linearly to its peak."""
    final_learning_rate_rel: float
    """Learning rate at the end of the cosine, over the peak."""
    loss_exponent: float
    """Exponent of the power law of the loss."""
    loss_scale_steps: float
    """Steps at peak learning rate after which the power law sets in."""
    minibatch_noise: float
    """Standard deviation of a batch's loss over the loss."""
    held_out_noise: float
    """The same for an evaluation that draws a new held-out sample."""
    healing_rate: float
    """Log-rate a step at which a small excess heals at peak learning rate."""
    jitter_nats: float
    """Excess that a step's noise causes by itself, nats: the seed of any instability."""
    gradient_per_excess: float
    """a: while a kick of x, relative to the loss, heals, the gradient norm is √(1 + a x) times as large."""
    benign_spikes_per_1000_steps: float
    """Mean number of loss spikes that heal by themselves, in 1,000 steps; a bad batch on purpose counts as one."""
    warm_up_spikes: float
    """Mean number of further spikes in the warm-up."""
    benign_spike_size: float
    """Median height of a spike in the training loss, over the loss."""
    benign_spike_spread: float
    """Standard deviation of the logarithm of the height."""
    benign_spike_held_out: float
    """Share of the height that the held-out loss sees, and that training has to heal; the rest is the batch's own."""
    benign_spike_gradient: float
    """g: a batch whose loss is 1 + h times as high has a gradient norm (1 + h)^g times as large."""
    benign_spike_worker_spread: float
    """b: the spread over workers of such a batch is 1 + b h times as large."""
    mix_shifts_per_1000_steps: float
    """Mean number of passing shifts of the data mix in 1,000 steps; one on purpose counts as one."""
    mix_shift_size: float
    """Mean shift of the training loss, over the loss; below 0 where the other text is the easier one."""
    mix_shift_spread: float
    """Standard deviation of that over shifts."""
    mix_shift_steps: tuple[int, int]
    """Shortest and longest shift."""
    mix_shift_held_out: float
    """Shift of the held-out loss meanwhile, over the loss."""
    mix_shift_worker_spread: float
    """b: meanwhile, the spread over workers is 1 + b times as large."""
    worker_spread: float
    """s: a worker's gradient norm is exp(s z (1 + c z²)) times the mean size, z standard normal."""
    worker_tail: float
    """c: weight of the cubic term that makes the spread heavy-tailed."""
    update_level: float
    """Root mean square of an update over the learning rate."""
    update_spread: float
    """Standard deviation of the logarithm of that."""
    update_correlation_steps: float
    """Steps after which 37 % of a deviation of that are left."""
    wobble_correlation_steps: float
    """The same of the way a faulty run strays about its path."""
    step_time_spread: float
    """Standard deviation of the logarithm of the step time."""
    straggler_probability: float
    """Probability that a step waits for a straggler."""
    straggler_s: float
    """Mean wait for a straggler, seconds."""


@dataclass
class Healthy:
    """Processes of a batch of healthy runs; shapes as in :class:`rmetric.faults.RunProcesses`."""

    learning_rate_rel: NDArray[np.float64]
    """(T,)."""
    loss: NDArray[np.float64]
    """Expected loss, nats, (T,)."""
    minibatch: FloatsRT
    """Noise of the training loss, relative, with the batch's own part of benign spikes."""
    bad_batch: FloatsRT
    """Heights of benign spikes over the loss, in the one step that has the bad batch; 0 elsewhere."""
    mix_shift: FloatsRT
    """Shift of the training loss by the data mix, relative."""
    mixed: FloatsRT
    """Extent to which the data mix is shifted: 1 in the midst of a shift, 0 without one."""
    kick: FloatsRT
    """Benign spikes and jitter, nats."""
    step_time_s: FloatsRT


def learning_rate_rel(steps: int, parameters: HealthyParameters) -> NDArray[np.float64]:
    """Warm-up and cosine, over the peak, shape (steps,), in (0, 1]."""
    step = np.arange(1, steps + 1)
    warm_up = max(1, round(parameters.warm_up_share * steps))
    decay = (step - warm_up) / max(1, steps - warm_up)
    final = parameters.final_learning_rate_rel
    cosine = final + (1 - final) * 0.5 * (1 + np.cos(np.pi * np.clip(decay, 0.0, 1.0)))
    return np.where(step < warm_up, step / warm_up, cosine)


def expected_loss(learning_rate: NDArray[np.float64], architecture: Architecture, parameters: HealthyParameters):
    """Power law in the sum of learning rates, from ln(vocabulary) towards the irreducible loss, nats, shape (T,)."""
    progress = np.cumsum(learning_rate) / parameters.loss_scale_steps
    span = architecture.initial_loss - architecture.irreducible_loss
    return architecture.irreducible_loss + span * (1.0 + progress) ** -parameters.loss_exponent


def healthy_processes(architecture: Architecture, streams: RunStreams, parameters: HealthyParameters) -> Healthy:
    """Draw a batch of healthy runs."""
    rate = learning_rate_rel(streams.steps, parameters)
    waits = streams.random("straggler") < parameters.straggler_probability
    step_time_s = architecture.step_time_s * np.exp(parameters.step_time_spread * streams.normal("step time"))
    step_time_s += waits * streams.exponential("straggler seconds") * parameters.straggler_s
    jitter = parameters.jitter_nats * np.abs(streams.normal("jitter")) * rate
    batches, spikes = _benign_spikes(streams, parameters)
    loss = expected_loss(rate, architecture, parameters)
    share = parameters.benign_spike_held_out
    mixed, mix_shift = _mix_shifts(streams, parameters)
    return Healthy(
        learning_rate_rel=rate,
        loss=loss,
        minibatch=parameters.minibatch_noise * streams.normal("minibatch") + (1.0 - share) * batches,
        bad_batch=batches,
        mix_shift=mix_shift,
        mixed=mixed,
        kick=jitter + share * spikes * loss,
        step_time_s=step_time_s,
    )


def _benign_spikes(streams: RunStreams, parameters: HealthyParameters) -> tuple[FloatsRT, FloatsRT]:
    """Heights over the loss, each (R, T): of one bad batch, and of the rise within some steps that parameters see."""
    shape = (len(streams.seeds), streams.steps)
    batches, kicks = np.zeros(shape), np.zeros(shape)
    warm_up = max(1, round(parameters.warm_up_share * streams.steps))
    mean = parameters.benign_spikes_per_1000_steps * streams.steps / 1000.0
    for row, generator in enumerate(streams.generators("benign spikes")):
        anywhere = generator.integers(0, streams.steps, size=generator.poisson(mean))
        early = generator.integers(0, warm_up, size=generator.poisson(parameters.warm_up_spikes))
        for start in np.concatenate([anywhere, early]):
            spread = parameters.benign_spike_spread * generator.standard_normal()
            height = parameters.benign_spike_size * np.exp(spread)
            rise = int(generator.integers(1, 6))
            batches[row, start] += height
            kicks[row, start : start + rise] += height / rise
    return batches, kicks


def _mix_shifts(streams: RunStreams, parameters: HealthyParameters) -> tuple[FloatsRT, FloatsRT]:
    """Extent of the shift of the data mix, and relative shift of the training loss; each (R, T)."""
    shape = (len(streams.seeds), streams.steps)
    mixed, shifts = np.zeros(shape), np.zeros(shape)
    mean = parameters.mix_shifts_per_1000_steps * streams.steps / 1000.0
    for row, generator in enumerate(streams.generators("mix shifts")):
        for _ in range(generator.poisson(mean)):
            start = int(generator.integers(0, streams.steps))
            length = min(int(generator.integers(*parameters.mix_shift_steps)), streams.steps - start)
            size = parameters.mix_shift_size + parameters.mix_shift_spread * generator.standard_normal()
            ramp = np.minimum(np.minimum(np.arange(length), np.arange(length)[::-1]) / 20.0, 1.0)
            mixed[row, start : start + length] += ramp
            shifts[row, start : start + length] += size * ramp
    return mixed, shifts
