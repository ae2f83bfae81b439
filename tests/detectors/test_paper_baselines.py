"""The paper's baselines: gradient norm, loss spike, single signals, validation slope."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import DeltaLOnly, GradientNorm, LambdaOnly, LossSpike, SigmaSqOnly, ValidationSlope, first_alert
from rmetric.detectors.paper_baselines import SingleSignal
from rmetric.measurements import Observation
from rmetric.metric import SlidingRange
from rmetric.records import Observations
from tests.detectors.common import noisy_losses, scores_of
from tests.helpers import bits, healthy_observations

# --- gradient norm ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "alerts"), [(99.9, False), (100.0, False), (np.nextafter(100.0, 101.0), True), (1e300, True)]
)
def test_the_limit_of_the_paper_is_a_norm_above_100(norm: float, alerts: bool) -> None:
    detector = GradientNorm()
    assert (detector.update(Observation(1, grad_norm=norm)) > detector.threshold) is alerts


def test_the_score_is_the_norm_itself_and_has_no_memory() -> None:
    assert scores_of(GradientNorm(), [3.0, 500.0, 3.0, 0.0]).tolist() == [3.0, 500.0, 3.0, 0.0]


# --- loss spike ------------------------------------------------------------------------------------------------------


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
    losses = noisy_losses(200)
    losses[[60, 61, 120]] = 4.0, 5.0, 1.0
    expected = _by_the_definition(losses.tolist(), memory=50, warm_up=10, threshold=3.0)
    assert scores_of(LossSpike(), losses) == pytest.approx(np.array(expected), rel=1e-6, nan_ok=True)


def test_nothing_is_said_during_the_warm_up() -> None:
    scores = scores_of(LossSpike(warm_up=12), noisy_losses(30))
    assert np.isnan(scores[:12]).all()
    assert not np.isnan(scores[12:]).any()


def test_noise_stays_below_a_spike_far_above_the_threshold() -> None:
    losses = noisy_losses(300)
    losses[200] = 4.0
    scores = scores_of(LossSpike(), losses)
    assert np.nanmax(np.delete(scores, 200)) < 6.0
    assert scores[200] > 10.0


def test_an_outlier_does_not_raise_its_own_bar() -> None:
    one, many = noisy_losses(300), noisy_losses(300)
    one[200], many[200] = 4.0, 1e12
    after = slice(201, None)
    assert scores_of(LossSpike(), many)[after] == pytest.approx(scores_of(LossSpike(), one)[after], rel=1e-12)


def test_a_drop_of_the_loss_is_no_alarm() -> None:
    losses = noisy_losses(100)
    losses[60] = 1.0
    assert scores_of(LossSpike(), losses)[60] < -10.0


def test_a_loss_that_never_moved_may_fall_but_not_rise() -> None:
    assert scores_of(LossSpike(), [2.0] * 15 + [2.0, 1.0])[-2:].tolist() == [0.0, 0.0]
    assert scores_of(LossSpike(), [2.0] * 15 + [3.0])[-1] == math.inf


@pytest.mark.parametrize("huge", [1e155, 1e200, 1.7e308])
def test_a_huge_loss_while_warming_up_does_not_blind_the_detector_for_good(huge: float) -> None:
    losses = np.concatenate([[3.0, huge], noisy_losses(20_000)])
    losses[-1] = 10.0
    scores = scores_of(LossSpike(), losses)
    assert first_alert(np.arange(len(scores)), scores[-1000:], 10.0) is not None


def test_the_memory_sets_how_fast_a_new_level_is_learned() -> None:
    losses = np.concatenate([noisy_losses(300), 0.15 + noisy_losses(100)])
    after = [scores_of(LossSpike(memory=memory), losses)[330:360].mean() for memory in (10, 50, 250)]
    assert after[0] + 0.1 < after[1] < after[2] - 0.1


def test_update_reads_the_training_loss() -> None:
    detector = LossSpike(warm_up=0)
    assert [
        detector.update(Observation(step, training_loss=loss)) for step, loss in ((1, 2.0), (2, None), (3, math.nan))
    ][2] == math.inf


# --- single signal ---------------------------------------------------------------------------------------------------


SIGNALS = [(LambdaOnly, "lambda"), (SigmaSqOnly, "sigma_sq"), (DeltaLOnly, "delta_l")]


@pytest.mark.parametrize(("detector", "column"), SIGNALS)
def test_the_score_is_its_own_normalised_signal(detector: type[SingleSignal], column: str) -> None:
    observations = healthy_observations()
    assert detector().reads == (column,)
    assert bits(detector().score_run(observations)) == bits(SlidingRange(1000).extend(observations[column]))


@pytest.mark.parametrize(("detector", "column"), SIGNALS)
def test_the_window_is_its_own_too(detector: type[SingleSignal], column: str) -> None:
    observations = Observations(np.arange(1, 5), {column: np.array([0.0, 8.0, 6.0, 7.0])})
    assert detector(window=2).score_run(observations).tolist() == [0.0, 1.0, 0.0, 1.0]
    assert detector().score_run(observations).tolist() == [0.0, 1.0, 0.75, 0.875]
    assert detector().threshold == 0.57


# --- validation slope ------------------------------------------------------------------------------------------------


NAN, INF = math.nan, math.inf


def test_the_score_counts_the_rises_in_a_row() -> None:
    losses = [3.0, 3.1, 3.2, 3.1, 3.2, 3.3, 3.4]
    assert scores_of(ValidationSlope(), losses).tolist() == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0]


def test_the_third_rise_in_a_row_alerts() -> None:
    scores = scores_of(ValidationSlope(), [3.0, 3.1, 3.2, 3.3])
    assert first_alert(np.arange(1, 5), scores, ValidationSlope().threshold) == 4


def test_records_between_evaluations_neither_count_nor_reset() -> None:
    assert scores_of(ValidationSlope(), [3.0, 3.0, 3.1, 3.1, 3.1, 3.2]).tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]


def test_nothing_is_said_before_the_first_evaluation() -> None:
    assert bits(scores_of(ValidationSlope(), [NAN, NAN, 3.0, 3.1])) == bits([NAN, NAN, 0.0, 1.0])


def test_a_non_finite_loss_alerts_until_it_is_finite_again() -> None:
    assert scores_of(ValidationSlope(), [3.0, 3.1, INF, INF, 3.0, 3.1]).tolist() == [0.0, 1.0, INF, INF, 0.0, 1.0]
    assert scores_of(ValidationSlope(), [INF, 3.0]).tolist() == [INF, 0.0]
    assert scores_of(ValidationSlope(), [3.0, INF, 3.2, 3.3]).tolist() == [0.0, INF, 0.0, 1.0]


def test_an_evaluation_that_was_lost_starts_the_count_anew() -> None:
    observations = Observations(
        np.arange(1, 6), {"validation_loss": np.array([3.0, 3.1, NAN, 3.2, 3.3])}, np.array([True] * 5)
    )
    assert ValidationSlope().score_run(observations).tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
