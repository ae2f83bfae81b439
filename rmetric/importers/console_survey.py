"""The patterns of a console log: which names its first lines report together, how often, and what that tells."""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rmetric.importers.base import CACHED, HEAD_BYTES, FieldMap
from rmetric.importers.commas import DecimalMarks
from rmetric.importers.console_counters import Announcement, ConsoleCounters
from rmetric.importers.console_lines import Line, Workers, console_lines, console_texts
from rmetric.importers.console_names import LineNames, Pattern
from rmetric.importers.line_prefix import tokens_before_reports
from rmetric.importers.names import LINE_NUMBER
from rmetric.importers.survey import SURVEYED_ROWS
from rmetric.log_lines import passed_over
from rmetric.measurements import LOSSES

REPEATED = 2
"""Lines from which a pattern of names is one of the program's reports."""
REPORTED = frozenset((*LOSSES, "grad_norm"))
"""What a report has one of."""
_CHECKPOINT = re.compile(r"\b(?:checkpoints?|ckpt|sav(?:ed|es|ing))\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ConsoleSurvey:
    """What the first lines of a console log tell of all of them."""

    names: LineNames
    counts: Counter[Pattern]
    """Patterns, and how often each came."""
    begins: Mapping[Pattern, Mapping[str, Any]]
    """Patterns, each with the first line of it."""
    prefix: Set[str]
    """Tokens before the reports that tell no data."""
    has_decimal_commas: bool
    first_workers: Mapping[Pattern, str]
    """The first process that has written a pattern, where several have."""
    of_checkpoints: Mapping[Pattern, bool]
    """Patterns with a loss of the training, and whether each of their lines tells of a checkpoint."""
    changing_rates: Set[str]
    """Learning rates in lines without a loss that change, or are told at one count after the other: others may be
    settings."""
    epochs: frozenset[Any]
    """Numbers up to which ``[3/100]`` counts epochs."""
    places: frozenset[str]
    """Names of epochs that have the batch behind a slash."""
    announcement: Announcement | None
    """The counter that stands in a line before each report."""

    @classmethod
    def of(cls, path: Path, mapping: Mapping[str, str]) -> ConsoleSurvey:
        """The survey of a log. It is remembered: a format is recognised by one, and the log read by the same."""
        return _remembered(path, _content(path), tuple(mapping.items()))

    @classmethod
    def made(cls, path: Path, mapping: Mapping[str, str]) -> ConsoleSurvey:
        """Make the survey of a log."""
        names = LineNames(FieldMap(mapping))
        prefix = tokens_before_reports(itertools.islice(console_texts(path), SURVEYED_ROWS), names.fields)
        seen = _Seen(names)
        for line in itertools.islice(console_lines(path, passed_over, names.fields, prefix=prefix), SURVEYED_ROWS):
            seen.add(line)
        return cls(
            names=names,
            counts=seen.counts,
            begins=seen.begins,
            prefix=prefix,
            has_decimal_commas=seen.marks.are_commas,
            first_workers=seen.first_workers(),
            of_checkpoints=seen.of_checkpoints,
            changing_rates=seen.changing_rates,
            epochs=seen.counters.epochs,
            places=seen.counters.places,
            announcement=seen.counters.announcement,
        )

    @cached_property
    def repeated(self) -> list[Pattern]:
        """The patterns of the program's reports."""
        return [names for names, count in self.counts.items() if count >= REPEATED]

    @property
    def holds_a_loss(self) -> bool:
        """Whether one of those holds a loss."""
        return any(not self.names.meant(names).isdisjoint(LOSSES) for names in self.repeated)

    @cached_property
    def steps(self) -> set[str]:
        """Names of the counters of the training."""
        trained = (names for names in self.repeated if "training_loss" in self.names.meant(names))
        return {name for names in trained for name in self.names.counters(names)}

    @cached_property
    def with_losses(self) -> list[tuple[Pattern, set[str], Pattern]]:
        """Reports of the training, each as its names, its counters among them, and its losses."""
        counted = ((names, *self.names.counted_losses(names)) for names in self.repeated)
        return [report for report in counted if all(report)]

    @cached_property
    def saved(self) -> set[Pattern]:
        """Patterns of lines that tell of a checkpoint, with the loss that it has, where others report the training."""
        reports = any(not tells and self.counts[names] >= REPEATED for names, tells in self.of_checkpoints.items())
        return {names for names, tells in self.of_checkpoints.items() if tells and reports}


@lru_cache(maxsize=2)
def _remembered(path: Path, content: Hashable, mapping: tuple[tuple[str, str], ...]) -> ConsoleSurvey:
    return ConsoleSurvey.made(path, dict(mapping))


def _content(path: Path) -> Hashable:
    """What tells a file from one that was under its name before."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        state = os.fstat(file.fileno())
        file.seek(max(state.st_size - HEAD_BYTES, 0))
        return state.st_mtime_ns, state.st_size, zlib.crc32(head + file.read())


class _Seen:
    """What the lines have held so far."""

    def __init__(self, names: LineNames) -> None:
        self._names = names
        self.counts: Counter[Pattern] = Counter()
        self.begins: dict[Pattern, Mapping[str, Any]] = {}
        self.marks = DecimalMarks()
        self.counters = ConsoleCounters(names.counters)
        self.of_checkpoints: dict[Pattern, bool] = {}
        self.changing_rates: set[str] = set()
        self._rates: dict[str, tuple[Any, list[Any]]] = {}
        """Learning rates in lines without a loss, each with its first value, and what else its line counts."""
        self._workers: defaultdict[Pattern, Workers] = defaultdict(Workers)

    def add(self, line: Line) -> None:
        """Take in the next line."""
        names = tuple(line.found)
        meant = self._names.meant(names)
        if meant:
            self.marks.add(line.text)
        if "training_loss" in meant:
            tells = _CHECKPOINT.search(line.text) is not None
            self.of_checkpoints[names] = tells and self.of_checkpoints.get(names, True)
        for one in (line, *line.pieces):
            known = tuple(one.found)
            if known in self.counts or len(self.counts) < CACHED:
                self.counts[known] += 1
                self.begins.setdefault(known, one.found)
        if line.worker:
            self._workers[names].add(line.worker)
        if "learning_rate" in meant and meant.isdisjoint(LOSSES):
            self._add_rates(line.found)
        if not line.worker.startswith("rank") or line.worker == self._workers[names].first:
            self.counters.add(line.found, measures=bool(meant), trains="training_loss" in meant)

    def _add_rates(self, found: Mapping[str, Any]) -> None:
        counts = [value for name, value in found.items() if self._names.is_counter(name)]
        for name, value in found.items():
            if "learning_rate" in self._names.meant((name,)):
                first, began = self._rates.setdefault(name, (value, counts))
                if first != value or (counts and began and began != counts):
                    self.changing_rates.add(name)

    def first_workers(self) -> dict[Pattern, str]:
        """The first process for each pattern that several have written.

        A mere number may be a counter, or something measured: it tells the process only if the line states a counter
        besides, and if it comes again.
        """
        return {
            names: workers.first
            for names, workers in self._workers.items()
            if workers.are_several(any(self._names.is_counter(name) for name in names if name != LINE_NUMBER))
            and not self._names.meant(names).isdisjoint(REPORTED)
        }
