"""Topics of papers from their words and citations, where a paper attends to the neighbours that matter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.training import Batch, Kind, Parts, register_kind

NODES, TOPICS, WORDS, HEADS = 24, 6, 16, 4
WITHIN, BETWEEN = 0.4, 0.15
"""Chance of an edge between two nodes of a topic, and of two."""


@cache
def topics() -> Tensor:
    """Mean words of each topic, (TOPICS, WORDS), the same in every run."""
    rng = np.random.default_rng(stable_hash("graph attention/topics"))
    return torch.from_numpy(rng.normal(0.0, 0.4, (TOPICS, WORDS))).float()


@dataclass(frozen=True)
class Graphs(Batch):
    """Some graphs of as many nodes."""

    inputs: Tensor
    """Words, (B, NODES, WORDS)."""
    edges: Tensor
    """Whether the second node is seen by the first, (B, NODES, NODES); each sees itself."""
    labels: Tensor
    """Topics, (B, NODES)."""


class Attentive(nn.Module):
    """A node's features are a mean over those that it sees, by weights of each head."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.values, self.skip = nn.Linear(into, HEADS * out, bias=False), nn.Linear(into, HEADS * out)
        self.of_seen, self.of_seer = (nn.Parameter(torch.randn(HEADS, out) / math.sqrt(out)) for _ in range(2))
        self.dropout = nn.Dropout(0.2)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """(B, NODES, into) to (B, NODES, HEADS, out)."""
        values = self.values(nodes).unflatten(2, (HEADS, -1))
        seer, seen = ((values * each).sum(3).transpose(1, 2) for each in (self.of_seer, self.of_seen))
        score = functional.leaky_relu(seer.unsqueeze(3) + seen.unsqueeze(2), 0.2)
        weight = self.dropout(score.masked_fill(~edges.unsqueeze(1), -math.inf).softmax(3))
        mixed: Tensor = (weight @ values.transpose(1, 2)).transpose(1, 2) + self.skip(nodes).unflatten(2, (HEADS, -1))
        return mixed


class GraphAttention(nn.Module):
    """Two layers; the heads stand side by side after the first, and are averaged after the second."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = Attentive(WORDS, width), Attentive(HEADS * width, TOPICS)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Logits of each node's topic, (B, NODES, TOPICS)."""
        hidden = functional.elu(self.first(nodes, edges).flatten(2))
        logits: Tensor = self.second(hidden, edges).mean(2)
        return logits


@register_kind("graph_attention")
@dataclass(frozen=True, kw_only=True)
class GraphAttentionKind(Kind):
    """New graphs in each step, so that no graph is learnt by heart; two edges in three lead to another topic.

    **Source:** Veličković et al. 2018, Graph Attention Networks.
    """

    family = "graphs"
    optimizer = "Adagrad"
    why = "attention over neighbours of small graphs; dropout on the attention; Adagrad at a constant rate"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=0.005, warm_up_steps=0, clip=math.inf)
    held_out_rows = 64

    def make(self, seed: int) -> Parts:
        model = GraphAttention()
        return Parts(model, torch.optim.Adagrad(model.parameters(), lr=0.005))

    def batch(self, rng: np.random.Generator, step: int) -> Graphs:
        rows = self.rows(step)
        of_node = rng.integers(0, TOPICS, (rows, NODES))
        alike = of_node[:, :, None] == of_node[:, None, :]
        edges = np.triu(rng.random(alike.shape) < np.where(alike, WITHIN, BETWEEN), 1)
        edges = edges | edges.transpose(0, 2, 1) | np.eye(NODES, dtype=bool)
        labels = torch.from_numpy(of_node)
        words = topics()[labels] + torch.from_numpy(rng.standard_normal((rows, NODES, WORDS), dtype=np.float32))
        return Graphs(words, torch.from_numpy(edges), labels)

    def loss(self, model: nn.Module, batch: Graphs) -> Tensor:
        return functional.cross_entropy(model(batch.inputs, batch.edges).flatten(0, 1), batch.labels.flatten())
