"""The log: what a record may hold, how it is written, how it is read back.

This is the only module that knows JSONL. Everything above it sees :class:`Observations`, in which one convention holds:

* ``NaN`` means *not measured*;
* ``+inf`` means *measured, and not finite* (NaN, +inf or -inf in the run).

A non-finite loss is therefore greater than every threshold; the trap that ``nan > threshold`` is silently false cannot
arise.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from rmetric.errors import UserError

NO_FAULT = "NONE"


SCHEMA_VERSION = 1
SIGNIFICANT_DIGITS = 7
TERMINAL_EVENTS = ("EXPERIMENT_FAILURE", "EXPERIMENT_SUCCESS")
CHUNK_RECORDS = 65_536
MAX_LINE_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_STEP = 2**53
"""Beyond it, a double no longer tells two steps apart."""

MEASUREMENTS = (
    "training_loss",
    "validation_loss",
    "learning_rate",
    "grad_norm",
    "update_rms",
    "step_time_s",
    "step_time_max_s",
    "lambda",
    "sigma_sq",
    "delta_l",
    "non_finite_count",
    "uniform_gap",
    "attention_logit_max",
    "hardware_events",
    "event_worker",
)
"""What detectors may see of a METRICS record, by the names used in the log."""

MECHANISM = (
    "qk_entropy",
    "qk_effective_rank",
    "qk_spectral_norm",
    "router_similarity",
    "router_conditioning",
    "routing_entropy",
    "expert_load_max",
    "expert_load_min",
    "attention_entropy",
    "update_max",
    "update_alignment",
    "gradient_alignment",
    "query_norm",
    "key_norm",
)
"""What the mechanism monitors of a live run measure, every so many steps; detectors may see it as well. In the log they
stand together under ``mechanism``, so that reading a log without them costs nothing more. Of several layers, heads,
experts or tensors each is the worst one: :mod:`rmetric.monitor.mechanism` says which that is."""

OBSERVABLE = (*MEASUREMENTS, *MECHANISM)
"""All that detectors may see of a METRICS record."""

VERDICTS = ("lambda_norm", "sigma_sq_norm", "delta_l_norm", "r_metric")
"""What the run's own R-Metric said. Kept for comparison; no detector reads it."""

_OF_MECHANISM = frozenset(MECHANISM)

Event = dict[str, Any]
NumberedEvent = tuple[int, Event]
OnDamage = Callable[[int, str], None]


# ---------------------------------------------------------------------------------------------------------------------
# In memory
# ---------------------------------------------------------------------------------------------------------------------


def measurement(value: float | None) -> float:
    """One value in the in-memory convention.

    >>> [measurement(value) for value in (None, 2.5, float("nan"), float("-inf"))]
    [nan, 2.5, inf, inf]
    """
    if value is None:
        return math.nan
    return float(value) if math.isfinite(value) else math.inf


