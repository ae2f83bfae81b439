"""Which R a log is replayed with."""

from __future__ import annotations

import pytest

from rmetric.errors import UserError
from rmetric.metric import RMetric
from rmetric.replay import ReplaySettings, parse_weights


def test_settings_say_what_is_wrong_with_them() -> None:
    with pytest.raises(UserError, match="did you mean 'paper-case-study'"):
        ReplaySettings(preset="paper-case-studdy")
    with pytest.raises(UserError, match="at least 0"):
        ReplaySettings(weights=(-1.0, 0.0, 0.0))


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "1,2,nan", "1,2,-3", ""])
def test_weights_must_be_three_numbers(text: str) -> None:
    with pytest.raises(ValueError, match=r"three finite numbers|could not convert"):
        parse_weights(text)


@pytest.mark.parametrize(
    "names",
    [
        ("w1_lambda", "w2_sigma_sq", "w3_delta_l"),
        ("lambda", "sigma_sq", "delta_l"),
        ("lambda", "sigma_squared", "delta_l"),
    ],
)
def test_logged_weights_are_found_under_every_name_the_authors_gave_them(names: tuple[str, str, str]) -> None:
    config = {"r_metric_weights": dict(zip(names, (0.0, 0.5, 0.78), strict=True)), "r_metric_alert_threshold": 0.6}
    metric, notes = ReplaySettings(preset="logged").metric(config)
    assert (tuple(metric.weights), metric.threshold, notes) == ((0.0, 0.5, 0.78), 0.6, [])
    metric, _ = ReplaySettings(preset="logged", threshold=0.9, weights=(1, 1, 1)).metric(config)
    assert (tuple(metric.weights), metric.threshold) == ((1, 1, 1), 0.9)


def test_a_log_without_weights_says_that_the_paper_s_are_used() -> None:
    metric, notes = ReplaySettings(preset="logged").metric({"seed": 1})
    assert metric.weights == RMetric.paper().weights
    assert notes == ["the log states no weights and no threshold; the paper's are used"]
