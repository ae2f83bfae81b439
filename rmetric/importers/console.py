"""Console output of any training program: lines that repeat ``name value`` pairs.

No framework is known by name. A line is a set of pairs; a pattern of names that repeats is one of the program's
reports, and the rest (settings, source code, tables) is left aside. What the names mean is decided as in every format.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import CACHED, FieldMap, register_importer
from rmetric.importers.commas import DecimalMarks
from rmetric.importers.console_counters import BATCH, EPOCH, Announcement, ConsoleCounters, counters_among
from rmetric.importers.console_lines import Line, Workers, console_lines, console_texts
from rmetric.importers.console_reports import Stated, Waiting
from rmetric.importers.line_prefix import tokens_before_reports
from rmetric.importers.names import (
    LINE_NUMBER,
    TOTAL,
    loss_of_data,
    may_measure,
    meanings,
    means_loss,
    names_counter,
    names_epoch,
)
from rmetric.importers.rows import REWARDS_ALONE, Row, as_number, names_in_words
from rmetric.importers.run_marks import note
from rmetric.importers.survey import SURVEYED_ROWS
from rmetric.importers.tables import imported
from rmetric.log_lines import OnDamage, passed_over
from rmetric.measurements import LOSSES

REPEATED = 2
"""Lines from which a pattern of names is one of the program's reports."""
_REPORTED = frozenset((*LOSSES, "grad_norm"))
_REWARD = frozenset(("reward",))
_SHOWN = 3
_CHECKPOINT = re.compile(r"\b(?:checkpoints?|ckpt|sav(?:ed|es|ing))\b", re.IGNORECASE)
DOUBT = "a decimal comma, or two numbers? It is not read, nor are others of which the log does not tell"
WORKERS = "several processes have written this log; of lines of one kind, those of the first that did are read"


