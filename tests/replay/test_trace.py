"""What a plot needs: thinned, with its extremes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmetric.measurements import VERDICTS
from rmetric.replay import Marks, PlotCurves, Series


@given(st.integers(1, 400), st.integers(1, 50), st.integers(0, 2**32))
def test_a_thinned_curve_keeps_its_ends_its_extremes_and_its_order(points: int, buckets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=points)
    steps = np.cumsum(rng.integers(1, 5, size=points))
    curve = Series(buckets)
    for part_steps, part in zip(np.array_split(steps, 7), np.array_split(values, 7), strict=True):
        curve.extend(part_steps, part)
    assert len(curve.values) <= 2 * buckets + 2
    assert curve.values.min() == values.min()
    assert curve.values.max() == values.max()
    assert (curve.steps[0], curve.steps[-1]) == (steps[0], steps[-1])
    assert (curve.values[0], curve.values[-1]) == (values[0], values[-1])
    assert all(a < b for a, b in pairwise(curve.steps.tolist()))


def test_marks_of_many_steps_are_spread_over_all_of_them() -> None:
    marks = Marks()
    for part in np.array_split(np.append(7, np.arange(7_001, 9_001)), 9):
        marks.extend(part)
    assert marks.steps[:2].tolist() == [7, 7_001] and marks.steps[-1] == 9_000
    assert len(marks.steps) <= 100
    assert np.diff(marks.steps[1:]).max() <= 2 * 9_000 // 50


def test_the_trace_of_a_long_log_is_bounded(tmp_path: Path) -> None:
    trace = PlotCurves()
    for start in range(0, 200_000, 20_000):
        n = 20_000
        columns: dict[str, Any] = {name: np.full(n, np.inf) for name in ("training_loss", *VERDICTS)}
        columns["r_metric"] = np.random.default_rng(start).random(n)
        trace.extend({"step": np.arange(start, start + n), **columns})
        trace.extend_evaluations(np.arange(start, start + n), np.full(n, np.inf))
    assert len(trace.series["r_metric"].values) <= 3002
    assert len(trace.non_finite_steps) <= 200
