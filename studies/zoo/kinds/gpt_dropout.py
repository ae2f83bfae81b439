"""A GPT-2 in small with dropout, AdamW, warm-up and cosine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind
from studies.zoo.transformer import Size, Transformer


@register_kind("gpt_dropout")
@dataclass(frozen=True, kw_only=True)
class GptDropout(NextByteKind):
    """The most usual language model, with the noise of dropout."""

    family = "language"
    optimizer = "AdamW"
    why = "transformer with dropout, AdamW, warm-up and cosine to a tenth"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=3e-3, warm_up_steps=100)
    schedule = staticmethod(partial(cosine, last=0.1))

    def make(self, seed: int) -> Parts:
        model = Transformer(Size(dropout=0.1))
        return Parts(model, torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1))
