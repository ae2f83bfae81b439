"""A reward model of language-model alignment: which of two answers people prefer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import pretrained
from studies.zoo.schedules import linear
from studies.zoo.text import next_bytes
from studies.zoo.training import Examples, Kind, Parts, register_kind

MISTAKES, PRINTABLE = 8, (32, 127)
"""Most bytes of an answer that are wrong; the range of what stands in their place."""
SURENESS = 0.5
"""How much more often people prefer an answer with one mistake less: the slope of the logarithm of the odds."""
CENTRED = 0.01
"""Weight of the squared sum of both rewards, which keeps them around 0."""


class RewardModel(nn.Module):
    """A pretrained language model whose last features become a number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = pretrained()
        self.body.head.requires_grad_(False)
        self.reward = nn.Linear(self.body.head.in_features, 1)

    def forward(self, passages: Tensor) -> Tensor:
        """Rewards, (..., ), of passages, (..., tokens)."""
        last = self.body.features(passages.flatten(0, -2))[:, -1]
        rewards: Tensor = self.reward(last).unflatten(0, passages.shape[:-1]).squeeze(-1)
        return rewards


@register_kind("reward_model")
@dataclass(frozen=True, kw_only=True)
class RewardModelKind(Kind):
    """Answers differ in how many bytes are wrong; people choose by it, but not surely (Bradley, Terry 1952).

    Held-out pairs are labelled by the number of mistakes alone.

    **Source:** Ouyang et al. 2022, Training language models to follow instructions with human feedback, equation 1.
    """

    family = "fine-tuning"
    optimizer = "AdamW"
    why = "starts at ln 2 and stays near it, since people err; pairs; a new head on pretrained weights"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=12, length=24, learning_rate=5e-4, warm_up_steps=40)
    held_out_rows = 128
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = RewardModel()
        trained = (each for each in model.parameters() if each.requires_grad)
        return Parts(model, torch.optim.AdamW(trained, weight_decay=0.01))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = [self._passages(rng, step) for _ in range(1 if step else 4)]
        passages, wrong = torch.cat([each for each, _ in drawn]), np.concatenate([each for _, each in drawn])
        fewer = wrong[:, 1] - wrong[:, 0]
        preferred = rng.random(len(fewer)) < 1.0 / (1.0 + np.exp(-SURENESS * fewer)) if step else fewer > 0
        return Examples(passages, torch.from_numpy(preferred))

    def _passages(self, rng: np.random.Generator, step: int) -> tuple[Tensor, NDArray[np.int64]]:
        """Pairs of passages, (rows, 2, tokens), and how many of their bytes are drawn anew, (rows, 2)."""
        length = self.config.length
        one, other = (next_bytes(rng, self.config.rows, length, held_out=step == 0).inputs for _ in range(2))
        pairs = torch.stack([one, other], dim=1)
        first = rng.integers(0, MISTAKES + 1, len(pairs))
        wrong = np.stack([first, (first + rng.integers(1, MISTAKES + 1, len(pairs))) % (MISTAKES + 1)], axis=1)
        strange = rng.integers(*PRINTABLE, pairs.shape)
        spoilt = rng.random(pairs.shape).argsort(axis=2) < wrong[:, :, None]
        return pairs.where(~torch.from_numpy(spoilt), torch.from_numpy(strange)), wrong

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        first, second = model(batch.inputs).float().unbind(1)
        margin = torch.where(batch.labels, first - second, second - first)
        return -functional.logsigmoid(margin).mean() + CENTRED * (first + second).square().mean()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        first, second = model(batch.inputs).float().unbind(1)
        return functional.binary_cross_entropy_with_logits(first - second, batch.labels.float())