@dataclass(slots=True)
class Observation:
    """What one METRICS record tells a detector: a summary of the steps since the record before it.

    Every field but ``step`` may be left out (``None``: not measured). A NaN or an infinity that is passed in was
    measured and is held as ``+inf``; a field that was not measured is held as NaN.
    """

    step: int
    """Training step at which the record was written."""
    training_loss: float | None = None
    """Mean over the steps of the record, nats."""
    validation_loss: float | None = None
    """Latest known, nats."""
    learning_rate: float | None = None
    """At ``step``."""
    grad_norm: float | None = None
    """Largest global gradient norm of the record."""
    update_rms: float | None = None
    """Largest root mean square of the optimizer's update of the record."""
    step_time_s: float | None = None
    """Mean seconds a step."""
    step_time_max_s: float | None = None
    """Longest step of the record, seconds."""
    lambda_: float | None = None
    """Hardware events an hour (FACTS: λ)."""
    sigma_sq: float | None = None
    """Largest variance of the gradient norms over workers (or micro-batches) of the record."""
    delta_l: float | None = None
    """Validation-loss drift at the latest evaluation, nats."""
    non_finite_count: float | None = None
    """Number of gradients (a live run: tensors) that were not finite in the steps of the record."""
    uniform_gap: float | None = None
    """``training_loss`` − ln(vocabulary), nats: 0 for a model that answers every token alike."""
    attention_logit_max: float | None = None
    """Largest attention logit of the record."""
    hardware_events: float | None = None
    """Hardware events that were reported in the steps of the record; slow steps are none."""
    event_worker: float | None = None
    """Number of the worker that reported most of ``hardware_events``, from 0; not measured where there was none."""
    evaluated: bool = False
    """Whether ``validation_loss`` is new in this record."""
    mechanism: Mapping[str, float] = field(default_factory=dict)
    """Some of :data:`MECHANISM`, by name; empty in the steps between their measurements."""

    def __post_init__(self) -> None:
        self.training_loss = measurement(self.training_loss)
        self.validation_loss = measurement(self.validation_loss)
        self.learning_rate = measurement(self.learning_rate)
        self.grad_norm = measurement(self.grad_norm)
        self.update_rms = measurement(self.update_rms)
        self.step_time_s = measurement(self.step_time_s)
        self.step_time_max_s = measurement(self.step_time_max_s)
        self.lambda_ = measurement(self.lambda_)
        self.sigma_sq = measurement(self.sigma_sq)
        self.delta_l = measurement(self.delta_l)
        self.non_finite_count = measurement(self.non_finite_count)
        self.uniform_gap = measurement(self.uniform_gap)
        self.attention_logit_max = measurement(self.attention_logit_max)
        self.hardware_events = measurement(self.hardware_events)
        self.event_worker = measurement(self.event_worker)
        if self.mechanism:
            self.mechanism = {name: measurement(value) for name, value in self.mechanism.items()}

    def __getitem__(self, name: str) -> float:
        """A measurement by its name in the log."""
        if name in _OF_MECHANISM:
            return self.mechanism.get(name, math.nan)
        return getattr(self, "lambda_" if name == "lambda" else name)


@dataclass
class Observations:
    """A run's observations as columns of equal length ``n``; iterating gives one :class:`Observation` a record."""

    step: NDArray[np.int64]
    """Shape (n,), strictly increasing."""
    columns: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Measurements by log name, each of shape (n,); an absent one was never measured. -inf is held as ``+inf``."""
    evaluated: NDArray[np.bool_] | None = None
    """Shape (n,): whether ``validation_loss`` is new. Derived from the column when left out."""

    def __post_init__(self) -> None:
        self.step = np.asarray(self.step, dtype=np.int64)
        self.columns = {name: _in_convention(column) for name, column in self.columns.items()}
        for name, column in self.columns.items():
            if len(column) != len(self.step):
                raise ValueError(f"column {name!r} has {len(column)} values for {len(self.step)} steps")
        if self.evaluated is None:
            self.evaluated = fresh_evaluations(self["validation_loss"])

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """A column; all NaN when it was never measured. Raises ``KeyError`` for a name no record can have."""
        if name in self.columns:
            return self.columns[name]
        if name not in OBSERVABLE:
            raise KeyError(f"{name!r} is no measurement; known: {', '.join(OBSERVABLE)}")
        return np.full(len(self.step), np.nan)

    def has(self, name: str) -> bool:
        """Whether ``name`` was measured at least once."""
        return name in self.columns and not bool(np.isnan(self.columns[name]).all())

    def __iter__(self) -> Iterator[Observation]:
        assert self.evaluated is not None
        columns = [[None if value != value else value for value in self[name].tolist()] for name in MEASUREMENTS]
        mechanism = self._mechanism()
        for row in zip(self.step.tolist(), *columns, self.evaluated.tolist(), mechanism, strict=True):
            yield Observation(*row)

    def _mechanism(self) -> list[dict[str, float]]:
        """What the mechanism monitors measured, one dictionary a record."""
        of_record: list[dict[str, float]] = [{} for _ in self.step]
        for name in MECHANISM:
            if name in self.columns:
                column = self.columns[name]
                for index in np.flatnonzero(~np.isnan(column)).tolist():
                    of_record[index][name] = float(column[index])
        return of_record

    def __add__(self, later: Observations) -> Observations:
        """These observations followed by ``later``."""
        assert self.evaluated is not None and later.evaluated is not None
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
    below = np.isneginf(values)
    return np.where(below, np.inf, values) if below.any() else values


def fresh_evaluations(validation_loss: NDArray[np.float64], previous: float = math.nan) -> NDArray[np.bool_]:
    """Which records hold a *new* validation loss, shape (n,).

    A log repeats the latest known validation loss, or leaves the field out between evaluations; in both cases a value
    that differs from the record before it is a new one.
    """
    before = np.concatenate([[previous], validation_loss[:-1]]) if len(validation_loss) else validation_loss
    return ~np.isnan(validation_loss) & (validation_loss != before)


def held(values: NDArray[np.float64], previous: float = math.nan) -> NDArray[np.float64]:
    """The latest known value at each position: gaps (NaN) are filled with the value before them."""
    known = np.concatenate([[previous], values])
    last = np.maximum.accumulate(np.where(np.isnan(known), 0, np.arange(len(known))))
    return known[last][1:]


@dataclass
class Run:
    """One log, read."""

    name: str
    """File name without its ending."""
    config: dict[str, Any]
    """``config`` of EXPERIMENT_START; empty if the log has none."""
    observations: Observations
    events: list[Event] = field(default_factory=list)
    """All events but EXPERIMENT_START and METRICS, in the order of the log."""
    verdicts: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """What the run itself wrote of :data:`VERDICTS`, each of shape (n,)."""
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

    @property
    def fault(self) -> str:
        """Name of the injected fault; ``NONE`` for a control run."""
        return str(self._injection.get("type") or "NONE")

    @property
    def severity(self) -> str:
        """``low``, ``medium`` or ``high``; ``-`` where the log does not say."""
        return str(self._injection.get("severity") or "-")

    @property
    def _injection(self) -> dict[str, Any]:
        injection = self.config.get("fault_injection")
        return injection if isinstance(injection, dict) else {}

    @property
    def model_type(self) -> str:
        """The model as the log names it."""
        return str(self.config.get("model_type") or "unknown")

    @property
    def onset(self) -> int | None:
        """Step at which the fault was injected; ``None`` if none was (or the run ended before)."""
        return None if self.fault == "NONE" else step_of(self.first("FAULT_INJECTED"))

    @property
    def last_step(self) -> int:
        """Last step that the log speaks of; 0 for an empty one."""
        last_record = int(self.observations.step[-1]) if len(self.observations) else 0
        return max(last_record, step_of(self.terminal) or 0)


def step_of(event: Event | None) -> int | None:
    """The step of an event; ``None`` without an event, or if it has no whole number as its step (a damaged log)."""
    return whole_step((event or {}).get("step"))


def whole_step(value: Any) -> int | None:
    """A JSON value as a step from 0 to 2^53; ``None`` if it is no whole number in that range."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_STEP
    return value if usable else None


