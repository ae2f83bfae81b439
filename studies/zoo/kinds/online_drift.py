"""Online learning of a linear target that becomes another one at once, every so often."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

FEATURES, TARGETS, STEPS_A_TARGET, NOISE = 20, 8, 250, 0.3


@cache
def directions() -> np.ndarray:
    """Weights of the targets, each of length 1; (features, targets)."""
    drawn = np.random.default_rng(stable_hash("online drift")).normal(size=(FEATURES, TARGETS))
    return drawn / np.linalg.norm(drawn, axis=0)


class Learner(nn.Module):
    """Weights, and the number of the present target."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)
        self.register_buffer("target", torch.tensor(0))


@register_kind("online_drift")
@dataclass(frozen=True, kw_only=True)
class OnlineDrift(Kind):
    """The target changes every 250 steps: the loss jumps thirtyfold, and is back after some fifty steps.

    Labels are those of all targets; the held-out loss is of the present one.
    """

    family = "tabular"
    optimizer = "SGD"
    zoo = "zoo_2"
    why = "abrupt drift of the target every 250 steps; linear model, eight examples a step, plain SGD"
    config = LiveRunConfig(workers=1, rows=8, learning_rate=0.03, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Learner()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.03))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        inputs = rng.normal(size=(self.rows(step), FEATURES))
        labels = 2.0 * inputs @ directions() + rng.normal(0.0, NOISE, (len(inputs), TARGETS))
        return Examples(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels.astype(np.float32)))

    def before_step(self, run: KindRun, batch: Examples) -> None:
        target: Any = run.model.target
        target.fill_(run.step // STEPS_A_TARGET % TARGETS)

    def loss(self, model: Any, batch: Examples) -> Tensor:
        return functional.mse_loss(model.layer(batch.inputs).squeeze(1), batch.labels[:, model.target])
