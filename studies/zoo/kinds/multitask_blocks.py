"""Three tasks on one trunk, each for 150 steps at a time; their losses differ a hundredfold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.training import Kind, Parts, register_kind

TASKS, STEPS_A_BLOCK = 3, 150


@dataclass(frozen=True)
class Tasked:
    """Images, (B, 1, 8, 8), their labels, and the number of the task, or -1 for all of them."""

    images: Tensor
    labels: Tensor
    task: int

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(self.images.chunk(parts)[index], self.labels.chunk(parts)[index], self.task)


class Trunk(nn.Module):
    """A convolutional trunk with a head a task: which digit it is, the image itself, how much ink is in each row."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 64), nn.ReLU()
        )
        self.heads = nn.ModuleList([nn.Linear(64, 10), nn.Linear(64, 64), nn.Linear(64, 8)])

    def losses(self, batch: Tasked, task: int) -> Tensor:
        """Loss of one task: cross entropy, mean squared error of a pixel, squared error of the ink in 1/16."""
        out = self.heads[task](self.trunk(batch.images))
        if task == 0:
            return functional.cross_entropy(out, batch.labels)
        if task == 1:
            return functional.mse_loss(out, batch.images.flatten(1))
        return functional.mse_loss(out, 16.0 * batch.images.sum(dim=(1, 3)) / 8.0)


@register_kind("multitask_blocks")
@dataclass(frozen=True, kw_only=True)
class MultitaskBlocks(Kind):
    """Tasks in turn in blocks of 150 steps. Held out is the sum of their losses, each by its usual size."""

    family = "vision"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "one of three tasks for 150 steps each: the loss jumps between levels that differ a hundredfold"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-3, warm_up_steps=20, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Trunk()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def planned(self, step: int) -> str:
        return "" if step % STEPS_A_BLOCK else "the next task"

    def batch(self, rng: np.random.Generator, step: int) -> Tasked:
        drawn = digits().of_step(self, rng, step)
        return Tasked(drawn.inputs, drawn.labels, step // STEPS_A_BLOCK % TASKS if step else -1)

    def loss(self, model: Any, batch: Tasked) -> Tensor:
        loss: Tensor = model.losses(batch, batch.task)
        return loss

    def held_out_loss(self, model: Any, batch: Tasked) -> Tensor:
        one, two, three = (model.losses(batch, task) for task in range(TASKS))
        return one + 10.0 * two + 0.1 * three
