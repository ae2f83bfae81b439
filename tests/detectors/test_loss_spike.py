from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import LossSpike, first_alert
from rmetric.measurements import Observation
from rmetric.records import Observations


def _scores(losses: list[float] | np.ndarray, **settings: float) -> np.ndarray:
    column = np.asarray(losses, dtype=float)
    return LossSpike(**settings).score_run(Observations(np.arange(1, len(column) + 1), {"training_loss": column}))  # type: ignore[arg-type]


def _noisy(length: int, seed: int = 0) -> np.ndarray:
    return 3.0 + 0.05 * np.random.default_rng(seed).standard_normal(length)


def _by_the_definition(losses: list[float], memory: int, warm_up: int, threshold: float) -> list[float]:
    """z against exponentially weighted moments, written out."""
    fading = 2.0 / (memory + 1)
    mean = square = None
    scores = []
    for number, loss in enumerate(losses):
        score = math.nan
        if number >= warm_up and mean is not None and square is not None:
            deviation = math.sqrt(square - mean**2)
            score = (loss - mean) / deviation
            loss = min(loss, mean + threshold * deviation)
        mean = loss if mean is None else fading * loss + (1 - fading) * mean
        square = loss**2 if square is None else fading * loss**2 + (1 - fading) * square
        scores.append(score)
    return scores


def test_the_score_is_the_z_of_exponentially_weighted_moments() -> None:
    losses = _noisy(200)
    losses[[60, 61, 120]] = 4.0, 5.0, 1.0
    expected = _by_the_definition(losses.tolist(), memory=50, warm_up=10, threshold=3.0)
    assert _scores(losses) == pytest.approx(np.array(expected), rel=1e-6, nan_ok=True)


def test_nothing_is_said_during_the_warm_up() -> None:
    scores = _scores(_noisy(30), warm_up=12)
    assert np.isnan(scores[:12]).all()
    assert not np.isnan(scores[12:]).any()


def test_noise_stays_below_a_spike_far_above_the_threshold() -> None:
    losses = _noisy(300)
    losses[200] = 4.0
    scores = _scores(losses)
    assert np.nanmax(np.delete(scores, 200)) < 6.0
    assert scores[200] > 10.0


def test_an_outlier_does_not_raise_its_own_bar() -> None:
    one, many = _noisy(300), _noisy(300)
    one[200], many[200] = 4.0, 1e12
    after = slice(201, None)
    assert _scores(many)[after] == pytest.approx(_scores(one)[after], rel=1e-12)


def test_a_drop_of_the_loss_is_no_alarm() -> None:
    losses = _noisy(100)
    losses[60] = 1.0
    assert _scores(losses)[60] < -10.0


def test_a_non_finite_loss_alerts_and_is_forgotten() -> None:
    losses, clean = _noisy(100), np.delete(_noisy(100), 60)
    losses[60] = math.inf
    scores = _scores(losses)
    assert scores[60] == math.inf
    assert np.array_equal(np.delete(scores, 60), _scores(clean), equal_nan=True)


def test_a_loss_that_never_moved_may_fall_but_not_rise() -> None:
    assert _scores([2.0] * 15 + [2.0, 1.0])[-2:].tolist() == [0.0, 0.0]
    assert _scores([2.0] * 15 + [3.0])[-1] == math.inf


@pytest.mark.parametrize("huge", [1e155, 1e200, 1.7e308])
def test_a_huge_loss_while_warming_up_does_not_blind_the_detector_for_good(huge: float) -> None:
    losses = np.concatenate([[3.0, huge], _noisy(20_000)])
    losses[-1] = 10.0
    scores = _scores(losses)
    assert first_alert(np.arange(len(scores)), scores[-1000:], 10.0) is not None


def test_the_memory_sets_how_fast_a_new_level_is_learned() -> None:
    losses = np.concatenate([_noisy(300), 0.15 + _noisy(100)])
    after = [_scores(losses, memory=memory)[330:360].mean() for memory in (10, 50, 250)]
    assert after[0] + 0.1 < after[1] < after[2] - 0.1


def test_update_reads_the_training_loss() -> None:
    detector = LossSpike(warm_up=0)
    assert [
        detector.update(Observation(step, training_loss=loss)) for step, loss in ((1, 2.0), (2, None), (3, math.nan))
    ][2] == math.inf
