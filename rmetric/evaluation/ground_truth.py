"""Judge a run when it is made, against its fault-free twin; :mod:`~rmetric.evaluation.truth` reads it ever after.

A run **fails** when its loss becomes non-finite, a worker is lost for good, or its held-out loss rises above its twin's
by more than the tolerance and stays there to the horizon. The failure step is the first step of that. Nothing in a
fault's code writes this label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmetric.records import DIVERGED, NAN_LOSS, WORKER_LOST

Kind = Literal["failed", "recovered", "clean", "censored"]

TOLERANCE = 0.05
UNDECIDED_STEPS = 50


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    """``failed``; ``recovered``: faulty, and whatever the fault did has healed; ``clean``: a control that did not fail;
    ``censored``: an excess that began too late to be decided."""
    failure_step: int | None = None
    """First step of the failure; ``None`` unless failed."""
    reason: str | None = None
    """``NAN_LOSS``, ``WORKER_LOST`` or ``DIVERGED``: what came first. ``None`` unless failed."""


def excess(held_out: ArrayLike, twin: ArrayLike) -> NDArray[np.bool_]:
    """True where the held-out loss lies above the twin's by more than :data:`TOLERANCE`, relative.

    .. math:: L - L_{twin} > tolerance · L_{twin}

    Parameters
    ----------
    held_out, twin
        Losses on the same fixed batch, nats; any shapes that broadcast, such as (runs, steps).

    Returns
    -------
    array
        A non-finite held-out loss (NaN or infinite) is an excess.

    Raises
    ------
    ValueError
        If the twin's loss is not finite: there is nothing to compare with.

    Examples
    --------
    >>> excess([1.0, 1.06, float("nan"), 1.05], [1.0, 1.0, 1.0, 1.0]).tolist()
    [False, True, True, False]
    """
    reference = np.asarray(twin, dtype=np.float64)
    if not np.isfinite(reference).all():
        raise ValueError("the twin's held-out loss is not finite; a twin must be a healthy run")
    # Negated, so that a NaN is an excess and not a silent False.
    return ~(np.asarray(held_out, dtype=np.float64) <= reference * (1.0 + TOLERANCE))


def judge_runs(
    excess_RT: NDArray[np.bool_],
    steps_T: ArrayLike,
    *,
    non_finite_step: Sequence[int | None],
    worker_lost_step: Sequence[int | None],
    faulty: Sequence[bool],
) -> list[Outcome]:
    """Judge many runs of the same steps.

    The failure step is the earliest of three: the first step of the excess that holds to the horizon, the first
    non-finite loss, the loss of a worker for good. An excess that begins within the last :data:`UNDECIDED_STEPS` is
    undecided and none of the three; unless one of the other two happened, that run is censored.

    Parameters
    ----------
    excess_RT
        From :func:`excess`, shape (runs, steps).
    steps_T
        Steps at which it was judged, shape (steps,), increasing; the last one is the horizon.
    non_finite_step
        First step of each run with a non-finite loss, or ``None``.
    worker_lost_step
        Step of each run at which a worker was lost for good, or ``None``.
    faulty
        Whether a fault was injected into the run.

    Examples
    --------
    >>> late = np.array([[False, False, True, True], [False, True, False, False]])
    >>> for outcome in judge_runs(
    ...     late, [0, 100, 200, 300], non_finite_step=[None, None], worker_lost_step=[None, None], faulty=[True, True]
    ... ):
    ...     print(outcome)
    Outcome(kind='failed', failure_step=200, reason='DIVERGED')
    Outcome(kind='recovered', failure_step=None, reason=None)
    """
    exceeds, steps = np.atleast_2d(np.asarray(excess_RT, dtype=bool)), np.asarray(steps_T, dtype=np.int64)
    if exceeds.shape[1] != len(steps) or not len(steps):
        raise ValueError(f"excess_RT has shape {exceeds.shape} for {len(steps)} steps")
    # Length of the unbroken excess that reaches the horizon; argmax finds the last step without one.
    calm = ~exceeds[:, ::-1]
    length_R = np.where(calm.any(axis=1), calm.argmax(axis=1), len(steps))
    outcomes = []
    for length, broken, lost, hurt in zip(length_R.tolist(), non_finite_step, worker_lost_step, faulty, strict=True):
        diverged = int(steps[len(steps) - length]) if length else None
        undecided = diverged is not None and is_undecided(diverged, int(steps[-1]))
        # At equal steps the first of the list names the reason.
        signs = ((broken, NAN_LOSS), (lost, WORKER_LOST), (None if undecided else diverged, DIVERGED))
        happened = [(int(step), reason) for step, reason in signs if step is not None]
        if happened:
            outcomes.append(Outcome("failed", *min(happened, key=lambda sign: sign[0])))
        elif undecided:
            outcomes.append(Outcome("censored"))
        else:
            outcomes.append(Outcome("recovered" if hurt else "clean"))
    return outcomes


def is_undecided(step: int, horizon: int) -> bool:
    """Return whether an excess from this step on began too late to be decided."""
    return step > horizon - UNDECIDED_STEPS


def judge(
    held_out_T: ArrayLike,
    twin_T: ArrayLike,
    steps_T: ArrayLike,
    *,
    non_finite_step: int | None = None,
    worker_lost_step: int | None = None,
    faulty: bool = True,
) -> Outcome:
    """Judge one run: :func:`judge_runs` of :func:`excess`, each array of shape (steps,)."""
    return judge_runs(
        excess(held_out_T, twin_T)[None, :],
        steps_T,
        non_finite_step=[non_finite_step],
        worker_lost_step=[worker_lost_step],
        faulty=[faulty],
    )[0]
