"""The LSTM forecaster as a detector; here where torch is installed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors.lstm_forecaster import Forecaster, LstmForecaster
from rmetric.records import Observations
from tests.helpers import bits, healthy_observations, printed_by


def _changed(column: str, rows: slice | int, factor: float) -> Observations:
    observations = healthy_observations()
    observations[column][rows] *= factor
    return Observations(observations.step, observations.columns)


def test_without_torch_it_is_not_registered() -> None:
    code = "import sys; sys.modules['torch'] = None; from rmetric.detectors import DETECTORS; print(*DETECTORS)"
    names = printed_by(code).split()
    assert "lstm_forecaster" not in names
    assert "zclip" in names


def test_a_step_is_that_of_an_lstm_by_hand() -> None:
    # One unit; every gate sees input 0.5 only: i = f = o = σ(0.5), g = tanh(0.5).
    gates = np.array([[1.0, 0.0, 0.0, 0.0]] * 4)
    forecaster = Forecaster(np.ones(2), np.ones(2), gates, np.array([[2.0, 1.0], [0.0, -1.0]]))
    hidden, cell = forecaster.step(np.array([0.5, 9.0]), np.array([7.0]), np.array([1.0]))
    gate = 1.0 / (1.0 + math.exp(-0.5))
    assert cell == pytest.approx([gate + gate * math.tanh(0.5)])
    assert hidden == pytest.approx(gate * np.tanh(cell))
    assert forecaster.forecast(hidden) == pytest.approx([2.0 * hidden[0] + 1.0, -1.0])


class TestFitted:
    pytest.importorskip("torch", reason="needs the extra 'live'")

    def test_it_is_silent_until_its_reference_is_complete(self) -> None:
        scores = LstmForecaster().score_run(healthy_observations())
        assert np.isnan(scores[:100]).all()
        assert np.isfinite(scores[100:]).all()
        assert np.abs(scores[100:]).max() < LstmForecaster().threshold

    @pytest.mark.parametrize(("column", "factor"), [("training_loss", 1.5), ("grad_norm", 20.0)])
    def test_a_rise_of_either_signal_alerts_and_a_fall_does_not(self, column: str, factor: float) -> None:
        assert LstmForecaster().score_run(_changed(column, 250, factor))[250] > 6.0
        assert not LstmForecaster().score_run(_changed(column, 250, 1.0 / factor))[250] > 6.0

    def test_an_outlier_is_soon_forgotten(self) -> None:
        usual, changed = (LstmForecaster().score_run(_changed("training_loss", 250, f)) for f in (1.0, 1e6))
        assert changed[290:] == pytest.approx(usual[290:], abs=0.5)

    def test_one_signal_is_enough(self) -> None:
        observations = _changed("training_loss", 250, 1.5)
        del observations.columns["grad_norm"]
        scores = LstmForecaster().score_run(Observations(observations.step, observations.columns))
        assert np.isfinite(scores[100:]).all()
        assert np.nanargmax(scores) == 250

    def test_a_non_finite_value_is_no_part_of_the_reference(self) -> None:
        usual = LstmForecaster().score_run(healthy_observations(399))
        whole = healthy_observations(399)
        columns = {name: np.insert(column, 50, math.inf) for name, column in whole.columns.items()}
        scores = LstmForecaster().score_run(Observations(np.arange(400), columns))
        assert scores[50] == math.inf
        assert bits(np.delete(scores, 50)) == bits(usual)
