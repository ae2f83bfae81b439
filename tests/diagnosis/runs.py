"""Small runs with a known course."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmetric.records import Observations


def losses(records: int = 400, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A loss that falls like a power law, with noise."""
    noise = np.random.default_rng(seed).normal(0.0, 0.02, records)
    return 2.0 + 3.0 * np.arange(1, records + 1) ** -0.5 + noise


def norms(records: int = 400, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A gradient norm about 1."""
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.1, records))


def run_of(loss: Any, norm: Any = None, stride: int = 1, **columns: Any) -> Observations:
    """Records of a training loss, a gradient norm, and what else was measured."""
    columns["training_loss"] = np.asarray(loss)
    if norm is not None:
        columns["grad_norm"] = np.asarray(norm)
    return Observations(stride * np.arange(len(loss)), columns)
