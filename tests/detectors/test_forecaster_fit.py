"""The LSTM of the forecasting detector: it learns what can be learned, and disturbs nobody's torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'live'")

from rmetric.detectors.lstm_forecaster import fit_forecaster  # noqa: E402


def _wave(length: int = 120) -> np.ndarray:
    noise = 0.05 * np.random.default_rng(0).standard_normal((length, 2))
    return noise + np.column_stack([np.sin(np.arange(length) / 2.0), np.cos(np.arange(length) / 2.0)])


def test_it_forecasts_a_wave_far_better_than_its_mean_does() -> None:
    rows = _wave()
    forecaster = fit_forecaster(rows, hidden_units=8, epochs=60)
    assert (forecaster.error < 0.5 * (rows / forecaster.scale).std(axis=0)).all()


def test_the_arrays_step_as_torchs_lstm_does() -> None:
    rows = _wave()
    forecaster = fit_forecaster(rows, hidden_units=5, epochs=3)
    lstm = torch.nn.LSTM(2, 5, dtype=torch.float64)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.from_numpy(forecaster.gates[:, :2]))
        lstm.weight_hh_l0.copy_(torch.from_numpy(forecaster.gates[:, 2:7]))
        lstm.bias_ih_l0.copy_(torch.from_numpy(forecaster.gates[:, 7]))
        lstm.bias_hh_l0.zero_()
        theirs = lstm(torch.from_numpy(rows))[0].numpy()
    hidden = cell = np.zeros(5)
    for row, expected in zip(rows, theirs, strict=True):
        hidden, cell = forecaster.step(row, hidden, cell)
        assert hidden == pytest.approx(expected, abs=1e-9)


def test_the_same_rows_give_the_same_network_and_torch_is_left_as_it_was() -> None:
    torch.manual_seed(7)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    first = fit_forecaster(_wave(), hidden_units=4, epochs=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.manual_seed(8)
    with torch.inference_mode():
        again = fit_forecaster(_wave(), hidden_units=4, epochs=5)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("length", [1, 2, 5, 17, 18])
def test_few_rows_and_rows_that_stand_still_are_fitted_too(length: int) -> None:
    for rows in (_wave(length), np.zeros((length, 2))):
        forecaster = fit_forecaster(rows, hidden_units=3, epochs=2)
        assert all(np.isfinite(item).all() for item in forecaster)
        assert (forecaster.error > 0).all()
