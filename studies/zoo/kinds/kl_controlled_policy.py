"""A policy that is rewarded and held near a reference by a penalty whose weight adapts, as models are aligned."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.memory import Memory
from studies.zoo.training import Kind, KindRun, Parts, register_kind

PROMPTS, ANSWERS, FEATURES = 64, 24, 12
ADAPTED_EVERY, FACTOR = 10, 1.15
"""Steps between two changes of the weight, and by how much."""
TARGETS = {0: 0.2, 500: 0.8, 900: 1.5}
"""Step → divergence from the reference that is aimed at from then on, nats."""


@dataclass(frozen=True)
class Answered:
    """Features of prompts, answers, their advantages, and the weight of the penalty; as drawn, luck alone."""

    prompts: Tensor
    answers: Tensor
    advantages: Tensor
    weight: Tensor

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        prompts, answers, advantages = (
            each.chunk(parts)[index] for each in (self.prompts, self.answers, self.advantages)
        )
        return type(self)(prompts, answers, advantages, self.weight)


@cache
def world() -> tuple[Tensor, Tensor]:
    """Features of all prompts, and the reward of each answer to each, (prompts, answers)."""
    rng = np.random.default_rng(stable_hash("kl controlled policy"))
    drawn = rng.normal(size=(PROMPTS, FEATURES)), rng.normal(size=(PROMPTS, ANSWERS))
    features, rewards = (torch.from_numpy(each.astype(np.float32)) for each in drawn)
    return features, rewards


class Policy(nn.Module):
    """The policy and the reference that it began as."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.reference = (self.fresh() for _ in range(2))
        self.reference.load_state_dict(self.policy.state_dict())
        self.reference.requires_grad_(False)

    @staticmethod
    def fresh() -> nn.Module:
        """A network from prompts to answers."""
        return nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, ANSWERS))

    def divergence(self, prompts: Tensor) -> Tensor:
        """Kullback-Leibler divergence of the policy from the reference, nats, mean over prompts."""
        mine, theirs = self.policy(prompts).log_softmax(-1), self.reference(prompts).log_softmax(-1)
        return (mine.exp() * (mine - theirs)).sum(-1).mean()


@register_kind("kl_controlled_policy")
@dataclass(frozen=True, kw_only=True)
class KlControlledPolicy(Kind):
    """Policy gradient with an adaptive penalty (Ziegler et al. 2019, section 2.2); its target changes twice.

    Held out is what the mean reward of a prompt lacks to the best answer, known exactly.
    """

    family = "reinforcement"
    optimizer = "AdamW"
    zoo = "zoo_2"
    why = "a negative loss without a floor, and a penalty whose weight a controller changes by 15 % at a time"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=5e-4, warm_up_steps=20)

    def make(self, seed: int) -> Parts:
        model = Policy()
        optimizer = torch.optim.AdamW(model.policy.parameters(), weight_decay=0.0)
        return Parts(model, optimizer, {"controller": Memory(weight=torch.tensor(0.5))})

    def batch(self, rng: np.random.Generator, step: int) -> Answered:
        luck = torch.from_numpy(rng.random((2, self.rows(step)), dtype=np.float32))
        return Answered(luck[0], luck[1], luck[1], torch.tensor(0.0))

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Answered) -> Answered:
        model: Any = run.model
        features, rewards = world()
        chosen = (batch.prompts * PROMPTS).long()
        prompts = features[chosen]
        policy = model.policy(prompts).softmax(-1)
        answers = (batch.answers[:, None] > policy.cumsum(-1)).sum(-1).clamp(max=ANSWERS - 1)
        gained = rewards[chosen, answers]
        controller = run.beside["controller"].tensors
        if run.step % ADAPTED_EVERY == 0:
            target = [aim for step, aim in TARGETS.items() if run.step >= step][-1]
            factor = FACTOR if model.divergence(prompts) > target else 1.0 / FACTOR
            controller["weight"] = (controller["weight"] * factor).clamp(1e-3, 10.0)
        return Answered(prompts, answers, gained - gained.mean(), controller["weight"])

    def loss(self, model: Any, batch: Answered) -> Tensor:
        told = functional.cross_entropy(model.policy(batch.prompts), batch.answers, reduction="none")
        return (batch.advantages * told).mean() + batch.weight * model.divergence(batch.prompts)

    def held_out_loss(self, model: Any, batch: Answered) -> Tensor:
        features, rewards = world()
        return (rewards.amax(-1) - (model.policy(features).softmax(-1) * rewards).sum(-1)).mean()
