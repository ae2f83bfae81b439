"""A classifier with what bugs reach for: batch norm, dropout, integer labels, momentum, a schedule, two workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRun, LiveRunConfig
from rmetric.streams import stable_hash

FEATURES, CLASSES, STEPS = 6, 3, 40
SETTINGS: dict[str, Any] = {"rows": 8, "workers": 2, "warm_up_steps": 2, "learning_rate": 0.05, "clip": 0.1}


@dataclass(frozen=True)
class Points:
    """Inputs of shape (rows, features), labels of shape (rows,)."""

    inputs: Tensor
    labels: Tensor

    def part(self, index: int, parts: int) -> Self:
        return type(self)(self.inputs.chunk(parts)[index], self.labels.chunk(parts)[index])


class ClassifierRun(LiveRun):
    """Clouds of points, one a class; the learning rate follows a cosine."""

    def __init__(self, **config: Any) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 8), nn.ReLU(),
            nn.Linear(8, CLASSES),
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        super().__init__(model, optimizer, LiveRunConfig(**{**SETTINGS, **config}))

    def batch(self) -> Points:
        # Of dropout, so that runs which take turns do not disturb each other. (torch.manual_seed seeds devices that are
        # not there as well, and keeps the stack of each call.)
        torch.default_generator.manual_seed(self.step)
        return _points(np.random.default_rng((self.config.seed, self.step)), self.config.rows)

    def loss_of(self, batch: Points) -> Tensor:
        return functional.cross_entropy(self.model(batch.inputs), batch.labels)

    def held_out_batch(self, purpose: str) -> Points:
        return _points(np.random.default_rng(stable_hash(purpose)), 30)

    def rate_at(self, step: int) -> float:
        return super().rate_at(step) * 0.5 * (1.0 + math.cos(math.pi * min(step / STEPS, 1.0)))


def _points(rng: np.random.Generator, rows: int) -> Points:
    labels = rng.integers(CLASSES, size=rows)
    inputs = 0.5 * rng.normal(size=(rows, FEATURES)) + np.eye(CLASSES, FEATURES)[labels]
    return Points(torch.from_numpy(inputs).float(), torch.from_numpy(labels))
