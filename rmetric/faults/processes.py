"""The processes of simulated runs that a fault may disturb, and the fitted response of training to a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import Architecture
from rmetric.errors import UserError, did_you_mean
from rmetric.streams import RunStreams

FloatsRT = NDArray[np.float64]
BoolsRT = NDArray[np.bool_]
FLOOR_RATE = 0.01
"""Share of the way back from a floor that is covered in a step, where no fault says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """Effect of one fault at one severity, t ≥ 1 steps after its onset; fitted to real runs, applied to simulated ones.

    The relative excess of the held-out loss is

    .. math:: e_t = s \\, (K e^{-h t} + F + (J - F) e^{-\\max(t - D, 0) / \\tau}) + w_t

    with h the healing rate of healthy training, s a run's own log-normal strength, D its own delay and w the wobble.
    Where there is a delay, s is the strength of what comes after it: runs that wait at J have it in common.

    The numbers of each fault and severity stand in ``rmetric/simulation/parameters.json``, with the docstrings of the
    fields below; ``python -m studies.calibration.calibrate`` fits them.
    """

    kick: float = 0.0
    """K, relative to the loss: what is lost at once and healed at the healing rate."""
    jump: float = 0.0
    """J, relative to the loss: what is lost at once and does not heal so soon."""
    floor: float = 0.0
    """F, relative to the loss: the excess at which the run settles."""
    time_constant_steps: float = 100.0
    """τ: steps in which the loss covers 63 % of the way from J to F."""
    delay_steps: float = 0.0
    """Median D: steps in which the loss stays at J; then it leaves for F."""
    delay_spread: float = 0.0
    """Standard deviation over runs of ln D."""
    spread: float = 0.0
    """Standard deviation over runs of ln s."""
    wobble: float = 0.0
    """Standard deviation of w, relative to the loss: how far a run strays once it has left its twin's path."""
    batch_loss: float = 0.0
    """What the training loss shows beyond the held-out loss in later steps, while the fault lasts; relative."""
    loss_onset: float = 0.0
    """What the training loss of the onset's own step shows, relative, times s: a broken forward pass shows at once, an
    update in the next step."""
    grad_norm_onset: float = 1.0
    """Factor on the gradient norm in the onset's own step."""
    grad_norm_early: float = 1.0
    """The same in the first steps after it, beyond what goes with the kick."""
    grad_norm_lasting: float = 1.0
    """The same later on; the way from one to the other is covered at the healing rate."""
    worker_spread: float = 1.0
    """Factor on the spread of the gradient norm over workers in later steps, while the fault lasts."""
    update_rms: float = 1.0
    """Factor on the update RMS while the fault lasts, that of the learning rate left out."""
    non_finite_gradient_share: float = 0.0
    """Share of runs whose gradient is not finite in the first step, while the loss is; none of those below."""
    collapse_share: float = 0.0
    """Share of runs that answer every token alike from then on: the loss is ln(vocabulary), the gradient 0."""
    non_finite_share: float = 0.0
    """Share of runs whose loss is not finite from then on."""


FACTORS = ("grad_norm_onset", "grad_norm_early", "grad_norm_lasting", "worker_spread", "update_rms")
"""Fields that are 1 where nothing happens, and are interpolated by their logarithm."""
SHAPES = ("time_constant_steps",)
"""Fields of shape, not of size: they do not fade with the dose."""
FATES = ("collapse_share", "non_finite_share", "non_finite_gradient_share")
"""Fields of which at most one comes true in a run."""
NOT_NEGATIVE = ("gradient_factor", "kick", "stall_s")
"""Processes that are at least 0."""


@dataclass(frozen=True)
class HardwareEvent:
    """One hardware event in one run."""

    step: int
    component: str
    worker: int
    kind: str
    """``correctable``, or ``fatal``: the worker had to be replaced."""


