"""The contract of a fault: it disturbs the processes of a run, never its label."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from rmetric.architectures import Architecture
from rmetric.errors import UserError
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.records import NO_FAULT
from rmetric.registry import PluginError, Registry, load_entry_points
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun

FAULTS: Registry[type[Fault]] = Registry("fault")
SEVERITIES = ("low", "medium", "high")
HARDWARE_FAULTS = ("NODE_FAILURE", "NETWORK_DEGRADATION")
"""Faults of the machine, which leave loss and gradients alone until a worker is lost."""
NEVER = np.iinfo(np.int64).max
"""A step that never comes."""

F = TypeVar("F", bound="type[Fault]")


@dataclass(frozen=True, kw_only=True)
class Fault(ABC):
    """One way for training to go wrong; its docstring says what physically happens."""

    name: ClassVar[str] = ""
    """Registered name."""
    source: ClassVar[str] = ""
    """Publications that describe the fault and its effect."""
    severities: ClassVar[Mapping[str, Mapping[str, Any]]] = {severity: {} for severity in SEVERITIES}
    """Severity → parameters that differ from the defaults."""
    at_least: ClassVar[Mapping[str, float]] = {}
    """Parameter → its smallest value."""
    above: ClassVar[Mapping[str, float]] = {}
    """Parameter → value that it must lie above."""
    at_most: ClassVar[Mapping[str, float]] = {}
    """Parameter → its largest value."""
    below: ClassVar[Mapping[str, float]] = {}
    """Parameter → value that it must lie below."""
    one_of: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Parameter → the values that it can have."""
    simulated: ClassVar[bool] = True
    """Whether the simulator knows it; where not, it is brought upon live runs alone."""
    needs_experts: ClassVar[bool] = False
    """Whether it makes sense for mixture-of-experts models only."""
    responds_as: ClassVar[str] = ""
    """Fault whose fitted response it has; empty: its own."""

    duration_steps: int = 0
    """Steps that the fault lasts; 0: until the run ends."""

    def __post_init__(self) -> None:
        for limits, keeps, advice in (
            ({"duration_steps": 0, **self.at_least}, ge, "at least"),
            (self.above, gt, "one above"),
            (self.at_most, le, "at most"),
            (self.below, lt, "one below"),
        ):
            for name, limit in limits.items():
                if not keeps(value := getattr(self, name), limit):
                    raise UserError(f"{self.name} has {name}={value}; choose {advice} {limit:g}")
        for name, choices in self.one_of.items():
            if (value := getattr(self, name)) not in choices:
                raise UserError(f"{self.name} has no {name}={value}; choose one of {', '.join(choices)}")

    @abstractmethod
    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
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
        """Size of the fault, 0 for nothing: on this scale responses are interpolated between severities.

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
        upon this model raises :class:`UserError`, here or when the context is entered.
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

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        raise TypeError("a combined fault is simulated part by part; see Fault.parts")

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(injected(member, training))
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


def injected(fault: Fault, training: LiveRun) -> AbstractContextManager[None]:
    """:meth:`Fault.inject` of any fault; raises :class:`~rmetric.registry.PluginError` if it gives no context."""
    context: object = fault.inject(training)
    # `gen` is what a function under @contextmanager gave: nothing if it has no yield.
    if not isinstance(context, AbstractContextManager) or getattr(context, "gen", context) is None:
        raise PluginError.of(
            type(fault), f"inject of fault {fault.name} gives no context; is @contextmanager missing, or its yield?"
        )
    return context


def register_fault(name: str) -> Callable[[F], F]:
    """Class decorator: register a fault under ``name``.

    Raises ``ValueError`` for a name that is taken or contains ``+``, for a severity that is not low, medium or high,
    and for a severity that sets a parameter the fault does not have; ``TypeError`` for a class that is not a dataclass.
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
    parts = [FAULTS[part] for part in fault_parts(name)]
    return combined(*(part(**{**part.severities.get(severity, {}), **parameters}) for part in parts))


def fault_parts(name: str) -> list[str]:
    """Names of the single faults of ``A+B``; raises :class:`UserError` where one is empty, or ``NONE`` among several.

    >>> fault_parts("LR_SPIKE + DATA_CORRUPTION")
    ['LR_SPIKE', 'DATA_CORRUPTION']
    """
    parts = [part.strip() for part in name.split("+")]
    if not all(parts):
        raise UserError(f"fault {name!r} lacks a name; write NAME, or A+B for two at once")
    if NO_FAULT in parts and len(parts) > 1:
        raise UserError(f"{NO_FAULT} is a run without a fault and cannot be combined; leave it out of {name}")
    return parts


def check_simulated(name: str) -> None:
    """Raise :class:`UserError` if a single fault is unknown to the simulator, which names those that are not."""
    if not FAULTS.named(name, lambda fault: fault.simulated).simulated:
        raise UserError(
            f"fault {name} is brought upon live runs alone and cannot be simulated; train a model with it: "
            f"run_case_study.py --faults {name}"
        )


def combined(*members: Fault) -> Fault:
    """Several faults with one onset; a single one is itself. Raises :class:`UserError` where one is named twice."""
    names = [member.name for member in members]
    if len({*names}) < len(names):  # its parameters could not stand in the log, and both would draw the same noise
        raise UserError(f"{'+'.join(names)} names a fault twice; name each once")
    return members[0] if len(members) == 1 else CombinedFault(members=members)


def check_fault_fits(name: str, architecture: Architecture) -> None:
    """Raise :class:`UserError` if a fault is not simulated, or needs experts and the architecture has none."""
    for part in fault_parts(name):
        if part == NO_FAULT:
            continue
        check_simulated(part)
        if FAULTS[part].needs_experts and not architecture.experts:
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
