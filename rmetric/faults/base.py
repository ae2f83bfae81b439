"""What a fault is, and what it may touch: the processes of a run, never its verdict."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import Architecture
from rmetric.errors import UserError
from rmetric.faults.response import Response
from rmetric.registry import Registry, load_entry_points
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.training.live_run import LiveRun

FAULTS: Registry[type[Fault]] = Registry("fault")
SEVERITIES = ("low", "medium", "high")
NO_FAULT = "NONE"
FLOOR_RATE = 0.01
"""Share of the way back from a floor that is covered in a step, where no fault says otherwise."""
NEVER = np.iinfo(np.int64).max
"""A step that never comes."""

F = TypeVar("F", bound="type[Fault]")
FloatsRT = NDArray[np.float64]
BoolsRT = NDArray[np.bool_]


@dataclass(frozen=True)
class HardwareEvent:
    """One hardware event in one run."""

    step: int
    component: str
    worker: int
    kind: str
    """``correctable``, or ``fatal``: the worker had to be replaced."""


@dataclass
class Processes:
    """The processes of a group of runs that a fault may disturb. Shapes: R runs, T steps, W workers.

    Column ``t`` belongs to training step ``t + 1``. A fault changes the arrays in place. There is no loss, no R, no
    alert and no label here: those follow from the processes.
    """

    architecture: Architecture
    learning_rate_rel: FloatsRT
    """Scheduled learning rate over its peak, (R, T), in [0, 1]. Read only."""
    healthy_loss: FloatsRT
    """Expected loss of the undisturbed run, nats, (R, T). Read only."""
    healing_rate: float
    """Log-rate a step at which a small excess heals at peak learning rate. Read only."""
    responses: Mapping[str, Mapping[str, Response]]
    """What real training did: fault → severity → response; see :func:`rmetric.faults.response.respond`. Read only."""
    learning_rate_factor: FloatsRT
    """Multiplies the learning rate, (R, T)."""
    gradient_factor: FloatsRT
    """Multiplies the gradient of all workers, (R, T), at least 0."""
    worker_gradient_factor: NDArray[np.float32]
    """Multiplies each worker's gradient, (R, T, W)."""
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
    """Seconds added to the step, (R, T)."""
    non_finite_gradients: FloatsRT
    """Number of non-finite gradient entries in the step, (R, T); the optimizer skips such a step."""
    non_finite_weights: BoolsRT
    """Weights become non-finite in this step, (R, T); the loss is NaN from here on."""
    collapsed: BoolsRT
    """The model answers every token alike, (R, T): its loss is ln(vocabulary), its gradient 0."""
    worker_lost_at: NDArray[np.int64]
    """Step at which a worker is lost for good, (R,); :data:`NEVER`."""
    lost_worker: NDArray[np.int64]
    """Which worker that is, (R,)."""
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

    def of_runs(self, rows: slice) -> Processes:
        """The same processes of some of the runs: views, so that changes arrive here."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values = {
            name: value if name in ("architecture", "healing_rate", "responses", "reported") else value[rows]
            for name, value in values.items()
        }
        values["reported"] = {name: array[rows] for name, array in self.reported.items()}
        return Processes(**values)

    def raise_floor(self, active_RT: BoolsRT, floor_R1: FloatsRT, time_constant_steps_R1: FloatsRT) -> None:
        """Let the loss settle above the healthy one by a relative ``floor_R1``, 63 % of the way in a time constant.

        Floors of several faults add up; the pace is that of the fastest.
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


