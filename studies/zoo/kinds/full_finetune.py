"""Fine-tuning of all weights at a small rate under bfloat16 autocast."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import other_domain, pretrained
from studies.zoo.schedules import linear
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind


@register_kind("full_finetune")
@dataclass(frozen=True, kw_only=True)
class FullFinetune(NextByteKind):
    """All weights of a pretrained model, on a text of another domain."""

    family = "fine-tuning"
    optimizer = "AdamW"
    why = "pretrained weights, small rate, bfloat16 autocast, linear decay"
    config = LiveRunConfig(workers=1, rows=8, length=24, learning_rate=4e-4, warm_up_steps=60, autocast=torch.bfloat16)
    text = staticmethod(other_domain)
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = pretrained()
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.01))
