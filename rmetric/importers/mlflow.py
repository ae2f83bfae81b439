"""MLflow's tracking stores: folders of metric files (``mlruns``), and SQLite data bases."""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.names import meanings
from rmetric.importers.run_marks import LONGEST_NAME
from rmetric.importers.series import Point, imported_series
from rmetric.importers.tables import run_after_run
from rmetric.log_lines import OnDamage, numbered_lines

SQLITE = b"SQLite format 3\0"
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
    return [place for place in places if is_run(place)]


def is_run(folder: Path) -> bool:
    """Whether a folder holds one run of MLflow."""
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def run_files(folder: Path) -> list[Path]:
    """The files of the runs in a folder, those of their metrics and what says that there is a run."""
    return [file for run in run_folders(folder) for file in (run / "meta.yaml", *_metrics(run).values())]


def _metrics(run: Path) -> dict[str, Path]:
    """The file of each metric of a run."""
    place = run / "metrics"
    return {file.relative_to(place).as_posix(): file for file in sorted(place.rglob("*")) if file.is_file()}


def _of_folder(folder: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    titles = ((place, _title(place)) for place in run_folders(folder))
    return run_after_run(
        (title, imported_series(place, partial(_of_files, place, FieldMap(mapping)), mapping, on_damage, title))
        for place, title in titles
    )


def _title(place: Path) -> str:
    title = place / "tags" / "mlflow.runName"
    return (title.read_text(errors="replace")[:LONGEST_NAME].strip() if title.is_file() else "") or place.name


def _of_files(place: Path, fields: FieldMap, on_damage: OnDamage) -> Iterator[Point]:
    """The metrics of a run's folder that mean something of ours; all, if none does."""
    files = _metrics(place)
    for name, file in ({name: file for name, file in files.items() if meanings(name, fields)} or files).items():
        yield from _of_file(name, file, on_damage)


def _of_file(name: str, file: Path, on_damage: OnDamage) -> Iterator[Point]:
    """Numbered lines ``timestamp value step``; two older layouts have no step, a newer one has more fields."""
    for number, line in numbered_lines(file, on_damage):
        words = line.decode(errors="replace").split()
        try:
            time, step = float(int(words[0])), int(words[2]) if len(words) > 2 else number - 1
            if abs(step) > sys.maxsize:
                raise OverflowError
            yield Point(name, number, time, time, step, float(words[1]))
        except (ValueError, IndexError, OverflowError):
            on_damage(number, f"{name}: no line 'timestamp value step'; skipped")


def _of_database(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    try:
        place = f"file:{quote(str(path))}?mode=ro"  # a reader may go on in another thread
        with closing(sqlite3.connect(place, uri=True, timeout=_BUSY_S, check_same_thread=False)) as base:
            if not _is_store(base):
                raise UserError(f"{path} is an SQLite data base without MLflow's tables 'runs' and 'metrics'")
            runs = base.execute("SELECT run_uuid, name FROM runs ORDER BY start_time").fetchall()
            titles = ((run, str(name or run)[:LONGEST_NAME]) for run, name in runs)
            yield from run_after_run(
                (title, imported_series(path, partial(_of_run, base, run), mapping, on_damage, title))
                for run, title in titles
            )
    except sqlite3.Error as error:
        raise UserError(f"{path} cannot be read as MLflow's data base ({error}); check the file") from error


def _is_store(base: sqlite3.Connection) -> bool:
    """Whether there are tables of that name; a view could compute without end."""
    found = base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('runs', 'metrics')")
    return len(found.fetchall()) == 2


def _of_run(base: sqlite3.Connection, run: str, on_damage: OnDamage) -> Iterator[Point]:
    rows = base.execute(
        "SELECT key, timestamp, step, value, is_nan FROM metrics WHERE run_uuid = ? "
        "AND typeof(timestamp) = 'integer' AND typeof(step) = 'integer' ORDER BY rowid",
        (run,),
    )
    for number, (key, time, step, value, is_nan) in enumerate(rows, start=1):
        yield Point(str(key), number, time, time, step, math.nan if is_nan else _finite(value))


def _finite(value: Any) -> Any:
    """A value; MLflow stores an infinite one as the largest that there is."""
    return math.inf if isinstance(value, float) and abs(value) >= sys.float_info.max else value
