"""The workers' own times: the worker that is slow by itself is named with its phase, and all times are in the log."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.components import SLOW_WORKER
from rmetric.monitor.hardware import HardwareReport, StepTimes
from rmetric.records import Event
from rmetric.robust.reference import NORMAL
from rmetric.state import restore, state_of

INPUT, FORWARD, BACKWARD = "input", "forward", "backward"
TIMED = (INPUT, FORWARD, BACKWARD)
"""Phases of a step that a rank spends on its own work, in their order."""
WORKER_TIMES = "WORKER_TIMES"
"""Event: medians over ``steps`` steps of what each worker spends on its own work; ``input_s``, ``forward_s`` and
``backward_s``, one number a worker, seconds."""
LOGGED_EVERY = 20
"""Steps between two such events; where a worker is named there is one of that step alone."""
WINDOW = 32
"""Recent steps that make a worker's present pace."""
JUDGED_EVERY = 4
"""Steps between two looks at the pace."""
SHARE = 0.05
"""Part of a step's own time by which a worker must be behind the others to be called slow: what all of them lose."""
MINIMUM_S = 0.002
"""Seconds by which it must be behind: below, it is the scheduling of the operating system."""
STANDARD_ERRORS = 6.0
MEDIAN_TO_MEAN_ERROR = math.sqrt(math.pi / 2.0)
"""Standard error of a median over that of the mean."""
OF_ITS_OWN = 0.5
"""Part of a step's excess over the worker's usual time that the others must not share, for the worker to be named."""

Times = NDArray[np.float64]