@register_importer("console")
def read_console(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """Records of a console log; several runs one after the other become several runs.

    Lines without pairs, and patterns that do not repeat (but for evaluations), are passed over in silence. A number of
    ours with a comma of which the log does not say what it is, is left out; the first one is reported.
    Raises :class:`UserError` if no line reports a loss, with the patterns that repeat.
    """
    patterns = Patterns.of(path, mapping)
    if not patterns.hold_a_loss:
        raise UserError(f"{path} reports no loss ({patterns.seen or 'no line repeats name value pairs'})")
    events = imported(path, lambda report: patterns.rows(path, report), mapping, on_damage)
    return itertools.chain([(1, note(WORKERS))], events) if patterns.are_of_several else events


def is_console(path: Path, mapping: Mapping[str, str] | None = None) -> bool:
    """Whether lines of a file report a loss."""
    return Patterns.of(path, mapping or {}).hold_a_loss


def what_repeats(path: Path) -> str:
    """The names that lines of a file report again and again, for a message; empty if there are none."""
    return Patterns.of(path, {}).seen


class _Doubts:
    """Numbers with a comma of which nobody can tell what they are: the first one is reported."""

    def __init__(self, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self._is_told = False

    def left_out(self, line: int, found: dict[str, Any], doubtful: Collection[str]) -> dict[str, Any]:
        """A report without them."""
        if not doubtful:
            return found
        if not self._is_told:
            self._is_told = True
            first = next(iter(doubtful))
            self._on_damage(line, f"{first} is {found[first]!r}: {DOUBT}")
        return {name: value for name, value in found.items() if name not in doubtful}


class Patterns:
    """The patterns of a console log: which names its lines report together, and how often."""

    def __init__(self, fields: FieldMap) -> None:
        self._fields = fields
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._meant = lru_cache(CACHED)(partial(_meant, fields))
        self._counters = lru_cache(CACHED)(partial(counters_among, fields))
        self._marks = DecimalMarks()
        self._prefix: Set[str] = frozenset()
        """Tokens before the reports that tell no data."""
        self._workers: defaultdict[tuple[str, ...], Workers] = defaultdict(Workers)
        self._first: dict[tuple[str, ...], str] = {}
        """The first process that has written a pattern, where several have."""
        self._epochs: frozenset[Any] = frozenset()
        """Numbers up to which ``[3/100]`` counts epochs."""
        self._places: frozenset[str] = frozenset()
        """Names of epochs that have the batch behind a slash."""
        self._announcement: Announcement | None = None
        """The counter that stands in a line before each report."""
        self._rates: dict[str, tuple[Any, list[Any]]] = {}
        """Learning rates in lines without a loss, each with its first value, and what else its line counts."""
        self._changing: set[str] = set()
        """Those of them that change, or are told at one count after the other: others may be settings."""
        self._begins: dict[tuple[str, ...], Mapping[str, Any]] = {}
        """Patterns, each with the first line of it."""
        self._of_checkpoints: dict[tuple[str, ...], bool] = {}
        """Patterns with a loss of the training, and whether each of their lines tells of a checkpoint."""

    @classmethod
    def of(cls, path: Path, mapping: Mapping[str, str]) -> Patterns:
        """Patterns of the first lines of a log."""
        patterns = cls(FieldMap(mapping))
        patterns._survey(path)
        return patterns

    def _survey(self, path: Path) -> None:
        self._prefix = tokens_before_reports(itertools.islice(console_texts(path), SURVEYED_ROWS), self._fields)
        counters = ConsoleCounters(self._counters)
        for line in itertools.islice(self._lines(path, passed_over), SURVEYED_ROWS):
            names = tuple(line.found)
            meant = self._meant(names)
            if meant:
                self._marks.add(line.text)
            if "training_loss" in meant:
                tells = _CHECKPOINT.search(line.text) is not None
                self._of_checkpoints[names] = tells and self._of_checkpoints.get(names, True)
            for one in (line, *line.pieces):
                known = tuple(one.found)
                if known in self._counts or len(self._counts) < CACHED:
                    self._counts[known] += 1
                    self._begins.setdefault(known, one.found)
            if line.worker:
                self._workers[names].add(line.worker)
            if "learning_rate" in meant and meant.isdisjoint(LOSSES):
                self._survey_rates(line.found)
            if not line.worker.startswith("rank") or line.worker == self._workers[names].first:
                counters.add(line.found, measures=bool(meant), trains="training_loss" in meant)
        self._settle_workers()
        self._epochs, self._places, self._announcement = counters.epochs, counters.places, counters.announcement

    def _survey_rates(self, found: Mapping[str, Any]) -> None:
        counts = [value for name, value in found.items() if names_counter(name, self._fields)]
        for name, value in found.items():
            if "learning_rate" in self._meant((name,)):
                first, began = self._rates.setdefault(name, (value, counts))
                if first != value or (counts and began and began != counts):
                    self._changing.add(name)

    @property
    def hold_a_loss(self) -> bool:
        """Whether one of those that repeat holds a loss."""
        return any(
            count >= REPEATED and not self._meant(names).isdisjoint(LOSSES) for names, count in self._counts.items()
        )

    @property
    def seen(self) -> str:
        """The most frequent ones in words, and what to do; a loss that only single lines report is named."""
        meant: set[frozenset[str]] = set()
        told: list[str] = []
        for names, count in self._counts.most_common():
            values = [name for name in names if may_measure(name, self._fields)]
            if values and count >= REPEATED and len(told) < _SHOWN:
                counters = [name for name in names if names_counter(name, self._fields)]
                told.append(f"{count:,} lines report {names_in_words(values + counters)}")
                meant.update(self._meant((name,)) for name in values)
        if _REWARD in meant:
            told.append(REWARDS_ALONE)
        if meant - {_REWARD}:
            told.append("map one with --format console --map training_loss=NAME")
        single = next((name for names in self._counts for name in names if means_loss(name, self._fields)), None)
        if single is not None and not self.hold_a_loss:
            told.append(f"{single!r} stands in no two lines of one kind")
        return "; ".join(told)

    def rows(self, path: Path, on_damage: OnDamage) -> Iterator[Row]:
        """The reports of a log. What one lacks of epoch, step and learning rate, a line before it may have stated.

        A learning rate may stand behind its report, with the very count of that or as the first one of its epoch, and a
        counter may close each report.
        """
        stated, doubts = Stated(), _Doubts(on_damage)
        waiting = Waiting()
        closes = self._announcement is not None and self._announcement.closes
        late: Counter[tuple[str, ...]] = Counter()
        for line in self._reports(path, on_damage):
            names = tuple(line.found)
            if names in self._saved or (line.worker and self._first.get(names, line.worker) != line.worker):
                continue
            found, meant, repeats = self._named(line.found), self._meant(names), self._repeats(names, late)
            repeats |= not stated.trained and self._is_the_first_report(line.found)
            if "validation_loss" in meant or (repeats and not meant.isdisjoint(_REPORTED)):
                found = doubts.left_out(line.number, found, self._doubtful(found))
                found = stated.completing(found, meant, is_counted=bool(self._counters(names)))
                if waiting.are_many or (self._counters(names) and not closes):
                    yield from waiting.released()
                lacks_rate = "training_loss" in meant and "learning_rate" not in meant
                waiting.add(Row(line.number, found, begins=line.begins), lacks_rate=lacks_rate)
                stated.epoch = line.epoch or stated.epoch
            elif lost := self._lost(line):
                waiting.add(Row(line.number, stated.epoch | lost))
            elif repeats:
                self._hear(found, stated)
                if not self._changing.isdisjoint(found):
                    counts = {name: found[name] for name in self._steps & found.keys()}
                    waiting.take_rate(stated.rate, counts or stated.epoch_without_rate())
                if "reward" in meant:  # of the step before: its line may count the steps of the agent's world
                    waiting.add(Row(line.number, self._rewards(found)))
            if self._announcement is not None and "training_loss" not in meant:
                counter = self._announcement.stated(found)
                if counter and closes:
                    waiting.take_counter(counter)
                    yield from waiting.released()
                elif counter:
                    stated.count(counter)
        yield from waiting.released()

    def _named(self, found: dict[str, Any]) -> dict[str, Any]:
        """A line's numbers, of which those in the place of a batch that count epochs are named so."""
        if self._epochs and found.get(BATCH + TOTAL) in self._epochs:
            found = {EPOCH if name == BATCH else name: found[name] for name in found if name != BATCH + TOTAL}
        for name in self._places & found.keys():
            found = {{name: EPOCH, name + TOTAL: BATCH}.get(known, known): found[known] for known in found}
        return found

    def _repeats(self, names: tuple[str, ...], late: Counter[tuple[str, ...]]) -> bool:
        """Whether a pattern has repeated: in the lines that were surveyed, or by now, which ``late`` counts."""
        count = self._counts.get(names, 0)
        if not count and len(late) < CACHED:
            late[names] += 1
            count = late[names]
        return count >= REPEATED

    def _hear(self, found: Mapping[str, Any], stated: Stated) -> None:
        """Keep what a line without a report says of the reports below."""
        stated.epoch = {name: value for name, value in found.items() if names_epoch(name)} or stated.epoch
        stated.announced = self._evaluated_at(found, stated.trained) or stated.announced
        stated.rate = {name: value for name, value in found.items() if name in self._changing} or stated.rate

    def _evaluated_at(self, found: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
        """What a line without a loss says of the counter of the training, where it is further than the latest report.

        ``Iteration 500, Testing`` is where the evaluation below stands.
        """
        further: dict[str, Any] = {}
        for name in (name for name in found if name in self._steps and name + TOTAL not in found):
            count, latest = as_number(found[name]), as_number(trained.get(name))
            if count is not None and (latest is None or count > latest):
                further[name] = count
        return further

    @cached_property
    def _steps(self) -> set[str]:
        """Names of the counters of the training."""
        repeated = (names for names, count in self._counts.items() if count >= REPEATED)
        trained = (names for names in repeated if "training_loss" in self._meant(names))
        return {name for names in trained for name in self._counters(names)}

    def _rewards(self, found: Mapping[str, Any]) -> dict[str, Any]:
        doubtful = self._doubtful(found)
        return {name: found[name] for name in found if "reward" in self._meant((name,)) and name not in doubtful}

    def _lost(self, line: Line) -> dict[str, Any]:
        """What a line counts, and its losses without a number, where it has the counters of a report, hardly less."""
        counters = {name: value for name, value in line.found.items() if names_counter(name, self._fields)}
        text = line.text.casefold() if counters else ""
        for names, counted, losses in self._with_losses if "loss" in text else ():
            is_alike = counters.keys() == counted and len(line.found) >= len(names) - len(losses) - 1
            if is_alike and all(loss.casefold() in text for loss in losses):
                return counters | dict.fromkeys(losses)
        return {}

    def _is_the_first_report(self, found: Mapping[str, Any]) -> bool:
        """Whether a line has the counters and losses of a report, and counts no further than the first of these.

        It may lack what those below say of the time since the one before. One that counts further is of a run before.
        """
        counters, losses = self._counted_losses(tuple(found))
        alike = (names for names, *known in self._with_losses if known == [counters, losses])
        return any(_place(counters, found) <= _place(counters, self._begins[names]) for names in alike)

    @cached_property
    def _with_losses(self) -> list[tuple[tuple[str, ...], set[str], tuple[str, ...]]]:
        """Of each report of the training its names, its counters among them, and its losses."""
        counted = ((names, *self._counted_losses(names)) for names, count in self._counts.items() if count >= REPEATED)
        return [report for report in counted if all(report)]

    def _counted_losses(self, names: tuple[str, ...]) -> tuple[set[str], tuple[str, ...]]:
        """The counters of a pattern, and its losses of the training."""
        losses = tuple(name for name in names if "training_loss" in self._meant((name,)))
        return {name for name in names if names_counter(name, self._fields)}, losses

    def _reports(self, path: Path, on_damage: OnDamage) -> Iterator[Line]:
        """The lines; of joined ones that are no report that repeats, such as source code, each by itself."""
        for line in self._lines(path, on_damage, self._marks.are_commas):
            repeats = not line.pieces or self._counts.get(tuple(line.found), 0) >= REPEATED
            yield from (line,) if repeats else line.pieces

    def _lines(self, path: Path, on_damage: OnDamage, has_decimal_commas: bool = False) -> Iterator[Line]:
        """The lines; a whole number that is named after its data alone (``train: 1457``) tells how much there is."""
        for line in console_lines(path, on_damage, self._fields, has_decimal_commas, self._prefix):
            for one in (line, *line.pieces):
                whole = [name for name, value in one.found.items() if type(value) is int]
                for name in whole:
                    if loss_of_data(name, self._fields):
                        del one.found[name]
            yield line

    @cached_property
    def _saved(self) -> set[tuple[str, ...]]:
        """Patterns of lines that tell of a checkpoint, with the loss that it has, where others report the training."""
        reports = any(not tells and self._counts[names] >= REPEATED for names, tells in self._of_checkpoints.items())
        return {names for names, tells in self._of_checkpoints.items() if tells and reports}

    def _settle_workers(self) -> None:
        """The first process for each pattern that several have written.

        A mere number may be a counter, or something measured: it tells the process only if the line states a counter
        besides, and if it comes again.
        """
        for names, workers in self._workers.items():
            counts = any(names_counter(name, self._fields) for name in names if name != LINE_NUMBER)
            if workers.are_several(counts) and not self._meant(names).isdisjoint(_REPORTED):
                self._first[names] = workers.first

    @property
    def are_of_several(self) -> bool:
        """Whether several processes have written lines of one pattern."""
        return bool(self._first)

    def _doubtful(self, found: Mapping[str, Any]) -> list[str]:
        """Names of ours under which a number with a comma stands that may be a decimal one, or part two numbers."""
        return [name for name, value in found.items() if type(value) is str and meanings(name, self._fields)]


def _place(counters: Collection[str], found: Mapping[str, Any]) -> list[int | float]:
    """What a line counts, epochs first."""
    ordered = sorted(counters, key=lambda name: (not names_epoch(name), name))
    return [count for name in ordered if (count := as_number(found[name])) is not None]


def _meant(fields: FieldMap, names: tuple[str, ...]) -> frozenset[str]:
    """Our names that a pattern's may stand for; a number of its data (``train: 0.5``) may be a loss."""
    meant = {ours for name in names for ours, _ in meanings(name, fields) if ours != "step"}
    return frozenset(meant | {ours for name in names if (ours := loss_of_data(name, fields))})