@dataclass
class RunProcesses:
    """The processes of a group of runs that a fault may disturb. Shapes: R runs, T steps.

    Column ``t`` belongs to training step ``t + 1``. A fault changes the arrays in place (``state.kick += …``, not
    ``state.kick = …``), to finite numbers and from its onset on; :meth:`check` and :meth:`check_past` tell who does
    not. There is no loss, no R, no alert and no label here: those follow from the processes.
    """

    architecture: Architecture
    learning_rate_rel: FloatsRT
    """Scheduled learning rate over its peak, (R, T), in [0, 1]. Read only."""
    healthy_loss: FloatsRT
    """Expected loss of the undisturbed run, nats, (R, T). Read only."""
    healing_rate: float
    """Log-rate a step at which a small excess heals at peak learning rate. Read only."""
    responses: Mapping[str, Mapping[str, Response]]
    """Fitted responses, fault → severity → response; see :func:`rmetric.faults.response.respond`. Read only."""
    learning_rate_factor: FloatsRT
    """Multiplies the learning rate, (R, T)."""
    gradient_factor: FloatsRT
    """Multiplies the gradient of all workers, (R, T), at least 0."""
    gradient_noise_factor: FloatsRT
    """Multiplies the spread of the gradients over workers, (R, T), and leaves their mean as it is."""
    update_factor: FloatsRT
    """Multiplies the update RMS, (R, T); the learning rate has its own factor."""
    kick: FloatsRT
    """Excess loss by which the step throws the parameters off, nats, (R, T), at least 0. It heals by training."""
    growth: FloatsRT
    """Added to the log-rate a step at which an excess grows, (R, T); above the healing rate the run diverges."""
    jump: FloatsRT
    """Added at once to the share of the healthy loss that the run cannot get rid of, (R, T); goes to the floor."""
    floor: FloatsRT
    """Share of the healthy loss that the run can no longer get rid of while this lasts, (R, T)."""
    floor_rate: FloatsRT
    """Share of the way to the floor that is covered in a step, (R, T), in [0, 1]."""
    wobble: FloatsRT
    """Standard deviation of what the loss strays about its path, relative, (R, T); 0: the run keeps to its twin's."""
    batch_loss: FloatsRT
    """Added to the training loss alone (bad batches), nats, (R, T)."""
    stall_s: FloatsRT
    """Seconds added to the step, (R, T), at least 0."""
    non_finite_gradients: FloatsRT
    """Number of non-finite gradient entries in the step, (R, T); the optimizer skips such a step."""
    non_finite_weights: BoolsRT
    """Weights become non-finite in this step, (R, T); the loss is NaN from here on."""
    collapsed: BoolsRT
    """The model answers every token alike, (R, T): its loss is ln(vocabulary), its gradient 0."""
    worker_lost_at: NDArray[np.int64]
    """Step at which a worker is lost for good, (R,); :data:`NEVER`."""
    lost_worker: NDArray[np.int64]
    """Number of that worker, (R,)."""
    events: list[list[HardwareEvent]]
    """Hardware events of each run; add to them with :meth:`report_events`."""
    reported: dict[str, FloatsRT]
    """State that the logs report under the authors' names, (R, T): ``router_imbalance_factor``, ``failed_experts``
    (their number), ``force_gqa_mismatch`` and ``force_rms_norm_error`` (0 or 1)."""

    @property
    def runs(self) -> int:
        """Number of runs R."""
        return self.learning_rate_factor.shape[0]

    @property
    def steps(self) -> int:
        """Number of steps T."""
        return self.learning_rate_factor.shape[1]

    def of_runs(self, rows: slice) -> RunProcesses:
        """The same processes of some of the runs: views, so that changes arrive here."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values = {
            name: value if name in ("architecture", "healing_rate", "responses", "reported") else value[rows]
            for name, value in values.items()
        }
        values["reported"] = {name: array[rows] for name, array in self.reported.items()}
        return RunProcesses(**values)

    def shared(self) -> dict[str, Any]:
        """Everything that a fault may reach, by the name after ``state.``; what it is to change in place included."""
        reported = {f"reported[{name!r}]": array for name, array in self.reported.items()}
        return {**vars(self), **reported, **{f"events[{row}]": events for row, events in enumerate(self.events)}}

    def check(self, handed: Mapping[str, Any], fault: str) -> None:
        """Raise :class:`UserError` if a fault has written what gets lost, or what no process can be.

        ``handed`` is :meth:`shared` before the fault.
        """
        for name, value in self.shared().items():
            if name not in handed:
                raise UserError(f"fault {fault} sets state.{name}, which is not a process{did_you_mean(name, handed)}")
            if value is not handed[name]:
                raise UserError(
                    f"fault {fault} puts a new value in the place of state.{name}, which the simulation does not see; "
                    f"change it in place, such as state.{name} += … or state.{name}[:] = …"
                )
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                _refuse(fault, name, value, np.isfinite(value), "finite")
                if name in NOT_NEGATIVE:
                    _refuse(fault, name, value, value >= 0.0, "at least 0")

    def past(self, active_RT: BoolsRT) -> dict[str, NDArray[Any]]:
        """What lies before each run's first active step, by the name after ``state.``; copies."""
        before = ~np.logical_or.accumulate(active_RT, axis=1)
        onset_R = before.sum(axis=1) + 1
        past = {name: each[before] for name, each in self.shared().items() if getattr(each, "shape", 0) == before.shape}
        past["worker_lost_at"] = np.minimum(self.worker_lost_at, onset_R)
        early = (sum(event.step < onset for event in own) for own, onset in zip(self.events, onset_R, strict=True))
        past["events"] = np.fromiter(early, dtype=np.int64)
        return past

    def check_past(self, past: Mapping[str, NDArray[Any]], active_RT: BoolsRT, fault: str) -> None:
        """Raise :class:`UserError` if a fault has disturbed a run before its onset, where it is to be healthy.

        ``past`` is :meth:`past` before the fault.
        """
        for name, array in self.past(active_RT).items():
            if not np.array_equal(array, past[name]):
                raise UserError(
                    f"fault {fault} changes state.{name} before its onset, where a run is healthy; "
                    "change it only where active is true"
                )

    def one_worker(self, rng: RunStreams) -> NDArray[np.int64]:
        """A worker of each run, by its number, (R,): the stream ``worker`` of a fault draws it."""
        return np.floor(rng.random("worker", size=()) * self.architecture.workers).astype(np.int64)

    def raise_floor(self, active_RT: BoolsRT, floor_R1: FloatsRT, time_constant_steps_R1: FloatsRT) -> None:
        """Let the loss settle above the healthy one by a relative ``floor_R1``, 63 % of the way in a time constant.

        Floors of several faults add up; the rate is that of the fastest.
        """
        own = 1.0 / time_constant_steps_R1
        rate = np.where(self.floor_rate != FLOOR_RATE, np.maximum(own, self.floor_rate), own)
        self.floor += active_RT * floor_R1
        self.floor_rate[:] = np.where(active_RT, rate, self.floor_rate)

    def report_events(self, occurs_RT: BoolsRT, component: str, worker_R: NDArray[np.int64], kind: str) -> None:
        """Let a hardware event appear wherever ``occurs_RT`` holds; ``kind`` is ``correctable`` or ``fatal``."""
        for row, column in np.argwhere(occurs_RT).tolist():
            self.events[row].append(HardwareEvent(column + 1, component, int(worker_R[row]), kind))

    def lose_worker(self, step_R: NDArray[np.int64], worker_R: NDArray[np.int64]) -> None:
        """A worker is lost for good at a step (:data:`NEVER`: not at all); the earliest loss of a run counts."""
        earlier = step_R < self.worker_lost_at
        self.worker_lost_at[earlier] = step_R[earlier]
        self.lost_worker[earlier] = worker_R[earlier]


def _refuse(fault: str, name: str, value: FloatsRT, right: BoolsRT, due: str) -> None:
    if not right.all():
        first = tuple(np.argwhere(~right)[0])
        raise UserError(f"fault {fault} makes state.{name} {value[first]} at step {first[1] + 1}; it must be {due}")
