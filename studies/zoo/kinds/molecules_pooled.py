"""Messages between the atoms of small random molecules, mean pooling, and a property that is a number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind

ATOMS, ELEMENTS, WIDTH, ROUNDS = 10, 4, 32, 3
RINGS = 0.03
"""Chance of a bond that closes a ring, a pair of atoms."""
MEASUREMENT_ERROR = 0.1
HELD_OUT_MOLECULES = 512


@cache
def _affinities() -> NDArray[np.float64]:
    """What a bond between two elements adds to the property, (elements, elements)."""
    found = np.random.default_rng(1).normal(size=(ELEMENTS, ELEMENTS))
    return found + found.T


def molecules(rng: np.random.Generator, count: int) -> Examples:
    """Random trees with some rings: bonds and one-hot elements, (count, atoms, atoms + elements), and a property."""
    parents = (rng.random((count, ATOMS)) * np.arange(ATOMS)).astype(int)
    bonds = np.triu(rng.random((count, ATOMS, ATOMS)) < RINGS, 1)
    bonds[np.arange(count)[:, None], parents[:, 1:], np.arange(1, ATOMS)] = True
    bonds |= bonds.transpose(0, 2, 1)
    elements = rng.integers(0, ELEMENTS, size=(count, ATOMS))
    field = (bonds * _affinities()[elements[:, :, None], elements[:, None, :]]).sum(2)
    value = np.tanh(field).mean(1) * 3 + rng.normal(scale=MEASUREMENT_ERROR, size=count)
    inputs = np.concatenate([bonds, np.eye(ELEMENTS)[elements]], axis=2)
    return Examples(torch.from_numpy(inputs).float(), torch.from_numpy(value).float())


class MessagePassing(nn.Module):
    """Rounds of messages along the bonds, the mean over the atoms, one number."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = nn.Linear(ELEMENTS, WIDTH)
        self.own, self.sent = (nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(ROUNDS)) for _ in range(2))
        self.read = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Property of each molecule, (rows,)."""
        bonds, elements = inputs.split((ATOMS, ELEMENTS), dim=2)
        hidden = self.elements(elements)
        for own, sent in zip(self.own, self.sent, strict=True):
            hidden = hidden + (own(hidden) + bonds @ sent(hidden)).relu()
        value: Tensor = self.read(hidden.mean(1)).squeeze(1)
        return value


@register_kind("molecules_pooled")
@dataclass(frozen=True, kw_only=True)
class MoleculesPooled(Kind):
    """Regression with the absolute error, whose gradient keeps its size however small the error is."""

    family = "graphs"
    optimizer = "RMSprop"
    why = "absolute error, sums over neighbours, RMSprop"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=50)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = MessagePassing()
        return Parts(model, torch.optim.RMSprop(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return molecules(rng, self.config.rows if step else HELD_OUT_MOLECULES)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.l1_loss(model(batch.inputs), batch.labels)
