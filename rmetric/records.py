"""Runs in memory: observations as columns, and a whole run with its configuration, events and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmetric.measurements import MEASUREMENTS, MECHANISM, OBSERVABLE, Observation, in_convention

NO_FAULT = "NONE"
"""Name of the fault of a control run."""
START, FAILURE, SUCCESS = "EXPERIMENT_START", "EXPERIMENT_FAILURE", "EXPERIMENT_SUCCESS"
"""Events that begin a log, and end it."""
TERMINAL_EVENTS = (FAILURE, SUCCESS)
NAN_LOSS, WORKER_LOST, DIVERGED = "NAN_LOSS", "WORKER_LOST", "DIVERGED"
"""Reasons of a failure: the loss is not finite, a worker is lost, the held-out loss stays above the healthy twin's."""
CONVERTED_FROM = "converted_from"
"""Setting of a log that was made of another program's: the format of that, which states neither a fault nor an end."""
MAX_STEP = 2**53
"""Beyond it, a double no longer tells two steps apart."""
VALIDATION = "VALIDATION"
"""Event of an evaluation, at the step after which it was made; ``validation_loss``, nats. Detectors see it in the next
record. Older logs, and those of the simulator, have only that."""

CLASSES = "CLASSES"
"""Event of a run whose loss is found to be the mean cross-entropy of so many ``classes``; null: of none after all.
States go by it; a vocabulary that is known when the run begins stands in its config."""

Event = dict[str, Any]
Points = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Steps and values, both of shape (points,)."""


@dataclass
class Observations:
    """A run's observations as columns of equal length ``n``; iterating yields one :class:`Observation` per record."""

    step: NDArray[np.int64]
    """Shape (n,), strictly increasing."""
    columns: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Measurements by log name, each of shape (n,); an absent one was never measured. -inf is held as ``+inf``."""
    evaluated: NDArray[np.bool_] = None  # type: ignore[assignment]  # __post_init__ leaves no None
    """Shape (n,), True where ``validation_loss`` is new. Derived from the column when left out."""

    def __post_init__(self) -> None:
        self.step = np.asarray(self.step, dtype=np.int64)
        self.columns = {name: _in_convention(column) for name, column in self.columns.items()}
        for name, column in self.columns.items():
            if len(column) != len(self.step):
                raise ValueError(f"column {name!r} has {len(column)} values for {len(self.step)} steps")
        if self.evaluated is None:
            self.evaluated = fresh_evaluations(self["validation_loss"])

    def __repr__(self) -> str:
        steps = f", steps {self.step[0]} to {self.step[-1]}" if len(self) else ""
        return f"<{len(self)} records{steps}: {', '.join(self.columns)}>"

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """A column; all NaN when it was never measured. Raises ``KeyError`` for a name no record can have."""
        if name in self.columns:
            return self.columns[name]
        if name not in OBSERVABLE:
            raise KeyError(f"{name!r} is not a measurement; known: {', '.join(OBSERVABLE)}")
        return np.full(len(self.step), np.nan)

    def has(self, name: str) -> bool:
        """Return whether ``name`` was measured at least once."""
        return name in self.columns and not bool(np.isnan(self.columns[name]).all())

    def stated(self, name: str) -> NDArray[np.float64]:
        """A column, shape (n,); of validation losses those that are new: what is held between evaluations is NaN."""
        return np.where(self.evaluated, self[name], np.nan) if name == "validation_loss" else self[name]

    @property
    def announced(self) -> NDArray[np.bool_]:
        """Records in which a change of the training was announced, shape (n,)."""
        return self["planned_changes"] > 0.0

    def __iter__(self) -> Iterator[Observation]:
        # value != value: NaN, without a call for each
        columns = [[None if value != value else value for value in self[name].tolist()] for name in MEASUREMENTS]
        mechanism = self._mechanism()
        for row in zip(self.step.tolist(), *columns, self.evaluated.tolist(), mechanism, strict=True):
            yield Observation(*row)

    def _mechanism(self) -> list[dict[str, float]]:
        """Measurements of the mechanism monitors, one dictionary a record."""
        of_record: list[dict[str, float]] = [{} for _ in self.step]
        for name in MECHANISM:
            if name in self.columns:
                column = self.columns[name]
                for index in np.flatnonzero(~np.isnan(column)).tolist():
                    of_record[index][name] = float(column[index])
        return of_record

    def rows(self, rows: slice | NDArray[np.intp]) -> Observations:
        """Some of the records."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Observations(self.step[rows], columns, self.evaluated[rows])

    def __add__(self, later: Observations) -> Observations:
        """These observations followed by ``later``."""
        names = [name for name in OBSERVABLE if name in self.columns or name in later.columns]
        return Observations(
            np.concatenate([self.step, later.step]),
            {name: np.concatenate([self[name], later[name]]) for name in names},
            np.concatenate([self.evaluated, later.evaluated]),
        )

    @classmethod
    def of(cls, observations: Iterable[Observation]) -> Observations:
        """Columns of single observations."""
        rows = list(observations)
        measured = [name for name in MECHANISM if any(name in row.mechanism for row in rows)]
        return cls(
            np.array([row.step for row in rows], dtype=np.int64),
            {name: np.array([row[name] for row in rows], dtype=np.float64) for name in (*MEASUREMENTS, *measured)},
            np.array([row.evaluated for row in rows], dtype=bool),
        )


