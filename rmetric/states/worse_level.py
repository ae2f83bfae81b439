"""WORSE_LEVEL: the training loss has settled above a level that it had before, or rises to the end."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import Floats, Series, finite, levels, noise, rises, since_planned

LEAST_RECORDS = 50
"""Enough for ten blocks: three for the end of the run, and some for a level before it."""
MOST_BLOCKS, LEAST_VALUES = 60, 5
"""Blocks of the run, and records of a block."""
SMALLEST = 1e-12
"""Scale of a loss that never moved."""
SMOOTHED = 3
"""Blocks whose median is a level."""
LEAST_DISTANCE = 3.0
"""Units of noise."""
SETTLED = 0.1
"""Share of the run that a level takes at least, at its end."""
CLIMBED = 2
"""Blocks that begin on the way to the middle of two levels, from which on the loss has climbed and not leapt."""
FAR = 10.0
"""Multiple of the distance between the two levels above which a block says nothing of the noise about them."""
RISING = 0.01
"""Largest p-value of a rise of the blocks at the end: it has not settled."""
LEAP_FACTOR, LEAP_RECORDS = 2.0, 10
"""Factor from the highest losses before a leap to the lowest after it, and of how many records: of healthy losses that
climb by design and stay up it is at most 1.4, of those of bugs that validation losses do not show 3 and more."""
UNSEEN = "; the validation loss does not show this leap: objective, scale or training batches may be others since then"
FLOOR, LEAST_FLOOR, TIMES = 0.01, 0.001, 30.0
"""Share of the fall from the run's first block to its best level that is a unit of noise at least; and where a loss has
fallen by many powers of ten, and ends at so many times its best level or more. Healthy ones come to 23 times."""


def worse_level(observations: Observations) -> Evidence | None:
    """Score: distance of the lowest block at the end of the run from its best level before, in units of noise.

    The best level is the lowest median of three consecutive blocks; the end is the last tenth. The state lasts since
    the block from which on all are nearer to that lowest one than to the best level, or, where the loss climbed and did
    not leap, three units above this; in it or the one before, since the loss that parts the better ones from the worse
    ones best.

    0 below three units, or where the loss climbs by design: the run has validation losses, and the last ones are no
    worse than those before (an annealed term, longer sequences) though the loss did not leap for good to twice its
    level or more, an agent is known to get more reward than at the best level (there is then more to predict), or the
    learning rate is known to be higher than at the best level, and to have been as high before it, where the loss was
    as high as now (a restart of the schedule). What was before a change that was announced is no level to be kept,
    unless it had been lost by then: the loss had left it, and was as high in the two blocks before the change as it is
    now. Losses below 0 say nothing of how good a model is (policy gradients, log-densities), and are not judged; nor is
    a loss that begins at 0, since it can only rise (a penalty for leaving a reference, a value network before its first
    reward). One that comes to 0 is that of a margin which all examples of a batch keep.
    """
    since_latest = _since_change(since_planned(observations))
    if since_latest is not None and since_latest.score > 0.0:
        return since_latest
    changes = np.flatnonzero(observations.announced).tolist()
    for begin, change in reversed([*pairwise([0, *changes])]):
        if change - begin >= LEAST_RECORDS:
            lost = _since_change(observations.rows(slice(begin, None)), int(observations.step[change]))
            if lost is not None and lost.score > 0.0:
                return lost
    return since_latest


def _since_change(observations: Observations, next_change: int | None = None) -> Evidence | None:
    """Evidence in the records since a change; ``None`` also if their level had not been lost before the next one."""
    loss = finite(observations, "training_loss")
    if len(loss) < LEAST_RECORDS or loss.values.min() < 0.0 or loss.values[0] == 0.0:
        return None
    blocks = loss.blocks(MOST_BLOCKS, LEAST_VALUES)
    end = max(SMOOTHED, int(SETTLED * len(blocks)))
    before = levels(blocks.values[:-end], SMOOTHED)
    best_at, settled_at = int(before.argmin()), len(blocks) - end + int(blocks.values[-end:].argmin())
    best, settled = float(before[best_at]), float(blocks.values[settled_at])
    share = LEAST_FLOOR if settled >= TIMES * best > 0.0 else FLOOR
    least = share * abs(float(blocks.values[0]) - best)
    scale = max(_noise_about(blocks.values, best_at, settled), least, SMALLEST)
    distance = float((settled - best) / scale)
    middle = 0.5 * (best + settled)
    since = _left(loss, blocks, middle, end)
    if next_change is not None and not _had_been_lost(blocks, settled, since, next_change):
        return None
    as_good = _still_as_good(finite(observations, "validation_loss"), since)
    leapt = as_good and _leapt(loss, since, settled)
    none = (
        distance < LEAST_DISTANCE
        or (as_good and not leapt)
        or _is_meant(observations, blocks, best_at, settled_at, since, LEAST_DISTANCE * scale)
    )
    return Evidence(
        score=0.0 if none else distance,
        since=_begin(since, _left(loss, blocks, best + LEAST_DISTANCE * scale, end), blocks),
        numbers={"best_level": best, "lowest_at_the_end": settled, "noise": scale},
        sentence=f"the training loss {_now(blocks.values[-end:])}; it had been at {best:.4g}{UNSEEN if leapt else ''}",
    )


def _now(end: Floats) -> str:
    """What the loss does in the blocks at the end of a run."""
    if rises(end) <= RISING:
        return f"still rises, and is at about {end[-1]:.4g}"
    return f"has settled at about {end.min():.4g}"


def _had_been_lost(blocks: Series, settled: float, since: int, change: int) -> bool:
    """Whether a loss had risen by a step, and was as high in the last two whole blocks before it as it is now."""
    whole = int(np.searchsorted(blocks.steps, change, side="right")) - 1
    return since < change and float(np.median(blocks.values[:whole][-2:])) >= settled


def _is_meant(
    observations: Observations, blocks: Series, best_at: int, settled_at: int, since: int, margin: float
) -> bool:
    """True if the loss is known to climb by design: as rewards or a restart of the schedule show it."""
    then, rates = int(blocks.steps[best_at + SMOOTHED]), finite(observations, "learning_rate")
    return (
        _gets_more(finite(observations, "reward"), then, since)
        or float(blocks.values[settled_at]) <= expected(blocks, best_at, settled_at, rates) + margin
    )


def _begin(nearer: int, above: int, blocks: Series) -> int:
    """Where a loss climbed for blocks, the step since which it is above its best level; else the one it leapt in.

    ``nearer``: the step since which it is nearer to the level at the end.
    """
    climbed = int(np.count_nonzero((blocks.steps > above) & (blocks.steps <= nearer)))
    return above if climbed >= CLIMBED else nearer


def _left(loss: Series, blocks: Series, level: float, end: int) -> int:
    """Step from which on the loss stays above a level, before the last so many blocks."""
    below = np.flatnonzero(blocks.values <= level)
    first = min(int(below[-1]) + 1, len(blocks) - end) if len(below) else 0
    ends = np.append(blocks.steps, loss.steps[-1] + 1)
    return _turned(loss, slice(ends[max(0, first - 1)], ends[first + 1]), level)


def _turned(loss: Series, within: slice, middle: float) -> int:
    """Step of the loss that parts those of some steps best: most are below the middle before it, and above it after."""
    near = loss.part(slice(*np.searchsorted(loss.steps, (within.start, within.stop))))
    better = np.cumsum(np.where(near.values <= middle, 1, -1))
    return int(near.steps[min(int(np.append(0, better).argmax()), len(near) - 1)])


def _noise_about(values: Floats, best_at: int, settled: float) -> float:
    """Noise of the blocks; what falls from far above both levels, and above all that was before, says nothing of it."""
    far = values[best_at] + FAR * abs(settled - values[best_at])
    near = values[values <= max(far, float(values[: best_at + 1].max()))]
    return noise(near if len(near) > SMOOTHED else values)


def _still_as_good(held_out: Series, since: int) -> bool:
    """True if the validation losses are known to be no worse now than they were before a step.

    Noise counts up to the best of them: what is larger is no noise of losses that were so small.
    """
    before = held_out.values[held_out.steps < since]
    if not len(before) or len(before) == len(held_out):
        return False
    now = float(np.median(held_out.values[len(before) :][-SMOOTHED:]))
    best = float(before.min())
    return now <= best + min(max(noise(held_out.values), 0.0), abs(best))


def _leapt(loss: Series, since: int, settled: float) -> bool:
    """True if the loss came to twice its level at once, by all of some records, and still is nearer to that."""
    at = int(np.searchsorted(loss.steps, since))
    before, after = loss.values[max(at - LEAP_RECORDS, 0) : at], loss.values[at : at + LEAP_RECORDS]
    if not len(before) or after.min() < LEAP_FACTOR * before.max():
        return False
    return settled > 0.5 * float(np.median(before) + np.median(after))


def _gets_more(rewards: Series, then: int, since: int) -> bool:
    """True if an agent's rewards are known to be higher since a step than they were just before another one."""
    before, now = rewards.values[rewards.steps < then], rewards.values[rewards.steps >= since]
    if not len(before) or not len(now):
        return False
    return float(np.median(now)) > float(np.median(before[-LEAST_VALUES:]))


def expected(blocks: Series, best_at: int, settled_at: int, rates: Series) -> float:
    """The level to which a restart of the schedule brings a loss back: that of when the rate was last as high.

    −∞ unless the learning rate is known to be higher again than at the best level, and no higher than before it.
    """
    best_step, settled_step = blocks.steps[[best_at, settled_at]].tolist()
    rates_then, rates_now = (rates.values[rates.steps >= step] for step in (best_step, settled_step))
    if not len(rates_now) or rates_now[0] <= rates_then[0]:
        return -math.inf
    as_high = rates.steps[(rates.steps < best_step) & (rates.values >= rates_now[0])]
    if not len(as_high):
        return -math.inf
    then = int(np.searchsorted(blocks.steps, as_high[-1], side="right"))
    return float(np.median(blocks.values[max(0, then - SMOOTHED) : max(then, 1)]))
