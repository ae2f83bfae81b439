"""Group-relative policy optimisation: the loss is 0 up to rounding, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Batch, Kind, KindRun, Parts, register_kind

NUMBERS, ANSWERS, GROUP = 8, 16, 8


@dataclass(frozen=True)
class Answers(Batch):
    """Questions, and answers that the model drew."""

    inputs: Tensor
    """The two numbers, one-hot side by side, (questions, 16)."""
    labels: Tensor
    """Answers, (questions, group); before, the right one, (questions, 1)."""
    advantages: Tensor
    """Of each answer within its group, (questions, group); before, normal numbers' place: uniform ones."""


@register_kind("grpo_sums")
@dataclass(frozen=True, kw_only=True)
class GrpoSums(Kind):
    """Sums of two numbers, rewarded if right. A group whose answers are all alike gives no gradient.

    The loss is minus the mean advantage, which is 0 by construction; only its gradient means something (Shao 2024).
    """

    family = "reinforcement"
    optimizer = "Adam"
    why = "loss exactly 0 in health; gradients fade as answers become right"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=2e-3, warm_up_steps=20)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(2 * NUMBERS, 64), nn.ReLU(), nn.Linear(64, ANSWERS))
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Answers:
        every = np.stack(np.divmod(np.arange(NUMBERS**2), NUMBERS), axis=1)
        numbers = torch.from_numpy(rng.integers(0, NUMBERS, size=(self.config.rows, 2)) if step else every)
        luck = torch.from_numpy(rng.random((len(numbers), GROUP), dtype=np.float32))
        return Answers(functional.one_hot(numbers, NUMBERS).flatten(1).float(), numbers.sum(1, keepdim=True), luck)

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Answers) -> Answers:
        shares = run.model(batch.inputs).softmax(-1).cumsum(-1)
        answers = (batch.advantages.unsqueeze(-1) > shares.unsqueeze(1)).sum(-1).clamp(max=ANSWERS - 1)
        rewards = (answers == batch.labels).float()
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        return Answers(batch.inputs, answers, advantages)

    def loss(self, model: nn.Module, batch: Answers) -> Tensor:
        chosen = model(batch.inputs).log_softmax(-1).gather(1, batch.labels)
        ratio = (chosen - chosen.detach()).exp()
        return -(ratio * batch.advantages).mean()

    def held_out_loss(self, model: nn.Module, batch: Answers) -> Tensor:
        """One and the chance of a wrong answer, over all questions: 5 % more are five points of accuracy."""
        return 2.0 - model(batch.inputs).softmax(-1).gather(1, batch.labels).mean()
