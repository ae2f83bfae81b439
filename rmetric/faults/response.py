"""The response of simulated processes to a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from rmetric.faults.base import Fault
from rmetric.faults.processes import FACTORS, FATES, SHAPES, BoolsRT, Response, RunProcesses
from rmetric.streams import RunStreams

FloatsR1 = NDArray[np.float64]
COLLAPSES, BREAKS, BREAKS_GRADIENT = range(len(FATES))
"""Places in :data:`FATES`."""


def respond(state: RunProcesses, active: BoolsRT, rng: RunStreams, effect: Mapping[str, FloatsR1]) -> None:
    """Let the processes of a group of runs respond to a fault; ``effect`` is that of :func:`effect_of`.

    The excess and the wobble last to the end of the run, also where the fault does not: what is lost is healed by the
    way to the floor. All else lasts as long as the fault. The first steps of each run's activity are its onset.

    What a step does to the model shows in the loss of the next one, as in a real run: the held-out loss rises one step
    after the onset. The onset's own batch and its gradients go through what is broken by then.
    """
    elapsed: NDArray[np.int64] = np.cumsum(active, axis=1, dtype=np.int64)
    hurt, struck = np.zeros_like(active), np.zeros_like(active)
    hurt[:, 1:] = elapsed[:, :-1] > 0
    struck[:, 1:] = hurt[:, 1:] & ~hurt[:, :-1]
    onset = active & (elapsed == 1)
    strength = np.exp(effect["spread"] * rng.normal("strength", size=())[:, None])
    at_first = np.where(effect["delay_steps"] > 0.0, 1.0, strength)
    state.kick += struck * (effect["kick"] * at_first) * state.healthy_loss
    state.jump += struck * (effect["jump"] * at_first)
    waits = _delay_steps(effect, rng)
    leaves = hurt & ~struck
    if waits.any():
        late = np.cumsum(leaves, axis=1) > waits
        state.raise_floor(leaves & ~late, effect["jump"] * at_first, effect["time_constant_steps"])
        leaves &= late
    state.raise_floor(leaves, effect["floor"] * strength, effect["time_constant_steps"])
    np.maximum(state.wobble, hurt * effect["wobble"], out=state.wobble)
    shown = np.where(onset, effect["loss_onset"] * at_first, effect["batch_loss"])
    state.batch_loss += active * shown * state.healthy_loss
    state.gradient_factor *= gradient_factor(effect, elapsed, active, state.healing_rate)
    state.gradient_noise_factor *= np.where(active & ~onset, effect["worker_spread"], 1.0)
    state.update_factor *= np.where(active, effect["update_rms"], 1.0)
    if effect["collapse_share"].any() or effect["non_finite_share"].any():
        fate = fates(effect, rng)
        state.collapsed |= (elapsed > 0) & (fate == COLLAPSES)
        state.non_finite_weights |= struck & (fate == BREAKS)


def fates(effect: Mapping[str, FloatsR1], rng: RunStreams) -> NDArray[np.int64]:
    """Fate of each run at once, (R, 1): :data:`COLLAPSES`, :data:`BREAKS`, :data:`BREAKS_GRADIENT`, or none of them."""
    edges = np.cumsum([effect[share] for share in FATES], axis=0)
    return np.asarray((rng.random("fate", size=())[:, None] >= edges).sum(axis=0))


def _delay_steps(effect: Mapping[str, FloatsR1], rng: RunStreams) -> FloatsR1:
    """Own delay of each run, (R, 1)."""
    if not effect["delay_steps"].any():
        return effect["delay_steps"]
    return np.asarray(effect["delay_steps"] * np.exp(effect["delay_spread"] * rng.normal("delay", size=())[:, None]))


def gradient_factor(
    effect: Mapping[str, FloatsR1], elapsed: NDArray[np.int64], active: BoolsRT, healing_rate: float
) -> NDArray[np.float64]:
    """Factor of the onset's own step, then from the early one to the lasting one at the healing rate, geometrically.

    1 where the fault is off.

    Parameters
    ----------
    effect
        From :func:`effect_of`.
    elapsed
        Number of active steps so far, this one included, (R, T).
    active
        Where the fault is on, (R, T).
    healing_rate
        Log-rate a step.
    """
    onset, early, lasting = (np.log(effect[f"grad_norm_{when}"]) for when in ("onset", "early", "lasting"))
    if not (onset.any() or early.any() or lasting.any()):
        return np.ones(active.shape)
    later = lasting + (early - lasting) * np.exp(-healing_rate * np.maximum(elapsed - 2, 0))
    return np.exp(np.where(elapsed == 1, onset, later) * active)


def effect_of(fault: Fault, state: RunProcesses, dose_R: NDArray[np.float64] | None = None) -> dict[str, FloatsR1]:
    """Each field of the response of a group of runs, shape (runs, 1).

    Between the doses of two severities it is interpolated linearly; below the lowest it fades to nothing at dose 0,
    above the highest it grows no further.

    Parameters
    ----------
    fault
        With its parameters; its :meth:`~rmetric.faults.Fault.dose` says where it lies between the severities.
    state
        Processes of the group; they hold the fitted responses.
    dose_R
        Dose of each run, where they differ.
    """
    responses = state.responses[fault.responds_as or fault.name]
    known = {severity: fault.dose_at(severity, state.architecture) for severity in responses}
    order = sorted(responses, key=lambda severity: known[severity])
    doses = np.array([known[severity] for severity in order])
    dose = np.full(state.runs, fault.dose(state.architecture)) if dose_R is None else dose_R
    return {
        item.name: _interpolated(item.name, dose, doses, [getattr(responses[name], item.name) for name in order])
        for item in fields(Response)
    }


def _interpolated(name: str, dose_R: NDArray[np.float64], doses: NDArray[np.float64], values: list[float]) -> FloatsR1:
    at = np.log(np.maximum(values, 1e-9)) if name in FACTORS else np.array(values)
    neutral = at[0] if name in SHAPES else 0.0
    found = np.interp(dose_R, np.concatenate([[0.0], doses]), np.concatenate([[neutral], at]))
    return (np.exp(found) if name in FACTORS else found)[:, None]
