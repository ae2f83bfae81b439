"""Faults of machines, labelled in one plant and to be known in another: features that do not tell the plants apart."""

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
from studies.zoo.training import Batch, Kind, KindRun, Parts, register_kind

SENSORS, FAULTS, WAYS = 16, 4, 2
"""``WAYS``: in which a fault shows itself."""


@cache
def plants() -> tuple[Tensor, Tensor]:
    """Mean of the sensors for each way of each fault, (FAULTS * WAYS, SENSORS), and how the other plant's differ."""
    rng = np.random.default_rng(stable_hash("domain adversarial"))
    means, apart = rng.normal(0.0, 0.7, (FAULTS * WAYS, SENSORS)), rng.normal(0.0, 2.5, SENSORS)
    return torch.from_numpy(means).float(), torch.from_numpy(apart * (np.arange(SENSORS) % 2)).float()


@dataclass(frozen=True)
class TwoPlants(Batch):
    """Sensors of both plants, and the faults; in training nobody looks at those of the second."""

    inputs: Tensor
    """(B, 2, SENSORS)."""
    labels: Tensor
    """(B, 2)."""


class Adversarial(nn.Module):
    """Features, from which one head tells the fault and another the plant; the features work against the latter."""

    strength: Tensor

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(SENSORS, 48), nn.ReLU(), nn.Linear(48, width), nn.ReLU())
        self.fault = nn.Linear(width, FAULTS)
        self.plant = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("strength", torch.zeros(()))

    def plant_of(self, features: Tensor) -> Tensor:
        """Logits of the second plant, (...); their gradient comes back to the features with its sign turned."""
        turned = (1.0 + self.strength) * features.detach() - self.strength * features
        logits: Tensor = self.plant(turned).squeeze(-1)
        return logits


@register_kind("domain_adversarial")
@dataclass(frozen=True, kw_only=True)
class DomainAdversarial(Kind):
    """The loss of the plants falls at first and comes back to ln 2 as the features are turned against it, by and by.

    Held out are faults of the second plant.

    **Source:** Ganin et al. 2016, Domain-Adversarial Training of Neural Networks.
    """

    family = "tabular"
    optimizer = "SGD"
    why = "two heads that want the opposite of the features; the loss of one falls, climbs back and stands, by design"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=0.03, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Adversarial()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9))

    def batch(self, rng: np.random.Generator, step: int) -> TwoPlants:
        ways = torch.from_numpy(rng.integers(0, FAULTS * WAYS, (self.rows(step) if step else 1024, 2)))
        means, apart = plants()
        sensors = means[ways] + torch.from_numpy(rng.standard_normal((*ways.shape, SENSORS))).float()
        sensors[:, 1] += apart
        return TwoPlants(sensors, ways % FAULTS)

    def before_step(self, run: KindRun, batch: TwoPlants) -> None:
        model: Any = run.model
        model.strength.fill_(2.0 / (1.0 + math.exp(-10.0 * run.step / run.steps)) - 1.0)

    def loss(self, model: Any, batch: TwoPlants) -> Tensor:
        features = model.features(batch.inputs)
        plants_told = model.plant_of(features)
        second = torch.tensor([0.0, 1.0]).expand_as(plants_told)
        of_plant = functional.binary_cross_entropy_with_logits(plants_told, second)
        return functional.cross_entropy(model.fault(features[:, 0]), batch.labels[:, 0]) + of_plant

    def held_out_loss(self, model: Any, batch: TwoPlants) -> Tensor:
        return functional.cross_entropy(model.fault(model.features(batch.inputs[:, 1])), batch.labels[:, 1])

    def rate(self, step: int, steps: int) -> float:
        return float((1.0 + 10.0 * step / steps) ** -0.75)
