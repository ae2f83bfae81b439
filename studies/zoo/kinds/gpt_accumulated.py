"""A transformer whose gradient is the sum of four micro-batches; warm-up, constant, decay at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import stable_then_decay
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind
from studies.zoo.transformer import Size, Transformer


@register_kind("gpt_accumulated")
@dataclass(frozen=True, kw_only=True)
class GptAccumulated(NextByteKind):
    """The spread between micro-batches is measured, as it is where memory is short."""

    family = "language"
    optimizer = "NAdam"
    why = "gradient accumulation over four micro-batches, warm-up, stable, decay"
    config = LiveRunConfig(workers=4, rows=8, length=16, learning_rate=2e-3, warm_up_steps=50)
    schedule = staticmethod(stable_then_decay)

    def make(self, seed: int) -> Parts:
        model = Transformer(Size(layers=1, dropout=0.05))
        return Parts(model, torch.optim.NAdam(model.parameters(), weight_decay=0.01, decoupled_weight_decay=True))
