"""Embeddings of a knowledge graph: a relation is a step from one thing to another."""

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

THINGS, RELATIONS, WIDTH, MARGIN = 300, 8, 24, 1.0
HELD_OUT_EVERY = 8


@cache
def facts() -> Tensor:
    """All facts (thing, relation, thing), (facts, 3): the two things nearest to where a hidden step leads."""
    rng = np.random.default_rng(stable_hash("facts"))
    places, steps = rng.normal(size=(THINGS, 3)), rng.normal(size=(RELATIONS, 3))
    reached = places[:, None] + steps
    distance = np.linalg.norm(reached[:, :, None] - places, axis=3)
    nearest = distance.argsort(axis=2)[:, :, :2]
    thing, relation, _ = np.meshgrid(np.arange(THINGS), np.arange(RELATIONS), np.arange(2), indexing="ij")
    return torch.from_numpy(rng.permutation(np.stack([thing, relation, nearest], axis=3).reshape(-1, 3)))


class TransE(nn.Module):
    """A vector for each thing, of length 1, and one for each relation."""

    def __init__(self) -> None:
        super().__init__()
        self.things, self.relations = nn.Embedding(THINGS, WIDTH), nn.Embedding(RELATIONS, WIDTH)
        for table in (self.things, self.relations):
            nn.init.uniform_(table.weight, -6.0 * WIDTH**-0.5, 6.0 * WIDTH**-0.5)

    def forward(self, triples: Tensor) -> Tensor:
        """Distance between where a relation leads and the second thing, (...), of triples, (..., 3)."""
        first, relation, second = triples.unbind(-1)
        return (self.things(first) + self.relations(relation) - self.things(second)).norm(dim=-1)


@register_kind("knowledge_graph")
@dataclass(frozen=True, kw_only=True)
class KnowledgeGraph(Kind):
    """A fact is to be nearer by a margin than the same fact with one thing exchanged.

    Held out is the logarithm of the rank of the right thing among all.

    **Source:** Bordes et al. 2013, Translating Embeddings for Modeling Multi-relational Data.
    """

    family = "graphs"
    optimizer = "SGD"
    why = "margin loss on facts and corrupted facts; embeddings set back to length 1 before each step"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=128, learning_rate=1.0, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = TransE()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=1.0))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        every = facts()
        mine = np.flatnonzero((np.arange(len(every)) % HELD_OUT_EVERY == 0) == (step == 0))
        rows = self.rows(step)
        true = every[torch.from_numpy(rng.choice(mine, rows))]
        false = true.clone()
        false[torch.arange(rows), torch.from_numpy(rng.choice((0, 2), rows))] = torch.from_numpy(
            rng.integers(0, THINGS, rows)
        )
        return Examples(true, false)

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        with torch.no_grad():
            model.things.weight.copy_(functional.normalize(model.things.weight, dim=1))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.relu(MARGIN + model(batch.inputs) - model(batch.labels)).mean()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        every = batch.inputs.unsqueeze(1).repeat(1, THINGS, 1)
        every[:, :, 2] = torch.arange(THINGS)
        nearer = (model(every) < model(batch.inputs).unsqueeze(1)).sum(dim=1)
        return (2.0 + nearer).log().mean()
