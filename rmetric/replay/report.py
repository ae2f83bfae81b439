"""The files of a replay: a CSV and a summary for each log, and the warnings on the way."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np
import orjson
import pyarrow
import pyarrow.csv
from numpy.typing import NDArray
from tqdm import tqdm

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.files import write_atomically, written_aside
from rmetric.importers import one_run
from rmetric.importers.log_names import Place, told_apart
from rmetric.importers.read import events_of
from rmetric.importers.rows import NO_COLUMN
from rmetric.importers.run_marks import not_one, runs_in
from rmetric.log_lines import place
from rmetric.replay import Columns, PlotCurves, Replay, ReplayOptions, plain_text
from rmetric.replay.one_log import replay_run
from rmetric.replay.settings import AS_IT_IS

SHOWN_WARNINGS = 5
"""Warnings a log that are printed in full."""
THREAD_PAYS_FROM = 4096
"""Rows that are worth a thread."""


class DamageReport:
    """Says what is wrong with a log: the first few warnings in full, then their number.

    Parameters
    ----------
    strict
        Raise :class:`UserError` at the first damage instead.
    stream
        Where warnings go; ``None``: standard error.
    """

    def __init__(self, path: str | Path, *, strict: bool = False, stream: TextIO | None) -> None:
        self.shown_path = plain_text(path)
        self.strict = strict
        self.count = 0
        self._stream = stream

    def __call__(self, line: int, message: str) -> None:
        where = f"{place(self.shown_path, line)}: {plain_text(message)}"
        if self.strict:
            raise UserError(where)
        self.count += 1
        if self.count <= SHOWN_WARNINGS:
            self.say(where)

    def say(self, message: str, kind: str = "warning") -> None:
        """One warning that is tied to no line, or the error of a log that cannot be used; it is not counted."""
        tqdm.write(f"{kind}: {message}", file=self._stream or sys.stderr)

    def close(self) -> None:
        """Say how many warnings were not shown."""
        if self.count > SHOWN_WARNINGS:
            self.say(f"{self.shown_path}: {self.count - SHOWN_WARNINGS:,} more")


class CsvWriter:
    """Writes columns as CSV beside the work that makes them; an empty cell is *not measured*, ``inf`` *not finite*.

    Arrow needs no interpreter to make text of numbers, so that on a second core it takes no time. An error in writing
    comes up with the next :meth:`write`, or at the end.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._writer: pyarrow.csv.CSVWriter | None = None
        self._thread = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def __enter__(self) -> CsvWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()
        if not any(error):
            self._wait()

    def write(self, columns: Columns) -> None:
        """Append the rows of one chunk, whose arrays may not be changed from then on."""
        self._wait()
        if len(next(iter(columns.values()))) < THREAD_PAYS_FROM:  # as most logs as a whole
            self._append(columns)
        else:
            self._written = self._thread.submit(self._append, columns)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()

    def _append(self, columns: Columns) -> None:
        rows = pyarrow.RecordBatch.from_arrays([*map(_cells, columns.values())], [*columns])
        if self._writer is None:
            self._file.write(",".join(columns).encode() + b"\n")
            self._writer = pyarrow.csv.CSVWriter(self._file, rows.schema, write_options=_WITHOUT_HEADER)
        self._writer.write_batch(rows)


_WITHOUT_HEADER = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
"""Arrow's own header has its names in quotes, and so would be texts."""


def _cells(values: NDArray[Any]) -> pyarrow.Array:
    """The same numbers as texts. Many stay as they are for records on end, and are made text of once."""
    bits = values.view(f"u{values.itemsize}")  # NaN is like NaN
    begins = np.flatnonzero(np.append(True, bits[1:] != bits[:-1]))
    texts = _as_arrow(values[begins]).cast("string")
    if len(begins) == len(values):
        return texts
    return texts.take(_as_arrow(np.repeat(np.arange(len(begins)), np.diff(begins, append=len(values)))))


def _as_arrow(values: NDArray[Any]) -> pyarrow.Array:
    """The same numbers for Arrow, NaN as null and truth as 0 or 1; ``pyarrow.array`` would import pandas."""
    numbers = np.ascontiguousarray(values.view(np.int8) if values.dtype == np.bool_ else values)
    known = np.packbits(~np.isnan(values), bitorder="little")
    buffers = [pyarrow.py_buffer(known), pyarrow.py_buffer(numbers)]
    return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def unfinished_files(out: Path, names: Sequence[str]) -> list[Path]:
    """Parts of these logs' files in ``out`` that a killed process has left."""
    beginnings = tuple(f".{name}.{ending}." for name in names for ending in ("csv", "png", "summary.json"))
    return [path for path in out.glob(".*.part") if path.name.startswith(beginnings)]


