"""NEVER_LEARNS: the loss has not fallen since the run began, or stands at ln(classes)."""

from __future__ import annotations

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import Series, evaluations, falls, finite

LEAST_RECORDS = 50
MOST_BLOCKS = 100
START = 0.05
"""Share of the records that are the start of the run."""


def never_learns(observations: Observations) -> Evidence | None:
    """Score: p-value of a fall of the loss, the smaller of training and validation loss.

    A fall is a trend over the whole run (Mann and Kendall), or a start above the rest (Mann, Whitney): the smaller
    p-value of the two, doubled. A run that learns has one near 0. Losses that are not above 0 throughout say nothing of
    learning (policy gradients, log-densities), and are not judged.
    """
    loss = finite(observations, "training_loss")
    if len(loss) < LEAST_RECORDS or loss.values.min() <= 0.0:
        return None
    p = p_of_fall(loss)
    held_out = evaluations(observations)
    if len(held_out) >= 5:
        p = min(p, falls(held_out.values))
    level = float(np.median(loss.values))
    gap = finite(observations, "uniform_gap")
    where = f"{level:.4g}"
    if len(gap) and abs(np.median(gap.values)) < 0.02 * abs(level):
        where += ", which is ln(classes)"
    return Evidence(
        score=p,
        since=int(loss.steps[0]),
        numbers={"p_of_fall": p, "median_loss": level, "records": float(len(loss))},
        sentence=f"the loss has not fallen in {len(loss):,} records; it stands at {where}",
    )


def p_of_fall(loss: Series) -> float:
    """p-value of a fall of the loss; small: it fell."""
    from scipy.stats import mannwhitneyu

    start = max(3, int(START * len(loss)))
    first, rest = loss.values[:start], loss.values[start:]
    p_start = float(mannwhitneyu(first, rest, alternative="greater").pvalue) if rest.min() < loss.values.max() else 1.0
    return min(1.0, 2.0 * min(p_start, falls(loss.blocks(MOST_BLOCKS).values)))
