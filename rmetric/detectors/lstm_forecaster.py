"""A small LSTM, fitted to the start of the run, forecasts the next loss and gradient norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, clipped, register_detector
from rmetric.detectors.features import CEILING, StartOfRun
from rmetric.measurements import Observation
from rmetric.records import Observations
from rmetric.robust.reference import NORMAL

if TYPE_CHECKING:
    from torch import Tensor, nn

LARGEST_INPUT = 10.0
"""Limit, in scales, of what the network reads and of what enters the moving means."""
SEED = 0
WINDOW_RECORDS, STRIDE_RECORDS = 16, 4
"""Length of a training window, and distance from the start of one to the next."""
LEARNING_RATE = 0.02
SMALLEST_SCALE = 1e-6
SMALLEST_ERROR = 0.1
"""Smallest error, in scales: a network that overfits its reference is not to call everything else an anomaly."""


class Forecaster(NamedTuple):
    """Weights of a fitted LSTM and of its read-out, as plain arrays; gates in torch's order (i, f, g, o)."""

    scale: NDArray[np.float64]
    """Shape (2,): what a deviation is divided by."""
    error: NDArray[np.float64]
    """Shape (2,): standard deviation of the forecast's error on the reference, in scales."""
    gates: NDArray[np.float64]
    """Shape (4 H, 2 + H + 1): of input, hidden state and bias."""
    readout: NDArray[np.float64]
    """Shape (2, H + 1): of hidden state and bias."""

    def step(
        self, scaled: NDArray[np.float64], hidden: NDArray[np.float64], cell: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Hidden state and cell after the next input, each of shape (H,)."""
        gate_i, gate_f, gate_g, gate_o = (self.gates @ np.concatenate([scaled, hidden, [1.0]])).reshape(4, -1)
        cell = _sigmoid(gate_f) * cell + _sigmoid(gate_i) * np.tanh(gate_g)
        return _sigmoid(gate_o) * np.tanh(cell), cell

    def forecast(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """The next input, shape (2,), in scales."""
        return self.readout @ np.concatenate([hidden, [1.0]])


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # does not overflow


@register_detector("lstm_forecaster", needs="torch")
@dataclass(kw_only=True)
class LstmForecaster(StreamingDetector):
    """Excess of loss or gradient norm over the forecast of an LSTM, in standard deviations of its error.

    .. math:: s_t = \\max_j (u_{t,j} - \\hat{u}_{t,j}) / e_j

    where u is the training loss (or ln of the gradient norm) minus its exponentially weighted mean before, in scales of
    the reference. The network is fitted once, to the run's first records, and runs on from there; the same records give
    the same network. NaN until the reference is complete. A non-finite value scores ``+inf`` and does not enter; one
    that was not measured counts as no deviation.

    **Deviation:** LSTM detectors are trained on other, healthy data; a run has only its own past. Rises alone alarm.
    """

    title = "LSTM forecaster (causal)"
    reads = ("training_loss", "grad_norm")
    extra = "live"
    source = "Malhotra et al. 2015 (forecast error of an LSTM); size and training: this project"

    threshold: float = 6.0
    memory: int = 10
    """Fading memory of the moving mean, in records: the fading factor is 2 / (memory + 1)."""
    skipped_records: int = 20
    """Records of warm-up that are no part of the reference."""
    reference_records: int = 100
    """The network is fitted to the first records, so many with the warm-up."""
    hidden_units: int = 8
    epochs: int = 40
    """Passes over the reference."""
    _reference: StartOfRun = field(init=False, repr=False)
    _means: list[float] = field(init=False, repr=False, default_factory=lambda: [math.nan, math.nan])
    _hidden: NDArray[np.float64] = field(init=False, repr=False)
    _cell: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._reference = StartOfRun(self._fit)
        self._hidden, self._cell = np.zeros(self.hidden_units), np.zeros(self.hidden_units)

    def _fit(self, deviations: NDArray[np.float64]) -> Forecaster:
        return fit_forecaster(deviations, hidden_units=self.hidden_units, epochs=self.epochs)

    def update(self, observation: Observation) -> float:
        return self._next(observation["training_loss"], observation["grad_norm"])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        losses, norms = (observations[name].tolist() for name in self.reads)
        return np.fromiter(map(self._next, losses, norms), np.float64, len(observations))

    def _next(self, loss: float, norm: float) -> float:
        if math.isinf(loss) or math.isinf(norm):
            return math.inf
        values = [clipped(loss, CEILING), math.log(norm) if norm > 0 else math.nan]
        if all(map(math.isnan, values)):
            return math.nan
        deviations = [value - mean for value, mean in zip(values, self._means, strict=True)]
        forecaster: Forecaster | None = self._reference.model
        score = math.nan if forecaster is None else self._judge(forecaster, deviations)
        self._follow(values, deviations, forecaster)
        if forecaster is None:
            self._collect(deviations)
        return score

    def _judge(self, forecaster: Forecaster, deviations: list[float]) -> float:
        scaled = np.array(deviations) / forecaster.scale
        errors = (scaled - forecaster.forecast(self._hidden)) / forecaster.error
        known = errors[~np.isnan(errors)]
        self._advance(forecaster, scaled)
        return float(known.max()) if len(known) else math.nan

    def _advance(self, forecaster: Forecaster, scaled: NDArray[np.float64]) -> None:
        seen = np.clip(np.nan_to_num(scaled), -LARGEST_INPUT, LARGEST_INPUT)
        self._hidden, self._cell = forecaster.step(seen, self._hidden, self._cell)

    def _follow(self, values: list[float], deviations: list[float], forecaster: Forecaster | None) -> None:
        fading = 2.0 / (self.memory + 1)
        for index, (value, deviation) in enumerate(zip(values, deviations, strict=True)):
            if math.isnan(self._means[index]):
                self._means[index] = value
            elif not math.isnan(deviation):
                limit = math.inf if forecaster is None else LARGEST_INPUT * float(forecaster.scale[index])
                self._means[index] += fading * clipped(deviation, limit)

    def _collect(self, deviations: list[float]) -> None:
        reference = self._reference
        reference.seen += 1
        if reference.seen > self.skipped_records:
            reference.rows.append([0.0 if math.isnan(item) else item for item in deviations])
        if reference.seen >= self.reference_records:
            reference.fit()
            for row in reference.rows:
                self._advance(reference.model, np.array(row) / reference.model.scale)


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
    from torch import float32, nn  # a second to import; most runs do not need it

    scale = np.maximum(NORMAL * np.median(np.abs(deviations), axis=0), SMALLEST_SCALE)
    scaled = np.clip(deviations / scale, -LARGEST_INPUT, LARGEST_INPUT)
    with _torch_state_kept():
        lstm = nn.LSTM(2, hidden_units, batch_first=True, device="cpu", dtype=float32)
        linear = nn.Linear(hidden_units, 2, device="cpu", dtype=float32)
        _train(lstm, linear, _windows(scaled), epochs)
        weights = [weight.detach().numpy().astype(np.float64) for weight in (*lstm.parameters(), *linear.parameters())]
    of_input, of_hidden, bias_input, bias_hidden, readout, bias = weights
    forecaster = Forecaster(
        scale=scale,
        error=np.ones(deviations.shape[1]),
        gates=np.column_stack([of_input, of_hidden, bias_input + bias_hidden]),
        readout=np.column_stack([readout, bias]),
    )
    return forecaster._replace(error=_errors(forecaster, scaled))


@contextmanager
def _torch_state_kept() -> Iterator[None]:
    """Seeded, on one thread, with gradients; afterwards all is as it was. The detector may watch a torch training."""
    import torch

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
    import torch

    length = min(WINDOW_RECORDS + 1, len(scaled))
    starts = range(0, len(scaled) - length + 1, STRIDE_RECORDS)
    return torch.tensor(np.stack([scaled[i : i + length] for i in starts]), dtype=torch.float32, device="cpu")


def _train(lstm: nn.LSTM, linear: nn.Linear, windows: Tensor, epochs: int) -> None:
    from torch import nn, optim

    inputs, targets = windows[:, :-1], windows[:, 1:]
    if not inputs.numel():
        return
    optimizer = optim.Adam([*lstm.parameters(), *linear.parameters()], lr=LEARNING_RATE)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.mse_loss(linear(lstm(inputs)[0]), targets).backward()
        optimizer.step()


def _errors(forecaster: Forecaster, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root mean square of the forecast's error over the reference, as the detector runs through it."""
    hidden = cell = np.zeros(len(forecaster.gates) // 4)
    errors = []
    for row in scaled:
        errors.append(row - forecaster.forecast(hidden))
        hidden, cell = forecaster.step(row, hidden, cell)
    return np.maximum(np.sqrt(np.mean(np.square(errors), axis=0)), SMALLEST_ERROR)
