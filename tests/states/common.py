"""Records of made-up runs, and the names of their states."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmetric.records import Observations
from rmetric.states import states_of

RECORDS = 400


def normal(seed: int = 0) -> np.ndarray:
    """Noise that does not depend on which tests ran before."""
    return np.random.default_rng(seed).normal(size=RECORDS)


FALLING = 1.0 + 4.0 / np.sqrt(1.0 + np.arange(RECORDS)) + 0.05 * normal()


def observed(**columns: Any) -> Observations:
    length = len(next(iter(columns.values())))
    return Observations(np.arange(1, length + 1), {name: np.array(values) for name, values in columns.items()})


def names(observations: Observations) -> list[str]:
    return [state.name for state in states_of(observations)]
