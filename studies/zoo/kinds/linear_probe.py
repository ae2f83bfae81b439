"""A linear layer on a frozen language model: it tells what kind of text it has before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.corpus import documentation
from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import pretrained
from studies.zoo.text import next_bytes
from studies.zoo.training import Examples, Kind, Parts, register_kind
from studies.zoo.transformer import Size

TEXTS = 4
"""Source code, prose, and both read backwards."""


class Probe(nn.Module):
    """The mean of a frozen model's features, through one layer that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = pretrained().requires_grad_(False)
        self.head = nn.Linear(Size().width, TEXTS)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the texts, (rows, texts), of ids, (rows, tokens)."""
        with torch.no_grad():
            features = self.backbone.features(ids).mean(1)
        logits: Tensor = self.head(features)
        return logits


@register_kind("linear_probe")
@dataclass(frozen=True, kw_only=True)
class LinearProbe(Kind):
    """A convex problem: the loss falls fast, stays, and most parameters have no gradient at all."""

    family = "fine-tuning"
    optimizer = "RAdam"
    why = "frozen backbone: parameters without gradients, convex loss"
    config = LiveRunConfig(workers=1, rows=32, length=16, learning_rate=1e-2, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Probe()
        return Parts(model, torch.optim.RAdam(model.head.parameters(), weight_decay=1e-4))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        length, each = self.config.length, self.rows(step)
        source = next_bytes(rng, each, length, held_out=step == 0).inputs
        prose = next_bytes(rng, each, length, held_out=step == 0, corpus=documentation()).inputs
        labels = torch.from_numpy(rng.integers(0, TEXTS, size=len(source)))
        forwards = torch.where((labels % 2 == 0)[:, None], source, prose)
        return Examples(torch.where((labels < 2)[:, None], forwards, forwards.flip(1)), labels)