# ---------------------------------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------------------------------

_POWERS_OF_TEN = np.array([float(f"1e{exponent}") for exponent in range(23)])


def to_log_precision(values: ArrayLike) -> NDArray[np.float64]:
    """Round to the 7 significant digits of the log: the double nearest to that decimal, so that it prints short.

    Non-finite values pass through. Rounding twice is rounding once.

    >>> to_log_precision([3.14159265358979, 0.0001234567891, 123456789.0]).tolist()
    [3.141593, 0.0001234568, 123456800.0]
    """
    x = np.asarray(values, dtype=np.float64)
    magnitude = np.abs(x)
    rounded = np.add(x, 0.0, out=np.empty_like(x))  # also turns -0.0 into 0.0
    ordinary = (magnitude >= 1e-15) & (magnitude < 1e15)
    # A mantissa below 10^7 and a power of ten up to 10^22 are exact, so that one division is correctly rounded.
    decimals = SIGNIFICANT_DIGITS - 1 - np.floor(np.log10(magnitude, where=ordinary, out=np.zeros_like(x))).astype(int)
    usual = np.where(ordinary, x, 0.0)  # a huge one would overflow
    up, down = _POWERS_OF_TEN[np.clip(decimals, 0, 22)], _POWERS_OF_TEN[np.clip(-decimals, 0, 22)]
    np.divide(np.rint(usual / down * up) * down, up, out=rounded, where=ordinary)
    extreme = np.isfinite(x) & ~ordinary & (x != 0)
    if extreme.any():
        rounded[extreme] = [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in x[extreme].tolist()]
    return rounded


def terminal_event(kind: str, failure_step: int | None, reason: str | None, horizon: int) -> Event:
    """The last line of a run that was judged: ``kind`` is ``failed`` or the outcome of a success."""
    if kind == "failed":
        return {"event": "EXPERIMENT_FAILURE", "step": failure_step, "reason": reason}
    return {"event": "EXPERIMENT_SUCCESS", "step": horizon, "outcome": kind}


