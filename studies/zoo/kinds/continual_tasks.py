"""Tasks one after the other, of which each makes the last one forgotten: images whose pixels are shuffled anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.data import DigitsKind
from studies.zoo.training import Examples, KindRun, Parts, register_kind

TASKS, STEPS_A_TASK = 8, 300


@cache
def orders() -> Tensor:
    """Order of the pixels in each task, (tasks, 64)."""
    rng = np.random.default_rng(stable_hash("continual tasks"))
    return torch.from_numpy(np.stack([rng.permutation(64) for _ in range(TASKS)]))


class Shuffled(nn.Module):
    """A network that sees the pixels in the order of the present task."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10))
        self.task: Tensor
        self.register_buffer("task", torch.tensor(0))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (B, 10), of images, (B, 1, 8, 8)."""
        logits: Tensor = self.layers(images.flatten(1)[:, orders()[self.task]])
        return logits


@register_kind("continual_tasks")
@dataclass(frozen=True, kw_only=True)
class ContinualTasks(DigitsKind):
    """Permuted images, a new permutation every 300 steps. The held-out loss is of the present task.

    **Source:** Goodfellow et al. 2013, An Empirical Investigation of Catastrophic Forgetting.
    """

    family = "vision"
    optimizer = "SGD"
    zoo = "zoo_2"
    why = "a new task every 300 steps: the loss goes back to where it began, and beyond"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.05, warm_up_steps=0, clip=5.0)

    def make(self, seed: int) -> Parts:
        model = Shuffled()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))

    def planned(self, step: int) -> str:
        return "" if step % STEPS_A_TASK else "the next task"

    def before_step(self, run: KindRun, batch: Examples) -> None:
        task: Any = run.model.task
        task.fill_(run.step // STEPS_A_TASK % TASKS)
