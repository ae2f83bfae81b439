"""Gradient norms over workers and sizes of updates that a simulated run shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.faults import Processes
from rmetric.simulation.dynamics import OVERFLOW_NATS, Excess, FloatsRT, correlated
from rmetric.simulation.healthy import Healthy, HealthyParameters
from rmetric.streams import RunStreams

MOMENTUM = 0.9
"""Share of Adam's first moment that is left after a step: so fast do updates fade when the gradient is 0."""


def worker_norms(
    parameters: HealthyParameters, streams: RunStreams, healthy: Healthy, processes: Processes, excess: Excess
) -> NDArray[np.float32]:
    """Gradient norm of each worker, shape (R, T, workers): large where the loss is high or has just been thrown off."""
    architecture = processes.architecture
    span = architecture.initial_loss - architecture.irreducible_loss
    base = 0.25 + 2.5 * ((healthy.loss - architecture.irreducible_loss) / span) ** 0.8
    thrown_off = np.minimum(excess.displacement / healthy.loss, OVERFLOW_NATS)
    size = base * np.sqrt(1.0 + parameters.gradient_per_excess * thrown_off) * processes.gradient_factor
    size[processes.collapsed] = 0.0
    bad = healthy.bad_batch > 0.0
    size[bad] *= (1.0 + healthy.bad_batch[bad]) ** parameters.benign_spike_gradient
    spread = (parameters.worker_spread * (1.0 + parameters.mix_shift_worker_spread * healthy.mixed)).astype(np.float32)
    z = streams.normal32("worker gradients", (streams.steps, architecture.workers))
    # A cubic term makes the tails heavy: the largest of a run's 40,000 draws is far beyond a Gaussian's.
    norms = z * z
    norms *= np.float32(parameters.worker_tail)
    norms += np.float32(1.0)
    norms *= z
    norms *= spread[:, :, None]
    # Where workers come apart, some have more and others less: the batch as a whole keeps its size.
    wider, further = processes.gradient_noise_factor, parameters.benign_spike_worker_spread * healthy.bad_batch
    apart = (wider != 1.0) | bad
    logarithm = norms[apart] * wider[apart].astype(np.float32)[:, None]
    logarithm += z[apart] * (spread[apart] * further[apart].astype(np.float32))[:, None]
    np.exp(norms, out=norms)
    norms[apart] = _with_mean_of(norms[apart], np.exp(logarithm))
    norms *= size.astype(np.float32)[:, :, None]
    norms *= processes.worker_gradient_factor
    return norms


def update_rms(
    parameters: HealthyParameters,
    streams: RunStreams,
    learning_rate: FloatsRT,
    processes: Processes,
    broken: NDArray[np.bool_],
) -> FloatsRT:
    """Root mean square of an Adam update: the learning rate times a factor that hardly depends on the gradient."""
    noise = correlated(streams.normal("update"), parameters.update_correlation_steps)
    update = (
        parameters.update_level * learning_rate * processes.update_factor * np.exp(parameters.update_spread * noise)
    )
    if processes.collapsed.any():
        update *= MOMENTUM ** np.minimum(np.cumsum(processes.collapsed, axis=1), 60)
    update[broken] = np.nan
    return update


def _with_mean_of(even_NW: NDArray[np.float32], norms_NW: NDArray[np.float32]) -> NDArray[np.float32]:
    """Norms scaled so that each row has the other one's mean."""
    return norms_NW * (even_NW.mean(axis=1) / norms_NW.mean(axis=1))[:, None]
