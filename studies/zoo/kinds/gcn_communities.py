"""A graph convolutional network on one graph: the batch is always the same, and few of its nodes have labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Examples, Kind, Parts, register_kind

NODES, COMMUNITIES, FEATURES, WIDTH = 400, 4, 16, 16
WITHIN, BETWEEN = 0.03, 0.01
"""Chance of an edge within a community and between two."""
LABELLED_EVERY, IGNORED = 5, -100
HELD_OUT_SHARE = 0.7
"""Of the nodes without a label in training, those on which a purpose judges."""


@cache
def graph() -> tuple[Tensor, Tensor, Tensor]:
    """A stochastic block model, the same for all: normalised adjacency, features and communities of the nodes."""
    rng = np.random.default_rng(0)
    of_node = rng.integers(0, COMMUNITIES, size=NODES)
    chance = np.where(of_node[:, None] == of_node, WITHIN, BETWEEN)
    edges = np.triu(rng.random((NODES, NODES)) < chance, 1)
    adjacency = (edges | edges.T | np.eye(NODES, dtype=bool)).astype(np.float32)
    scale = adjacency.sum(1) ** -0.5
    features = rng.normal(size=(COMMUNITIES, FEATURES))[of_node] * 0.4 + rng.normal(size=(NODES, FEATURES))
    normalised = scale[:, None] * adjacency * scale
    return torch.from_numpy(normalised), torch.from_numpy(features).float(), torch.from_numpy(of_node)


class Gcn(nn.Module):
    """Two graph convolutions with dropout (Kipf, Welling 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, COMMUNITIES)
        self.dropout = nn.Dropout(0.5)

    def forward(self, features: Tensor) -> Tensor:
        """Logits of the nodes, (nodes, communities), of their features, (nodes, features)."""
        adjacency = graph()[0]
        hidden = (adjacency @ self.first(self.dropout(features))).relu()
        logits: Tensor = adjacency @ self.second(self.dropout(hidden))
        return logits


@register_kind("gcn_communities")
@dataclass(frozen=True, kw_only=True)
class GcnCommunities(Kind):
    """Full batches: what differs between steps is dropout alone."""

    family = "graphs"
    optimizer = "Adam"
    why = "one full batch for ever, noise from dropout alone, few labels"
    config = LiveRunConfig(workers=1, learning_rate=0.003, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Gcn()
        return Parts(model, torch.optim.Adam(model.parameters(), weight_decay=5e-3))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        _, features, of_node = graph()
        labelled = torch.arange(NODES) % LABELLED_EVERY == 0
        counted = labelled if step else ~labelled & torch.from_numpy(rng.random(NODES) < HELD_OUT_SHARE)
        return Examples(features, of_node.where(counted, torch.tensor(IGNORED)))
