"""A recommender: ratings are products of what is known of the user and of the item."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.training import Examples, Kind, Parts, register_kind

USERS, ITEMS = 400, 200


@cache
def tastes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Four numbers of each user and of each item, whose product is the rating."""
    rng = np.random.default_rng(stable_hash("tastes"))
    return rng.normal(0.0, 0.7, (USERS, 4)), rng.normal(0.0, 0.7, (ITEMS, 4))


class Factors(nn.Module):
    """A vector and a bias for each user and each item."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, width + 1), nn.Embedding(ITEMS, width + 1)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, pairs: Tensor) -> Tensor:
        """Ratings, (B,), of pairs of user and item, (B, 2)."""
        user, item = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        return (user[:, 1:] * item[:, 1:]).sum(dim=1) + user[:, 0] + item[:, 0]


@register_kind("matrix_factorisation")
@dataclass(frozen=True, kw_only=True)
class MatrixFactorisation(Kind):
    """Most rows of the tables have no gradient in a step; popular items come often, the others hardly ever."""

    family = "tabular"
    optimizer = "Adagrad"
    why = "embeddings of which a batch touches few rows; Adagrad, whose steps shrink by themselves"
    config = LiveRunConfig(workers=1, rows=256, learning_rate=0.2, warm_up_steps=0, clip=math.inf)
    held_out_rows = 2048

    def make(self, seed: int) -> Parts:
        model = Factors()
        return Parts(model, torch.optim.Adagrad(model.parameters(), lr=0.2, initial_accumulator_value=0.01))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        pairs = np.stack([rng.integers(0, USERS, rows), (ITEMS * rng.random(rows) ** 1.5).astype(np.int64)], axis=1)
        users, items = tastes()
        ratings = (users[pairs[:, 0]] * items[pairs[:, 1]]).sum(axis=1) + rng.normal(0.0, 0.3, rows)
        return Examples(torch.from_numpy(pairs), torch.from_numpy(ratings).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs), batch.labels)
