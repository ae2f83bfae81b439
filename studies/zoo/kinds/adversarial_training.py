"""Adversarial training: after 450 steps on clean images, all are changed so that the model errs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.schedules import drops
from studies.zoo.training import Examples, KindRun, Parts, register_kind

ATTACKED_FROM, REACH, MOVES = 450, 0.15, 3
"""First step with attacks; largest change of a pixel; gradient steps of an attack."""


def attacked(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Images near these, (B, 1, 8, 8), on which the model has a larger loss."""
    changed = images
    with torch.enable_grad():
        for _ in range(MOVES):
            changed = changed.detach().requires_grad_()
            (slope,) = torch.autograd.grad(functional.cross_entropy(model(changed), labels), changed)
            moved = changed.detach() + 0.5 * REACH * slope.sign()
            changed = torch.minimum(torch.maximum(moved, images - REACH), images + REACH).clamp(0.0, 1.0)
    return changed.detach()


@register_kind("adversarial_training")
@dataclass(frozen=True, kw_only=True)
class AdversarialTraining(DigitsKind):
    """The loss leaps to several times what it was, by design, and comes down slowly. Held out: clean images.

    **Source:** Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks.
    """

    family = "vision"
    optimizer = "SGD"
    why = "from step 450 on each batch is changed against the model: loss and gradients leap"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=0.05, warm_up_steps=0, clip=math.inf)
    schedule = staticmethod(partial(drops, at=(0.7, 0.9), factor=0.2))

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 64), nn.ReLU(),
            nn.Linear(64, 10),
        )  # fmt: skip
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4))

    def planned(self, step: int) -> str:
        return "batches are changed against the model" if step == ATTACKED_FROM else ""

    def experience(self, run: KindRun, batch: Examples) -> Any:
        if run.step < ATTACKED_FROM:
            return batch
        return Examples(attacked(run.model, batch.inputs, batch.labels), batch.labels)
