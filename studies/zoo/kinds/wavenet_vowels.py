"""Raw audio, one sample after the other: a WaveNet of vowels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.formants import FORMANTS
from studies.zoo.schedules import exponential
from studies.zoo.text import TokenKind
from studies.zoo.training import Examples, Parts, register_kind

HERTZ, SAMPLES, LEVELS, HARMONICS = 8000, 160, 64, 24
LOUD = np.array([1.0, 0.5, 0.25])
"""Amplitudes of the formants."""


def sounds(rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Vowels of voices of any pitch, (rows, SAMPLES + 1), from -1 to 1, with some breath."""
    pitch = rng.uniform(90.0, 180.0, (rows, 1)) * np.arange(1, HARMONICS + 1)
    formants = FORMANTS[rng.integers(0, len(FORMANTS), rows)] * np.exp(rng.normal(0.0, 0.06, (rows, 1)))
    size = np.exp(-0.5 * ((pitch[:, :, None] - formants[:, None]) / 120.0) ** 2) @ LOUD + 0.02
    phase = rng.uniform(0.0, 2.0 * np.pi, (rows, 1, 1))
    time = phase + 2.0 * np.pi * pitch[:, :, None] * np.arange(SAMPLES + 1) / HERTZ
    voice = (size[:, :, None] * np.cos(time)).sum(1)
    voice *= rng.uniform(0.2, 0.9, (rows, 1)) / np.abs(voice).max(axis=1, keepdims=True)
    return np.clip(voice + rng.normal(0.0, 0.004, voice.shape), -1.0, 1.0)


def levels(voice: NDArray[np.float64]) -> Tensor:
    """The same in levels of which those near silence are narrow: mu-law."""
    pressed = np.sign(voice) * np.log1p((LEVELS - 1) * np.abs(voice)) / np.log(LEVELS)
    return torch.from_numpy(((pressed + 1.0) / 2.0 * (LEVELS - 1) + 0.5).astype(np.int64))


class Gated(nn.Module):
    """A gated convolution of two samples that lie some apart."""

    def __init__(self, width: int, apart: int) -> None:
        super().__init__()
        self.apart, self.both = apart, nn.Linear(2 * width, 2 * width)
        self.out = nn.Linear(width, 2 * width)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The next layer's input and what goes to the end at once, each (rows, samples, width)."""
        before = functional.pad(hidden, (0, 0, self.apart, 0))[:, : hidden.shape[1]]
        value, gate = self.both(torch.cat([before, hidden], dim=2)).chunk(2, dim=2)
        onward, skipped = self.out(value.tanh() * gate.sigmoid()).chunk(2, dim=2)
        return hidden + onward, skipped


class WaveNet(nn.Module):
    """From levels to logits of the next level, (rows, samples, LEVELS)."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.into = nn.Embedding(LEVELS, width)
        self.layers = nn.ModuleList(Gated(width, 2**power) for power in range(6))
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, LEVELS))

    def forward(self, samples: Tensor) -> Tensor:
        """Logits of levels, (rows, samples)."""
        hidden, total = self.into(samples), torch.zeros(())
        for layer in self.layers:
            hidden, skipped = layer(hidden)
            total = total + skipped
        logits: Tensor = self.out(total)
        return logits


@register_kind("wavenet_vowels")
@dataclass(frozen=True, kw_only=True)
class WaveNetVowels(TokenKind):
    """Cross entropy of the next of 64 levels; loud and quiet voices are unlike hard.

    **Source:** van den Oord et al. 2016, WaveNet: A Generative Model for Raw Audio.
    """

    family = "speech"
    optimizer = "Adam"
    why = "raw audio as classes: a slow fall without an end; dilated gates; a rate that decays by the same share"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=6, learning_rate=4e-3, warm_up_steps=20, clip=1.0)
    schedule = staticmethod(partial(exponential, last=0.1))

    def make(self, seed: int) -> Parts:
        model = WaveNet()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = levels(sounds(rng, self.config.rows if step else 48))
        return Examples(drawn[:, :-1], drawn[:, 1:])
