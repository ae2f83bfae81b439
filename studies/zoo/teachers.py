"""Synthetic tables: targets are what a fixed network says of random features, the same in every run of a kind."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from rmetric.streams import stable_hash


@cache
def _weights(name: str, features: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(stable_hash(f"teacher/{name}"))
    return rng.normal(0.0, features**-0.5, (features, width)), rng.normal(0.0, width**-0.5, width)


def taught(name: str, features_BF: NDArray[np.float64], width: int = 8) -> NDArray[np.float64]:
    """What the teacher of that name says, (B,): some smooth function with a spread of about 1."""
    first, second = _weights(name, features_BF.shape[1], width)
    return 1.6 * np.tanh(features_BF @ first) @ second
