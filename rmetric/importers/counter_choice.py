"""What counts the steps of somebody's log: a column of steps or batches, the epochs, or the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmetric.importers.base import LAST_STEP, LOG_CALLS, FieldMap, plain
from rmetric.importers.names import BATCH_WORDS, LINE_NUMBER, TOTAL, names_epoch, names_step
from rmetric.importers.survey import Seen, Survey
from rmetric.measurements import OWN_PREFIX

BY_ITS_WORDS = 50
"""Rank of a counter that is no alias."""


class Counting(NamedTuple):
    """What counts."""

    counters: tuple[str, ...] = ()
    """Columns, the best first; without one epochs or rows count."""
    are_batches: bool = False
    epochs_count: bool = False
    note: str = ""


def counting(survey: Survey, fields: FieldMap, steps: Mapping[str, int], losses: Mapping[str, str]) -> Counting:
    """The counters of steps, else what stands in for them.

    ``steps``: columns that ``step`` may stand for, with their ranks. ``losses``: columns of those that are read, the
    training's first.
    """
    if counters := _steps(survey, fields, steps, losses):
        return Counting(counters)
    loss = next(iter(losses.values()), "")
    if batches := _batches(survey, loss):
        return Counting(batches, are_batches=True, note="there is no step; batches count, on from epoch to epoch")
    if is_of_epochs(loss, survey):
        return Counting(epochs_count=True, note="there is no step; epochs count")
    before = survey.seen.get(LINE_NUMBER)
    if before is not None and not before.jumps_back and not before.never_rises:
        others = [name for name in steps if survey.seen[name].lies_within(before)]
        return Counting((LINE_NUMBER, *others), note="there is no step; the number before the rest of a line counts")
    return Counting(note="there is no step; rows count")


def is_of_epochs(loss: str, survey: Survey) -> bool:
    """Whether the rows that state a loss are epochs."""
    seen, epochs = survey.seen.get(loss, Seen()), [*filter(names_epoch, survey.seen)]
    repeated = 2 * seen.repeats_epoch > seen.count or seen.repeats_epoch == seen.count - 1 > 0
    return bool(epochs) and survey.most_state(loss, epochs) and not survey.has_fractional_epochs and not repeated


def _steps(survey: Survey, fields: FieldMap, ranks: Mapping[str, int], losses: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that count steps, the best first.

    Those that jump back last; then those first that all of the training has and that never go back (``global_step``
    beside a ``step`` that begins anew in each epoch), and that count up to most.
    """
    loss = losses.get("training_loss", "")
    trained = survey.seen.get(loss, Seen()).count
    reported = max((survey.seen[name].count for name in losses.values()), default=0)
    steps = dict(ranks)
    if "step" not in fields.explicit:
        steps |= {name: BY_ITS_WORDS for name in survey.seen if names_step(name, fields) and name not in steps}
        steps = _of_the_training(steps, survey, loss)
    steps = _without_log_calls(_without_own(steps, survey, 0.9 * trained), survey, 0.9 * reported)
    highest = max((survey.seen[name].highest for name in steps), default=0.0)

    def order(name: str) -> tuple[bool, bool, bool, int]:
        seen, total = survey.seen[name], survey.seen.get(name + TOTAL)
        is_of_epoch = total is not None and total.highest < highest
        return seen.jumps_back, seen.goes_back or 10 * seen.count < 9 * trained, is_of_epoch, steps[name]

    return tuple(sorted(steps, key=order))


def _of_the_training(steps: Mapping[str, int], survey: Survey, loss: str) -> dict[str, int]:
    """Counters of the steps of the training; none if the training is hardly ever stated with one.

    What stays the same in all rows does not, nor what goes to and fro, as the length of an episode does. With a counter
    that is rounded (``step: 1K``) records would be lost, and all of the training with one that evaluations alone have.
    """
    few = survey.seen.get(loss, Seen()).count <= 2
    rising = {name: rank for name, rank in steps.items() if few or survey.seen[name].counts}
    return rising if survey.most_state(loss, rising) else {}


def _without_own(steps: dict[str, int], survey: Survey, needed: float) -> dict[str, int]:
    """The counters without that of our monitor, where nearly all of the training has another one."""
    others = {name: rank for name, rank in steps.items() if not name.startswith(OWN_PREFIX)}
    are_known = any(name != LOG_CALLS and survey.seen[name].count >= needed for name in others)
    return others if are_known else steps


def _without_log_calls(steps: dict[str, int], survey: Survey, needed: float) -> dict[str, int]:
    """The counters, or W&B's calls of ``log``: a log in which both took turns would go to and fro."""
    if steps.get(LOG_CALLS) != LAST_STEP:
        return steps
    others = {name: rank for name, rank in steps.items() if name != LOG_CALLS}
    are_known = any(survey.seen[name].count >= needed and not survey.seen[name].stands_still for name in others)
    return others if are_known else {LOG_CALLS: LAST_STEP}


def _batches(survey: Survey, loss: str) -> tuple[str, ...]:
    """The counters of batches; one that stands still (``Batch_id=117``) is none beside one with a total.

    None if the loss is hardly ever stated with one, as that of an epoch below its bar. Where the number is always that
    up to which it counts, or never moves, and no epoch beside the loss moves either, ``100/100`` is that of a fit in a
    loop: rows count.
    """
    found = [name for name in survey.seen if plain(name) in BATCH_WORDS]
    epochs = [name for name in survey.seen if names_epoch(name) and survey.most_state(loss, [name])]
    stand = all(survey.seen[name].never_rises for name in epochs) and all(
        survey.seen[name].never_rises or survey.is_full(name) for name in found
    )
    if stand or not survey.most_state(loss, found):
        return ()
    counted = {name for name in found if name + TOTAL in survey.seen}
    return tuple(name for name in found if not counted or name in counted or not survey.seen[name].stands_still)
