"""Console output of any training program: lines that repeat ``name value`` pairs.

No framework is known by name. A line is a set of pairs; a pattern of names that repeats is one of the program's
reports, and the rest (settings, source code, tables) is left aside. What the names mean is decided as in every format.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import register_importer
from rmetric.importers.console_rows import ConsoleRows
from rmetric.importers.console_survey import REPEATED, ConsoleSurvey
from rmetric.importers.names import may_measure, means_loss
from rmetric.importers.rows import REWARDS_ALONE, names_in_words
from rmetric.importers.run_marks import note
from rmetric.importers.tables import imported
from rmetric.log_lines import OnDamage

_REWARD = frozenset(("reward",))
_SHOWN = 3
WORKERS = "several processes have written this log; of lines of one kind, those of the first that did are read"


@register_importer("console")
def read_console(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """Records of a console log; several runs one after the other become several runs.

    Lines without pairs, and patterns that do not repeat (but for evaluations), are passed over in silence. A number of
    ours with a comma of which the log does not say what it is, is left out; the first one is reported.
    Raises :class:`UserError` if no line reports a loss, with the patterns that repeat.
    """
    survey = ConsoleSurvey.of(path, mapping)
    if not survey.holds_a_loss:
        raise UserError(f"{path} reports no loss ({_repeated(survey) or 'no line repeats name value pairs'})")
    events = imported(path, lambda report: ConsoleRows(survey, report).of(path), mapping, on_damage)
    return itertools.chain([(1, note(WORKERS))], events) if survey.first_workers else events


def is_console(path: Path, mapping: Mapping[str, str] | None = None) -> bool:
    """Whether lines of a file report a loss."""
    return ConsoleSurvey.of(path, mapping or {}).holds_a_loss


def what_repeats(path: Path) -> str:
    """The names that lines of a file report again and again, for a message; empty if there are none."""
    return _repeated(ConsoleSurvey.of(path, {}))


def _repeated(survey: ConsoleSurvey) -> str:
    """The most frequent patterns in words, and what to do; a loss that only single lines report is named."""
    meant: set[frozenset[str]] = set()
    told: list[str] = []
    fields = survey.names.fields
    for names, count in survey.counts.most_common():
        values = [name for name in names if may_measure(name, fields)]
        if values and count >= REPEATED and len(told) < _SHOWN:
            counters = [*filter(survey.names.is_counter, names)]
            told.append(f"{count:,} lines report {names_in_words(values + counters)}")
            meant.update(survey.names.meant((name,)) for name in values)
    if _REWARD in meant:
        told.append(REWARDS_ALONE)
    if meant - {_REWARD}:
        told.append("map one with --format console --map training_loss=NAME")
    single = next((name for names in survey.counts for name in names if means_loss(name, fields)), None)
    if single is not None and not survey.holds_a_loss:
        told.append(f"{single!r} stands in no two lines of one kind; give the whole log, or map another name")
    return "; ".join(told)
