"""When the loss of a faulty run leaves that of its healthy twin, for good."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.ground_truth import judge
from rmetric.records import Run

WINDOW = 20
"""Steps of the moving mean of the training loss."""


def smoothed(values: NDArray[np.float64], window: int = WINDOW) -> NDArray[np.float64]:
    """Mean of each value and those before it, up to ``window``; shape (n,). A non-finite one makes ``window`` of them.

    >>> smoothed(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist()
    [1.0, 2.0, 4.0, 6.0]
    """
    ends = np.arange(1, len(values) + 1)
    return np.array([values[max(0, end - window) : end].mean() for end in ends.tolist()])


def training_departure(run: Run, twin: Run) -> int | None:
    """First step from which the smoothed training loss stays more than 5 % above the twin's; ``None`` if it never does.

    Both saw the same batches, so the difference has little noise. As of the held-out loss, what begins in the last 50
    steps is undecided and no departure, and what a run did not live to see is one.
    """
    steps = twin.observations.step
    own = np.full(len(steps), np.inf)
    losses = run.observations["training_loss"]
    own[: len(losses)] = losses
    twins = twin.observations["training_loss"]
    outcome = judge(smoothed(own), smoothed(twins), steps)
    return outcome.failure_step
