"""A transformer of one layer in two processes, each with half of every batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind
from studies.zoo.transformer import Size, Transformer


@register_kind("ddp_transformer")
@dataclass(frozen=True, kw_only=True)
class DdpTransformer(NextByteKind):
    """How language models are pretrained, with two workers."""

    family = "language"
    optimizer = "AdamW"
    why = "two processes of DDP, transformer with AdamW, clipped, cosine"
    processes = 2
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=3e-3, warm_up_steps=100)
    schedule = staticmethod(partial(cosine, last=0.1))

    def make(self, seed: int) -> Parts:
        model = Transformer(Size(layers=1))
        return Parts(model, torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1))
