"""river's Page–Hinkley test as a detector: its statistic, which river keeps to itself, is the right one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river.drift import PageHinkley

from rmetric.detectors import PageHinkleyTest
from rmetric.records import Observations


def _scores(losses: np.ndarray) -> np.ndarray:
    return PageHinkleyTest().score_run(Observations(np.arange(len(losses)), {"training_loss": losses}))


def _rising(seed: int = 0) -> np.ndarray:
    return 2.0 + 0.1 * np.random.default_rng(seed).standard_normal(200) + np.maximum(np.arange(200) - 100, 0) * 0.1


def test_the_score_is_the_statistic_of_the_definition() -> None:
    losses = _rising()[:120]
    total, lowest, expected = 0.0, math.inf, []
    for number, loss in enumerate(losses, start=1):
        total = 0.9999 * total + loss - losses[:number].mean() - 0.005
        lowest = min(lowest, total)
        expected.append(total - lowest if number >= 30 else math.nan)
    assert _scores(losses) == pytest.approx(expected, nan_ok=True)


def test_it_alerts_when_river_does() -> None:
    losses, theirs, found = _rising(), PageHinkley(mode="up"), []
    for index, loss in enumerate(losses):
        theirs.update(loss)
        if theirs.drift_detected:
            found.append(index)
    assert found
    assert [*np.flatnonzero(_scores(losses) > PageHinkleyTest().threshold)] == found


def test_a_falling_loss_is_no_alarm() -> None:
    assert np.nanmax(_scores(5.0 - _rising())) < 1.0
