"""Change-point detectors of the training loss: ADWIN, CUSUM of median and MAD, Page–Hinkley."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river.drift import ADWIN, PageHinkley

from rmetric.detectors import Adwin, MadCusum, PageHinkleyTest, first_alert
from tests.detectors.common import noisy_losses, scores_of

# --- adwin -----------------------------------------------------------------------------------------------------------
# river's ADWIN as a detector: it alerts where the loss rose, and only there.


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
    scores = scores_of(Adwin(), losses)
    assert len(found) > 0
    assert [*np.flatnonzero(scores != 0.0)][31:] == found  # 31 records before the first look have no score
    assert 200 <= found[0] < 200 + 64


def test_the_score_is_the_difference_of_what_is_kept_and_what_is_forgotten() -> None:
    losses, theirs = _steps(2.0, 4.0), ADWIN()
    at = int(np.flatnonzero(scores_of(Adwin(), losses) > 0.0)[0])
    for loss in losses[: at + 1]:
        theirs.update(loss)
    kept = losses[at + 1 - int(theirs.width) : at + 1]
    assert scores_of(Adwin(), losses)[at] == pytest.approx(kept.mean() - losses[: at + 1 - len(kept)].mean())


def test_a_fall_is_a_change_but_no_alarm() -> None:
    scores = scores_of(Adwin(), _steps(4.0, 2.0))
    assert np.nanmin(scores) < 0.0
    assert not (scores > Adwin().threshold).any()


def test_before_the_first_look_nothing_is_said() -> None:
    assert np.isnan(scores_of(Adwin(), _steps(2.0))).sum() == 31


# --- mad cusum -------------------------------------------------------------------------------------------------------
# The CUSUM by hand, and what it is to find: a shift too small for any single record.


def test_the_sums_by_hand() -> None:
    losses = noisy_losses(80)
    mean = again = losses[0]
    deviations: list[float] = []
    above = below = 0.0
    expected = [math.nan]
    for loss in losses[1:]:
        lag = mean - again
        forecast = mean + lag + 0.2 / 0.8 * lag  # Brown, fading factor 0.2
        deviation = loss - forecast
        if len(deviations) < 30:
            expected.append(math.nan)
        else:
            middle = np.median(deviations[-40:])
            z = (deviation - middle) / (1.4826 * np.median(np.abs(deviations[-40:] - middle)))
            above, below = max(0.0, above + z - 0.5), max(0.0, below - z - 0.5)
            expected.append(max(above, below))
        deviations.append(deviation)
        mean += 0.2 * (loss - mean)
        again += 0.2 * (mean - again)
    assert scores_of(MadCusum(memory=9, window=40), losses) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("shift", [0.15, -0.15])
def test_a_shift_either_way_adds_up(shift: float) -> None:
    losses = noisy_losses(340)
    calm = scores_of(MadCusum(memory=20), losses)
    losses[300:] += shift  # three standard deviations
    shifted = scores_of(MadCusum(memory=20), losses)
    assert np.nanmax(calm) < 5.0
    assert first_alert(np.arange(300, 340), shifted[300:], 5.0) in range(301, 310)  # not at once


def test_a_loss_that_falls_as_it_should_is_no_drift() -> None:
    falling = 2.0 + 2.0 * np.exp(-np.arange(600) / 150.0)
    noise = 0.01 * np.random.default_rng(1).standard_normal(600)
    assert np.nanmean(scores_of(MadCusum(), falling + noise) > 5.0) < 0.05


def test_one_outlier_fills_the_sums_for_a_while_only() -> None:
    losses = noisy_losses(300)
    losses[150] = 1e6
    scores = scores_of(MadCusum(), losses)
    assert scores[150] >= 9.5
    assert scores[200:].max() < scores[150]
    losses[150] = 1e3
    assert scores[151:] == pytest.approx(scores_of(MadCusum(), losses)[151:], rel=1e-3, abs=1e-3)


# --- page hinkley ----------------------------------------------------------------------------------------------------
# river's Page–Hinkley test as a detector: its statistic, which river keeps to itself, is the right one.


def _rising() -> np.ndarray:
    return 2.0 + 0.1 * np.random.default_rng(0).standard_normal(200) + np.maximum(np.arange(200) - 100, 0) * 0.1


def test_the_score_is_the_statistic_of_the_definition() -> None:
    losses = _rising()[:120]
    total, lowest, expected = 0.0, math.inf, []
    for number, loss in enumerate(losses, start=1):
        total = 0.9999 * total + loss - losses[:number].mean() - 0.005
        lowest = min(lowest, total)
        expected.append(total - lowest if number >= 30 else math.nan)
    assert scores_of(PageHinkleyTest(), losses) == pytest.approx(expected, nan_ok=True)


def test_it_alerts_when_river_does() -> None:
    losses, theirs, found = _rising(), PageHinkley(mode="up"), []
    for index, loss in enumerate(losses):
        theirs.update(loss)
        if theirs.drift_detected:
            found.append(index)
    assert found
    assert [*np.flatnonzero(scores_of(PageHinkleyTest(), losses) > PageHinkleyTest().threshold)] == found


def test_a_falling_loss_is_no_alarm() -> None:
    assert np.nanmax(scores_of(PageHinkleyTest(), 5.0 - _rising())) < 1.0