def encode_event(event: Mapping[str, Any]) -> bytes:
    """One line of strict JSON. Floats get 7 significant digits; a non-finite one is left out and named."""
    clean: Event = {}
    non_finite: list[str] = []
    for key, value in event.items():
        if isinstance(value, float | np.floating) and not math.isfinite(value):
            non_finite.append(key)
        else:
            clean[key] = _strict(value)
    if non_finite:
        clean["non_finite"] = non_finite
    return orjson.dumps(clean) + b"\n"


def _strict(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float | np.floating):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else str(value)
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray):
        return [_strict(item) for item in value]
    raise TypeError(f"a log cannot hold a {type(value).__name__}: {value!r}")


def encode_metrics(
    step: NDArray[np.int64], floats: Mapping[str, NDArray[np.float64]], states: Mapping[str, Sequence[Any]]
) -> list[bytes]:
    """METRICS lines, one a record.

    Parameters
    ----------
    step
        Shape (n,).
    floats
        Log name → values of shape (n,), already at log precision; NaN (not measured) is left out, an infinity is left
        out and named in ``non_finite``.
    states
        Log name → n JSON values: the fault-state fields and ``alerts``.

    Returns
    -------
    list of bytes
        One line a record, such as (here wrapped)::

            {"event":"METRICS","step":2510,"training_loss":3.412345,"validation_loss":3.401234,
             "learning_rate":0.0001812345,"grad_norm":1.312345,"update_rms":3.912345e-05,"step_time_s":5.012345,
             "step_time_max_s":5.112345,"lambda":0.8123456,"sigma_sq":0.03412345,"delta_l":-0.1123456,
             "lambda_norm":0.7,"sigma_sq_norm":0.01212345,"delta_l_norm":0.3123456,"r_metric":0.2945678,
             "alerts":{"loss_spike":310},"active_workers":[0,1,2,3,4,5,6,7],"router_imbalance_factor":0.0,
             "failed_experts":[],"force_gqa_mismatch":false,"force_rms_norm_error":false,"is_nan":false,
             "is_crashed":false}
    """
    names = ["event", "step", *floats, *states]
    columns = [
        ["METRICS"] * len(step),
        step.tolist(),
        *(values.tolist() for values in floats.values()),
        *states.values(),
    ]
    records = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    irregular = np.zeros(len(step), dtype=bool)
    for values in floats.values():
        irregular |= ~np.isfinite(values)
    for index in np.flatnonzero(irregular).tolist():
        records[index] = _without_non_finite(records[index], floats)
    return [orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records]


def _without_non_finite(record: Event, floats: Mapping[str, Any]) -> Event:
    clean = {key: value for key, value in record.items() if key not in floats or math.isfinite(value)}
    named = [key for key in floats if math.isinf(record[key])]
    if named:
        clean["non_finite"] = named
    return clean


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside, then rename: whatever kills the process, the file appears whole or not at all.

    It is not forced to the disk (0.5 ms a file): after a power cut, resuming a study checks every log and makes the
    damaged ones anew.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a failed write does not say where; the user needs to know
        with suppress(OSError):
            aside.unlink()
        raise


# ---------------------------------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------------------------------


