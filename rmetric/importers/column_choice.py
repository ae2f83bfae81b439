"""Choose which columns of somebody's log are ours: once for the whole log, by a survey of its first rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rmetric.importers.base import UNMAPPED, FieldMap, words_of
from rmetric.importers.columns import Columns
from rmetric.importers.counter_choice import counting, is_of_epochs
from rmetric.importers.loss_parts import distinct, whole, whole_of
from rmetric.importers.names import (
    BOUND,
    COMPONENT,
    LIKE_A_LOSS,
    LINE_NUMBER,
    OF_DATA,
    OF_TESTS,
    PERPLEXITY,
    TOTAL,
    USUAL,
    apart_from_numbers,
    ends_in_loss,
    formula_of,
    is_adversarial,
    is_bonus,
    is_bound,
    is_copy,
    is_of_a_kind,
    is_of_a_policy,
    is_of_an_agent,
    is_perplexity,
    is_whole,
    losses_of_data,
    may_measure,
    meanings,
    names_counter,
    names_step,
    names_training,
    spelled_out,
)
from rmetric.importers.rows import names_in_words
from rmetric.importers.run_marks import NEVER_A_NUMBER, SELDOM_A_NUMBER
from rmetric.importers.step_times import takes_seconds
from rmetric.importers.survey import LEARNED, Seen, Survey
from rmetric.measurements import LOSSES

ALIKE, ALIKE_AT_FIRST = 0.25, 0.5
"""Part of itself by which the last loss of the training, as an evaluation has it, differs from that of a batch, and by
which the first one of other data does."""
LEAST_UNEVALUATED, CLEARLY_MORE = 100, 3
"""Epochs in a row without a number, and how many times as many as ever before, from which on they are no gap between
evaluations."""
LEAST_TESTS = 3
"""Test losses from which on they are an evaluation of the training."""
_KINDS = (LIKE_A_LOSS, BOUND, PERPLEXITY, OF_DATA, OF_TESTS, math.inf)
"""Ranks at which another kind of loss begins; of a better kind one is preferred, however often it is reported."""
Ranks = Mapping[str, int]
"""Their name → its rank among those that one of our names may stand for, the lowest first choice."""


def chosen(survey: Survey, mapping: FieldMap) -> Columns:
    """The best column for each of our names.

    Of those that are there in nearly as many rows as the most frequent one, the first in the order of the aliases: a
    mean that a log states once an epoch does not stand in for the loss of the steps.
    """
    return _Choice(survey, mapping).made()


class _Choice:
    """The columns that are chosen so far."""

    def __init__(self, survey: Survey, mapping: FieldMap) -> None:
        self._columns = Columns(known=set(survey.seen))
        self._fields, self._notes = self._columns.fields, self._columns.notes
        self._survey, self._seen, self._mapping = survey, survey.seen, mapping
        spelled = {name: text for name, text in spelled_out(survey.seen).items() if name not in mapping.taken}
        self._found = self._meant(spelled)
        """Our name → their columns that it may stand for, with their ranks."""
        if "training_loss" not in self._found:
            self._found = self._meant({})

    def _meant(self, spelled: Mapping[str, str]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for name, seen in self._seen.items():
            for ours, rank in meanings(spelled.get(name, name), self._mapping):
                if ours != "step_time_s" or rank < 0 or not seen.is_clock:
                    found.setdefault(ours, {})[name] = rank
        return found

    def made(self) -> Columns:
        """All of them; to be called once."""
        self._leave_out_perplexities_of_evaluations()
        if "training_loss" not in self._found:
            self._find_losses_of_data()
        elif "validation_loss" not in self._found:
            self._find_evaluations_of_data()
        # The training loss first: rate and norm are those of the one that is read.
        for ours in sorted(self._found.keys() - {"step"}, key=lambda ours: (ours != "training_loss", ours)):
            self._choose(ours, self._found[ours])
        self._choose_gaps()
        self._choose_late_starts()
        self._leave_out_zero_norms()
        self._name_losses()
        self._name_lost_losses()
        hints = self._name_gradients()
        self._choose_counters()
        self._choose_time()
        columns = self._columns
        is_plain = columns.counters and not columns.are_batches and self._notes == hints
        columns.are_plain = bool(self._fields and is_plain) and all(len(ranks) == 1 for ranks in self._found.values())
        return columns

    def _all(self, ours: str) -> list[Seen]:
        """What the rows hold of the columns for one of our names."""
        return [self._seen[name] for name in self._fields.get(ours, ())]

    def _leave_out_perplexities_of_evaluations(self) -> None:
        """A perplexity that does not say of which data it is, is no training loss beside a validation loss by name."""
        trained, tested = (self._found.get(ours, {}) for ours in LOSSES)
        if any(rank < PERPLEXITY for rank in tested.values()):
            mere = [name for name in trained if is_perplexity(name) and not names_training(name)]
            for name in [name for name in mere if trained[name] >= 0]:  # not of a mapping
                del trained[name]
        if not trained:
            self._found.pop("training_loss", None)

    def _find_losses_of_data(self) -> None:
        """Numbers named after their data alone are losses where that of the training falls; else they may be scores."""
        named = losses_of_data(self._seen, self._mapping)
        trained = [name for name, ours in named.items() if ours == "training_loss"]
        if trained and all(self._seen[name].falls for name in trained):
            for name, ours in named.items():
                self._found.setdefault(ours, {})[name] = OF_DATA
        elif trained:
            hint = f"if one is meant, name it with --map training_loss={trained[0]}"
            self._notes.append(f"{names_in_words(trained)} does not fall as a loss does; {hint}")

    def _find_evaluations_of_data(self) -> None:
        """Take numbers named after other data alone as validation losses, beside a training loss by name.

        Those that fall and begin near it in its own rows, or all, where such a number of the training ends near it.
        """
        named, seen = losses_of_data(self._seen, self._mapping), self._seen
        trained, held_out = ([name for name in named if named[name] == ours] for ours in LOSSES)
        losses = [seen[name] for name in self._found["training_loss"]]
        ends, begins = [loss.value for loss in losses], [loss.first for loss in losses]
        if not trained or not all(seen[name].falls and _is_near(seen[name].value, ends, ALIKE) for name in trained):
            beside = [names for names in self._survey.patterns if not names.isdisjoint(self._found["training_loss"])]
            held_out = [
                name
                for name in held_out
                if any(name in names for names in beside)
                and seen[name].falls
                and _is_near(seen[name].first, begins, ALIKE_AT_FIRST)
            ]
        if held_out:
            self._found["validation_loss"] = dict.fromkeys(held_out, OF_DATA)

    def _choose(self, ours: str, ranks: Ranks) -> None:
        if ours == "training_loss":
            ranks = _with_critics_as_parts(_beside_counters(ranks, self._survey))
        ranks = _of_the_best_kind(ranks)
        ranks = ranks if ours in LOSSES else self._of_the_loss(ranks)
        most = max(self._seen[name].count for name in ranks)
        frequent = [name for name in ranks if ranks[name] < 0 or 10 * self._seen[name].count >= 9 * most]
        if ours == "validation_loss":
            frequent = [name for name in frequent if not _is_of_a_part(name, self._survey)] or frequent
        best = min(frequent, key=lambda name: (ranks[name], -self._seen[name].count))
        alike = [name for name in frequent if apart_from_numbers(name) == apart_from_numbers(best)]
        if ours not in LOSSES or (ranks[best] < USUAL and len(alike) == 1):
            self._fields[ours] = (best,)
        elif ranks[best] < COMPONENT and len(alike) == 1:
            self._choose_over_parts(ours, best, frequent)
        elif ranks[best] < OF_TESTS or most >= LEAST_TESTS:  # fewer tests may tell what came out at the end
            parts = [name for name in frequent if ranks[name] >= COMPONENT or name in alike]
            parts.sort(key=ranks.__getitem__)
            self._choose_loss(ours, best, alike, parts, are_tests=ranks[best] >= OF_TESTS)

    def _choose_loss(self, ours: str, best: str, alike: list[str], parts: list[str], *, are_tests: bool) -> None:
        """Choose among losses of which none is the whole by its name; ``alike``: those but for numbers as the best."""
        are_alike = len(alike) > 1
        if ours == "validation_loss" and are_alike and not are_tests:
            self._take(ours, best, f"one of {names_in_words(alike)}; another one: --map {ours}=NAME")
        elif is_bound(best):
            self._choose_bound(ours, best)
        elif is_perplexity(best):
            self._fields[ours] = (best,)
            self._columns.logarithms.add(ours)
            self._notes.append(f"{ours} is the logarithm of {best!r}, as there is no other loss")
        elif are_tests and not (are_alike and best.endswith("]")):  # places of a list are parts
            self._take(ours, best, "as there is no other evaluation")
        else:
            self._choose_parts(ours, parts)

    def _choose_bound(self, ours: str, best: str) -> None:
        """Choose a bound that is to rise; one above 0 that falls is the loss of a program that prints it so."""
        seen = self._seen[best]
        if seen.falls and seen.first > 0.0:
            self._take(ours, best, "which falls as a loss does")
            return
        self._fields[ours] = (best,)
        self._columns.negatives.add(ours)
        self._notes.append(f"{ours} is the negative of {best!r}, which is to rise")

    def _choose_over_parts(self, ours: str, best: str, losses: list[str]) -> None:
        """Choose a loss that is named after no part; the whole of it and others, if numbers or names tell that one."""
        names = [name for name in losses if not is_copy(name, losses)]
        others = [name for name in distinct([best, *names], self._survey.first) if name != best]
        wholes = [name for name in others if is_whole(name) and not is_of_a_kind(name)]
        if sum_of_it := whole_of(best, [best, *others], self._survey.first):
            self._take(ours, sum_of_it, "the sum of others")
        elif not others or not is_of_a_kind(best):
            self._fields[ours] = (best,)
        elif len(wholes) == 1:
            self._take(ours, wholes[0], "the only loss that is named as a whole")
        else:
            self._take(ours, best, f"one of {names_in_words([best, *others])}; another one: --map {ours}=NAME")

    def _choose_parts(self, ours: str, parts: list[str]) -> None:
        """Take, of losses named after parts and the best first, the one that is the whole, or the sum of all."""
        parts = [name for name in parts if not is_copy(name, parts)] or parts
        if self._are_measures(parts):
            self._take(ours, parts[0], f"one of {names_in_words(parts)}; another one: --map {ours}=NAME")
            return
        if any(map(is_of_an_agent, parts)):
            parts = [name for name in parts if not is_bonus(name)]
        if not parts:
            return
        play = any(map(is_adversarial, parts))
        if len(parts) > 1 and not play:
            parts = distinct(parts, self._survey.first)
        sum_of_others = None if play or len(parts) == 1 else whole(parts, self._survey.first)
        by_name = (
            ([sum_of_others] if sum_of_others else [], "the sum of others"),
            ([*filter(ends_in_loss, parts)], "the only loss that is not named after a part"),
            ([*filter(is_whole, parts)], "the only loss that is named as a whole"),
        )
        if len(parts) == 1:
            self._take(ours, parts[0], "the only loss of its kind")
        elif known := next(((names[0], why) for names, why in by_name if len(names) == 1), None):
            self._take(ours, *known)
        elif play or not self._survey.are_together(parts):
            shown = names_in_words(parts[:6])
            self._notes.append(f"there are several losses ({shown}); name one with --map {ours}=NAME")
        elif wholes := [name for name in parts if _stands_in_all(name, parts)]:
            self._take(ours, wholes[0], "the only loss that the others are named after")
        else:
            self._fields[ours] = tuple(parts)
            shown = ", ".join(map(repr, parts))
            self._notes.append(f"{ours} is the sum of {shown}; if another is meant, name it with --map {ours}=NAME")

    def _are_measures(self, parts: list[str]) -> bool:
        """Whether losses are the same errors, each by another formula (``l1`` and ``l2``), and no parts of a sum."""
        formulas = [*map(formula_of, parts)]
        return len(parts) > 1 and all(formulas) and len({*formulas}) == len(parts) and self._survey.are_together(parts)

    def _take(self, ours: str, theirs: str, why: str) -> None:
        self._fields[ours] = (theirs,)
        self._notes.append(f"{ours} is taken from {theirs!r}, {why}")

    def _of_the_loss(self, ranks: Ranks) -> Ranks:
        """Those that stand in most rows of the training loss, and begin as it does: the norm of the same network.

        All, where none does.
        """
        loss = self._fields.get("training_loss", ("",))[0]
        rows = [(names, count) for names, count in self._survey.patterns.items() if loss in names]
        most = sum(count for _, count in rows) / 2
        beside = {name for name in ranks if sum(count for names, count in rows if name in names) > most}
        prefix = loss.casefold().partition("loss")[0]
        alike = {name for name in ranks if prefix and name.casefold().startswith(prefix)}
        for some in (beside, alike):
            ranks = {name: rank for name, rank in ranks.items() if name in some} or ranks
        return ranks

    def _choose_gaps(self) -> None:
        """Whether NaN stands for no evaluation: beside the training loss, in most rows, with single numbers between.

        Two numbers in a row, and NaN from then on, are an evaluation that broke, and so is one that does not come back
        in clearly more rows that are epochs than ever before. One without any number was perhaps never made.
        """
        loss = self._fields.get("training_loss", ("",))[0]
        rows, are_epochs = self._seen.get(loss, Seen()).count, is_of_epochs(loss, self._survey)
        evaluated = self._fields.get("validation_loss", ())
        self._columns.fills_gaps = any(
            2 * seen.not_finite > seen.count
            and 4 * seen.stays_finite <= seen.count - seen.not_finite
            and 10 * min(seen.count, self._survey.beside(loss, (name,))) >= 9 * rows > 0
            and (not are_epochs or seen.never_a_number or _may_be_a_gap(seen))
            for name, seen in ((name, self._seen[name]) for name in evaluated)
        )
        if self._columns.fills_gaps:
            is_never = all(seen.never_a_number for seen in self._all("validation_loss"))
            self._notes.append(NEVER_A_NUMBER if is_never else SELDOM_A_NUMBER)

    def _choose_late_starts(self) -> None:
        """Whether NaN in the first rows stands for no training, as while an agent gathers its first experience.

        And a gradient norm that is not finite there for one that half precision has thrown away.
        """
        trained, late = self._all("training_loss"), "before its first number"
        if any(_starts_late(seen) and seen.not_finite == seen.not_finite_at_first for seen in trained):
            self._columns.start_late.add("training_loss")
            self._notes.append(f"the training loss is NaN {late}, and not after: not measured there")
        if any(map(_starts_late, self._all("grad_norm"))) and not any(seen.not_finite for seen in trained):
            self._columns.start_late.add("grad_norm")
            self._notes.append(f"grad_norm is not finite {late}, while the loss is: not measured there")

    def _leave_out_zero_norms(self) -> None:
        """A gradient norm of 0 in all rows was not measured, where the loss falls."""
        norm, loss = ([*self._all(ours), Seen()][0] for ours in ("grad_norm", "training_loss"))
        learns = loss.count > 2 and loss.highest > loss.lowest and loss.value < LEARNED * loss.first
        if norm.lowest == norm.highest == 0.0 and learns:
            name = self._fields.pop("grad_norm")[0]
            self._notes.append(f"{name!r} is 0 in all rows, while the loss falls: it was not measured")

    def _name_losses(self) -> None:
        """Note, without a training loss, which columns may be one: the first of several sets, or unknown ones."""
        if not self._fields or "training_loss" in self._found.keys() | self._mapping.explicit:
            return
        fields = self._mapping
        unknown = [name for name in self._seen if may_measure(name, fields) and not meanings(name, fields)]
        evaluated = [] if "validation_loss" in self._mapping.explicit else [*self._found.get("validation_loss", ())]
        sets = [name for name in evaluated if apart_from_numbers(name) == apart_from_numbers(evaluated[0])]
        if len(sets) > 1:
            hint = f"if {sets[0]!r} is of the training data, say so with --map training_loss={sets[0]}"
            self._notes.append(f"no column is known as a training loss; {hint}")
        elif unknown:
            hint = f"name one with --map training_loss=COLUMN ({names_in_words(unknown)})"
            self._notes.append(f"no column is known as a training loss; {hint}")

    def _name_lost_losses(self) -> None:
        """Training losses beside the one that is read of which no value is finite."""
        read = self._fields.get("training_loss", ())
        others = [name for name in self._found.get("training_loss", ()) if name not in read]
        lost = [name for name in others if self._seen[name].never_a_number and self._seen[name].count > 1]
        if lost and not all(seen.never_a_number for seen in self._all("training_loss")):
            are = "are" if len(lost) > 1 else "is"
            hint = f"if one is meant, name it with --map training_loss={lost[0]}"
            told = f"{names_in_words(lost)} {are} never finite, unlike the training loss that is read"
            self._notes.append(f"{told}; {hint}")

    def _name_gradients(self) -> list[str]:
        """Name, without a gradient norm, the columns used for nothing that may be one.

        Returns this note, which changes nothing in what is read.
        """
        may_be = [
            name
            for name, seen in self._seen.items()
            if "grad" in name.casefold()
            and seen.lowest < seen.highest
            and not meanings(name, self._mapping)
            and not names_step(name, self._mapping)
        ]
        is_known = "grad_norm" in self._found.keys() | self._mapping.explicit
        if is_known or not may_be or "training_loss" not in self._fields:
            return []
        hint = f"if one is, name it with --map grad_norm=NAME ({names_in_words(may_be)})"
        self._notes.append(f"no column is known as a gradient norm; {hint}")
        return self._notes[-1:]

    def _choose_counters(self) -> None:
        losses = {ours: self._fields[ours][0] for ours in LOSSES if ours in self._fields}
        found = counting(self._survey, self._mapping, self._found.get("step", {}), losses)
        self._columns.counters = found.counters
        self._columns.are_batches, self._columns.epochs_count = found.are_batches, found.epochs_count
        if found.note and (self._fields or found.counters):
            self._notes.append(found.note)

    def _choose_time(self) -> None:
        """A mere time in seconds is that of a step where each step is reported, if it is no clock of an epoch."""
        counters, is_known = self._columns.counters, "step_time_s" in self._fields.keys() | self._mapping.explicit
        counter = self._seen[counters[0]] if counters and not is_known else Seen()
        if not counter.count or 10 * counter.one_more < 9 * counter.count - 10:
            return
        times = {
            name: 0
            for name, seen in self._seen.items()
            if takes_seconds(name) and name not in self._mapping.taken and 4 * seen.not_after > seen.count
        }
        if times:
            self._fields["step_time_s"] = (max(self._of_the_loss(times), key=lambda name: self._seen[name].count),)


def _starts_late(seen: Seen) -> bool:
    """Whether values are not finite in some of the first rows, a tenth of all at most."""
    return 0 < 10 * seen.not_finite_at_first <= seen.count


def _may_be_a_gap(seen: Seen) -> bool:
    """Whether the last rows without a finite value may be a gap between two evaluations."""
    return seen.gap < max(LEAST_UNEVALUATED, CLEARLY_MORE * seen.longest_gap)


def _is_near(value: float, others: Iterable[Any], apart: float) -> bool:
    """Whether a value is close to any of the others: relative difference ``apart`` at most."""
    return any(isinstance(other, int | float) and math.isclose(value, other, rel_tol=apart) for other in others)


def _is_of_a_part(name: str, survey: Survey) -> bool:
    """Whether each row that states a loss states up to which number something is counted, as of a part of the data."""
    return all(any(other.endswith(TOTAL) for other in names) for names in survey.patterns if name in names)


def _stands_in_all(name: str, others: Iterable[str]) -> bool:
    """Whether the words of a name stand in each of the others, as ``rmse_val`` in ``rmse_e_val`` and ``rmse_f_val``."""
    words = {*words_of(name)}
    return all(words.issubset(words_of(other)) for other in others)


def _beside_counters(ranks: Ranks, survey: Survey) -> Ranks:
    """Losses in rows that state a counter; all, where none is. A loss of another row has no place among the steps."""
    beside = {
        name
        for names in survey.patterns
        if any(name == LINE_NUMBER or names_counter(name, UNMAPPED) for name in names)
        for name in names
    }
    return {name: rank for name, rank in ranks.items() if name in beside or rank < 0} or ranks


def _with_critics_as_parts(ranks: Ranks) -> Ranks:
    """Ranks with the loss of what judges a policy as a part beside that of the policy, whatever its name."""
    if not any(map(is_of_a_policy, ranks)):
        return ranks
    is_part = {name: 0 <= ranks[name] < COMPONENT and is_of_an_agent(name) for name in ranks}
    return {name: COMPONENT + 1 if is_part[name] else rank for name, rank in ranks.items()}


def _of_the_best_kind(ranks: Ranks) -> Ranks:
    """Losses by name; else what is like one, else perplexities, numbers of data, tests."""
    kinds = ({name: rank for name, rank in ranks.items() if rank < limit} for limit in _KINDS)
    return next(filter(None, kinds))
