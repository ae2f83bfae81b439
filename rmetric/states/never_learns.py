"""NEVER_LEARNS: the loss has not fallen since the run began, or stands at ln(classes)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import (
    LEAST_THE_SAME,
    Floats,
    Series,
    are_negative,
    falls,
    finite,
    is_exact,
    least_rise,
    levels,
    lie_above,
    noise,
    rises,
)

LEAST_RECORDS = 100
"""A fine-tuning that starts well needs as many to show that it learns at all."""
SIGNIFICANT = 0.05
"""Largest p-value of a fall that counts as one, whatever healthy runs show."""
PARTS = (1, 2, 4)
"""Divisors of the records: the whole run, its first half and its first quarter."""
MOST_BLOCKS = 100
"""Blocks of a part, or of the rewards, whose medians are tested for a trend, however long the run is."""
UNIFORM_BLOCKS, TOLERANCE, NEAR = 20, 0.01, 0.05
"""Blocks whose medians are compared with ln(classes), and the shares of the level by which one may be below, and the
last half above where the loss has fallen to it: that of a margin stands far above."""
BELOW, ROUNDED, EXACT = 0.005, 0.002, 1e-4
"""Largest p-value of a last half below ln(classes), and the least share of the level by which it must be, of losses
with few decimals and of others."""
MOST_NOISE = 0.25
"""Noise from record to record, over the level, above which it hides what is learned: steps of a diffusion model."""
LEAST_FALL = 0.06
"""Share of the level that the loss may have fallen by at most, with certainty 0.975, for it to have learned nothing."""
START = 0.05
"""Share of the records that are the start of the run."""
LEAST_EVALUATIONS = 5
"""Validation losses, or rewards, at least, for their trend to be tested."""
LEARNED, RISEN, LEVEL_BLOCKS = 0.5, 1.5, 5
"""Multiples of its first level: a loss has moved that was below the one, or ends above the other; and blocks whose
median is a level."""


def never_learns(observations: Observations) -> Evidence | None:
    """Score: p-value of a fall of the loss, training or validation, or of a rising reward; 0 if it is significant.

    A fall is a trend over the whole run (Mann and Kendall), or a start above the rest (Mann, Whitney): the smaller
    p-value of the two, doubled. It is looked for in the whole run, its first half and its first quarter, since a run
    that diverged may have learned before: the smallest p-value of the three, tripled; of the validation loss, that of
    a half doubled and that of a quarter fourfold. One significant test is enough, and those after it are not made.

    Where ln(classes) is known (``uniform_gap``) and the loss never came below it, the score is 1, however the loss got
    there. It is 1, too, where every record has the same loss to its last digit, if no evaluation or reward gets better.

    Losses that are not above 0 throughout say nothing of learning (policy gradients, log-densities), and are not
    judged; nor are losses that are mostly noise, or so few that a fall by 6 % would drown in it, and a log of which
    more of the run lies before its beginning than within it, as that of a resumed run.
    ``moved`` is 1 where the loss came to half of its first level and rose again, or ends at 1.5 times of it: it is
    not flat, and what else was found says more.
    """
    loss = finite(observations, "training_loss")
    stands = _is_the_same(loss.values)
    if len(loss) < (LEAST_THE_SAME if stands else LEAST_RECORDS) or loss.values.min() <= 0.0:
        return None
    p = 1.0
    for of_one_test in _p_values(loss, finite(observations, "validation_loss"), finite(observations, "reward")):
        p = min(p, of_one_test)
        if p <= SIGNIFICANT:  # as most runs at the first test
            break
    level = float(np.median(loss.values))
    uniform = _is_uniform(finite(observations, "uniform_gap"), level, fell=p <= SIGNIFICANT, rounding=_rounding(loss))
    blocks = loss.blocks(MOST_BLOCKS).values
    if not uniform and _may_hide_a_fall(loss, blocks, level, p):
        return None
    course = levels(blocks, LEVEL_BLOCKS)
    moved = bool(course.min() < LEARNED * course[0] or course[-1] > RISEN * course[0])
    return Evidence(
        score=1.0 if uniform or (stands and p > SIGNIFICANT) else p if p > SIGNIFICANT else 0.0,
        since=int(loss.steps[0]),
        numbers={"p_of_fall": p, "median_loss": level, "records": float(len(loss)), "moved": float(moved)},
        sentence=_told(loss, level, course, uniform=uniform, moved=moved, stands=stands),
    )


def _may_hide_a_fall(loss: Series, blocks: Floats, level: float, p: float) -> bool:
    """Whether the run may have learned before the log begins, in noise, or in records that are too few to tell."""
    return (
        _begins_in_the_middle(loss)
        or noise(loss.values) > MOST_NOISE * level
        or (p > SIGNIFICANT and -least_rise(blocks) > LEAST_FALL * level)
    )


def _told(loss: Series, level: float, course: Floats, *, uniform: bool, moved: bool, stands: bool) -> str:
    """The sentence for a loss of this level and course, by the first of the three that is true."""
    end = f"{loss.steps[-1]:,}"
    if uniform:
        return f"the loss has never been below ln(classes) up to step {end}; it stands at {level:.4g}"
    if moved:
        lowest = f"had been at {course.min():.4g}, and ends at {course[-1]:.4g}"
        return f"the loss began at {course[0]:.4g}, {lowest}, at step {end}"
    if stands:
        return f"the loss is {level:.6g} in each record up to step {end}"
    return f"the loss shows no fall up to step {end}; it stands at {level:.4g}"


def _begins_in_the_middle(loss: Series) -> bool:
    """Whether more steps lie before the first record than between it and the last: the run may have learned there."""
    return bool(loss.steps[0] > loss.steps[-1] - loss.steps[0])


def _is_the_same(losses: Floats) -> bool:
    """Whether all losses are one number that is not rounded to few decimals: nothing that moves them is trained."""
    return len(losses) > 0 and bool((losses == losses[0]).all()) and is_exact(losses[0])


def _rounding(loss: Series) -> float:
    """Share of its level by which a loss may lie below ln(classes) because it is rounded."""
    return EXACT if is_exact(loss.values[0]) else ROUNDED


def _is_uniform(gap: Series, level: float, *, fell: bool, rounding: float) -> bool:
    """True if the loss is known to have stayed at or above ln(classes), but for a hundredth of its level.

    Not while it still falls to it, by so much from the third quarter to the last; nor if its last half surely lies
    below: little was to be learned, and has been; nor if it ``fell``, and stands far above.
    """
    if len(gap) < LEAST_RECORDS:
        return False
    blocks = gap.blocks(UNIFORM_BLOCKS).values / level
    late = blocks[UNIFORM_BLOCKS // 2 :]
    third, last = np.median(late.reshape(2, -1), axis=1)
    if blocks.min() <= -TOLERANCE or third - last > TOLERANCE or (fell and np.median(late) > NEAR):
        return False
    return not (np.median(late) < -rounding and are_negative(late) < BELOW)


def _p_values(loss: Series, held_out: Series, rewards: Series) -> Iterator[float]:
    """p-value of each test: for falls of the training loss, times their number, of the validation loss, times the
    number of such parts in the run; for rewards.
    """
    parts = [loss.part(slice(0, length)) for part in PARTS if (length := len(loss) // part) >= LEAST_RECORDS // 2]
    for part in parts:
        yield min(1.0, 2.0 * len(parts) * _p_of_high_start(part.values))
        yield min(1.0, 2.0 * len(parts) * falls(part.blocks(MOST_BLOCKS).values))
    for divisor in PARTS:  # one that broke late had learned
        if (length := len(held_out) // divisor) >= LEAST_EVALUATIONS:
            yield min(1.0, divisor * falls(held_out.values[:length]))
    if len(rewards) >= LEAST_EVALUATIONS:
        yield rises(rewards.blocks(MOST_BLOCKS).values)


def _p_of_high_start(losses: Floats) -> float:
    """p-value of a start above the rest, by Mann and Whitney's test."""
    start = max(3, int(START * len(losses)))
    first, rest = losses[:start], losses[start:]
    return lie_above(first, rest) if rest.min() < losses.max() else 1.0
