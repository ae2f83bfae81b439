"""Which columns of somebody's log are ours: decided once for the whole log, by a survey of the first rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.importers.base import LAST_STEP, LOG_CALLS, LOSSES, OWN_PREFIX, UNMAPPED, FieldMap, plain
from rmetric.importers.loss_parts import distinct, whole
from rmetric.importers.names import (
    BATCH_WORDS,
    COMPONENT,
    LIKE_A_LOSS,
    LINE_NUMBER,
    OF_DATA,
    OF_TESTS,
    PERPLEXITY,
    TOTAL,
    apart_from_numbers,
    ends_in_loss,
    is_adversarial,
    is_bonus,
    is_of_a_policy,
    is_of_an_agent,
    is_perplexity,
    is_reduction,
    is_whole,
    loss_of_data,
    meanings,
    names_counter,
    names_epoch,
    names_step,
    names_training,
)
from rmetric.importers.rows import Row, as_measured, as_number, in_words, is_finite
from rmetric.importers.step_times import is_step_rate, seconds_in, takes_seconds
from rmetric.importers.survey import LEARNED, MAX_NAMES, Seen, Survey

ALIKE, ALIKE_AT_FIRST = 0.25, 0.5
"""Part of itself by which the last loss of the training, as an evaluation has it, differs from that of a batch, and by
which the first one of other data does."""
LEAST_TESTS = 3
"""Test losses from which on they are an evaluation of the training."""
_KINDS = (LIKE_A_LOSS, PERPLEXITY, OF_DATA, OF_TESTS, math.inf)
"""Ranks at which another kind of loss begins; of a better kind one is preferred, however often it is reported."""


@dataclass
class Columns:
    """Which of their columns are ours."""

    fields: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Our name → their name; of several the sum is taken."""
    notes: list[str] = field(default_factory=list)
    counters: tuple[str, ...] = ()
    """Names that count steps, the best first."""
    are_batches: bool = False
    """True if the counters count the batches of an epoch."""
    epochs_count: bool = False
    """True if, without counters, the epoch is the step."""
    known: set[str] = field(default_factory=set)
    """Names that the log has had so far."""
    fills_gaps: bool = False
    """True if the validation loss is NaN where there was no evaluation."""
    start_late: frozenset[str] = frozenset()
    """Our names that are not measured before their first number: a loss that is NaN there, and not after, as there was
    nothing to take a mean of; a gradient norm while the scale of the loss is searched."""
    _found: dict[str, dict[str, int]] = field(default_factory=dict)
    _hints: list[str] = field(default_factory=list)
    """Notes that change nothing in what is read."""
    _logarithms: set[str] = field(default_factory=set)
    """Our names whose values are logarithms of theirs."""

    @classmethod
    def chosen(cls, survey: Survey, fields: FieldMap) -> Columns:
        """The best column for each of our names.

        Of those that are there in nearly as many rows as the most frequent one, the first in the order of the
        aliases: a mean that a log states once an epoch does not stand in for the loss of the steps.
        """
        columns = cls(known=set(survey.seen))
        for name in survey.seen:
            for ours, rank in meanings(name, fields):
                if ours != "step_time_s" or rank < 0 or not survey.seen[name].is_clock:
                    columns._found.setdefault(ours, {})[name] = rank
        columns._leave_out_perplexities_of_evaluations()
        if "training_loss" not in columns._found:
            columns._find_losses_of_data(survey, fields)
        elif "validation_loss" not in columns._found:
            columns._find_evaluations_of_data(survey, fields)
        # The training loss first: rate and norm are those of the one that is read.
        for ours in sorted(columns._found.keys() - {"step"}, key=lambda ours: (ours != "training_loss", ours)):
            columns._choose(ours, columns._found[ours], survey)
        columns._choose_gaps(survey)
        columns._choose_late_starts(survey)
        columns._leave_out_zero_norms(survey)
        unknown = [name for name in survey.seen if not names_epoch(name) and not any(meanings(name, fields))]
        is_lacking = "training_loss" not in columns._found and "training_loss" not in fields.explicit
        if columns.fields and unknown and is_lacking:
            columns.notes.append(
                f"no column is known as a training loss; name one with --map training_loss=COLUMN ({in_words(unknown)})"
            )
        columns._name_gradients(survey, fields)
        columns._choose_counters(survey, fields)
        columns._choose_time(survey, fields)
        return columns

    def _leave_out_perplexities_of_evaluations(self) -> None:
        """A perplexity that does not say of which data it is, is no training loss beside a validation loss by name."""
        trained, tested = (self._found.get(ours, {}) for ours in LOSSES)
        if any(rank < PERPLEXITY for rank in tested.values()):
            for name in [name for name in trained if is_perplexity(name) and not names_training(name)]:
                if trained[name] >= 0:  # not of a mapping
                    del trained[name]
        if not trained:
            self._found.pop("training_loss", None)

    def _find_losses_of_data(self, survey: Survey, fields: FieldMap) -> None:
        """Numbers named after their data alone are losses where that of the training falls; else they may be scores."""
        named = {name: ours for name in survey.seen if (ours := loss_of_data(name, fields))}
        trained = [name for name, ours in named.items() if ours == "training_loss"]
        if trained and all(survey.seen[name].falls for name in trained):
            for name, ours in named.items():
                self._found.setdefault(ours, {})[name] = OF_DATA
        elif trained:
            hint = f"if one is meant, name it with --map training_loss={trained[0]}"
            self.notes.append(f"{in_words(trained)} does not fall as a loss does; {hint}")

    def _find_evaluations_of_data(self, survey: Survey, fields: FieldMap) -> None:
        """Beside a training loss by name, numbers named after other data alone are what an evaluation says of it.

        Those that fall and begin near it in its own rows, or all, where such a number of the training ends near it.
        """
        named = {name: ours for name in survey.seen if (ours := loss_of_data(name, fields))}
        trained, held_out = ([name for name in named if named[name] == ours] for ours in LOSSES)
        seen, losses = survey.seen, [survey.seen[name] for name in self._found["training_loss"]]
        ends, begins = [loss.value for loss in losses], [loss.first for loss in losses]
        if not trained or not all(seen[name].falls and _is_near(seen[name].value, ends, ALIKE) for name in trained):
            rows = [names for names in survey.patterns if not names.isdisjoint(self._found["training_loss"])]
            beside = [name for name in held_out if any(name in names for names in rows)]
            held_out = [
                name for name in beside if seen[name].falls and _is_near(seen[name].first, begins, ALIKE_AT_FIRST)
            ]
        if held_out:
            self._found["validation_loss"] = dict.fromkeys(held_out, OF_DATA)

    def _choose(self, ours: str, ranks: Mapping[str, int], survey: Survey) -> None:
        if ours == "training_loss":
            ranks = _with_critics_as_parts(_counted(ranks, survey))
        ranks = _of_the_best_kind(ranks)
        ranks = ranks if ours in LOSSES else self._of_the_loss(ranks, survey)
        most = max(survey.seen[name].count for name in ranks)
        frequent = [name for name in ranks if ranks[name] < 0 or 10 * survey.seen[name].count >= 9 * most]
        if ours == "validation_loss":
            frequent = [name for name in frequent if not _is_of_a_part(name, survey)] or frequent
        best = min(frequent, key=lambda name: (ranks[name], -survey.seen[name].count))
        alike = [name for name in frequent if apart_from_numbers(name) == apart_from_numbers(best)]
        of_tests, are_alike = ranks[best] >= OF_TESTS, len(alike) > 1
        if ours not in LOSSES or (ranks[best] < COMPONENT and not are_alike):
            self.fields[ours] = (best,)
        elif of_tests and most < LEAST_TESTS:
            pass  # they may tell what came out at the end
        elif ours == "validation_loss" and are_alike and not of_tests:
            self._take(ours, best, f"one of {in_words(alike)}; another one: --map {ours}=NAME")
        elif is_perplexity(best):
            self.fields[ours] = (best,)
            self._logarithms.add(ours)
            self.notes.append(f"{ours} is the logarithm of {best!r}, as there is no other loss")
        elif of_tests and not (are_alike and best.endswith("]")):  # places of a list are parts
            self._take(ours, best, "as there is no other evaluation")
        else:
            parts = [name for name in frequent if ranks[name] >= COMPONENT or name in alike]
            self._choose_parts(ours, sorted(parts, key=ranks.__getitem__), survey)

    def _choose_parts(self, ours: str, parts: list[str], survey: Survey) -> None:
        """Of losses that are named after parts, the best first: one that is the whole, or the sum of all."""
        parts = [name for name in parts if not is_reduction(name)] or parts
        if any(map(is_of_an_agent, parts)):
            parts = [name for name in parts if not is_bonus(name)]
        play = any(map(is_adversarial, parts))
        if len(parts) > 1 and not play:
            parts = distinct(parts, survey.first)
        if len(parts) == 1:
            self._take(ours, parts[0], "the only loss of its kind")
        elif sum_of_others := None if play else whole(parts, survey.first):
            self._take(ours, sum_of_others, "the sum of others")
        elif len(wholes := [name for name in parts if ends_in_loss(name)]) == 1:
            self._take(ours, wholes[0], "the only loss that is not named after a part")
        elif len(wholes := [name for name in parts if is_whole(name)]) == 1:
            self._take(ours, wholes[0], "the only loss that is named as a whole")
        elif play or not survey.are_together(parts):
            shown = in_words(parts[:6])
            self.notes.append(f"there are several losses ({shown}); name one with --map {ours}=NAME")
        elif wholes := [name for name in parts if _stands_in_all(name, parts)]:
            self._take(ours, wholes[0], "the only loss that the others are named after")
        else:
            self.fields[ours] = tuple(parts)
            shown = ", ".join(map(repr, parts))
            self.notes.append(f"{ours} is the sum of {shown}; if another is meant, name it with --map {ours}=NAME")

    def _take(self, ours: str, theirs: str, why: str) -> None:
        self.fields[ours] = (theirs,)
        self.notes.append(f"{ours} is taken from {theirs!r}, {why}")

    def _of_the_loss(self, ranks: Mapping[str, int], survey: Survey) -> Mapping[str, int]:
        """Those that stand in most rows of the training loss, and begin as it does: the norm of the same network.

        All, where none does.
        """
        loss = self.fields.get("training_loss", ("",))[0]
        rows = [(names, count) for names, count in survey.patterns.items() if loss in names]
        most = sum(count for _, count in rows) / 2
        beside = {name for name in ranks if sum(count for names, count in rows if name in names) > most}
        prefix = loss.casefold().partition("loss")[0]
        alike = {name for name in ranks if prefix and name.casefold().startswith(prefix)}
        for some in (beside, alike):
            ranks = {name: rank for name, rank in ranks.items() if name in some} or ranks
        return ranks

    def _choose_gaps(self, survey: Survey) -> None:
        """Whether NaN stands for no evaluation: beside the training loss, in most rows, with single numbers between.

        Two numbers in a row, and NaN from then on, are an evaluation that broke.
        """
        trained, evaluated = ([survey.seen[name] for name in self.fields.get(ours, ())] for ours in LOSSES)
        rows = max((seen.count for seen in trained), default=0)
        self.fills_gaps = any(
            2 * seen.not_finite > seen.count
            and 4 * seen.stays_finite <= seen.count - seen.not_finite
            and 10 * seen.count >= 9 * rows > 0
            for seen in evaluated
        )
        if self.fills_gaps:
            some = any(math.isfinite(seen.lowest) for seen in evaluated)
            where = (
                "most rows, with single numbers between: not measured in those" if some else "all rows: not measured"
            )
            self.notes.append(f"validation_loss is NaN in {where}")

    def _choose_late_starts(self, survey: Survey) -> None:
        """Whether NaN in the first rows stands for no training, as while an agent gathers its first experience.

        And a gradient norm that is not finite there for one that half precision has thrown away.
        """
        trained = [survey.seen[name] for name in self.fields.get("training_loss", ())]
        if any(_starts_late(seen) and seen.not_finite == seen.not_finite_at_first for seen in trained):
            self.start_late |= {"training_loss"}
            self.notes.append("the training loss is NaN before its first number, and not after: not measured there")
        norms = self._seen(survey, "grad_norm")
        if any(map(_starts_late, norms)) and not any(seen.not_finite for seen in trained):
            self.start_late |= {"grad_norm"}
            self.notes.append("grad_norm is not finite before its first number, while the loss is: not measured there")

    def _leave_out_zero_norms(self, survey: Survey) -> None:
        """A gradient norm of 0 in all rows was not measured, where the loss falls."""
        norm, loss = (
            survey.seen[self.fields[ours][0]] if ours in self.fields else Seen()
            for ours in ("grad_norm", "training_loss")
        )
        learns = loss.count > 2 and loss.highest > loss.lowest and loss.value < LEARNED * loss.first
        if norm.lowest == norm.highest == 0.0 and learns:
            name = self.fields.pop("grad_norm")[0]
            self.notes.append(f"{name!r} is 0 in all rows, while the loss falls: it was not measured")

    def _name_gradients(self, survey: Survey, fields: FieldMap) -> None:
        """Where no gradient norm is known, which of the columns that are used for nothing may be one."""
        may_be = [
            name
            for name, seen in survey.seen.items()
            if "grad" in name.casefold()
            and seen.lowest < seen.highest
            and not meanings(name, fields)
            and not names_step(name, fields)
        ]
        if may_be and "training_loss" in self.fields and not {"grad_norm"} & (self._found.keys() | fields.explicit):
            hint = f"if one is, name it with --map grad_norm=NAME ({in_words(may_be)})"
            self._hints = [f"no column is known as a gradient norm; {hint}"]
            self.notes += self._hints

    def _choose_counters(self, survey: Survey, fields: FieldMap) -> None:
        steps = self._found.get("step", {})
        if "step" not in fields.explicit:
            steps = steps | {name: 50 for name in survey.seen if names_step(name, fields) and name not in steps}
            steps = self._of_the_training(steps, survey)
        steps = self._without_log_calls(self._without_own(steps, survey), survey)
        if steps:
            trained = self._rows(survey, "training_loss")
            highest = max(survey.seen[name].highest for name in steps)

            def order(name: str) -> tuple[bool, bool, bool, int]:
                """Those that jump back last; then those first that all of the training has and that never go back
                (``global_step`` beside a ``step`` that begins anew in each epoch), and that count up to most.
                """
                seen, total = survey.seen[name], survey.seen.get(name + TOTAL)
                is_of_epoch = total is not None and total.highest < highest
                return seen.jumps_back, seen.goes_back or 10 * seen.count < 9 * trained, is_of_epoch, steps[name]

            self.counters = tuple(sorted(steps, key=order))
            return
        self.counters = self._batches(survey)
        self.are_batches = bool(self.counters)
        if self.counters:
            self.notes.append("there is no step; batches count, on from epoch to epoch")
            return
        losses = self._seen(survey, *LOSSES)
        epochs = [seen for name, seen in survey.seen.items() if names_epoch(name)]
        repeated = any(2 * seen.repeats_epoch > seen.count for seen in losses[:1])
        self.epochs_count = bool(epochs) and not survey.has_fractional_epochs and not repeated
        before = survey.seen.get(LINE_NUMBER)
        if not self.epochs_count and before is not None and not before.jumps_back and not before.never_rises:
            others = [name for name in self._found.get("step", ()) if survey.seen[name].lies_within(before)]
            self.counters = (LINE_NUMBER, *others)
            self.notes.append("there is no step; the number before the rest of a line counts")
            return
        if self.fields:
            self.notes.append(f"there is no step; {'epochs' if self.epochs_count else 'rows'} count")

    def _choose_time(self, survey: Survey, fields: FieldMap) -> None:
        """A mere time in seconds is that of a step where each step is reported, if it is no clock of an epoch."""
        if {"step_time_s"} & (self.fields.keys() | fields.explicit) or not self.counters:
            return
        counter = survey.seen[self.counters[0]]
        if 10 * counter.one_more < 9 * counter.count - 10:
            return
        times = {name: seen for name, seen in survey.seen.items() if takes_seconds(name) and name not in fields.taken}
        found = self._of_the_loss({name: 0 for name, seen in times.items() if 4 * seen.not_after > seen.count}, survey)
        if found:
            self.fields["step_time_s"] = (min(found, key=lambda name: -survey.seen[name].count),)

    @staticmethod
    def _batches(survey: Survey) -> tuple[str, ...]:
        """The counters of batches; one that stands still (``Batch_id=117``) is none beside one with a total.

        Where neither they nor epochs ever move, ``100/100`` of epoch ``1/1`` is that of a fit in a loop: rows count.
        """
        found = [name for name in survey.seen if plain(name) in BATCH_WORDS]
        epochs = [name for name in survey.seen if names_epoch(name)]
        if epochs and all(survey.seen[name].never_rises for name in found + epochs):
            return ()
        counted = {name for name in found if name + TOTAL in survey.seen}
        return tuple(name for name in found if not counted or name in counted or not survey.seen[name].stands_still)

    def _of_the_training(self, steps: dict[str, int], survey: Survey) -> dict[str, int]:
        """Those that count the steps of the training; none if the training is hardly ever stated with one.

        What stays the same in all rows does not, nor what goes to and fro, as the length of an episode does. With a
        counter that is rounded (``step: 1K``) records would be lost, and all of the training with one that evaluations
        alone have.
        """
        trained = self._rows(survey, "training_loss")
        rising = {name: rank for name, rank in steps.items() if trained <= 2 or survey.seen[name].counts}
        return rising if 2 * sum(survey.seen[name].count for name in rising) >= trained else {}

    def _seen(self, survey: Survey, *names: str) -> list[Seen]:
        """What the rows hold of the first column for each of our names."""
        return [survey.seen[column] for ours in names for column in self.fields.get(ours, ())[:1]]

    def _rows(self, survey: Survey, *names: str) -> int:
        return max((seen.count for seen in self._seen(survey, *names)), default=0)

    def _without_own(self, steps: dict[str, int], survey: Survey) -> dict[str, int]:
        """The counters without that of our monitor, where nearly all of the training has another one."""
        others = {name: rank for name, rank in steps.items() if not name.startswith(OWN_PREFIX)}
        needed = 0.9 * self._rows(survey, "training_loss")
        are_known = any(name != LOG_CALLS and survey.seen[name].count >= needed for name in others)
        return others if are_known else steps

    def _without_log_calls(self, steps: dict[str, int], survey: Survey) -> dict[str, int]:
        """The counters, or W&B's calls of ``log``: a log in which both took turns would go to and fro."""
        if steps.get(LOG_CALLS) != LAST_STEP:
            return steps
        needed = 0.9 * self._rows(survey, *LOSSES)
        others = {name: rank for name, rank in steps.items() if name != LOG_CALLS}
        are_known = any(survey.seen[name].count >= needed and not survey.seen[name].stands_still for name in others)
        return others if are_known else {LOG_CALLS: LAST_STEP}

    def admit(self, name: str, fields: FieldMap) -> None:
        """Take up a name that comes late, if it stands for something that the log has not had so far."""
        for ours, rank in meanings(name, fields):
            if ours != "step" and ours not in self.fields and rank < COMPONENT:
                self.fields[ours] = (name,)

    @property
    def are_plain(self) -> bool:
        """Whether there is a step, and for each of our names one column that may be meant."""
        unique = all(len(ranks) == 1 for ranks in self._found.values())
        return (
            bool(self.fields) and bool(self.counters) and not self.are_batches and self.notes == self._hints and unique
        )

    def counter_of(self, row: Mapping[str, Any]) -> str | None:
        """Name of the counter that a row states, ``None`` without one: a loss is then a mean over reported steps."""
        return next((name for name in self.counters if row.get(name) is not None), None)

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a row under our names; what it has not is left out."""
        found: dict[str, Any] = {}
        for ours, theirs in self.fields.items():
            value = row.get(theirs[0]) if len(theirs) == 1 else _sum([row.get(name) for name in theirs])
            if value is not None:
                found[ours] = value
        for ours in found.keys() & self._logarithms:
            found[ours] = _logarithm(found[ours])
        if "step_time_s" in found:
            seconds = _seconds(found.pop("step_time_s"), self.fields["step_time_s"][0])
            found |= {} if seconds is None else {"step_time_s": seconds}
        if self.fills_gaps and not is_finite(found.get("validation_loss", 0.0)):
            del found["validation_loss"]
        return found


def _logarithm(value: Any) -> Any:
    number = as_measured(value)
    return value if number is None else math.log(number) if number > 0.0 else math.nan


def _seconds(value: Any, name: str) -> Any:
    """A step time in seconds; one that is mapped without a unit is taken for that."""
    number, unit = as_number(value), seconds_in(name)
    if number is not None and is_step_rate(name):
        return 1.0 / number if number > 0.0 else None
    return value if number is None or unit is None else number * unit


def _starts_late(seen: Seen) -> bool:
    """Whether values are not finite in some of the first rows, a tenth of all at most."""
    return 0 < 10 * seen.not_finite_at_first <= seen.count


def _is_near(value: float, others: Iterable[Any], apart: float) -> bool:
    """Whether a value is that of one of the others, but for a part of the larger one."""
    return any(isinstance(other, int | float) and math.isclose(value, other, rel_tol=apart) for other in others)


def _is_of_a_part(name: str, survey: Survey) -> bool:
    """Whether each row that states a loss states up to which number something is counted, as of a part of the data."""
    return all(any(other.endswith(TOTAL) for other in names) for names in survey.patterns if name in names)


def _stands_in_all(name: str, others: Iterable[str]) -> bool:
    """Whether the words of a name stand in each of the others, as ``rmse_val`` in ``rmse_e_val`` and ``rmse_f_val``."""
    words = {*plain(name).split("_")}
    return all(words.issubset(plain(other).split("_")) for other in others)


def _counted(ranks: Mapping[str, int], survey: Survey) -> Mapping[str, int]:
    """Losses in rows that state a counter; all, where none is. A loss of another row has no place among the steps."""
    beside = {
        name
        for names in survey.patterns
        if any(name == LINE_NUMBER or names_counter(name, UNMAPPED) for name in names)
        for name in names
    }
    return {name: rank for name, rank in ranks.items() if name in beside or rank < 0} or ranks


def _with_critics_as_parts(ranks: Mapping[str, int]) -> Mapping[str, int]:
    """Beside the loss of a policy that of what judges it is a part, too, whatever its name."""
    if not any(map(is_of_a_policy, ranks)):
        return ranks
    is_part = {name: 0 <= ranks[name] < COMPONENT and is_of_an_agent(name) for name in ranks}
    return {name: COMPONENT + 1 if is_part[name] else rank for name, rank in ranks.items()}


def _of_the_best_kind(ranks: Mapping[str, int]) -> Mapping[str, int]:
    """Losses by name; else what is like one, else perplexities, numbers of data, tests."""
    kinds = ({name: rank for name, rank in ranks.items() if rank < limit} for limit in _KINDS)
    return next(filter(None, kinds))


def _sum(values: list[Any]) -> float | None:
    numbers = [*map(as_measured, values)]
    return None if any(number is None for number in numbers) else float(sum(numbers))  # type: ignore[arg-type]


def late_names(rows: Iterable[Row], columns: Columns, fields: FieldMap) -> Iterator[Row]:
    """The rows, unchanged; names that the survey has not seen are taken up on their way."""
    for row in rows:
        for name in row.values.keys() - columns.known:
            if len(columns.known) < MAX_NAMES:
                columns.known.add(name)
                columns.admit(name, fields)
        yield row
