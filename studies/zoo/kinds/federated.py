"""Federated averaging: four clients with unlike data train alone, and every 25 steps they are averaged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.training import Batch, Examples, Kind, KindRun, Parts, register_kind

CLIENTS, ROUND, FOREIGN = 4, 25, 0.1
"""``FOREIGN``: share of a client's examples that are not of its own digits."""


class Clients(nn.Module):
    """A network for each client."""

    def __init__(self) -> None:
        super().__init__()
        one = self._network()
        self.networks = nn.ModuleList(self._network() for _ in range(CLIENTS))
        for network in self.networks:
            network.load_state_dict(one.state_dict())

    def _network(self) -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))

    def average(self) -> dict[str, Tensor]:
        """Mean of the clients' weights, by name."""
        states = [network.state_dict() for network in self.networks]
        return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


@dataclass(frozen=True)
class Shards(Batch):
    """Examples of each client: images (B, CLIENTS, 1, 8, 8) and digits (B, CLIENTS)."""

    images: Tensor
    labels: Tensor


@register_kind("federated")
@dataclass(frozen=True, kw_only=True)
class Federated(Kind):
    """The loss is the mean of the clients' own; it falls between averages and leaps at each. Held out: the average's.

    **Source:** McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data.
    """

    family = "vision"
    optimizer = "SGD"
    why = "weights change at a stroke every 25 steps, and the loss is a sawtooth"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.1, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Clients()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def batch(self, rng: np.random.Generator, step: int) -> Any:
        if not step:
            return digits().draw(rng, self.rows(step), held_out=True)
        images, labels = zip(*(self._of_client(rng, client) for client in range(CLIENTS)), strict=True)
        return Shards(torch.stack(images, dim=1), torch.stack(labels, dim=1))

    def _of_client(self, rng: np.random.Generator, client: int) -> tuple[Tensor, Tensor]:
        """A batch mostly of the client's own digits, those that leave its number when divided by four."""
        drawn = digits().draw(rng, 6 * self.config.rows, held_out=False)
        own = (drawn.labels % CLIENTS == client) | torch.from_numpy(rng.random(len(drawn.labels)) < FOREIGN)
        chosen = own.int().argsort(descending=True, stable=True)[: self.config.rows]
        return drawn.inputs[chosen], drawn.labels[chosen]

    def before_step(self, run: KindRun, batch: Any) -> None:
        if run.step % ROUND == 0:
            assert isinstance(run.model, Clients)
            average = run.model.average()
            for network in run.model.networks:
                network.load_state_dict(average)

    def loss(self, model: nn.Module, batch: Shards) -> Tensor:
        assert isinstance(model, Clients)
        losses = [
            functional.cross_entropy(network(batch.images[:, client]), batch.labels[:, client])
            for client, network in enumerate(model.networks)
        ]
        return torch.stack(losses).mean()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        assert isinstance(model, Clients)
        logits = functional_call(model.networks[0], model.average(), (batch.inputs,))
        return functional.cross_entropy(logits, batch.labels)
