"""Clusters as classes: every 200 steps images are clustered anew, and a fresh layer learns the new classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import HELD_OUT_EVERY, digits, view
from studies.zoo.memory import Memory
from studies.zoo.probes import probe_error
from studies.zoo.stages import begins_anew
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

CLUSTERS, ITERATIONS, ROUND, FEATURES = 20, 20, 200, 32


class Clustered(nn.Module):
    """Features of images, and a layer that tells their clusters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64, FEATURES), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(FEATURES, CLUSTERS)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the clusters, (B, CLUSTERS)."""
        logits: Tensor = self.head(self.features(images))
        return logits


def clusters_of(features: Tensor, first: NDArray[np.int64]) -> Tensor:
    """Number of the cluster, (B,), of features, (B, FEATURES), by Lloyd's algorithm; ``first``: the first centres."""
    centres = features[torch.from_numpy(first)]
    for _ in range(ITERATIONS):
        nearest = torch.cdist(features, centres).argmin(1)
        members = functional.one_hot(nearest, len(centres)).float().T
        sizes = members.sum(1, keepdim=True)
        centres = torch.where(sizes > 0.0, members @ features / sizes.clamp(min=1.0), centres)
    return torch.cdist(features, centres).argmin(1)


@register_kind("deep_cluster")
@dataclass(frozen=True, kw_only=True)
class DeepCluster(Kind):
    """The loss falls within a round and is back at the logarithm of 20 with each new one.

    Held out is what the features are worth. As it is drawn, a batch holds all views and, as labels, the images' places.

    **Source:** Caron et al. 2018, Deep Clustering for Unsupervised Learning of Visual Features.
    """

    family = "contrastive"
    optimizer = "SGD"
    why = "labels change and the last layer is drawn anew every 200 steps: a sawtooth"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=0.05, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Clustered()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        return Parts(model, optimizer, {"clusters": Memory(of_image=torch.empty(0))})

    def planned(self, step: int) -> str:
        return "new clusters, and a new last layer" if begins_anew(step, ROUND) else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        if not step:
            return digits().draw(rng, self.rows(step), held_out=True)
        every = np.arange(len(digits().labels))
        places = torch.from_numpy(rng.choice(every[every % HELD_OUT_EVERY != 0], self.rows(step)))
        return Examples(view(rng, digits().inputs[places]), places)

    def experience(self, run: KindRun, batch: Examples) -> Examples:
        clusters = run.beside["clusters"].tensors
        if (run.step - 1) % ROUND == 0:
            clusters["of_image"] = self._clustered(run)
        return Examples(batch.inputs, clusters["of_image"][batch.labels])

    @torch.no_grad()
    def _clustered(self, run: KindRun) -> Tensor:
        model: Any = run.model
        model.head.reset_parameters()
        features = functional.normalize(model.features.eval()(digits().inputs), dim=1)
        model.train()
        return clusters_of(features, run.rng("deep_cluster/centres").choice(len(features), CLUSTERS, replace=False))

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return probe_error(model.features, batch)