def _in_convention(column: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(column, dtype=np.float64)
    below = values == -math.inf
    return np.where(below, np.inf, values) if below.any() else values


def fresh_evaluations(validation_loss: NDArray[np.float64], previous: float = math.nan) -> NDArray[np.bool_]:
    """Mask of the records that hold a *new* validation loss, shape (n,).

    A log repeats the latest known validation loss, or leaves the field out between evaluations; in both cases a value
    that differs from the record before it is a new one.
    """
    before = np.concatenate([[previous], validation_loss[:-1]]) if len(validation_loss) else validation_loss
    return ~np.isnan(validation_loss) & (validation_loss != before)


def reported_evaluations(events: Iterable[Event]) -> Points:
    """Steps and losses of the :data:`VALIDATION` events among some events; one that is damaged is passed by."""
    found = [
        (step, in_convention(float(loss)))
        for event in events
        if event.get("event") == VALIDATION
        and (step := step_of(event)) is not None
        and isinstance(loss := event.get("validation_loss", math.inf), Real)
        and not isinstance(loss, bool)
    ]
    steps, losses = zip(*found, strict=True) if found else ((), ())
    return np.array(steps, dtype=np.int64), np.array(losses, dtype=np.float64)


class Evaluations:
    """Steps after which a run was evaluated, and its validation losses, while its log is read.

    From the first :data:`VALIDATION` event on, those events, the first of each step; before, and of a log without any,
    the records in which a validation loss is new.

    >>> evaluations, event = Evaluations(), {"event": VALIDATION, "step": 2, "validation_loss": 3.0}
    >>> evaluations.extend(Observations(np.array([3]), {"validation_loss": np.array([3.0])}), [event])[0].tolist()
    [2]
    """

    def __init__(self) -> None:
        self._first = MAX_STEP
        self._latest = -1

    def extend(self, observations: Observations, events: Iterable[Event]) -> Points:
        """Evaluations of the next records, of which there may be none, and the events between and after them."""
        steps, losses = reported_evaluations(events)
        self._first = min([self._first, *steps[:1].tolist()])
        of_records = observations.evaluated & (observations.step < self._first)
        steps = np.append(observations.step[of_records], steps)
        losses = np.append(observations["validation_loss"][of_records], losses)
        new = steps > np.maximum.accumulate(np.append(self._latest, steps))[:-1]
        self._latest = int(steps.max(initial=self._latest))
        return steps[new], losses[new]


def with_evaluations(observations: Observations, steps: NDArray[np.int64], losses: NDArray[np.float64]) -> Observations:
    """Observations in which evaluations that a log tells of are rows of their own, each after the record of its step.

    A record holds the latest of the evaluations since the record before; after the last one there is none that does.
    """
    if not len(steps) or not len(observations):
        return observations
    known = observations.step > steps.min()
    columns = {**observations.columns, "validation_loss": np.where(known, np.nan, observations["validation_loss"])}
    records = Observations(observations.step, columns, observations.evaluated & ~known)
    both = records + Observations(steps, {"validation_loss": losses}, np.ones(len(steps), dtype=bool))
    return both.rows(np.argsort(both.step, kind="stable"))


def reported_classes(events: Iterable[Event], before: int | None = None) -> int | None:
    """Number of classes by the last of the :data:`CLASSES` events among some events; ``before`` where there is none."""
    for event in events:
        if event.get("event") == CLASSES:
            number = whole_step(event.get("classes"))
            before = number if number is not None and number > 1 else None
    return before


def with_uniform_gap(observations: Observations, classes: int | None) -> Observations:
    """Observations with the loss above ln(classes), nats, where their number is known."""
    if classes is None:
        return observations
    gap = observations["training_loss"] - math.log(classes)
    return Observations(observations.step, {**observations.columns, "uniform_gap": gap}, observations.evaluated)


def held(values: NDArray[np.float64], previous: float = math.nan) -> NDArray[np.float64]:
    """The latest known value at each position: gaps (NaN) are filled with the value before them."""
    if not np.isnan(values).any():
        return values.copy()
    known = np.concatenate([[previous], values])
    last = np.maximum.accumulate(np.where(np.isnan(known), 0, np.arange(len(known))))
    return known[last][1:]


@dataclass
class Run:
    """A run as read from its log: configuration, records and events."""

    name: str
    """File name without its ending."""
    config: dict[str, Any]
    """``config`` of EXPERIMENT_START; empty if the log has none."""
    observations: Observations
    events: list[Event] = field(default_factory=list, repr=False)
    """Events of the log in its order, without EXPERIMENT_START and METRICS."""
    verdicts: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    """The run's own :data:`~rmetric.measurements.VERDICTS`, as far as its log has them, each of shape (n,)."""
    alerts: dict[str, int] = field(default_factory=dict)
    """Detector → first alert step, as the last record of the log has it."""

    def first(self, event: str) -> Event | None:
        """The first event of that kind, or ``None``."""
        return next((item for item in self.events if item.get("event") == event), None)

    @property
    def terminal(self) -> Event | None:
        """The event that ended the run, or ``None`` for an incomplete log."""
        last = self.events[-1] if self.events else {}
        return last if last.get("event") in TERMINAL_EVENTS else None

    def evaluations(self) -> Points:
        """Steps after which the run was evaluated, and its validation losses, nats: see :class:`Evaluations`."""
        return Evaluations().extend(self.observations, self.events)

    @property
    def fault(self) -> str:
        """Name of the injected fault; ``NONE`` for a control run."""
        return str(self.injection.get("type") or NO_FAULT)

    @property
    def is_control(self) -> bool:
        """True if no fault was injected."""
        return self.fault == NO_FAULT

    @property
    def severity(self) -> str:
        """``low``, ``medium`` or ``high``; ``-`` where the log does not say."""
        return str(self.injection.get("severity") or "-")

    @property
    def injection(self) -> dict[str, Any]:
        """``fault_injection`` of the configuration; empty if the log has none."""
        injection = self.config.get("fault_injection")
        return injection if isinstance(injection, dict) else {}

    @property
    def model_type(self) -> str:
        """The model as the log names it."""
        return str(self.config.get("model_type") or "unknown")

    @property
    def onset(self) -> int | None:
        """Step at which the fault was injected; ``None`` if none was (or the run ended before)."""
        return None if self.is_control else step_of(self.first("FAULT_INJECTED"))

    @property
    def disturbed_at(self) -> int | None:
        """First step of a benign disturbance; ``None`` if there is none."""
        disturbance = self.config.get("disturbance")
        return whole_step(disturbance.get("step")) if isinstance(disturbance, dict) else None

    @property
    def last_step(self) -> int:
        """Last step that the log speaks of; 0 for an empty one."""
        last_record = int(self.observations.step[-1]) if len(self.observations) else 0
        return max(last_record, step_of(self.terminal) or 0)


def is_converted(config: Any) -> bool:
    """Return whether the ``config`` of a log says that the log was made of another program's."""
    return isinstance(config, dict) and CONVERTED_FROM in config


def step_of(event: Mapping[str, Any] | None) -> int | None:
    """The step of an event; ``None`` without an event, or if it has no whole number as its step (a damaged log)."""
    return whole_step((event or {}).get("step"))


def whole_step(value: Any) -> int | None:
    """A JSON value as a step from 0 to 2^53; ``None`` if it is no whole number in that range."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_STEP
    return value if usable else None
