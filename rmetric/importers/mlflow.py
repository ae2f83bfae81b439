"""MLflow's tracking stores: folders of metric files (``mlruns``), and SQLite data bases."""

from __future__ import annotations

import heapq
import math
import sqlite3
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count, groupby, pairwise, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.names import meanings
from rmetric.importers.rows import Row
from rmetric.importers.streams import LONGEST_NAME
from rmetric.importers.tables import Rows, imported, run_after_run
from rmetric.log_reader import NumberedEvent, OnDamage, numbered_lines, passed_over

SQLITE = b"SQLite format 3\0"
MOST_METRICS = 64
"""Files of one run that are read side by side."""
_BUSY_S = 1.0


@register_importer("mlflow")
def read_mlflow(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The runs of a store, an experiment, or a run's folder; the line is that of the metric's file, or the row.

    Neither needs MLflow. A data base is opened for reading only.
    """
    return _of_database(path, mapping, on_damage) if path.is_file() else _of_folder(path, mapping, on_damage)


def run_folders(folder: Path) -> list[Path]:
    """Folders of runs: the folder itself, or those up to three levels below."""
    places = [folder, *(place for level in range(1, 4) for place in sorted(folder.glob("*/" * level)))]
    return [place for place in places if (place / "meta.yaml").is_file() and (place / "metrics").is_dir()]


def _of_folder(folder: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    places = run_folders(folder)
    return run_after_run((_title(place), _of_run_folder(place, mapping, on_damage)) for place in places)


def _title(place: Path) -> str:
    title = place / "tags" / "mlflow.runName"
    return (title.read_text(errors="replace")[:LONGEST_NAME].strip() if title.is_file() else "") or place.name


def _of_run_folder(place: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    fields = FieldMap(mapping)
    files = {
        file.relative_to(place / "metrics").as_posix(): file
        for file in sorted((place / "metrics").rglob("*"))
        if file.is_file()
    }
    useful = {name: file for name, file in files.items() if meanings(name, fields)} or files
    if len(useful) > MOST_METRICS:
        on_damage(1, f"{place} has more than {MOST_METRICS} metrics; the rest is left out")
    if useful:
        yield from imported(place, _reader(dict(list(useful.items())[:MOST_METRICS])), mapping, on_damage)


def _reader(files: Mapping[str, Path]) -> Rows:
    seams = _seams(map(_times_of_steps, files.values()))
    return lambda on_damage: _rows(_values(files, seams, on_damage))


def _run_reader(base: sqlite3.Connection, run: str) -> Rows:
    times = base.execute(
        "SELECT key, timestamp, step FROM metrics WHERE run_uuid = ? ORDER BY key, timestamp, step", (run,)
    )
    seams = _seams([(time, step) for _, time, step in rows] for _, rows in groupby(times, key=lambda row: row[0]))
    return lambda on_damage: _rows(_of_run(base, run, seams))


Value = tuple[tuple[int, Any], str, int, Any]
"""How often the run has been resumed, and the step; name of the metric, line, value."""


def _values(files: Mapping[str, Path], seams: Sequence[int], on_damage: OnDamage) -> Iterator[Value]:
    of_files = (_of_file(name, file, seams, on_damage) for name, file in files.items())
    return heapq.merge(*of_files, key=lambda value: value[0])


def _of_file(name: str, file: Path, seams: Sequence[int], on_damage: OnDamage) -> Iterator[Value]:
    for number, time, step, value in _lines(file, name, on_damage):
        yield (bisect_right(seams, time), step), name, number, value


def _lines(file: Path, name: str, on_damage: OnDamage) -> Iterator[tuple[int, int, int, float]]:
    """Numbered lines ``timestamp value step``; two older layouts have no step, a newer one has more fields."""
    for number, line in numbered_lines(file, on_damage):
        words = line.decode(errors="replace").split()
        try:
            yield number, int(words[0]), int(words[2]) if len(words) > 2 else number - 1, float(words[1])
        except (ValueError, IndexError):
            on_damage(number, f"{name}: no line 'timestamp value step'; skipped")


def _times_of_steps(file: Path) -> Iterator[tuple[int, int]]:
    return ((time, step) for _, time, step, _ in _lines(file, "", passed_over))


def _seams(metrics: Iterable[Iterable[tuple[int, int]]]) -> list[int]:
    """The times at which a run was resumed from an earlier step, each that of the first metric that went back.

    Parameters
    ----------
    metrics
        Of each metric, times and steps in the order in which they were logged.
    """
    return [min(times) for times in zip_longest(*map(_seams_of, metrics), fillvalue=sys.maxsize)]


def _seams_of(times_of_steps: Iterable[tuple[int, int]]) -> list[int]:
    """The times at which the steps of a metric go back, and are behind in the next line, too."""
    seams, latest, went_back_at = [], -math.inf, None
    for time, step in times_of_steps:
        if step >= latest:
            latest, went_back_at = step, None
        elif went_back_at is None:
            went_back_at = time
        else:
            seams.append(went_back_at)
            latest, went_back_at = step, None
    return seams


def _rows(values: Iterator[Value]) -> Iterator[Row]:
    """Values of one step as a row."""
    for (_, step), same in groupby(values, key=lambda value: value[0]):
        row = Row(1, {"step": step})
        for _, name, line, value in same:
            row.line = line
            row.values[name] = value
        yield row


def _of_database(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    try:
        place = f"file:{quote(str(path))}?mode=ro"  # a reader may go on in another thread
        with closing(sqlite3.connect(place, uri=True, timeout=_BUSY_S, check_same_thread=False)) as base:
            if not _is_store(base):
                raise UserError(f"{path} is an SQLite data base without MLflow's tables 'runs' and 'metrics'")
            runs = base.execute("SELECT run_uuid, name FROM runs ORDER BY start_time").fetchall()
            yield from run_after_run(
                (str(name or run)[:LONGEST_NAME], imported(path, _run_reader(base, run), mapping, on_damage))
                for run, name in runs
            )
    except sqlite3.Error as error:
        raise UserError(f"{path} cannot be read as MLflow's data base ({error}); check the file") from error


def _is_store(base: sqlite3.Connection) -> bool:
    """Whether there are tables of that name; a view could compute without end."""
    found = base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('runs', 'metrics')")
    return len(found.fetchall()) == 2


def _of_run(base: sqlite3.Connection, run: str, seams: Sequence[int]) -> Iterator[Value]:
    numbers = count(1)
    for resumed, (begin, end) in enumerate(pairwise([-sys.maxsize, *seams, sys.maxsize])):
        rows = base.execute(
            "SELECT step, key, value, is_nan FROM metrics WHERE run_uuid = ? AND timestamp >= ? AND timestamp < ? "
            "ORDER BY step, timestamp",
            (run, begin, end),
        )
        for step, key, value, is_nan in rows:
            yield (resumed, step), str(key), next(numbers), math.nan if is_nan else _finite(value)


def _finite(value: Any) -> Any:
    """A value; MLflow stores an infinite one as the largest that there is."""
    return math.inf if isinstance(value, float) and abs(value) >= sys.float_info.max else value
