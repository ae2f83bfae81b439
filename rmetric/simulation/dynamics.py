"""Dynamics of the loss's excess over the healthy run: how it grows, heals and settles, for many runs at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

FloatsRT = NDArray[np.float64]

OVERFLOW_NATS = 1e3
"""An excess beyond this overflows: the loss is NaN from here on."""
_CEILING = 1e9
_ONE, _THIRD = np.array(1.0), np.array(1.0 / 3.0)
"""As arrays, for a ufunc takes as long over a Python number as over a hundred runs; an output by name costs as much."""


@dataclass(frozen=True)
class Excess:
    """Excess over the healthy run, shapes (R, T)."""

    displacement: FloatsRT
    """Nats, at least 0: parameters thrown off; heals by training unless it has gone too far."""
    floor: FloatsRT
    """Relative to the healthy loss, at least 0: what is lost to a fault and has yet to come to the level it goes to."""


def integrate(
    kick: FloatsRT,
    growth: FloatsRT,
    healing: NDArray[np.float64],
    jump: FloatsRT,
    floor: FloatsRT,
    floor_rate: FloatsRT,
) -> Excess:
    """Integrate

    .. math::
        x_{t+1} = (x_t + k_t) \\exp(g_t - h_t / (1 + x_t + (x_t / 3)^4)), \\quad
        f_{t+1} = f_t + j_t + r_t (F_t - f_t)

    A small excess x heals at the rate h, a large one ever more slowly, and one of several nats (a collapsed model) not
    at all; growth g beyond the healing rate makes it run away.

    **Source:** the model is this project's own; it is meant to be simple, and to have the two time scales (what heals
    soon, slow loss of quality or recovery) that real runs show. Its constants are fitted to such runs.

    Parameters
    ----------
    kick, growth
        k (nats) and g (log-rate a step), each (R, T).
    healing
        h, log-rate a step, (T,).
    jump, floor, floor_rate
        j and F (relative) and r (share a step), each (S, T); S may differ from R, where some runs cannot have a floor.

    Returns
    -------
    Excess
        Displacement x (R, T) and floor f (S, T).
    """
    return Excess(_displacement(kick, growth, healing), _floor(jump, floor, floor_rate))


def _displacement(kick: FloatsRT, growth: FloatsRT, healing: NDArray[np.float64]) -> FloatsRT:
    displacement_TR, grows = _by_step(kick), _by_step(growth) if growth.any() else repeat(None)
    x, scratch = np.zeros(len(kick)), np.empty(len(kick))
    with np.errstate(over="ignore"):  # far beyond where a loss is NaN
        for h, g, now in zip(np.nditer(-healing), grows, displacement_TR):  # noqa: B905 - one of them has no end
            np.add(x, now, now)
            np.multiply(now, _THIRD, scratch)
            np.square(scratch, scratch)
            np.square(scratch, scratch)
            np.add(scratch, now, scratch)
            np.add(scratch, _ONE, scratch)
            np.divide(h, scratch, scratch)
            if g is not None:
                np.add(scratch, g, scratch)
            np.exp(scratch, scratch)
            x = np.multiply(now, scratch, now)
    return np.minimum(displacement_TR.T, _CEILING, order="C")


def _floor(jump: FloatsRT, floor: FloatsRT, floor_rate: FloatsRT) -> FloatsRT:
    floors = np.zeros(floor.shape)
    disturbed = (jump != 0.0) | (floor != 0.0)
    moved = np.flatnonzero(disturbed.any(axis=1))
    if not len(moved):
        return floors
    first = int(disturbed.any(axis=0).argmax())
    f, way = np.zeros(len(moved)), np.empty(len(moved))
    floor_TR = np.empty((floor.shape[1] - first, len(moved)))
    by_step = (_by_step(array[moved, first:]) for array in (jump, floor, floor_rate))
    jumps = np.any(jump[moved, first:], axis=0)
    for jumps_now, j, target, rate, after in zip(jumps, *by_step, floor_TR, strict=True):
        np.subtract(target, f, way)
        np.multiply(way, rate, way)
        f = np.add(f + j if jumps_now else f, way, after)
    floors[moved, first:] = floor_TR.T
    return floors


def _by_step(values_RT: FloatsRT) -> FloatsRT:
    return np.array(values_RT.T, order="C")


def visible(displacement: FloatsRT, initial_loss: float) -> FloatsRT:
    """Excess loss that a displacement shows, nats: it saturates somewhat above the loss of an untrained model."""
    ceiling = 1.2 * initial_loss
    return -ceiling * np.expm1(-displacement / ceiling)


def correlated(normal: FloatsRT, correlation_steps: float) -> FloatsRT:
    """Noise that remembers, with standard deviation 1, from independent draws; shape (R, T).

    .. math:: w_1 = z_1, \\quad w_t = \\phi w_{t-1} + \\sqrt{1 - \\phi^2} z_t, \\quad \\phi = e^{-1 / c}

    with c the steps after which 37 % of a deviation are left.
    """
    remaining = np.array(math.exp(-1.0 / correlation_steps))
    noise_TR = np.array(normal.T, order="C")
    noise_TR[1:] *= math.sqrt(1.0 - float(remaining) ** 2)
    scratch = np.empty(len(normal))
    for before, now in pairwise(noise_TR):
        np.multiply(before, remaining, scratch)
        np.add(now, scratch, now)
    return np.ascontiguousarray(noise_TR.T)
