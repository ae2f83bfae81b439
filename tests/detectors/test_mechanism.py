"""What the mechanism monitors measure, against the run's own past."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.detectors import (
    DETECTORS,
    AttentionEntropy,
    Direction,
    OwnPastDetector,
    QkEntropy,
    QkSpectralNorm,
    RouterCollapse,
    UpdateMax,
)
from rmetric.measurements import MECHANISM, Observation
from rmetric.records import Observations

MEASURED, EVERY = 100, 10
FAMILY = {name: kind for name, kind in DETECTORS.items() if issubclass(kind, OwnPastDetector)}


def _usual() -> np.ndarray:
    return 0.5 + 0.02 * np.random.default_rng(0).standard_normal(MEASURED)


def _scores(detector: OwnPastDetector, **columns: np.ndarray) -> np.ndarray:
    """Scores at the measured records."""
    return detector.score_run(Observations(EVERY * np.arange(1, MEASURED + 1), columns))


def test_every_one_reads_what_the_mechanism_monitors_measure() -> None:
    assert len(FAMILY) >= 7
    for kind in FAMILY.values():
        assert kind.reads == tuple(kind.watched)
        assert {*kind.reads} <= {*MECHANISM}
        assert all(rule.floor > 0 for rule in kind.watched.values())


@pytest.mark.parametrize("name", FAMILY)
def test_a_usual_run_is_quiet_and_the_alarming_direction_alarms(name: str) -> None:
    for signal, rule in FAMILY[name].watched.items():
        for direction in (1.0, -1.0):
            values = _usual()
            values[80:] = values[80:] * 20.0**direction if rule.logarithmic else values[80:] + direction
            scores = _scores(FAMILY[name](), **{signal: values})  # type: ignore[call-arg]
            threshold = FAMILY[name]().threshold  # type: ignore[call-arg]
            assert np.nanmax(scores[:80]) <= threshold
            alarming = rule.alarming is Direction.EITHER or (rule.alarming is Direction.UP) == (direction > 0)
            assert (scores[80] > threshold) == alarming


def test_the_score_is_the_deviation_from_median_and_mad() -> None:
    values = _usual()
    scores = _scores(QkEntropy(), qk_entropy=values)
    assert np.isnan(scores[:16]).all()
    values = np.log(values)
    past = values[35:99]
    scale = max(1.4826 * np.median(np.abs(past - np.median(past))), QkEntropy.watched["qk_entropy"].floor)
    assert scores[99] == pytest.approx((np.median(past) - values[99]) / scale)


def test_sizes_are_compared_by_their_ratio() -> None:
    calm = 1e-6 * np.exp(0.05 * np.random.default_rng(1).standard_normal(MEASURED))
    small, large = _scores(UpdateMax(), update_max=calm), _scores(UpdateMax(), update_max=1e6 * calm)
    np.testing.assert_allclose(small, large, rtol=1e-6, atol=1e-9)
    still = calm.copy()
    still[90] = 0.0
    assert np.isnan(_scores(QkSpectralNorm(), qk_spectral_norm=still)[90])


@pytest.mark.parametrize("name", ["attention_entropy", "qk_entropy"])
def test_an_entropy_of_0_is_the_most_alarming(name: str) -> None:
    scores = []
    for collapsed in (1e-4, 0.0, -1e-9):  # the last is a sum that was rounded
        values = _usual()
        values[90:] = collapsed
        scores.append(_scores(FAMILY[name](), **{name: values})[90])  # type: ignore[call-arg]
    assert FAMILY[name]().threshold < scores[0] < scores[1] == scores[2] < np.inf  # type: ignore[call-arg]


def test_records_between_two_measurements_change_nothing_and_have_no_score() -> None:
    values = _usual()
    sparse = np.full(MEASURED * EVERY, np.nan)
    sparse[EVERY - 1 :: EVERY] = values
    spread = AttentionEntropy().score_run(
        Observations(np.arange(1, MEASURED * EVERY + 1), {"attention_entropy": sparse})
    )
    assert np.isnan(spread[np.isnan(sparse)]).all()
    np.testing.assert_array_equal(spread[EVERY - 1 :: EVERY], _scores(AttentionEntropy(), attention_entropy=values))


def test_a_slow_collapse_does_not_become_usual() -> None:
    values = _usual()
    values[60:] -= np.linspace(0.0, 0.45, 40)
    assert np.nanmax(_scores(QkEntropy(), qk_entropy=values)[60:]) > QkEntropy().threshold


def test_the_worst_of_several_measurements_counts_and_is_named() -> None:
    detector = RouterCollapse()
    rng = np.random.default_rng(2)
    score = np.nan
    for step in range(1, 41):
        values = {name: 0.5 + 0.01 * rng.standard_normal() for name in detector.reads}
        if step == 40:
            values["routing_entropy"] = 0.05
        score = detector.update(Observation(step, mechanism=values))
    assert score > detector.threshold
    assert detector.cause == "routing_entropy"
    assert np.isnan(detector.update(Observation(41)))
    assert detector.cause == ""
