"""river's ADWIN as a detector: it alerts where the loss rose, and only there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river.drift import ADWIN

from rmetric.detectors import Adwin
from rmetric.records import Observations


def _scores(losses: np.ndarray) -> np.ndarray:
    return Adwin().score_run(Observations(np.arange(len(losses)), {"training_loss": losses}))


def _steps(*levels: float) -> np.ndarray:
    noise = 0.1 * np.random.default_rng(0).standard_normal(200 * len(levels))
    return np.repeat(levels, 200) + noise


def test_a_rise_alerts_where_river_finds_the_change() -> None:
    losses = _steps(2.0, 4.0)
    theirs, found = ADWIN(), []
    for index, loss in enumerate(losses):
        theirs.update(loss)
        if theirs.drift_detected:
            found.append(index)
    scores = _scores(losses)
    assert len(found) > 0
    assert [*np.flatnonzero(scores != 0.0)][31:] == found  # 31 records before the first look have no score
    assert 200 <= found[0] < 200 + 64


def test_the_score_is_the_difference_of_what_is_kept_and_what_is_forgotten() -> None:
    losses, theirs = _steps(2.0, 4.0), ADWIN()
    at = int(np.flatnonzero(_scores(losses) > 0.0)[0])
    for loss in losses[: at + 1]:
        theirs.update(loss)
    kept = losses[at + 1 - int(theirs.width) : at + 1]
    assert _scores(losses)[at] == pytest.approx(kept.mean() - losses[: at + 1 - len(kept)].mean())


def test_a_fall_is_a_change_but_no_alarm() -> None:
    scores = _scores(_steps(4.0, 2.0))
    assert np.nanmin(scores) < 0.0
    assert not (scores > Adwin().threshold).any()


def test_before_the_first_look_nothing_is_said() -> None:
    assert np.isnan(_scores(_steps(2.0))).sum() == 31


def test_a_non_finite_loss_alerts_and_is_forgotten() -> None:
    losses = _steps(2.0, 4.0)
    scores = _scores(np.insert(losses, 100, math.inf))
    assert scores[100] == math.inf
    assert np.array_equal(np.delete(scores, 100), _scores(losses), equal_nan=True)
