"""Summarise the steps of simulated runs to the records of their logs, and estimate λ and ΔL from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rmetric.faults import HardwareEvent
from rmetric.log_writer import to_log_precision
from rmetric.measurements import MEASUREMENTS, Merge
from rmetric.records import Observations
from rmetric.signals import HardwareFailureRate, ValidationDrift, event_worker
from rmetric.simulation.simulator import Traces

FloatsN = NDArray[np.float64]
FloatsRN = NDArray[np.float64]
StepsN = NDArray[np.int64]
REDUCE: dict[Merge, np.ufunc] = {"mean": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class RunRecords:
    """The n records of one run."""

    observations: Observations
    hardware: list[tuple[HardwareEvent, float]]
    """Hardware events up to the end of the run, each with its training time in seconds."""
    reported: dict[str, FloatsN]
    """Fault state as the authors' logs report it, each of shape (n,)."""


def summarise(traces: Traces, ends: Sequence[int]) -> Iterator[RunRecords]:
    """The records of each run of a batch up to its end: one on each step of the grid, and one at the end."""
    grid = _Grid(traces.specs[0].steps, traces.specs[0].log_every, np.asarray(ends))
    merged = {name: to_log_precision(_saturated(values)) for name, values in _merged(traces, grid)}
    validation_loss = to_log_precision(_saturated(traces.validation_loss))
    time_s = np.cumsum(traces.step_time_s, axis=1)
    hardware = _timed(traces.hardware, ends, time_s)
    rates = _rounded_together([_rates(of_run) for of_run in hardware])
    drifts = _rounded_together([ValidationDrift().extend(losses) for losses in validation_loss])
    reported = {name: grid.last(values) for name, values in traces.reported.items()}
    for row, spec in enumerate(traces.specs):
        step, which = grid.records(row)
        columns = {name: values[row, which] for name, values in merged.items()}
        columns |= _evaluations(step, spec.eval_every, validation_loss[row], drifts[row])
        columns |= _hardware(step, hardware[row], rates[row])
        columns["non_finite_count"] = _none_for_zero(columns["non_finite_count"])
        yield RunRecords(
            Observations(step, columns), hardware[row], {name: values[row, which] for name, values in reported.items()}
        )


class _Grid:
    """Columns of a batch: one for each step of the grid, and a last one for an end that lies off the grid."""

    def __init__(self, steps: int, log_every: int, ends: StepsN) -> None:
        grid = np.arange(log_every, steps + 1, log_every)
        self._step = grid if grid[-1] == steps else np.append(grid, steps)
        self._ends = ends
        self._full = np.searchsorted(self._step, ends, side="right")  # records of each run on the grid
        self._off_grid = np.searchsorted(self._step, ends) == self._full

    def records(self, row: int) -> tuple[StepsN, StepsN | slice]:
        """Steps of a run's records, and the columns they stand in."""
        if not self._off_grid[row]:
            return self._step[: self._full[row]], slice(self._full[row])
        which = np.append(np.arange(self._full[row]), len(self._step))
        return np.append(self._step, self._ends[row])[which], which

    def merge(self, values_RT: FloatsRN, merge: Merge) -> FloatsRN:
        """The steps of each record as one value."""
        if merge == "last":
            return self.last(values_RT)
        reduce = REDUCE[merge]
        on_grid = reduce.reduceat(values_RT, np.concatenate([[0], self._step[:-1]]), axis=1)
        if merge == "mean":
            on_grid = on_grid / np.diff(self._step, prepend=0)
        at_end = np.full(len(values_RT), np.nan)
        for row in np.flatnonzero(self._off_grid):
            start = self._step[self._full[row] - 1] if self._full[row] else 0
            steps = values_RT[row, start : self._ends[row]]
            at_end[row] = reduce.reduce(steps) / (len(steps) if merge == "mean" else 1)
        return np.column_stack([on_grid, at_end])

    def last(self, values_RT: FloatsRN) -> FloatsRN:
        """The value at the step of each record."""
        return np.column_stack([values_RT[:, self._step - 1], values_RT[np.arange(len(values_RT)), self._ends - 1]])


def _merged(traces: Traces, grid: _Grid) -> Iterator[tuple[str, FloatsRN]]:
    """Every measurement that the simulator has in each step."""
    for name, measurement in MEASUREMENTS.items():
        steps = getattr(traces, measurement.source or name, None)
        if steps is not None and measurement.merge != "latest":
            yield name, grid.merge(steps, measurement.merge)


def _saturated(values: FloatsRN) -> FloatsRN:
    """Non-finite values as the in-memory convention has them; here every value was measured."""
    return np.where(np.isfinite(values), values, np.inf)


def _none_for_zero(count: FloatsN) -> FloatsN:
    return np.where(count > 0, count, np.nan)


def _rounded_together(values: Sequence[Sequence[float] | FloatsN]) -> list[FloatsN]:
    """Values of each run at log precision; for short arrays, a call a run would cost more than the rounding."""
    rounded = to_log_precision([*chain.from_iterable(values)])
    return np.split(rounded, np.cumsum([len(of_run) for of_run in values])[:-1])


def _timed(
    events: Sequence[Sequence[HardwareEvent]], ends: Sequence[int], time_s: FloatsRN
) -> list[list[tuple[HardwareEvent, float]]]:
    """Hardware events of each run up to its end, each with its training time in seconds."""
    seen = [[event for event in of_run if event.step <= end] for of_run, end in zip(events, ends, strict=True)]
    times_s = _rounded_together(
        [time_s[row, [event.step - 1 for event in run]].tolist() for row, run in enumerate(seen)]
    )
    return [list(zip(run, times.tolist(), strict=True)) for run, times in zip(seen, times_s, strict=True)]


def _rates(hardware: Sequence[tuple[HardwareEvent, float]]) -> list[float]:
    """λ before the first hardware event and after each."""
    rate = HardwareFailureRate()
    rates = [rate.value]
    for _, time_s in hardware:
        rate.update(time_s)
        rates.append(rate.value)
    return rates


def _evaluations(step: StepsN, eval_every: int, losses: FloatsN, drifts: FloatsN) -> dict[str, FloatsN]:
    """Latest known validation loss and ΔL at each record; NaN before the first."""
    latest = step // eval_every
    return {"validation_loss": np.append(np.nan, losses)[latest], "delta_l": np.append(np.nan, drifts)[latest]}


def _hardware(step: StepsN, hardware: Sequence[tuple[HardwareEvent, float]], rates: FloatsN) -> dict[str, FloatsN]:
    """λ at each record, the number of its hardware events, and who reported most of them; NaN where there was none."""
    at = [event.step for event, _ in hardware]
    record = np.searchsorted(step, at)
    workers: dict[int, list[int]] = defaultdict(list)
    for index, (event, _) in zip(record.tolist(), hardware, strict=True):
        workers[index].append(event.worker)
    reporting = np.full(len(step), np.nan)
    for index, who in workers.items():
        reporting[index] = event_worker(who)
    return {
        "lambda": rates[np.searchsorted(at, step, side="right")],
        "hardware_events": _none_for_zero(np.bincount(record, minlength=len(step)).astype(np.float64)),
        "event_worker": reporting,
    }
