"""Fits the small LSTM of the forecasting detector (:mod:`rmetric.detectors.lstm_forecaster`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rmetric.detectors.lstm_forecaster import LARGEST_INPUT, Forecaster

SEED = 0
LENGTH, STRIDE = 16, 4
"""Records of a training window, and from the start of one to the next."""
LEARNING_RATE = 0.02
SMALLEST_SCALE = 1e-6
SMALLEST_ERROR = 0.1
"""In scales: a network that has learned its reference by heart is not to call everything else an anomaly."""


def fit_forecaster(deviations: NDArray[np.float64], *, hidden_units: int, epochs: int) -> Forecaster:
    """An LSTM that forecasts the next row from the rows before it, by least squares.

    Parameters
    ----------
    deviations
        Shape (n, 2), finite; each signal's deviation from its own moving mean.
    hidden_units, epochs
        Size of the LSTM; passes over all windows of 16 rows with Adam.

    Returns
    -------
    Forecaster
        The same for the same rows. Neither torch's random state nor its number of threads is changed.
    """
    scale = np.maximum(1.4826 * np.median(np.abs(deviations), axis=0), SMALLEST_SCALE)
    scaled = np.clip(deviations / scale, -LARGEST_INPUT, LARGEST_INPUT)
    with _undisturbed():
        network = _Network(hidden_units)
        _train(network, _windows(scaled), epochs)
        weights = [_array(item) for item in (*network.lstm.parameters(), *network.readout.parameters())]
    of_input, of_hidden, bias_input, bias_hidden, readout, bias = weights
    forecaster = Forecaster(
        scale=scale,
        error=np.ones(deviations.shape[1]),
        gates=np.column_stack([of_input, of_hidden, bias_input + bias_hidden]),
        readout=np.column_stack([readout, bias]),
    )
    return forecaster._replace(error=_errors(forecaster, scaled))


class _Network(nn.Module):
    def __init__(self, hidden_units: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, hidden_units, batch_first=True, device="cpu", dtype=torch.float32)
        self.readout = nn.Linear(hidden_units, 2, device="cpu", dtype=torch.float32)

    def forward(self, windows: Tensor) -> Tensor:
        return self.readout(self.lstm(windows)[0])


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Seeded, on one thread, with gradients; afterwards all is as it was. The detector may watch a torch training."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(SEED)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _windows(scaled: NDArray[np.float64]) -> Tensor:
    """Shape (windows, up to 16 + 1, 2)."""
    length = min(LENGTH + 1, len(scaled))
    starts = range(0, len(scaled) - length + 1, STRIDE)
    return torch.tensor(np.stack([scaled[i : i + length] for i in starts]), dtype=torch.float32, device="cpu")


def _train(network: _Network, windows: Tensor, epochs: int) -> None:
    inputs, targets = windows[:, :-1], windows[:, 1:]
    if not inputs.numel():
        return
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.mse_loss(network(inputs), targets).backward()
        optimizer.step()


def _errors(forecaster: Forecaster, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root mean square of the forecast's error over the reference, as the detector runs through it."""
    hidden = cell = np.zeros(len(forecaster.gates) // 4)
    errors = []
    for row in scaled:
        errors.append(row - forecaster.forecast(hidden))
        hidden, cell = forecaster.step(row, hidden, cell)
    return np.maximum(np.sqrt(np.mean(np.square(errors), axis=0)), SMALLEST_ERROR)


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().numpy().astype(np.float64)
