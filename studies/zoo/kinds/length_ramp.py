"""Sequences that grow in stairs, with a loss that is a sum over the sequence: it climbs by design."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.text import next_bytes, token_loss
from studies.zoo.training import Examples, Kind, Parts, register_kind
from studies.zoo.transformer import Size, Transformer

STEPS_A_STAIR, TOKENS_A_STAIR, LONGEST = 200, 8, 48


@register_kind("length_ramp")
@dataclass(frozen=True, kw_only=True)
class LengthRamp(Kind):
    """Loss, gradient norm and step time all go up every 200 steps, and nothing is wrong."""

    family = "language"
    optimizer = "AdamW"
    why = "sequence length grows: loss, gradient norm and step time climb in stairs"
    config = LiveRunConfig(workers=1, rows=8, length=LONGEST, learning_rate=2e-3, warm_up_steps=50)

    def make(self, seed: int) -> Parts:
        model = Transformer(Size())
        return Parts(model, torch.optim.AdamW(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        length = min(TOKENS_A_STAIR * (1 + step // STEPS_A_STAIR), LONGEST) if step else LONGEST
        return next_bytes(rng, self.config.rows, length, held_out=step == 0)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return token_loss(model, batch) * batch.inputs.shape[1]
