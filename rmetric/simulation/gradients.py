"""Gradient norms over workers and sizes of updates that a simulated run shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rmetric.faults import RunProcesses
from rmetric.simulation.dynamics import OVERFLOW_NATS, Excess, FloatsRT, correlated
from rmetric.simulation.healthy import Healthy, HealthyParameters
from rmetric.streams import RunStreams

MOMENTUM = 0.9
"""Share of Adam's first moment that is left after a step: so fast do updates fade when the gradient is 0."""


def worker_norms(
    parameters: HealthyParameters,
    streams: RunStreams,
    healthy: Healthy,
    processes: RunProcesses,
    excess: Excess,
    ends: Sequence[int],
) -> Iterator[NDArray[np.float32]]:
    """Gradient norm of each worker, large where the loss is high or has just been thrown off.

    Yields the runs one by one, each of shape (workers, its end): so little stays in the processor's cache.
    """
    architecture = processes.architecture
    span = architecture.initial_loss - architecture.irreducible_loss
    base = 0.25 + 2.5 * ((healthy.loss - architecture.irreducible_loss) / span) ** 0.8
    thrown_off = np.minimum(excess.displacement / healthy.loss, OVERFLOW_NATS)
    size = base * np.sqrt(1.0 + parameters.gradient_per_excess * thrown_off) * processes.gradient_factor
    size[processes.collapsed] = 0.0
    bad = healthy.bad_batch > 0.0
    size[bad] *= (1.0 + healthy.bad_batch[bad]) ** parameters.benign_spike_gradient
    spread = (parameters.worker_spread * (1.0 + parameters.mix_shift_worker_spread * healthy.mixed)).astype(np.float32)
    # Where workers come apart, some have more and others less: the batch as a whole keeps its size.
    wider, further = processes.gradient_noise_factor, parameters.benign_spike_worker_spread * healthy.bad_batch
    apart = (wider != 1.0) | bad
    for row, (generator, end) in enumerate(zip(streams.generators("worker gradients"), ends, strict=True)):
        z = generator.standard_normal((end, architecture.workers), dtype=np.float32).T.copy()
        # A cubic term makes the tails heavy: the largest of a run's 40,000 draws is far beyond a Gaussian's.
        norms = z * z
        norms *= np.float32(parameters.worker_tail)
        norms += np.float32(1.0)
        norms *= z
        norms *= spread[row, :end]
        at = np.flatnonzero(apart[row, :end])
        logarithm = norms.take(at, axis=1) * wider[row, at].astype(np.float32)
        logarithm += z.take(at, axis=1) * (spread[row, at] * further[row, at].astype(np.float32))
        np.exp(norms, out=norms)
        norms[:, at] = _with_mean_of(norms.take(at, axis=1), np.exp(logarithm))
        norms *= size[row, :end].astype(np.float32)
        yield norms


def update_rms(
    parameters: HealthyParameters,
    streams: RunStreams,
    learning_rate: FloatsRT,
    processes: RunProcesses,
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


def _with_mean_of(even_WN: NDArray[np.float32], norms_WN: NDArray[np.float32]) -> NDArray[np.float32]:
    """Norms scaled so that each column has the other one's mean."""
    return norms_WN * (_mean(even_WN) / _mean(norms_WN))


def _mean(norms_WN: NDArray[np.float32]) -> NDArray[np.float32]:
    sums = norms_WN
    while len(sums) > 1:  # in single precision a sum depends on its order: neighbours first
        sums = np.concatenate([sums[:-1:2] + sums[1::2], sums[len(sums) // 2 * 2 :]])
    return np.asarray(sums[0] / np.float32(len(norms_WN)))
