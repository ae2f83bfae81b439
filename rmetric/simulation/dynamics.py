"""How an excess of the loss over the healthy run grows, heals and settles, step by step, for many runs at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatsRT = NDArray[np.float64]

OVERFLOW_NATS = 1e3
"""An excess beyond this overflows: the loss is NaN from here on."""
_CEILING = 1e9


@dataclass(frozen=True)
class Excess:
    """Excess over the healthy run, shapes (R, T)."""

    displacement: FloatsRT
    """Nats, at least 0: parameters thrown off; heals by training unless it has gone too far."""
    floor: FloatsRT
    """Relative to the healthy loss, at least 0: what cannot be learned while the fault lasts."""


def integrate(
    kick: FloatsRT, growth: FloatsRT, healing: NDArray[np.float64], floor: FloatsRT, floor_rate: FloatsRT
) -> Excess:
    """Integrate

    .. math::
        x_{t+1} = (x_t + k_t) \\exp(g_t - h_t / (1 + x_t + (x_t / 3)^4)), \\quad
        f_{t+1} = f_t + r_t (F_t - f_t)

    A small excess x heals at the rate h, a large one ever more slowly, and one of several nats (a collapsed model) not
    at all; growth g beyond the healing rate makes it run away.

    Parameters
    ----------
    kick, growth, floor, floor_rate
        k (nats), g (log-rate a step), F (relative), r (share a step), each (R, T).
    healing
        h, log-rate a step, (T,).

    **Source:** the model is this project's own; it is meant to be simple, and to have the two time scales (divergence,
    slow loss of quality) and the recoveries that real runs show.
    """
    runs, steps = kick.shape
    x, f = np.zeros(runs), np.zeros(runs)
    scratch, denominator = np.empty(runs), np.empty(runs)
    displacement_TR, floor_TR = np.empty((steps, runs)), np.empty((steps, runs))
    by_step = (np.ascontiguousarray(array.T) for array in (kick, growth, floor, floor_rate))
    for t, (k, g, target, rate) in enumerate(zip(*by_step, strict=True)):
        np.add(x, k, out=x)
        np.multiply(x, 1.0 / 3.0, out=scratch)
        np.multiply(scratch, scratch, out=scratch)
        np.multiply(scratch, scratch, out=scratch)
        np.add(scratch, x, out=denominator)
        denominator += 1.0
        np.divide(healing[t], denominator, out=denominator)
        np.subtract(g, denominator, out=denominator)
        np.exp(denominator, out=denominator)
        np.multiply(x, denominator, out=x)
        np.minimum(x, _CEILING, out=x)
        displacement_TR[t] = x
        np.subtract(target, f, out=scratch)
        scratch *= rate
        f += scratch
        floor_TR[t] = f
    return Excess(np.ascontiguousarray(displacement_TR.T), np.ascontiguousarray(floor_TR.T))


def instability(learning_rate_over_limit: FloatsRT, gain: float) -> FloatsRT:
    """Log-rate a step at which an excess grows because the learning rate is beyond the stability limit; else 0."""
    return gain * np.log(np.maximum(learning_rate_over_limit, 1.0))


def visible(displacement: FloatsRT, initial_loss: float) -> FloatsRT:
    """Excess loss that a displacement shows, nats: it saturates somewhat above the loss of an untrained model."""
    ceiling = 1.2 * initial_loss
    return -ceiling * np.expm1(-displacement / ceiling)
