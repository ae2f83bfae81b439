"""The rows of a console log: its reports, each with what the lines around it say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from rmetric.importers.base import CACHED
from rmetric.importers.console_counters import BATCH, EPOCH
from rmetric.importers.console_lines import Line, console_lines
from rmetric.importers.console_names import Pattern
from rmetric.importers.console_reports import Stated, Waiting
from rmetric.importers.console_survey import REPEATED, REPORTED, ConsoleSurvey
from rmetric.importers.names import TOTAL, names_epoch
from rmetric.importers.rows import Row, as_number
from rmetric.log_lines import OnDamage

DOUBT = "a decimal comma, or two numbers? It is not read, nor are others of which the log does not tell"


class ConsoleRows:
    """Reader of the reports of one log. What one lacks of epoch, step and rate, a line before it may have stated.

    A learning rate may stand behind its report, with the very count of that or as the first one of its epoch, and a
    counter may close each report.
    """

    def __init__(self, survey: ConsoleSurvey, on_damage: OnDamage) -> None:
        self._survey, self._names, self._on_damage = survey, survey.names, on_damage
        self._stated, self._waiting = Stated(), Waiting()
        self._late: Counter[Pattern] = Counter()
        """How often patterns came that were not surveyed."""
        self._has_doubts = False

    def of(self, path: Path) -> Iterator[Row]:
        """The rows of a file."""
        for line in self._lines(path):
            yield from self._taken(line)
        yield from self._waiting.released()

    def _lines(self, path: Path) -> Iterator[Line]:
        """The lines that count; of joined ones that are no report that repeats, such as code, each by itself."""
        survey = self._survey
        lines = console_lines(path, self._on_damage, self._names.fields, survey.has_decimal_commas, survey.prefix)
        for line in lines:
            repeats = not line.pieces or survey.counts.get(tuple(line.found), 0) >= REPEATED
            for one in (line,) if repeats else line.pieces:
                names = tuple(one.found)
                is_of_another = one.worker and survey.first_workers.get(names, one.worker) != one.worker
                if names not in survey.saved and not is_of_another:
                    yield one

    def _taken(self, line: Line) -> Iterator[Row]:
        """Take in a line; the rows for which nothing can follow any more."""
        names, found = tuple(line.found), self._named(line.found)
        meant, repeats = self._names.meant(names), self._repeats(names)
        repeats |= not self._stated.trained and self._is_the_first_report(line.found)
        if "validation_loss" in meant or (repeats and not meant.isdisjoint(REPORTED)):
            yield from self._with_report(line, found, meant)
        elif lost := self._lost(line):
            self._waiting.add(Row(line.number, self._stated.epoch | lost))
        elif repeats:
            self._hear(line.number, found, meant)
        if self._survey.announcement is not None and "training_loss" not in meant:
            counter = self._survey.announcement.stated(found)
            if counter and self._closes:
                self._waiting.take_counter(counter)
                yield from self._waiting.released()
            elif counter:
                self._stated.count(counter)

    @property
    def _closes(self) -> bool:
        """Whether a counter closes each report."""
        return self._survey.announcement is not None and self._survey.announcement.closes

    def _with_report(self, line: Line, found: dict[str, Any], meant: Set[str]) -> Iterator[Row]:
        """Add a report; the rows before it, if they have waited for nothing."""
        is_counted = bool(self._names.counters(tuple(line.found)))
        row = self._stated.completing(self._without_doubtful(line.number, found), meant, is_counted=is_counted)
        if self._waiting.are_many or (is_counted and not self._closes):
            yield from self._waiting.released()
        lacks_rate = "training_loss" in meant and "learning_rate" not in meant
        self._waiting.add(Row(line.number, row, begins=line.begins), lacks_rate=lacks_rate)
        self._stated.epoch = line.epoch or self._stated.epoch

    def _hear(self, line: int, found: Mapping[str, Any], meant: Set[str]) -> None:
        """Take in what a line without a report says of the reports beside it."""
        stated, rates = self._stated, self._survey.changing_rates
        stated.epoch = {name: value for name, value in found.items() if names_epoch(name)} or stated.epoch
        stated.announced = self._evaluated_at(found) or stated.announced
        if not rates.isdisjoint(found):
            stated.rate = {name: value for name, value in found.items() if name in rates}
            counts = {name: found[name] for name in self._survey.steps & found.keys()}
            self._waiting.take_rate(stated.rate, counts or stated.epoch_without_rate())
        if "reward" in meant:  # of the step before: its line may count the steps of the agent's world
            self._waiting.add(Row(line, self._rewards(found)))

    def _evaluated_at(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What a line without a loss says of the counter of the training, where it is further than the latest report.

        ``Iteration 500, Testing`` is where the evaluation below stands.
        """
        further: dict[str, Any] = {}
        for name in (name for name in found if name in self._survey.steps and name + TOTAL not in found):
            count, latest = as_number(found[name]), as_number(self._stated.trained.get(name))
            if count is not None and (latest is None or count > latest):
                further[name] = count
        return further

    def _rewards(self, found: Mapping[str, Any]) -> dict[str, Any]:
        doubtful = self._names.doubtful(found)
        return {name: found[name] for name in found if "reward" in self._names.meant((name,)) and name not in doubtful}

    def _named(self, found: dict[str, Any]) -> dict[str, Any]:
        """A line's numbers, of which those in the place of a batch that count epochs are named so."""
        if self._survey.epochs and found.get(BATCH + TOTAL) in self._survey.epochs:
            found = {EPOCH if name == BATCH else name: found[name] for name in found if name != BATCH + TOTAL}
        for name in self._survey.places & found.keys():
            found = {{name: EPOCH, name + TOTAL: BATCH}.get(known, known): found[known] for known in found}
        return found

    def _repeats(self, names: Pattern) -> bool:
        """Whether a pattern has repeated: in the lines that were surveyed, or by now; to be asked once a line."""
        count = self._survey.counts.get(names, 0)
        if not count and len(self._late) < CACHED:
            self._late[names] += 1
            count = self._late[names]
        return count >= REPEATED

    def _is_the_first_report(self, found: Mapping[str, Any]) -> bool:
        """Whether a line has the counters and losses of a report, and counts no further than the first of these.

        It may lack what those below say of the time since the one before. One that counts further is of a run before.
        """
        counters, losses = self._names.counted_losses(tuple(found))
        alike = (names for names, *known in self._survey.with_losses if known == [counters, losses])
        return any(_place(counters, found) <= _place(counters, self._survey.begins[names]) for names in alike)

    def _lost(self, line: Line) -> dict[str, Any]:
        """What a line counts, and its losses without a number, where it has the counters of a report, hardly less."""
        counters = {name: value for name, value in line.found.items() if self._names.is_counter(name)}
        text = line.text.casefold() if counters else ""
        for names, counted, losses in self._survey.with_losses if "loss" in text else ():
            is_alike = counters.keys() == counted and len(line.found) >= len(names) - len(losses) - 1
            if is_alike and all(loss.casefold() in text for loss in losses):
                return counters | dict.fromkeys(losses)
        return {}

    def _without_doubtful(self, line: int, found: dict[str, Any]) -> dict[str, Any]:
        """A report without numbers with a comma of which nobody can tell what they are; the first one is reported."""
        doubtful = self._names.doubtful(found)
        if doubtful and not self._has_doubts:
            self._has_doubts = True
            self._on_damage(line, f"{doubtful[0]} is {found[doubtful[0]]!r}: {DOUBT}")
        return {name: value for name, value in found.items() if name not in doubtful} if doubtful else found


def _place(counters: Collection[str], found: Mapping[str, Any]) -> list[int | float]:
    """What a line counts, epochs first."""
    ordered = sorted(counters, key=lambda name: (not names_epoch(name), name))
    return [count for name in ordered if (count := as_number(found[name])) is not None]
