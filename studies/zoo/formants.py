"""Synthetic speech: spectrograms of vowels, whose formants are those of measured speakers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORMANTS = np.array([
    (270, 2290, 3010), (390, 1990, 2550), (530, 1840, 2480), (660, 1720, 2410), (730, 1090, 2440),
    (570, 840, 2410), (440, 1020, 2240), (300, 870, 2240), (640, 1190, 2390), (490, 1350, 1690),
], dtype=np.float32)  # fmt: skip
"""First three formants of ten vowels, Hz, of men (Peterson, Barney 1952, table II)."""
BANDS = 20
"""Bands of a spectrogram, evenly from 150 to 3,450 Hz."""
_CENTRES_F = np.linspace(150.0, 3450.0, BANDS, dtype=np.float32)
_LOUDNESS = np.array([1.0, 0.7, 0.4], dtype=np.float32)


def spectrograms(
    rng: np.random.Generator, formants_BTK: NDArray[np.float32], voiced_BT: NDArray[np.bool_], noise: float
) -> NDArray[np.float32]:
    """Noisy spectrograms (B, T, bands) of formants in Hz, each row by a speaker of its own; silent where unvoiced."""
    speaker = np.exp(rng.normal(0.0, 0.06, (len(formants_BTK), 1, 1, 1))).astype(np.float32)
    distance = (_CENTRES_F[:, None] - speaker * formants_BTK[:, :, None, :]) / 150.0
    found = (np.exp(-0.5 * distance**2) @ _LOUDNESS) * voiced_BT[:, :, None]
    return found + noise * rng.standard_normal(found.shape, dtype=np.float32)
