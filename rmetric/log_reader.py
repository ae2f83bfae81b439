"""Read a log back: columns of up to 65,536 records at a time, or the whole run."""

from __future__ import annotations

import math
import reprlib
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.batches import COLUMNS, NumberedEvent, RecordBatch
from rmetric.log_lines import OnDamage, named_non_finite, read_batches, strict
from rmetric.measurements import MEASUREMENTS, MECHANISM, VERDICTS, in_convention
from rmetric.records import MAX_STEP, START, Event, Observations, Run, fresh_evaluations, held, whole_step

CHUNK_RECORDS, WHOLE = 65_536, 2**62
"""Records of a chunk, and of one that holds a whole log."""
LATEST = {name for name, measurement in MEASUREMENTS.items() if measurement.merge == "latest"}
"""Measurements whose gaps a reader fills with the latest known value."""


@dataclass
class Chunk:
    """Up to :data:`CHUNK_RECORDS` consecutive METRICS records of a log, and as many events that stood between them."""

    step: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]
    """Raw values of :data:`MEASUREMENTS`, :data:`MECHANISM` and :data:`VERDICTS` by log name, each of shape (n,); gaps
    are not filled."""
    events: list[tuple[int, Event]]
    """Other events, each with the index (0 to n) of the record of this chunk that it stands before."""
    alerts: dict[str, int] | None
    """``alerts`` of the last record, empty: none so far; ``None`` if it does not say."""


def chunks(events: Iterable[NumberedEvent], on_damage: OnDamage, size: int = CHUNK_RECORDS) -> Iterator[Chunk]:
    """Turn events into columns, ``size`` records at a time.

    A METRICS record without a usable ``step``, or whose step does not lie after the record before it, is reported and
    left out: a detector needs time to go forward. Of a record only its numbers are held, so that memory is bounded
    whatever else a line holds.
    """
    gathered, last_step = _Gathered(), -1
    for numbered in events:
        for line, event in _in_one_piece(numbered, last_step):
            if isinstance(event, RecordBatch):
                last_step = int(event.step[-1])
                gathered = yield from _filled(gathered, event, size)
                continue
            if event.get("event", "METRICS") != "METRICS":
                gathered.events.append((len(gathered.steps), event))
            else:
                step = event.get("step")
                if type(step) is not int or not last_step < step < MAX_STEP:
                    step = _usable_step(step, last_step, line, on_damage)
                    if step is None:
                        continue
                last_step = step
                gathered.add(line, step, event, on_damage)
            if len(gathered.steps) == size or len(gathered.events) == size:
                yield gathered.chunk()
                gathered = _Gathered()
    if gathered.steps or gathered.events:
        yield gathered.chunk()


def _filled(gathered: _Gathered, batch: RecordBatch, size: int) -> Generator[Chunk, None, _Gathered]:
    """The chunks that a batch fills up; returns what is gathered after them."""
    begin = 0
    while begin < len(batch.step):
        end = begin + size - len(gathered.steps)
        gathered.add_batch(batch, slice(begin, end))
        if len(gathered.steps) == size:
            yield gathered.chunk()
            gathered = _Gathered()
        begin = end
    return gathered


def _in_one_piece(numbered: NumberedEvent, last_step: int) -> Iterable[NumberedEvent]:
    """An event as it is; a batch that does not begin after ``last_step`` record by record."""
    line, event = numbered
    return (
        enumerate(event.rows(), line) if isinstance(event, RecordBatch) and event.step[0] <= last_step else (numbered,)
    )


def _usable_step(step: Any, last_step: int, line: int, on_damage: OnDamage) -> int | None:
    """A step as a whole number after ``last_step``; ``None``, and a report, if it is none."""
    whole = whole_step(step)
    if whole is None:
        on_damage(line, f"a record needs a whole number below 2^53 as its step, not {reprlib.repr(step)}; skipped")
    elif whole <= last_step:
        again = "repeats a step" if whole == last_step else "goes back in time"
        on_damage(line, f"step {whole} after step {last_step} {again}; skipped")
        whole = None
    return whole


_NOT_MEASURED = (math.nan,) * len(COLUMNS)
_FLOAT = frozenset({float})


