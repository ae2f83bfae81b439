"""Batches of four different lengths, as they come when texts are sorted by length: so differ loss and step time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.text import TokenKind, next_bytes
from studies.zoo.training import Examples, Parts, register_kind
from studies.zoo.transformer import Size, Transformer

LENGTHS = (4, 12, 32, 80)


@register_kind("varied_length")
@dataclass(frozen=True, kw_only=True)
class VariedLength(TokenKind):
    """Four levels of loss, gradient norm and step time that change at random."""

    family = "language"
    optimizer = "Adam"
    why = "length of a batch drawn from four: levels of loss, noise and step time"
    config = LiveRunConfig(workers=1, rows=6, length=32, learning_rate=2e-3, warm_up_steps=20)

    def make(self, seed: int) -> Parts:
        model = Transformer(Size())
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        length = int(rng.choice(LENGTHS)) if step else self.config.length
        return next_bytes(rng, self.config.rows, length, held_out=step == 0)
