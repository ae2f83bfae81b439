"""Metrics that a tracker keeps one by one, each with steps and times of its own: as rows in the order of their steps.

In which order values of different metrics stand there, or in which file, means nothing: TensorBoard, MLflow, DVCLive.
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import FieldMap
from rmetric.importers.names import meanings
from rmetric.importers.rows import Row
from rmetric.importers.tables import imported
from rmetric.log_lines import OnDamage

_TABLES = """
CREATE TABLE points (name, line, place, time, step, value, part DEFAULT 0);
CREATE TABLE damage (line, message);
"""
_WITHOUT_REPEATED = """
DELETE FROM points WHERE (SELECT MIN(step) < MAX(step) FROM points WHERE name = :clock) AND rowid IN (
    SELECT rowid FROM (
        SELECT rowid, step = LEAD(step) OVER logged AND part = LEAD(part) OVER logged AS is_repeated FROM points
        WINDOW logged AS (PARTITION BY name ORDER BY place, rowid)
    ) WHERE is_repeated
)
"""
"""Of values of a metric that follow each other at one step the last counts, unless that is no step but the same
throughout."""
_TO_LATEST = """
UPDATE points SET step = COALESCE((
    SELECT step FROM points AS trained INDEXED BY in_time
    WHERE name = :clock AND part = points.part AND (time, place) <= (points.time, points.place)
    ORDER BY time DESC, place DESC LIMIT 1
), step) WHERE name = :name
"""


class Point(NamedTuple):
    """A value of a metric."""

    name: str
    line: int
    place: float
    """Its place in the order in which the values of a metric were logged; of different metrics it tells no more than
    which part of a resumed run they belong to."""
    time: float
    """When it was logged."""
    step: int | float
    value: Any


Points = Callable[[OnDamage], Iterable[Point]]
"""Reads the values of a run; called once."""


def imported_series(
    path: Path, points: Points, mapping: Mapping[str, str], on_damage: OnDamage, title: str
) -> Iterator[NumberedEvent]:
    """Events of a run; ``title`` is its name.

    The values are put in order in a temporary data base, which SQLite keeps on the disk where they are many. Raises
    :class:`UserError` if they cannot be read, or none is of use.
    """
    try:
        with closing(sqlite3.connect("", check_same_thread=False)) as base:
            base.executescript(_TABLES)
            series = _Series(base, FieldMap(mapping))
            series.load(points)
            yield from imported(path, series.rows, mapping, on_damage, title=title, remarks=series.remarks)
    except sqlite3.Error as error:
        raise UserError(
            f"{path} cannot be read ({error}); check the file, and the space for temporary files"
        ) from error


class _Series:
    def __init__(self, base: sqlite3.Connection, fields: FieldMap) -> None:
        self._base, self._fields = base, fields
        self.remarks: dict[str, str] = {}
        """What is to be said of a metric if it is used."""

    def load(self, points: Points) -> None:
        """Take the values, each to its part of the run and its step."""
        self._base.executemany(
            "INSERT INTO points (name, line, place, time, step, value) VALUES (?, ?, ?, ?, ?, ?)",
            points(self._keep_damage),
        )
        self._base.execute("CREATE INDEX of_metrics ON points (name, place)")
        counts = dict(self._base.execute("SELECT name, COUNT(*) FROM points GROUP BY name ORDER BY name"))
        known = {name: {ours for ours, _ in meanings(name, self._fields)} for name in counts}
        useful = [name for name, ours in known.items() if ours] or [*counts]
        training = [name for name in useful if "training_loss" in known[name]] or useful
        if training:
            clock = max(training, key=counts.__getitem__)
            others = [name for name in useful if name != clock]
            self._part(clock, others)
            self._place(clock, others)
            self._base.execute(_WITHOUT_REPEATED, {"clock": clock})
        self._base.execute("CREATE INDEX in_order ON points (part, step, time, place)")

    def _keep_damage(self, line: int, message: str) -> None:
        self._base.execute("INSERT INTO damage VALUES (?, ?)", (line, message))

    def _part(self, clock: str, others: Iterable[str]) -> None:
        """Part the run where it was resumed from an earlier step, with the first metric that went back there."""
        seams = [*_seams(self._logged(clock))]
        if not seams:
            return
        went_back = sorted(seam.after for name in others for seam in _seams(self._logged(name)))
        begins = []
        for before, after in seams:
            first = bisect_right(went_back, before)
            begins.append(min([after, *went_back[first : first + 1]]))
        self._base.create_function("part_of", 1, partial(bisect_right, begins))
        self._base.execute("UPDATE points SET part = part_of(place)")

    def _logged(self, name: str) -> Iterator[tuple[float, int]]:
        return self._base.execute("SELECT place, step FROM points WHERE name = ? ORDER BY place, rowid", (name,))

    def _place(self, clock: str, others: Iterable[str]) -> None:
        """Place values that are counted otherwise than the training, such as by epoch, at its latest step."""
        self._base.execute("CREATE INDEX in_time ON points (part, time, place)")
        judged = {name: _Counter() for name in others}
        latest: tuple[int, int] | None = None
        values = self._base.execute("SELECT name, part, step FROM points ORDER BY part, time, place, rowid")
        for name, part, step in values:
            if name == clock:
                latest = part, step
            elif name in judged and latest is not None and latest[0] == part:
                judged[name].add(step, latest)
        for name in (name for name, counter in judged.items() if counter.is_another):
            self._base.execute(_TO_LATEST, {"name": name, "clock": clock})
            self.remarks[name] = (
                f"the steps of {name!r} are not those of {clock!r}, and stay behind them: "
                "each value stands at the latest step before it"
            )

    def rows(self, on_damage: OnDamage) -> Iterator[Row]:
        """Values of one step as a row; another one begins where a name comes again."""
        row, at = Row(0, {}), None
        found = self._base.execute(
            "SELECT part, step, name, line, value FROM points ORDER BY part, step, time, place, rowid"
        )
        for part, step, name, line, value in found:
            if at != (part, step) or name in row.values:
                if at is not None:
                    yield row
                row, at = Row(line, {"step": step}), (part, step)
            row.values[name] = math.nan if value is None else value  # SQLite has no NaN
        if at is not None:
            yield row
        for line, message in self._base.execute("SELECT line, message FROM damage"):
            on_damage(line, message)


class _Seam(NamedTuple):
    """Place at which the steps of a metric go back: the last one before that, and the first one after it."""

    before: float
    after: float


def _seams(logged: Iterable[tuple[float, int]]) -> Iterator[_Seam]:
    """The seams of a metric: its steps are behind in the next value, too."""
    latest, before = -math.inf, -math.inf
    seam: _Seam | None = None
    for place, step in logged:
        if step < latest and seam is None:
            seam = _Seam(before, place)
        else:
            if step < latest and seam is not None:
                yield seam
            latest, seam = step, None
        before = place


@dataclass(slots=True)
class _Counter:
    """Whether a metric has a counter of its own, judged by its values in the order in which they were logged."""

    count: int = 0
    behind: int = 0
    """Values after the first whose step is half of the latest one of the training at most."""
    between: int = 0
    """How often the training has gone on between two values."""
    _latest: tuple[int, int] | None = None

    def add(self, step: int, latest: tuple[int, int]) -> None:
        """Take up a value before which there is one of the training, with the part and the step of the latest."""
        if self.count:
            self.behind += 2 * step <= latest[1] and step < latest[1]
            self.between += latest != self._latest
        self.count, self._latest = self.count + 1, latest

    @property
    def is_another(self) -> bool:
        """Whether all values but the first are behind the training, which goes on between them."""
        return self.between > 0 and self.behind == self.count - 1
