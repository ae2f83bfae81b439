"""Prompt tuning: a frozen language model, and before each text some vectors that are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import other_domain, pretrained
from studies.zoo.schedules import linear
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind
from studies.zoo.transformer import Size

PROMPT = 12
"""Vectors before the text."""


class Prompted(nn.Module):
    """Vectors and then a text, through a frozen model."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = pretrained().requires_grad_(False)
        self.prompt = nn.Parameter(0.05 * torch.randn(PROMPT, Size().width))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, (rows, tokens, vocabulary), of ids, (rows, tokens)."""
        model = self.backbone
        full = torch.cat([self.prompt.expand(len(ids), -1, -1), model.tokens(ids)], dim=1)
        hidden = model.blocks(full + model.places(torch.arange(full.shape[1])))
        logits: Tensor = model.head(model.last(hidden[:, PROMPT:]))
        return logits


@register_kind("soft_prompt")
@dataclass(frozen=True, kw_only=True)
class SoftPrompt(NextByteKind):
    """Capital letters for a model of source code: 400 numbers are trained, of 45,000.

    **Source:** Lester et al. 2021, The Power of Scale for Parameter-Efficient Prompt Tuning.
    """

    family = "fine-tuning"
    optimizer = "Adam"
    why = "a hundredth of the parameters is trained, at a large rate, through a frozen model"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=0.03, warm_up_steps=0, clip=math.inf)
    text = staticmethod(other_domain)
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = Prompted()
        return Parts(model, torch.optim.Adam([model.prompt]))