@dataclass(frozen=True, kw_only=True)
class Fault(ABC):
    """One way for training to go wrong. One file a fault; its docstring says what physically happens."""

    name: ClassVar[str] = ""
    """Registered name."""
    source: ClassVar[str] = ""
    """Where the fault and its effect are described."""
    severities: ClassVar[Mapping[str, Mapping[str, Any]]] = {severity: {} for severity in SEVERITIES}
    """Severity → parameters that differ from the defaults."""
    needs_experts: ClassVar[bool] = False
    """Whether it makes sense for mixture-of-experts models only."""
    responds_as: ClassVar[str] = ""
    """Fault whose fitted response it has; empty: its own."""

    duration_steps: int = 0
    """Steps that the fault lasts; 0: until the run ends."""

    @abstractmethod
    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        """Disturb the processes of a group of runs.

        Parameters
        ----------
        state
            Processes of the group, changed in place.
        active
            Where the fault is on, shape (runs, steps).
        rng
            Streams of these runs under this fault's name: ``rng.random("stall")`` is uniform in [0, 1) with shape
            (runs, steps), ``rng.random("bit", size=())`` has shape (runs,). A run's draws depend on its seed alone.
        """

    def dose(self, architecture: Architecture) -> float:
        """How much of the fault there is, 0 for nothing: on this scale responses are interpolated between severities.

        Only a fault with a fitted response needs one.
        """
        raise NotImplementedError(f"{self.name} has no dose")

    def dose_at(self, severity: str, architecture: Architecture) -> float:
        """Dose of the fault that :attr:`responds_as` names (or of this one) at a severity."""
        fault = FAULTS[self.responds_as] if self.responds_as else type(self)
        return fault(**fault.severities.get(severity, {})).dose(architecture)

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        """Do the same to a live run, as long as the context lasts; torch is imported in here and nowhere else.

        Entered right before the first disturbed step and left after the last. Afterwards every hook is gone and the
        model is as training left it, except where the fault *is* a changed weight. A fault that cannot be brought
        upon this model raises :class:`UserError` when it is entered.
        """
        raise UserError(f"{self.name} has no inject() and cannot be brought upon a live run; simulate it instead")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters as they stand in the log's config."""
        return asdict(self)

    @property
    def label(self) -> str:
        """Name as it is given on the command line."""
        return self.name

    @property
    def parts(self) -> tuple[Fault, ...]:
        """The single faults it consists of."""
        return (self,)


@dataclass(frozen=True, kw_only=True)
class CombinedFault(Fault):
    """Several faults with one onset, written ``A+B``."""

    members: tuple[Fault, ...] = ()

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        raise TypeError("a combined fault is simulated part by part; see Fault.parts")

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.inject(training))
            yield

    @property
    def parameters(self) -> dict[str, Any]:
        return {member.name: member.parameters for member in self.members}

    @property
    def label(self) -> str:
        return "+".join(member.name for member in self.members)

    @property
    def parts(self) -> tuple[Fault, ...]:
        return self.members


def register_fault(name: str) -> Callable[[F], F]:
    """Class decorator: make a fault known by ``name``.

    Raises ``ValueError`` for a name that is taken or contains ``+``, for a severity that is not low, medium or high,
    and for a severity that sets a parameter the fault does not have; ``TypeError`` for a class that is no dataclass.
    """

    def register(fault: F) -> F:
        if "__dataclass_fields__" not in vars(fault):  # its own: a subclass without the decorator inherits the base's
            raise TypeError(f"{fault.__name__} must be a dataclass; put @dataclass(frozen=True, kw_only=True) under it")
        known = {item.name for item in fields(fault)}
        for severity, changes in fault.severities.items():
            if severity not in SEVERITIES:
                raise ValueError(f"{name}: severity {severity!r} is none of {', '.join(SEVERITIES)}")
            if unknown := set(changes) - known:
                raise ValueError(f"{name}: severity {severity!r} sets unknown parameters {sorted(unknown)}")
        fault.name = name
        FAULTS.add(name, fault)
        return fault

    return register


def make_fault(name: str, severity: str = "medium", **parameters: Any) -> Fault:
    """A registered fault, or a combination ``A+B``, at a severity; raises :class:`UserError` for an unknown name."""
    if severity not in SEVERITIES:
        raise UserError(f"unknown severity {severity!r}; choose one of {', '.join(SEVERITIES)}")
    parts = [FAULTS[part.strip()] for part in name.split("+")]
    return combined(*(part(**{**part.severities.get(severity, {}), **parameters}) for part in parts))


def combined(*members: Fault) -> Fault:
    """Several faults with one onset; a single one is itself. Raises :class:`UserError` where one is named twice."""
    names = [member.name for member in members]
    if len({*names}) < len(names):  # its parameters could not stand in the log, and both would draw the same noise
        raise UserError(f"{'+'.join(names)} names a fault twice; name each once")
    return members[0] if len(members) == 1 else CombinedFault(members=members)


def check_fault_fits(name: str, architecture: Architecture) -> None:
    """Raise :class:`UserError` if a fault needs experts and the architecture has none."""
    for part in name.split("+"):
        if part != NO_FAULT and FAULTS[part.strip()].needs_experts and not architecture.experts:
            raise UserError(
                f"fault {part} needs a mixture-of-experts model and {architecture.name} is dense; "
                "choose --architecture gpt-4-moe"
            )


def file_name_part(fault: str) -> str:
    """A fault's name as it stands in a log's file name."""
    return re.sub(r"[^a-z0-9_]+", "-", fault.lower())


def load_fault_entry_points() -> None:
    """Register the faults of installed packages (entry-point group ``rmetric.faults``)."""
    try:
        load_entry_points("rmetric.faults")
    except ImportError as error:
        raise UserError(f"an installed package announces a fault that cannot be imported: {error}") from error