def read_events(path: str | Path, on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The JSON objects of a file with their line numbers, in bounded memory.

    A line that is no JSON object is reported to ``on_damage(line, message)`` and skipped. Bare NaN and Infinity, which
    Python writes and JSON forbids, are understood: the field is moved to ``non_finite``.
    """
    loads = orjson.loads
    for number, line in numbered_lines(path, on_damage):
        try:
            event = loads(line)
        except orjson.JSONDecodeError:
            event = _parse_leniently(line, number, on_damage)
            if event is _UNUSABLE:
                continue
        if isinstance(event, dict):
            yield number, event
        else:
            on_damage(number, f"a JSON object is due, not {type(event).__name__}; skipped")


def numbered_lines(path: str | Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1 and their ends, in bounded memory.

    A byte-order mark is dropped; a line of more than :data:`MAX_LINE_BYTES` is reported and skipped.
    """
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                on_damage(number, f"longer than {MAX_LINE_BYTES:,} bytes; skipped")
                while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                continue
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                yield number, line


_UNUSABLE = object()


def _parse_leniently(line: bytes, number: int, on_damage: OnDamage) -> Any:
    """The value of a line that is not strict JSON; ``_UNUSABLE``, and a report, if it is no JSON at all."""
    text = line.decode("utf-8", errors="replace")
    if "\ufffd" in text:
        on_damage(number, "not UTF-8; the bad bytes were replaced")
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        cut = "cut off" if not line.endswith(b"\n") else "not JSON"
        on_damage(number, f"{cut}; skipped")
        return _UNUSABLE
    if isinstance(event, dict):
        named = [key for key, value in event.items() if isinstance(value, float) and not math.isfinite(value)]
        event = {key: value for key, value in event.items() if key not in named}
        if named:
            event["non_finite"] = [*_named_non_finite(event), *named]
    return event


def _named_non_finite(record: Event) -> list[Any]:
    named = record.get("non_finite")
    return named if isinstance(named, list) else []


@dataclass
class Chunk:
    """Up to :data:`CHUNK_RECORDS` consecutive METRICS records of a log, and as many events that stood between them."""

    step: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]
    """Raw values of :data:`MEASUREMENTS`, :data:`MECHANISM` and :data:`VERDICTS` by log name, each of shape (n,); gaps
    are not filled."""
    events: list[tuple[int, Event]]
    """Other events, each with the index (0 to n) of the record of this chunk that it stands before."""
    alerts: dict[str, int]
    """``alerts`` of the last record."""


def chunks(events: Iterable[NumberedEvent], on_damage: OnDamage, size: int = CHUNK_RECORDS) -> Iterator[Chunk]:
    """Turn events into columns, ``size`` records at a time.

    A METRICS record without a usable ``step``, or whose step does not lie after the record before it, is reported and
    left out: a detector needs time to go forward. Of a record only its numbers are held, so that memory is bounded
    whatever else a line holds.
    """
    gathered, last_step = _Gathered(), -1
    for line, event in events:
        if event.get("event", "METRICS") != "METRICS":
            gathered.events.append((len(gathered.steps), event))
            if len(gathered.events) == size:
                yield gathered.chunk()
                gathered = _Gathered()
            continue
        step = event.get("step")
        if type(step) is not int or not last_step < step < MAX_STEP:
            step = _usable_step(step, last_step, line, on_damage)
            if step is None:
                continue
        last_step = step
        gathered.add(line, step, event, on_damage)
        if len(gathered.steps) == size:
            yield gathered.chunk()
            gathered = _Gathered()
    if gathered.steps or gathered.events:
        yield gathered.chunk()


def _usable_step(step: Any, last_step: int, line: int, on_damage: OnDamage) -> int | None:
    """A step as a whole number after ``last_step``; ``None``, and a report, if it is none."""
    whole = whole_step(step)
    if whole is None:
        on_damage(line, f"a METRICS record needs a whole number as its step, not {step!r}; skipped")
    elif whole <= last_step:
        again = "repeats a step" if whole == last_step else "goes back in time"
        on_damage(line, f"step {whole} after step {last_step} {again}; skipped")
        whole = None
    return whole


_COLUMNS = (*MEASUREMENTS, *VERDICTS)
_NOT_MEASURED = (math.nan,) * len(_COLUMNS)
_FLOAT = frozenset({float})


