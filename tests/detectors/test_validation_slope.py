from __future__ import annotations

import math

import numpy as np

from rmetric.detectors import ValidationSlope, first_alert
from rmetric.records import Observations
from tests.helpers import bits

NAN, INF = math.nan, math.inf


def _scores(losses: list[float]) -> np.ndarray:
    return ValidationSlope().score_run(
        Observations(np.arange(1, len(losses) + 1), {"validation_loss": np.array(losses)})
    )


def test_the_score_counts_the_rises_in_a_row() -> None:
    assert _scores([3.0, 3.1, 3.2, 3.1, 3.2, 3.3, 3.4]).tolist() == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0]


def test_the_third_rise_in_a_row_alerts() -> None:
    scores = _scores([3.0, 3.1, 3.2, 3.3])
    assert first_alert(np.arange(1, 5), scores, ValidationSlope().threshold) == 4


def test_records_between_evaluations_neither_count_nor_reset() -> None:
    assert _scores([3.0, 3.0, 3.1, 3.1, 3.1, 3.2]).tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]


def test_nothing_is_said_before_the_first_evaluation() -> None:
    assert bits(_scores([NAN, NAN, 3.0, 3.1])) == bits([NAN, NAN, 0.0, 1.0])


def test_a_non_finite_loss_alerts_until_it_is_finite_again() -> None:
    assert _scores([3.0, 3.1, INF, INF, 3.0, 3.1]).tolist() == [0.0, 1.0, INF, INF, 0.0, 1.0]
    assert _scores([INF, 3.0]).tolist() == [INF, 0.0]
    assert _scores([3.0, INF, 3.2, 3.3]).tolist() == [0.0, INF, 0.0, 1.0]


def test_an_evaluation_that_was_lost_starts_the_count_anew() -> None:
    observations = Observations(
        np.arange(1, 6), {"validation_loss": np.array([3.0, 3.1, NAN, 3.2, 3.3])}, np.array([True] * 5)
    )
    assert ValidationSlope().score_run(observations).tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
