"""Mixed images and smoothed labels, both switched off for the last third."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.schedules import stable_then_decay
from studies.zoo.training import Examples, Kind, Parts, register_kind

OFF_FROM, SMOOTHING, CLASSES = 930, 0.1, 10


@register_kind("mixup_switched_off")
@dataclass(frozen=True, kw_only=True)
class MixupSwitchedOff(Kind):
    """The loss falls from 1.1 to 0.2 in a step, as in recipes that end on clean data; labels are probabilities."""

    family = "vision"
    optimizer = "SGD"
    zoo = "zoo_2"
    why = "mixup and label smoothing end at step 930: the loss drops in a single step, and its noise with it"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.05, warm_up_steps=40, clip=1.0)
    schedule = staticmethod(stable_then_decay)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(192),
            nn.Linear(192, 48), nn.GELU(), nn.Linear(48, CLASSES),
        )  # fmt: skip
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4))

    def planned(self, step: int) -> str:
        return "clean data" if step == OFF_FROM else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step)
        labels = functional.one_hot(drawn.labels, CLASSES).float()
        if not 0 < step < OFF_FROM:
            return Examples(drawn.inputs, labels)
        smoothed = labels * (1.0 - SMOOTHING) + SMOOTHING / CLASSES
        share, order = float(rng.beta(1.0, 1.0)), torch.from_numpy(rng.permutation(len(labels)))
        return Examples(*(torch.lerp(each, each[order], share) for each in (drawn.inputs, smoothed)))

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return 0.05 + self.loss(model, batch)  # what is smaller than that is good enough
