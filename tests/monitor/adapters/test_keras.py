from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric import read_run
from rmetric.records import FAILURE, SUCCESS
from tests.helpers import ROOT

keras = pytest.importorskip("keras", reason="needs Keras 3")

from rmetric.monitor.adapters import RMetricKeras  # noqa: E402 - imports keras
from rmetric.monitor.adapters.keras import OfLatestBatches  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
"""Of Keras's variables in torch, which NumPy 2 finds old."""
ROWS, BATCH = 90, 20
"""The last batch of an epoch is half as large as the others."""


class EachLoss(keras.losses.Loss):  # type: ignore[misc, name-defined]
    """Mean squared error that keeps what it was for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def call(self, y_true: Any, y_pred: Any) -> Any:
        each = keras.ops.mean((y_true - y_pred) ** 2, axis=-1)
        self.seen.append(float(keras.ops.convert_to_numpy(keras.ops.mean(each))))
        return each


def fitted(log: Path, epochs: int = 2, **compiled: Any) -> tuple[RMetricKeras, EachLoss, Any]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 4)).astype("float32"), rng.normal(size=(ROWS, 1)).astype("float32")
    keras.utils.set_random_seed(0)
    model, loss = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]), EachLoss()
    model.compile(compiled.pop("optimizer", "sgd"), loss, run_eagerly=True, **compiled)
    watch = RMetricKeras(log=log, announce=False, hardware=False)
    held_out = x[:BATCH], y[:BATCH]
    history = model.fit(
        x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=[watch], validation_data=held_out
    )
    return watch, loss, history


def test_the_log_has_the_loss_of_each_batch(tmp_path: Path) -> None:
    """Keras tells the mean of the epoch so far."""
    watch, loss, history = fitted(tmp_path / "run.jsonl")
    seen = read_run(tmp_path / "run.jsonl").observations
    full = [
        *range(1, 5),
        *range(7, 11),
    ]  # after the one that builds the model; an epoch ends with half a batch and one held out
    assert seen.step.tolist() == [*range(1, 11)]
    assert seen["training_loss"][[0, 1, 2, 3, 5, 6, 7, 8]] == pytest.approx(np.array(loss.seen)[full], rel=1e-5)
    assert watch.monitor is not None
    assert watch.monitor.last is not None
    assert seen["validation_loss"][-1] == pytest.approx(history.history["val_loss"][0])


def test_it_has_the_learning_rate_of_each_update(tmp_path: Path) -> None:
    schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 10, 0.0)
    fitted(tmp_path / "run.jsonl", optimizer=keras.optimizers.SGD(schedule))
    rates = read_run(tmp_path / "run.jsonl").observations["learning_rate"]
    assert rates == pytest.approx(1.0 - np.arange(10) / 10.0)


def test_each_fit_has_a_log_and_a_diverging_one_an_alert(tmp_path: Path) -> None:
    watch, _, _ = fitted(tmp_path / "run.jsonl", epochs=8, optimizer=keras.optimizers.SGD(1e6))
    assert watch.monitor is not None
    assert "numerics" in watch.monitor.alerts
    fitted(tmp_path / "run.jsonl")
    ended = [read_run(tmp_path / name).terminal for name in ("run.jsonl", "run-2.jsonl")]
    assert [event is not None and event["event"] for event in ended] == [FAILURE, SUCCESS]


def test_an_error_inside_ends_the_watch_and_not_the_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc, name-defined]
        def __call__(self, step: Any) -> Any:
            if isinstance(step, int):
                raise RuntimeError("asked by the watch")
            return 0.1

    _, _, history = fitted(tmp_path / "run.jsonl", optimizer=keras.optimizers.SGD(Broken()))
    assert len(history.history["loss"]) == 2
    assert sum("asked by the watch" in message for message in caplog.messages) == 1


def test_a_wrong_option_is_told_before_training() -> None:
    with pytest.raises(TypeError, match="logs"):
        RMetricKeras(logs="run.jsonl")


def test_a_mean_that_is_not_finite_stays_so() -> None:
    assert math.isnan(float(OfLatestBatches(1, math.nan, 2, math.nan)))


JAX = """
import numpy as np
import keras
from rmetric.monitor.adapters.keras import RMetricKeras

x = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
for together in (1, 4):
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, 30))
    model.compile(optimizer, "mse", steps_per_execution=together)
    watch = RMetricKeras(log="run.jsonl", announce=False, hardware=False)
    model.fit(x, x[:, :1], batch_size=20, epochs=3, verbose=0, callbacks=[watch])
    print(watch.monitor.last.step, watch.monitor.alerts)
"""


@pytest.mark.slow
def test_it_works_with_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", JAX], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "30 {}\n30 {}\n"
    assert read_run(tmp_path / "run-2.jsonl").observations.step.tolist() == [4, 8, 10, 14, 18, 20, 24, 28, 30]
    rates = read_run(tmp_path / "run.jsonl").observations["learning_rate"]
    assert rates == pytest.approx(0.005 * (1.0 + np.cos(np.pi * np.arange(30) / 30.0)), rel=1e-4)
