"""Simulate many runs of one architecture at once, each with its fault-free twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import Architecture
from rmetric.faults import NEVER, HardwareEvent, RunProcesses
from rmetric.faults.processes import FLOOR_RATE
from rmetric.registry import plugin_errors
from rmetric.signals import gradient_variance
from rmetric.simulation.dynamics import OVERFLOW_NATS, Excess, FloatsRT, correlated, integrate, visible
from rmetric.simulation.gradients import update_rms, worker_norms
from rmetric.simulation.hardware import healthy_events, restart_stalls_s
from rmetric.simulation.healthy import Healthy, HealthyParameters, healthy_processes
from rmetric.simulation.parameters import Responses, SimulationParameters
from rmetric.simulation.spec import RunSpec
from rmetric.streams import RunStreams
from rmetric.versions import foreign_modules

TIMER_DECIMALS = 3
"""Step times are measured to the millisecond."""


@dataclass
class Judged:
    """What a batch of simulated runs is judged by. Shapes: R runs, T steps; column ``t`` is step ``t + 1``."""

    specs: list[RunSpec]
    held_out: FloatsRT
    """Loss of the fixed held-out batch, nats; NaN once it is not finite. For judging, not for detectors."""
    twin_held_out: FloatsRT
    """Held-out loss of the fault-free twin."""
    non_finite_step: list[int | None]
    """First step with a non-finite loss."""
    worker_lost_step: list[int | None]


@dataclass
class Traces(Judged):
    """A batch of simulated runs, step by step."""

    onset: list[int | None]
    cleared: list[int | None]
    """First step after the fault; ``None`` if it lasts to the end."""
    lost_worker: NDArray[np.int64]
    training_loss: FloatsRT
    validation_loss: NDArray[np.float64]
    """Validation loss at the evaluations, (R, T // eval_every)."""
    learning_rate: FloatsRT
    grad_norm: FloatsRT
    sigma_sq: FloatsRT
    update_rms: FloatsRT
    step_time_s: FloatsRT
    non_finite_count: FloatsRT
    hardware: list[list[HardwareEvent]]
    reported: dict[str, NDArray[np.float64]]
    """Fault state as the authors' logs report it, (R, T)."""


class TrainingSimulator:
    """Simulates training runs of one architecture, with or without faults.

    A run's result depends only on its :class:`RunSpec`, not on the other runs of the batch or their number.

    Parameters
    ----------
    parameters
        Fitted and assumed values; by default those shipped with the package.

    Examples
    --------
    >>> spec = RunSpec(architecture="mistral-7b", fault="LR_SPIKE", severity="high", seed=1, steps=400)
    >>> traces = TrainingSimulator().simulate([spec])
    >>> traces.onset, traces.cleared
    ([225], [245])
    """

    def __init__(self, parameters: SimulationParameters | None = None) -> None:
        known = parameters or SimulationParameters.shipped()
        self.parameters, self.responses = known.healthy, known.responses

    def simulate(self, specs: Sequence[RunSpec]) -> Traces:
        """Simulate runs of the same architecture, steps, cadence and conditions; ``ValueError`` if these differ."""
        return self.begin(specs).observed([spec.steps for spec in specs])

    def begin(self, specs: Sequence[RunSpec]) -> SimulatedBatch:
        """The same up to what decides which run fails, and when: what else is measured, gradients above all, costs
        more, and is not wanted after that."""
        if not specs:
            raise ValueError("at least one run is needed")
        for spec in specs:
            if _common(spec) != _common(specs[0]):
                raise ValueError(f"{spec.experiment_id} and {specs[0].experiment_id} cannot be simulated together")
        architecture, steps = specs[0].profile, specs[0].steps
        streams = RunStreams(tuple(spec.seed for spec in specs), steps)
        parameters = specs[0].conditions.healthy(self.parameters)
        healthy = healthy_processes(architecture, streams, parameters)
        processes = undisturbed(architecture, healthy, len(specs), steps, parameters, self.responses)
        onset, cleared = _inject(specs, streams, processes)
        excess, twin = _integrate(len(specs), healthy, processes)
        broken = (excess.displacement > OVERFLOW_NATS) | processes.non_finite_weights
        broken = np.maximum.accumulate(broken, axis=1)
        mixed = 1.0 + parameters.mix_shift_held_out * healthy.mixed
        training_loss, held_out = _losses(parameters, streams, healthy, processes, excess, broken, mixed)
        judged = Judged(
            specs=list(specs),
            held_out=held_out,
            twin_held_out=_loss(healthy, twin, architecture) * mixed,
            non_finite_step=[int(row.argmax()) + 1 if row.any() else None for row in broken],
            worker_lost_step=[int(step) if step <= steps else None for step in processes.worker_lost_at],
        )
        return SimulatedBatch(
            parameters, streams, healthy, processes, excess, onset, cleared, broken, training_loss, judged
        )


def _inject(
    specs: Sequence[RunSpec], streams: RunStreams, processes: RunProcesses
) -> tuple[list[int | None], list[int | None]]:
    onsets = _onsets(specs, streams)
    cleared: list[int | None] = [None] * len(specs)
    column = np.arange(streams.steps)
    first = 0
    for _, group in groupby(specs, key=lambda spec: (spec.fault, spec.severity)):
        rows = slice(first, first := first + len(list(group)))
        with plugin_errors(specs[rows.start].experiment_id):
            fault = specs[rows.start].make_fault()
            if fault is None:
                continue
            starts = np.array(onsets[rows], dtype=np.int64)
            last_stop = np.zeros(len(starts), dtype=np.int64)
            for part in fault.parts:
                stops = starts + part.duration_steps if part.duration_steps else np.full(len(starts), NEVER)
                active = (column >= starts[:, None] - 1) & (column < stops[:, None] - 1)
                state = processes.of_runs(rows)
                handed, past = state.shared(), state.past(active) if foreign_modules(type(part)) else {}
                part.simulate(state, active, streams.of_runs(rows).within(f"fault {part.name}"))
                state.check(handed, part.name)
                if past:  # of a plug-in; the tests hold it of ours
                    state.check_past(past, active, part.name)
                last_stop = np.maximum(last_stop, stops)
        cleared[rows] = [int(stop) if stop <= streams.steps else None for stop in last_stop]
    return onsets, cleared


def _integrate(runs: int, healthy: Healthy, processes: RunProcesses) -> tuple[Excess, Excess]:
    healing = processes.healing_rate * (0.3 + 0.7 * healthy.learning_rate_rel)
    nothing = np.zeros_like(processes.growth)
    both = integrate(
        np.concatenate([processes.kick, healthy.kick]),
        np.concatenate([processes.growth, nothing]),
        healing,
        processes.jump,
        processes.floor,
        processes.floor_rate,
    )
    return Excess(both.displacement[:runs], both.floor), Excess(both.displacement[runs:], nothing)


@dataclass(frozen=True)
class SimulatedBatch:
    """Runs that were simulated together; what is measured of them is drawn when it is asked for."""

    parameters: HealthyParameters
    streams: RunStreams
    healthy: Healthy
    processes: RunProcesses
    excess: Excess
    onset: list[int | None]
    cleared: list[int | None]
    """Steps in which the faults begin, and have ended."""
    broken: NDArray[np.bool_]
    """Whether the loss is not finite any more, (R, T)."""
    training_loss: FloatsRT
    judged: Judged
    """What decides which run fails, and when."""

    def observed(self, ends: Sequence[int]) -> Traces:
        """What is measured, step by step; gradients up to these last steps, one a run, and NaN after them."""
        parameters, streams, healthy, processes = self.parameters, self.streams, self.healthy, self.processes
        architecture, judged = processes.architecture, self.judged
        grad_norm, sigma_sq = self._gradients(ends)
        learning_rate = architecture.peak_learning_rate * healthy.learning_rate_rel * processes.learning_rate_factor
        natural = healthy_events(streams, architecture.workers, architecture.step_time_s)
        return Traces(
            **vars(judged),
            onset=self.onset,
            cleared=self.cleared,
            lost_worker=processes.lost_worker,
            training_loss=self.training_loss,
            validation_loss=_evaluated(parameters, streams, judged.held_out, judged.specs[0].eval_every),
            learning_rate=learning_rate,
            grad_norm=grad_norm,
            sigma_sq=sigma_sq,
            update_rms=update_rms(parameters, streams, learning_rate, processes, self.broken),
            step_time_s=np.round(
                healthy.step_time_s + processes.stall_s + restart_stalls_s(natural, streams.steps), TIMER_DECIMALS
            ),
            non_finite_count=processes.non_finite_gradients + self.broken,
            hardware=[
                sorted(a + b, key=lambda event: event.step) for a, b in zip(natural, processes.events, strict=True)
            ],
            reported=processes.reported,
        )

    def _gradients(self, ends: Sequence[int]) -> tuple[FloatsRT, FloatsRT]:
        """Gradient norm and σ², each (R, T); NaN from the first broken step on, and after the last that is wanted."""
        grad_norm, sigma_sq = np.full(self.broken.shape, np.nan), np.full(self.broken.shape, np.nan)
        rows = worker_norms(self.parameters, self.streams, self.healthy, self.processes, self.excess, ends)
        for row, (norms, end) in enumerate(zip(rows, ends, strict=True)):
            exact = norms.astype(np.float64)
            grad_norm[row, :end] = exact.mean(axis=0)
            sigma_sq[row, :end] = gradient_variance(exact.T)
        grad_norm[self.broken] = sigma_sq[self.broken] = np.nan
        grad_norm[self.processes.non_finite_gradients > 0] = np.nan
        return grad_norm, sigma_sq


def _losses(
    parameters: HealthyParameters,
    streams: RunStreams,
    healthy: Healthy,
    processes: RunProcesses,
    excess: Excess,
    broken: NDArray[np.bool_],
    mixed: FloatsRT,
) -> tuple[FloatsRT, FloatsRT]:
    """Training loss and held-out loss, each (R, T); NaN from the first broken step on."""
    initial = processes.architecture.initial_loss
    loss = _loss(healthy, excess, processes.architecture)
    _stray(parameters, loss, streams, processes)
    loss[broken] = np.nan
    training = np.maximum(loss * (1.0 + healthy.mix_shift + healthy.minibatch) + processes.batch_loss, 0.0)
    # A model that collapses does so in a step's forward pass; the held-out loss is that of the step before.
    collapsed, collapsed_before = processes.collapsed & ~broken, np.zeros_like(broken)
    collapsed_before[:, 1:] = collapsed[:, :-1] & ~broken[:, 1:]
    return np.where(collapsed, initial, training), np.where(collapsed_before, initial, loss * mixed)


def _evaluated(
    parameters: HealthyParameters, streams: RunStreams, held_out: FloatsRT, eval_every: int
) -> NDArray[np.float64]:
    """Validation loss at the evaluations, each on a new sample of held-out text."""
    at = np.arange(eval_every, streams.steps + 1, eval_every) - 1
    return held_out[:, at] * (1.0 + parameters.held_out_noise * streams.normal("evaluation", size=(len(at),)))


def _stray(parameters: HealthyParameters, loss: FloatsRT, streams: RunStreams, processes: RunProcesses) -> None:
    """Let runs that have left their twin's path stray about their own, in place."""
    rows = np.flatnonzero(processes.wobble.any(axis=1))
    if not len(rows):
        return
    chosen = RunStreams(tuple(streams.seeds[row] for row in rows.tolist()), streams.steps, streams.scope)
    noise = correlated(chosen.normal("wobble"), parameters.wobble_correlation_steps)
    size = processes.wobble[rows] * processes.learning_rate_rel[rows]  # small steps do not stray far
    loss[rows] *= np.maximum(1.0 + size * noise, 0.1)


def _common(spec: RunSpec) -> tuple[object, ...]:
    """Settings that the runs of a batch must share."""
    return spec.architecture, spec.steps, spec.log_every, spec.eval_every, spec.conditions


def undisturbed(
    architecture: Architecture,
    healthy: Healthy,
    runs: int,
    steps: int,
    parameters: HealthyParameters,
    responses: Responses,
) -> RunProcesses:
    shape = (runs, steps)
    return RunProcesses(
        architecture=architecture,
        learning_rate_rel=np.broadcast_to(healthy.learning_rate_rel, shape),
        healthy_loss=np.broadcast_to(healthy.loss, shape),
        healing_rate=parameters.healing_rate,
        responses=responses,
        learning_rate_factor=np.ones(shape),
        gradient_factor=np.ones(shape),
        gradient_noise_factor=np.ones(shape),
        update_factor=np.ones(shape),
        kick=healthy.kick.copy(),
        growth=np.zeros(shape),
        jump=np.zeros(shape),
        floor=np.zeros(shape),
        floor_rate=np.full(shape, FLOOR_RATE),
        wobble=np.zeros(shape),
        batch_loss=np.zeros(shape),
        stall_s=np.zeros(shape),
        non_finite_gradients=np.zeros(shape),
        non_finite_weights=np.zeros(shape, dtype=bool),
        collapsed=np.zeros(shape, dtype=bool),
        worker_lost_at=np.full(runs, NEVER),
        lost_worker=np.full(runs, -1),
        events=[[] for _ in range(runs)],
        reported={
            "router_imbalance_factor": np.zeros(shape),
            "failed_experts": np.zeros(shape),
            "force_gqa_mismatch": np.zeros(shape),
            "force_rms_norm_error": np.zeros(shape),
        },
    )


def _onsets(specs: Sequence[RunSpec], streams: RunStreams) -> list[int | None]:
    """Onsets: as specified, or uniform over the middle half of the run, on no grid."""
    quarter = streams.steps // 4
    width = max(1, streams.steps // 2)
    drawn = 1 + quarter + np.floor(streams.random("onset", size=()) * width).astype(int)
    return [
        None if spec.is_control else spec.onset if spec.onset is not None else min(int(step), streams.steps)
        for spec, step in zip(specs, drawn, strict=True)
    ]


def _loss(healthy: Healthy, excess: Excess, architecture: Architecture) -> FloatsRT:
    return healthy.loss * (1.0 + excess.floor) + visible(excess.displacement, architecture.initial_loss)
