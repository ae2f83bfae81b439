"""Advertising: whether somebody clicks, from categories and numbers, with products of embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind

FIELDS, VALUES, NUMBERS = 6, 50, 4


class ClickModel(nn.Module):
    """Products of all pairs of embeddings, and a network on top (Naumov et al. 2019, DLRM)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.categories = nn.Embedding(FIELDS * VALUES, width)
        self.numbers = nn.Sequential(nn.Linear(NUMBERS, 16), nn.ReLU(), nn.Linear(16, width))
        self.pairs = torch.triu_indices(FIELDS + 1, FIELDS + 1, 1)
        self.top = nn.Sequential(nn.Linear(width + self.pairs.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of a click, (B,), of numbers and then categories, (B, NUMBERS + FIELDS)."""
        numbers = self.numbers(inputs[:, :NUMBERS])
        # What is no category counts as the nearest one; a bug in the data must not end the run.
        categories = inputs[:, NUMBERS:].nan_to_num().clamp(0, VALUES - 1).long()
        places = categories + VALUES * torch.arange(FIELDS)
        vectors = torch.cat([numbers.unsqueeze(1), self.categories(places)], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([numbers, products], dim=1)).squeeze(1)


@register_kind("click_through")
@dataclass(frozen=True, kw_only=True)
class ClickThrough(Kind):
    """Clicks are rare and mostly chance, so the loss falls by little; frequent categories are learnt first.

    Held-out labels are the probabilities of a click, which have less noise than clicks.
    """

    family = "tabular"
    optimizer = "Adafactor"
    why = "rare positives, mostly chance; embeddings with a long tail; Adafactor"
    config = LiveRunConfig(workers=1, rows=128, learning_rate=0.02, warm_up_steps=50, clip=math.inf)
    held_out_rows = 1024

    def make(self, seed: int) -> Parts:
        model = ClickModel()
        return Parts(model, torch.optim.Adafactor(model.parameters(), lr=0.02))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        numbers = rng.standard_normal((rows, NUMBERS))
        categories = (VALUES * rng.random((rows, FIELDS)) ** 3.0).astype(np.int64)
        # A category means what its number's cosine at a few frequencies says.
        meaning = np.cos(categories * (1.0 + np.arange(FIELDS)))
        chance = 1.0 / (1.0 + np.exp(2.0 - 2.5 * taught(self.name, np.concatenate([numbers, 2.0 * meaning], axis=1))))
        labels = rng.random(rows) < chance if step else chance
        inputs = np.concatenate([numbers, categories], axis=1)
        return Examples(torch.from_numpy(inputs).float(), torch.from_numpy(labels).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(batch.inputs), batch.labels)