def output_names(runs: Sequence[tuple[Path, str | None]], out: Path) -> list[str]:
    """A file name without ending for each run of a log, ``None`` if it has no name: what tells it apart, with a number
    if that is taken or would overwrite a log.

    >>> logs = [Path(log) for log in ("a/run.jsonl", "b/run.jsonl", "b/eval.csv", "b/eval.jsonl")]
    >>> output_names([(log, None) for log in logs], Path("out"))
    ['a-run', 'b-run', 'eval', 'eval-2']
    """
    folder = os.path.realpath(out)
    inputs = [Path(os.path.realpath(log)) for log, _ in runs]
    taken = {"summary", *(log.stem.casefold() for log in inputs if str(log.parent) == folder and log.suffix == ".csv")}
    names = []
    for told in told_apart([Place.of(log, run or "") for log, run in runs]):
        stem = plain_text(told.replace("/", "-")).lstrip(".") or "log"
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def replays_to_folder(
    path: Path,
    names: Mapping[str | None, str],
    out: Path,
    options: ReplayOptions = AS_IT_IS,
    *,
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
    warnings: TextIO | None = None,
    draw: Callable[[Replay, PlotCurves], None] | None = None,
) -> Iterator[Replay]:
    """Replay runs of one log, which is read once, and write ``<name>.csv`` and ``<name>.summary.json`` of each.

    Parameters
    ----------
    names
        Each run, in the order of the log, and the name of its files, from :func:`output_names`; ``None``: the only run.
    out
        An existing folder.
    strict
        Any damage is an error; without it, a log that cannot be used, or lacks the column that is mapped to the
        training loss, is reported and comes back without records.
    progress
        Receives the number of records of a run so far.
    warnings
        Where warnings go; standard error if left out.
    draw
        Draws the curves of a run that has records.

    Raises
    ------
    UserError
        With ``strict``.
    OSError
        If the output cannot be written.
    """
    log = _Log(path, options, names)
    for run, name in names.items():
        report = log.report = DamageReport(path, strict=strict, stream=warnings)
        table, curves = out / f"{name}.csv", PlotCurves()
        try:
            with written_aside(table) as file, CsvWriter(file) as writer:
                replay = log.replay(run, _Sink(writer, progress), None if draw is None else curves)
        except UserError as error:
            if strict:
                raise
            report.say(str(error), "error")
            replay = Replay(name=name, source=plain_text(path), format="-", unusable=str(error), outcome="-")
        else:
            if replay.unusable:
                report.say(f"{report.shown_path}: {replay.unusable}", "error")
        report.close()
        if not replay.records:
            table.unlink(missing_ok=True)
        replay = replace(replay, name=name, damaged=report.count)
        summary = orjson.dumps(replay.to_dict(), option=orjson.OPT_INDENT_2) + b"\n"
        write_atomically(out / f"{name}.summary.json", summary)
        if replay.records and draw is not None:
            draw(replay, curves)
        yield replay


class _Sink:
    """Writes the columns of a run, and says how many records there have been."""

    def __init__(self, writer: CsvWriter, progress: Callable[[int], None] | None) -> None:
        self._writer, self._progress = writer, progress
        self._records = 0

    def __call__(self, columns: Columns) -> None:
        self._writer.write(columns)
        self._records += len(columns["step"])
        if self._progress is not None:
            self._progress(self._records)


class _Log:
    """The runs of a log, replayed one after the other while it is read."""

    report: DamageReport
    """Of the run that is being read."""

    def __init__(self, path: Path, options: ReplayOptions, wanted: Collection[str | None]) -> None:
        self._path, self._options, self._wanted = path, options, wanted
        self._format = ""
        self._runs = self._read()
        self._broken: UserError | None = None

    def replay(self, run: str | None, sink: Callable[[Columns], None], curves: PlotCurves | None) -> Replay:
        """Replay the next run; raises :class:`UserError`, from then on, for a log that cannot be read further."""
        if self._broken is not None:
            raise self._broken
        try:
            title, events = next(self._runs, (None, iter(())))
            if title != run:  # the log was another one when its runs were looked for
                raise not_one(self._path, [], run)
            return replay_run(
                events, run, self._path, self._format,
                settings=self._options.settings, on_damage=self._damage, sink=sink, trace=curves,
            )  # fmt: skip
        except UserError as error:
            self._broken = error
            raise

    def _read(self) -> Iterator[tuple[str | None, Iterator[NumberedEvent]]]:
        """The runs that are wanted, each with its events, to be taken before the next one."""
        options = self._options
        self._format, events = events_of(self._path, options.log_format, options.mapping, self._damage)
        if None in self._wanted:
            yield None, one_run(events, self._path, None)
            return
        for run, of_run in runs_in(events, self._path.stem):
            if run in self._wanted:
                yield run, of_run
            deque(of_run, maxlen=0)

    def _damage(self, line: int, message: str) -> None:
        loss = self._options.mapping.get("training_loss")
        if loss is not None and message.startswith(f"{NO_COLUMN} {loss!r} "):
            raise UserError(f"{self._path}: {message}; name one of these with --map")
        self.report(line, message)
