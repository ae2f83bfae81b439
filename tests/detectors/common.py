"""Losses that several tests of detectors score, and the scores of one measurement alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rmetric.detectors import Detector
from rmetric.records import Observations


def noisy_losses(length: int = 300, seed: int = 0) -> np.ndarray:
    """Losses about 3, with a spread of 0.05."""
    return 3.0 + 0.05 * np.random.default_rng(seed).standard_normal(length)


def scores_of(detector: Detector, values: ArrayLike) -> np.ndarray:
    """Scores of records, from step 1 on, in which the first measurement that the detector reads is all there is."""
    column = np.asarray(values, dtype=float)
    return detector.score_run(Observations(np.arange(1, len(column) + 1), {detector.reads[0]: column}))