class _Gathered:
    """The numbers of the records of a chunk, row after row, and the events between them."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.events: list[tuple[int, Event]] = []
        self._values = array("d")
        self._non_finite: list[tuple[int, list[str]]] = []
        self._mechanism: list[tuple[int, dict[str, float]]] = []
        self._alerts: Any = None

    def add(self, line: int, step: int, record: Event, on_damage: OnDamage) -> None:
        get = record.get
        row: Sequence[Any] = tuple(map(get, _COLUMNS, _NOT_MEASURED))
        if not _FLOAT.issuperset(map(type, row)):
            row = [_as_float(value, name, line, on_damage) for name, value in zip(_COLUMNS, row, strict=True)]
        self._values.extend(row)
        if "non_finite" in record:
            named = _named_non_finite(record)
            self._non_finite.append((len(self.steps), [name for name in _COLUMNS if name in named]))
        if "mechanism" in record:
            self._mechanism.append((len(self.steps), _mechanism_of(record, line, on_damage)))
        self._alerts = get("alerts")
        self.steps.append(step)

    def chunk(self) -> Chunk:
        values_CN = np.array(self._values, dtype=np.float64).reshape(-1, len(_COLUMNS)).T.copy()
        columns = {name: values for name, values in zip(_COLUMNS, values_CN, strict=True) if not np.isnan(values).all()}
        for index, names in self._non_finite:
            for name in names:
                columns.setdefault(name, np.full(len(self.steps), np.nan))[index] = np.inf
        for index, measured in self._mechanism:
            for name, value in measured.items():
                columns.setdefault(name, np.full(len(self.steps), np.nan))[index] = value
        return Chunk(
            step=np.array(self.steps, dtype=np.int64),
            columns=columns,
            events=self.events,
            alerts=self._alerts if isinstance(self._alerts, dict) else {},
        )


def _mechanism_of(record: Event, line: int, on_damage: OnDamage) -> dict[str, float]:
    """What a record holds under ``mechanism``, those that are not finite as infinity."""
    found = record["mechanism"]
    if not isinstance(found, dict):
        on_damage(line, f"mechanism is {str(found)[:40]!r}, not an object; taken as not measured")
        return {}
    named = {name: math.inf for name in _named_non_finite(found) if name in _OF_MECHANISM}
    return named | {
        name: _as_float(found[name], name, line, on_damage) for name in MECHANISM if found.get(name) is not None
    }


def _as_float(value: Any, name: str, line: int, on_damage: OnDamage) -> float:
    """A value of a record as a number; some loggers write ``nan`` and ``1e-3`` as text. NaN: not measured."""
    if value is None or type(value) is float:
        return math.nan if value is None else value
    try:
        if isinstance(value, bool):
            raise TypeError(value)
        return measurement(float(value))
    except OverflowError:  # a whole number beyond all doubles
        return math.inf
    except (TypeError, ValueError):
        on_damage(line, f"{name} is {str(value)[:40]!r}, not a number; taken as not measured")
        return math.nan


def observations_of(chunk: Chunk, previous_validation: float = math.nan) -> Observations:
    """The observations of a chunk as the log has them, with the latest known values filled in.

    Parameters
    ----------
    previous_validation
        Raw ``validation_loss`` of the record before the chunk (NaN if it had none).
    """
    columns = {name: values for name, values in chunk.columns.items() if name not in VERDICTS}
    evaluated = np.zeros(len(chunk.step), dtype=bool)
    if "validation_loss" in columns:
        evaluated = fresh_evaluations(columns["validation_loss"], previous_validation)
        columns["validation_loss"] = held(columns["validation_loss"], previous_validation)
    for name in ("delta_l", "lambda"):
        if name in columns:
            columns[name] = held(columns[name])
    return Observations(chunk.step, columns, evaluated)


def read_run(path: str | Path, on_damage: OnDamage | None = None) -> Run:
    """Read a whole log of the project's (or the authors') format into memory.

    Damage is reported to ``on_damage(line, message)``; without it, the first damage raises :class:`UserError`.
    """
    file = Path(path)

    def strictly(line: int, message: str) -> None:
        raise UserError(f"{file}, line {line}: {message}")

    report = on_damage or strictly
    return assemble(file.stem, chunks(read_events(file, report), report, size=2**62))


def assemble(name: str, pieces: Iterable[Chunk]) -> Run:
    """One run out of all its chunks."""
    run = Run(name, {}, Observations(np.empty(0, dtype=np.int64)))
    filled: list[Chunk] = []
    for piece in pieces:
        for _, event in piece.events:
            if event.get("event") == "EXPERIMENT_START":
                config = event.get("config")
                run.config = config if isinstance(config, dict) else {}
            else:
                run.events.append(event)
        if len(piece.step):
            filled.append(piece)
    if filled:
        whole = filled[0] if len(filled) == 1 else _joined(filled)
        run.observations = observations_of(whole)
        run.verdicts = {key: values for key, values in whole.columns.items() if key in VERDICTS}
        run.alerts = whole.alerts
    return run


def _joined(pieces: Sequence[Chunk]) -> Chunk:
    """The records of consecutive chunks as one."""
    names = dict.fromkeys(name for piece in pieces for name in piece.columns)
    missing = [np.full(len(piece.step), np.nan) for piece in pieces]
    return Chunk(
        step=np.concatenate([piece.step for piece in pieces]),
        columns={
            name: np.concatenate([piece.columns.get(name, gap) for piece, gap in zip(pieces, missing, strict=True)])
            for name in names
        },
        events=[],
        alerts=pieces[-1].alerts,
    )
