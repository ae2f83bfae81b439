"""Rows that say in a column of which run they are: ``run``, ``run_id``, ``seed``, ``trial``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, plain, words_of
from rmetric.importers.names import DATA_WORDS, FOLD_NAMES, RUN_NAMES, meanings
from rmetric.importers.rows import Row, as_number, epoch_of
from rmetric.importers.run_marks import LONGEST_NAME
from rmetric.importers.survey import SURVEYED_ROWS

OF_HEADER = "run in the header"
"""Name under which a row has the run that a name of its columns states: that needs no evidence."""
MOST_HELD = 500_000
"""Rows of runs in turn that are held: some 0.3 GiB."""


@dataclass
class RunColumn:
    """The column that names the run of a row."""

    name: str
    in_turn: bool
    """Whether a run goes on after rows of another one."""

    @property
    def note(self) -> str:
        """What tells the runs apart."""
        place = "the names of its columns" if self.name == OF_HEADER else f"its column {self.name!r}"
        return f"the runs of this log are told apart by {place}"

    @classmethod
    def of(cls, rows: Callable[[], Iterable[Row]], names: Collection[str], fields: FieldMap) -> RunColumn | None:
        """The column of a log with such names, judged by its first rows; ``None`` if all of these are of one run.

        A run begins no later than with the step that others have reached: where the steps go on, another seed or trial
        is another setting of the same run. A fold of a cross-validation is trained anew all the same; one that comes
        back while they go on is a part of the data of one training.
        """
        if OF_HEADER in names:
            return cls(OF_HEADER, in_turn=True)
        named = [name for name in names if plain(name) in RUN_NAMES and name not in fields.taken]
        if not named:
            return None
        steps = [name for name in names if any(ours == "step" for ours, _ in meanings(name, fields))]
        first = [*islice(rows(), SURVEYED_ROWS)]
        judged = (cls._judged(name, first, steps) for name in named)
        return next((found for found in judged if found is not None), None)

    @classmethod
    def _judged(cls, name: str, rows: Sequence[Row], steps: Sequence[str]) -> RunColumn | None:
        column, runs = cls(name, in_turn=False), set[str]()
        is_fold, goes_back, highest, before = plain(name) in FOLD_NAMES, False, -math.inf, None
        for row in rows:
            run, step = column.title(row), _step_of(row, steps)
            if run is None:
                continue
            is_known, is_other = run in runs, bool(runs) and run != before
            goes_back |= is_other and step <= highest
            if is_other and step > highest and is_known == is_fold and not (is_fold and goes_back):
                return None
            column.in_turn |= is_known and is_other
            runs.add(run)
            before, highest = run, max(highest, step)
        is_split = all(DATA_WORDS.issuperset(words_of(run)) for run in runs)
        return column if not is_split and 2 <= len(runs) <= len(rows) / 2 else None

    def title(self, row: Row) -> str | None:
        """Name of the run of a row, with that of the column where it is a number; ``None`` if it does not say."""
        value = row.values.get(self.name)
        if isinstance(value, str):
            return value[:LONGEST_NAME] or None
        return f"{self.name} {value}" if isinstance(value, int) else None

    def apart(self, path: Path, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, run after run."""
        if not self.in_turn:
            yield from rows
            return
        of_runs: defaultdict[str | None, list[Row]] = defaultdict(list)
        for held, row in enumerate(rows):
            if held == MOST_HELD:
                raise UserError(
                    f"{path} has rows of several runs in turn ({self.name!r}); sort its rows by run and step"
                )
            of_runs[self.title(row)].append(row)
        yield from chain.from_iterable(of_runs.values())


def _step_of(row: Row, steps: Sequence[str]) -> int | float:
    """Step or epoch of a row; that of one that says neither is below all others."""
    said = (as_number(row.values.get(name)) for name in steps)
    found = next((step for step in said if step is not None), epoch_of(row.values))
    return -math.inf if found is None else found
