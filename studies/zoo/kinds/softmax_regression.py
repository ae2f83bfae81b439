"""Multinomial regression: the fastest step there is, under a millisecond, where the system's jitter is as large."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.training import Parts, register_kind


@register_kind("softmax_regression")
@dataclass(frozen=True, kw_only=True)
class SoftmaxRegression(DigitsKind):
    """One layer on pixels, averaged SGD: convex, without warm-up or clipping."""

    family = "tabular"
    optimizer = "ASGD"
    why = "steps of less than a millisecond; convex"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.1, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        return Parts(model, torch.optim.ASGD(model.parameters(), weight_decay=1e-3))
