"""Made-up runs for the tests of the robust R-Metric: healthy ones, and what may be done to them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmetric.records import Observations

ONSET = 300


def columns(seed: int = 0, length: int = 500) -> dict[str, NDArray[np.float64]]:
    """A healthy run of a small model, a record a step."""
    rng = np.random.default_rng(seed)
    step = np.arange(1, length + 1)
    loss = 2.0 + 3.0 * step**-0.5 + rng.normal(0.0, 0.08, length)
    validation = np.full(length, np.nan)
    validation[19::20] = 2.0 + 3.0 * step[19::20] ** -0.5 + rng.normal(0.0, 0.01, len(step[19::20]))
    return {
        "training_loss": loss,
        "validation_loss": validation,
        "learning_rate": 1e-3 * np.minimum(1.0, step / 20.0),
        "grad_norm": np.exp(rng.normal(0.3, 0.15, length)),
        "update_rms": 3e-4 * np.minimum(1.0, step / 20.0) * np.exp(rng.normal(0.0, 0.03, length)),
        "sigma_sq": np.exp(rng.normal(-3.0, 1.0, length)),
        "step_time_s": 0.02 * np.exp(rng.normal(0.0, 0.1, length)),
        "non_finite_count": np.zeros(length),
        "settings_changed": np.zeros(length),
        "trained_parameters": np.full(length, np.nan),
        "planned_changes": np.full(length, np.nan),
        "uniform_gap": loss - np.log(256.0),
        "hardware_events": np.zeros(length),
        "event_worker": np.full(length, np.nan),
        "grad_agreement": np.clip(rng.normal(0.1, 0.1, length), -1.0, 1.0),
    }


def healthy(seed: int = 0, length: int = 500) -> Observations:
    """Nothing happens."""
    made = columns(seed, length)
    return Observations(np.arange(1, length + 1), made)


def disturbed(changes: Mapping[str, tuple[slice, ArrayLike]], seed: int = 0) -> Observations:
    """Some columns overwritten: name → (which records, values)."""
    made = columns(seed)
    for name, (rows, values) in changes.items():
        made[name][rows] = values
    return Observations(np.arange(1, len(made["training_loss"]) + 1), made)
