"""Classification of short sounds by convolutions over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.formants import BANDS, FORMANTS, spectrograms
from studies.zoo.training import Examples, Kind, Parts, register_kind

FRAMES = 24
"""Frames of a sound."""
CLASSES = 10
"""Glides: from each vowel to the next of the table."""


@register_kind("spectrogram_cnn")
@dataclass(frozen=True, kw_only=True)
class SpectrogramCnn(Kind):
    """Glides between vowels, with a band and a stretch of time masked (Park et al. 2019, SpecAugment)."""

    family = "speech"
    optimizer = "Adadelta"
    why = "convolutions over time on masked spectrograms; dropout; Adadelta at a constant rate"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv1d(BANDS, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(24, 24, 3, padding=1), nn.ReLU(), nn.Dropout1d(0.1), nn.AdaptiveAvgPool1d(3), nn.Flatten(),
            nn.Linear(72, CLASSES),
        )  # fmt: skip
        return Parts(model, torch.optim.Adadelta(model.parameters(), lr=0.3))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        glides = rng.integers(0, CLASSES, rows)
        share_T = np.linspace(0.0, 1.0, FRAMES, dtype=np.float32)[:, None]
        first, last = FORMANTS[glides, None], FORMANTS[(glides + 1) % len(FORMANTS), None]
        formants_BTK = (1.0 - share_T) * first + share_T * last
        heard = spectrograms(rng, formants_BTK, np.ones((rows, FRAMES), dtype=bool), noise=1.2)
        if step:
            band, frame = rng.integers(0, BANDS - 3), rng.integers(0, FRAMES - 5)
            heard[:, :, band : band + 3] = 0.0
            heard[:, frame : frame + 5] = 0.0
        return Examples(torch.from_numpy(heard.transpose(0, 2, 1).copy()), torch.from_numpy(glides))
