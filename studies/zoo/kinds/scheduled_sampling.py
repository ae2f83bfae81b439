"""A decoder that is weaned: more and more often it reads its own last answer in place of the right one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

DIGITS, LENGTH, WIDTH = 8, 10, 64
START = DIGITS
MISREAD = 0.08
"""Share of the digits that the model gets to see wrongly."""
WEANED, LARGEST_SHARE = (300, 1000), 0.6
"""Steps between which the share of own answers goes from 0 to its largest."""


class RunningSum(nn.Module):
    """Reads a digit and the answer before, in a recurrent cell, and answers; ``share``: of its own answers."""

    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.digits, self.answers = nn.Embedding(DIGITS, WIDTH), nn.Embedding(DIGITS + 1, WIDTH)
        self.cell, self.head = nn.GRUCell(2 * WIDTH, WIDTH), nn.Linear(WIDTH, DIGITS)
        self.register_buffer("share", torch.tensor(0.0))

    def forward(self, digits: Tensor, right: Tensor, own: Tensor) -> Tensor:
        """Logits, (B, LENGTH, DIGITS), of digits and right answers; where ``own``, it reads its own answer instead."""
        state, before, said = torch.zeros(len(digits), WIDTH), torch.full_like(right[:, 0], START), []
        read = self.digits(digits)
        for place in range(LENGTH):
            state = self.cell(torch.cat([read[:, place], self.answers(before)], dim=1), state)
            said.append(self.head(state))
            before = torch.where(own[:, place], said[-1].argmax(1), right[:, place])
        return torch.stack(said, dim=1)


@register_kind("scheduled_sampling")
@dataclass(frozen=True, kw_only=True)
class ScheduledSampling(Kind):
    """Sums modulo 8 of the digits so far: a wrong answer spoils all that follow, so the loss rises by design.

    Held out it reads nothing but its own answers, as in use.

    **Source:** Bengio et al. 2015, Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks.
    """

    family = "language"
    optimizer = "Adam"
    why = "from step 300 to 1,000 the model's own errors come into its inputs, and gradients stop at them"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-3, warm_up_steps=50)

    def make(self, seed: int) -> Parts:
        model = RunningSum()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        digits = rng.integers(0, DIGITS, (self.rows(step), LENGTH))
        wrong = rng.random(digits.shape) < MISREAD
        seen = np.where(wrong, rng.integers(0, DIGITS, digits.shape), digits)
        return Examples(torch.from_numpy(seen), torch.from_numpy(digits.cumsum(axis=1) % DIGITS))

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        first, last = WEANED
        model.share.fill_(LARGEST_SHARE * min(max((run.step - first) / (last - first), 0.0), 1.0))

    def loss(self, model: Any, batch: Examples) -> Tensor:
        return self._loss(model, batch, torch.rand(batch.labels.shape) < model.share)

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return self._loss(model, batch, torch.ones_like(batch.labels, dtype=torch.bool))

    def _loss(self, model: nn.Module, batch: Examples, own: Tensor) -> Tensor:
        return functional.cross_entropy(model(batch.inputs, batch.labels, own).flatten(0, 1), batch.labels.flatten())