class _Gathered:
    """Numbers of the records of a chunk, row after row, and the events between them."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.events: list[tuple[int, Event]] = []
        self._values = array("d")
        self._non_finite: list[tuple[int, list[str]]] = []
        self._mechanism: list[tuple[int, dict[str, float]]] = []
        self._alerts: Any = None

    def add(self, line: int, step: int, record: Event, on_damage: OnDamage) -> None:
        get = record.get
        row: Sequence[Any] = tuple(map(get, COLUMNS, _NOT_MEASURED))
        if not _FLOAT.issuperset(map(type, row)):
            row = [_as_float(value, name, line, on_damage) for name, value in zip(COLUMNS, row, strict=True)]
        self._values.extend(row)
        if "non_finite" in record:
            named = named_non_finite(record)
            self._non_finite.append((len(self.steps), [name for name in COLUMNS if name in named]))
        if "mechanism" in record:
            self._mechanism.append((len(self.steps), _mechanism_of(record, line, on_damage)))
        self._alerts = get("alerts")
        self.steps.append(step)

    def add_batch(self, batch: RecordBatch, rows: slice) -> None:
        self._values.frombytes(batch.numbers[rows].tobytes())
        self.steps.frombytes(batch.step[rows].tobytes())
        self._alerts = batch.alerts[rows][-1]

    def chunk(self) -> Chunk:
        values_CN = np.asarray(self._values).reshape(-1, len(COLUMNS)).T.copy()
        columns = {name: values for name, values in zip(COLUMNS, values_CN, strict=True) if not np.isnan(values).all()}
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
            alerts=self._alerts if isinstance(self._alerts, dict) else None,
        )


def _mechanism_of(record: Event, line: int, on_damage: OnDamage) -> dict[str, float]:
    """Measurements that a record holds under ``mechanism``; one that is not finite as infinity."""
    found = record["mechanism"]
    if not isinstance(found, dict):
        on_damage(line, f"mechanism is {str(found)[:40]!r}, not an object; taken as not measured")
        return {}
    named = {name: math.inf for name in named_non_finite(found) if name in MECHANISM}
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
        return in_convention(float(value))
    except OverflowError:  # a whole number beyond all doubles
        return math.inf
    except (TypeError, ValueError):
        on_damage(line, f"{name} is {str(value)[:40]!r}, not a number; taken as not measured")
        return math.nan


def observations_of(chunk: Chunk) -> Observations:
    """The observations of a chunk as the log has them, with the latest known values of the chunk filled in."""
    columns = {name: values for name, values in chunk.columns.items() if name not in VERDICTS}
    evaluated = np.zeros(len(chunk.step), dtype=bool)
    if "validation_loss" in columns:
        evaluated = fresh_evaluations(columns["validation_loss"])
    for name in columns.keys() & LATEST:
        columns[name] = held(columns[name])
    return Observations(chunk.step, columns, evaluated)


def read_log(path: str | Path, on_damage: OnDamage | None = None) -> Run:
    """Read a whole log of the project's (or the authors') format into memory.

    Damage is reported to ``on_damage(line, message)``; without it, :func:`strict` judges.
    """
    file = Path(path)
    report = on_damage or strict(file)
    return assemble(file.stem, chunks(read_batches(file, report), report, WHOLE))


def assemble(name: str, pieces: Iterable[Chunk]) -> Run:
    """One run out of all its chunks."""
    run = Run(name, {}, Observations(np.empty(0, dtype=np.int64)))
    filled: list[Chunk] = []
    for piece in pieces:
        tell(run, piece.events)
        if len(piece.step):
            filled.append(piece)
    if filled:
        whole = filled[0] if len(filled) == 1 else _joined(filled)
        run.observations = observations_of(whole)
        run.verdicts = {key: values for key, values in whole.columns.items() if key in VERDICTS}
        run.alerts = whole.alerts or {}
    return run


def tell(run: Run, events: Iterable[tuple[int, Event]]) -> None:
    """Put the next events of its log, as :class:`Chunk` has them, into a run.

    Where a second run was appended to a log, the first one's configuration stays, as its records do.
    """
    for _, event in events:
        if event.get("event") == START:
            config = event.get("config")
            run.config = run.config or (config if isinstance(config, dict) else {})
        else:
            run.events.append(event)


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
