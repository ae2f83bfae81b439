"""A healthy run: everything that happens without a fault, some of which looks like one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import Architecture
from rmetric.streams import RunStreams

FloatsRT = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HealthyParameters:
    """Parameters of healthy training. Orders of magnitude from small real runs; not yet fitted to any."""

    warm_up_share: float = 0.05
    """Share of the steps in which the learning rate rises linearly to its peak."""
    final_learning_rate_rel: float = 0.1
    """Learning rate at the end of the cosine, over the peak."""
    loss_exponent: float = 0.35
    """Exponent of the power law (order of Kaplan et al. 2020, arXiv 2001.08361, for short runs)."""
    loss_scale_steps: float = 10.0
    """Steps at peak learning rate after which the power law sets in."""
    minibatch_noise: float = 0.012
    """Standard deviation of a batch's loss over the loss."""
    held_out_noise: float = 0.004
    """The same for an evaluation that draws a new held-out sample."""
    healing_rate: float = 0.06
    """Log-rate a step at which a small excess heals at peak learning rate."""
    jitter_nats: float = 2e-4
    """Excess that a step's noise causes by itself, nats: the seed of any instability."""
    stability_margin: tuple[float, float] = (0.25, 0.42)
    """Peak learning rate over the stability limit, uniform between the two (a run's own)."""
    instability_gain: float = 0.35
    """Log-rate of growth a step per unit of ln(learning rate / limit) beyond the limit."""
    benign_spikes: float = 4.0
    """Mean number of loss spikes that heal by themselves, a run."""
    warm_up_spikes: float = 1.5
    """The same, in the warm-up alone."""
    benign_spike_nats: float = 0.2
    """Median height of a spike, nats."""
    benign_spike_spread: float = 0.7
    """Standard deviation of the logarithm of the height."""
    mix_shifts: float = 1.5
    """Mean number of passing shifts of the data mix, a run."""
    mix_shift_size: float = 0.02
    """Standard deviation of a shift of the training loss, over the loss."""
    mix_shift_steps: tuple[int, int] = (150, 700)
    """Shortest and longest shift."""
    mix_shift_held_out: float = 0.25
    """Share of the shift that the held-out loss sees."""
    worker_spread: float = 0.06
    """Spread of the logarithm of the gradient norm over workers."""
    worker_tail: float = 0.12
    """Weight of the cubic term that makes the spread heavy-tailed."""
    step_time_spread: float = 0.02
    """Standard deviation of the logarithm of the step time."""
    straggler_probability: float = 0.003
    """Probability that a step waits for a straggler."""
    straggler_s: float = 3.0
    """Mean wait for a straggler, seconds."""


@dataclass
class Healthy:
    """Processes of a batch of healthy runs; shapes as in :class:`rmetric.faults.Processes`."""

    learning_rate_rel: NDArray[np.float64]
    """(T,)."""
    loss: NDArray[np.float64]
    """Expected loss, nats, (T,)."""
    minibatch: FloatsRT
    """Noise of the training loss, relative."""
    mix_shift: FloatsRT
    """Shift of the training loss by the data mix, relative."""
    kick: FloatsRT
    """Benign spikes and jitter, nats."""
    stability_margin: NDArray[np.float64]
    """(R,)."""
    step_time_s: FloatsRT


def learning_rate_rel(steps: int, parameters: HealthyParameters) -> NDArray[np.float64]:
    """Warm-up and cosine, over the peak, shape (steps,), in (0, 1]."""
    step = np.arange(1, steps + 1)
    warm_up = max(1, round(parameters.warm_up_share * steps))
    decay = (step - warm_up) / max(1, steps - warm_up)
    final = parameters.final_learning_rate_rel
    cosine = final + (1 - final) * 0.5 * (1 + np.cos(np.pi * np.clip(decay, 0.0, 1.0)))
    return np.where(step < warm_up, step / warm_up, cosine)


def expected_loss(learning_rate: NDArray[np.float64], architecture: Architecture, parameters: HealthyParameters):  # type: ignore[no-untyped-def]
    """Power law in the sum of learning rates, from ln(vocabulary) towards the irreducible loss, nats, shape (T,)."""
    progress = np.cumsum(learning_rate) / parameters.loss_scale_steps
    span = architecture.initial_loss - architecture.irreducible_loss
    return architecture.irreducible_loss + span * (1.0 + progress) ** -parameters.loss_exponent


def healthy_processes(architecture: Architecture, streams: RunStreams, parameters: HealthyParameters) -> Healthy:
    """Draw a batch of healthy runs."""
    rate = learning_rate_rel(streams.steps, parameters)
    low, high = parameters.stability_margin
    waits = streams.random("straggler") < parameters.straggler_probability
    step_time_s = architecture.step_time_s * np.exp(parameters.step_time_spread * streams.normal("step time"))
    step_time_s += waits * streams.exponential("straggler seconds") * parameters.straggler_s
    jitter = parameters.jitter_nats * np.abs(streams.normal("jitter")) * rate
    return Healthy(
        learning_rate_rel=rate,
        loss=expected_loss(rate, architecture, parameters),
        minibatch=parameters.minibatch_noise * streams.normal("minibatch"),
        mix_shift=_mix_shifts(streams, parameters),
        kick=jitter + _benign_spikes(streams, parameters),
        stability_margin=low + (high - low) * streams.random("stability margin", size=()),
        step_time_s=step_time_s,
    )


def _benign_spikes(streams: RunStreams, parameters: HealthyParameters) -> FloatsRT:
    kicks = np.zeros((len(streams.seeds), streams.steps))
    warm_up = max(1, round(parameters.warm_up_share * streams.steps))
    for row, generator in enumerate(streams.generators("benign spikes")):
        anywhere = generator.integers(0, streams.steps, size=generator.poisson(parameters.benign_spikes))
        early = generator.integers(0, warm_up, size=generator.poisson(parameters.warm_up_spikes))
        for start in np.concatenate([anywhere, early]):
            spread = parameters.benign_spike_spread * generator.standard_normal()
            rise = int(generator.integers(1, 6))
            kicks[row, start : start + rise] += parameters.benign_spike_nats * np.exp(spread) / rise
    return kicks


def _mix_shifts(streams: RunStreams, parameters: HealthyParameters) -> FloatsRT:
    shifts = np.zeros((len(streams.seeds), streams.steps))
    for row, generator in enumerate(streams.generators("mix shifts")):
        for _ in range(generator.poisson(parameters.mix_shifts)):
            start = int(generator.integers(0, streams.steps))
            length = min(int(generator.integers(*parameters.mix_shift_steps)), streams.steps - start)
            size = parameters.mix_shift_size * generator.standard_normal()
            ramp = np.minimum(np.arange(length), np.arange(length)[::-1]) / 20.0
            shifts[row, start : start + length] += size * np.minimum(ramp, 1.0)
    return shifts