class WorkerTimes:
    """Judges and logs the workers' times, step after step.

    The times are ``lag`` steps late.
    """

    def __init__(self, workers: int, lag: int) -> None:
        self._workers, self._lag = workers, lag
        self._slow = SlowWorkers(workers)
        self._recent: list[Any] = []
        self._held: list[tuple[int, float]] = []
        """Records whose step time is not settled: their number, and that time in seconds."""

    def settled_s(self, step: int, step_time_s: float, inputs: Times) -> list[float]:
        """Take in the step time of a record, and all input times exchanged since the one before.

        Returns the step times, seconds, that can be judged as of now, NaN for one in which some worker has not measured
        its input: while one evaluates, the others wait for it, and know nothing of it but from these.
        """
        measured = bool(np.isfinite(inputs).all())
        held = [*self._held, (step, step_time_s)]
        held = [(of_step, seconds if measured else math.nan) for of_step, seconds in held]
        settled = [seconds for of_step, seconds in held if of_step <= step - self._lag]
        self._held = held[len(settled) :]
        return settled

    def update(self, step: int, times_WP: Times) -> tuple[list[HardwareReport], list[Event]]:
        """Take in the times exchanged in a step; returns who is slow by itself, and lines for the log."""
        of_step = step - self._lag
        reports = self._slow.update(times_WP)
        self._recent.append(times_WP.tolist())
        events = [_event(of_step, [times_WP])] if reports else []
        if step % LOGGED_EVERY == 0:
            events.append(_event(of_step, self._recent))
            self._recent = []
        return reports, events

    def state_dict(self) -> dict[str, Any]:
        """History in plain values."""
        slow = state_of(self._slow)
        return {"workers": self._workers, "slow": slow, "recent": self._recent, "held": self._held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; anew if it is that of another number of workers."""
        if state["workers"] == self._workers:
            restore(self._slow, state["slow"])
            self._recent = list(state["recent"])
            self._held = [(step, seconds) for step, seconds in state.get("held", [])]


def _event(step: int, times_TWP: list[Any]) -> Event:
    """Medians over some steps, shape (steps, workers, phases); ``None``: not measured."""
    found = {}
    for phase, times_TW in zip(TIMED, np.moveaxis(np.array(times_TWP), 2, 0), strict=True):
        known = [column[np.isfinite(column)] for column in times_TW.T]
        found[f"{phase}_s"] = [float(f"{np.median(column):.4g}") if len(column) else None for column in known]
    return {"event": WORKER_TIMES, "step": max(step, 0), "steps": len(times_TWP), **found}


class SlowWorkers:
    r"""Judges each worker's own times, in each phase, against the others' and its own past.

    *Pace.* With the excess :math:`e = x - \operatorname{median}(x \text{ of the others})` of a worker in a phase, as a
    share of the others' whole own time, over the last :data:`WINDOW` steps: a worker is slow if the median of the
    shares lies above its level by more than 5 %, 2 ms and six robust standard errors. What was reported is its new
    level, so that it is told once, and again when it gets worse; a level that has fallen is forgotten.

    *Single steps.* :class:`StepTimes` over each worker's own time; a slow step is the worker's if at least half of the
    excess is not the others' too.

    A phase that some worker has not measured is nobody's in that step; without the input no single step is judged.

    State: numbers, lists and deques.
    """

    def __init__(self, workers: int) -> None:
        self._steps = [StepTimes(worker=worker) for worker in range(workers)]
        self._shares: deque[list[list[float]]] = deque(maxlen=WINDOW)
        self._levels = [[0.0] * len(TIMED) for _ in range(workers)]
        self._told = [[-WINDOW] * len(TIMED) for _ in range(workers)]
        self._count = 0

    def update(self, times_WP: Times) -> list[HardwareReport]:
        """Take in the workers' own times in a step, shape (workers, phases), seconds, NaN: not measured."""
        # While one of them evaluates, the others may wait for it: that is no time of their own.
        measured = np.all(np.isfinite(times_WP), axis=0)
        times = np.where(measured, times_WP, 0.0)
        if times_WP.shape != (len(self._steps), len(TIMED)) or not times.any():
            return []
        others = _of_the_others(times)
        excess = times - others
        found = self._slow_steps(times, excess) if measured[TIMED.index(INPUT)] else []
        whole = np.maximum(others.sum(axis=1, keepdims=True), MINIMUM_S)
        self._shares.append((excess / whole).tolist())
        self._count += 1
        if len(self._shares) == WINDOW and self._count % JUDGED_EVERY == 0:
            found += self._slow_pace(whole)
        return found

    def _slow_steps(self, times: Times, excess: Times) -> list[HardwareReport]:
        found = []
        for worker, (own_times, own_excess) in enumerate(zip(times, excess, strict=True)):
            level_s = self._steps[worker].level_s
            report = self._steps[worker].update(float(own_times.sum()))
            if report is not None and own_excess.sum() > OF_ITS_OWN * (own_times.sum() - level_s):
                phase = int(own_excess.argmax())
                found.append(
                    HardwareReport(
                        SLOW_WORKER,
                        "correctable",
                        worker,
                        f"{TIMED[phase]} took {own_times[phase]:.3f} s, {own_excess[phase]:.3f} s more than in others",
                        phase=TIMED[phase],
                    )
                )
        return found

    def _slow_pace(self, whole: Times) -> list[HardwareReport]:
        shares = np.array(self._shares)
        middle = np.median(shares, axis=0)
        scatter = NORMAL * np.median(np.abs(shares - middle), axis=0)
        error = STANDARD_ERRORS * MEDIAN_TO_MEAN_ERROR * scatter / math.sqrt(WINDOW)
        bar = np.maximum(np.maximum(SHARE, MINIMUM_S / whole), error)
        levels, told = np.array(self._levels), np.array(self._told)
        settling = self._count - told < WINDOW  # the window is not yet full of what was told
        slow = (middle > levels + bar) & ~settling
        levels = np.where(slow | settling, np.maximum(levels, middle), np.minimum(levels, np.maximum(middle, 0.0)))
        self._levels = levels.tolist()
        self._told = np.where(slow, self._count, told).tolist()
        return [
            HardwareReport(
                SLOW_WORKER,
                "correctable",
                int(worker),
                f"in the last {WINDOW} steps {TIMED[phase]} took {middle[worker, phase] * whole[worker, 0]:.3f} s more "
                f"than in others, {100 * middle[worker, phase]:.0f} % of a step's own time",
                phase=TIMED[phase],
                lasting=True,
            )
            for worker, phase in zip(*np.nonzero(slow), strict=True)
        ]


def _of_the_others(times: Times) -> Times:
    """Median over the other workers, for each worker and phase."""
    count = len(times)
    ordered = np.sort(times, axis=0)
    rank = np.argsort(np.argsort(times, axis=0, kind="stable"), axis=0)
    low, high = (count - 2) // 2, (count - 1) // 2  # the middle ones of count - 1 values

    def without(index: int) -> Times:
        return np.take_along_axis(ordered, np.where(rank <= index, index + 1, index), axis=0)

    return (without(low) + without(high)) / 2.0
