"""Self-training: few labels, and for the rest what the model itself is sure of, asked anew every 250 steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import HELD_OUT_EVERY, digits, view
from studies.zoo.memory import Memory
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

ROUND, SURE = 250, 0.8
LABELLED_EVERY = 21
"""Every so many images, of those to train on, have a label from the start."""


@register_kind("pseudo_labels")
@dataclass(frozen=True, kw_only=True)
class PseudoLabels(Kind):
    """With each round harder images come into the data, some with a wrong label, and the loss jumps up.

    Held out is the probability of wrong digits, with 0.05 added. As it is drawn, a batch holds uniform numbers.

    **Source:** Lee 2013, Pseudo-Label; Xie et al. 2020, Self-training with Noisy Student, for the noise.
    """

    family = "vision"
    optimizer = "RAdam"
    why = "data and labels change every 250 steps by what the model is sure of"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=2e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(256, 48), nn.ReLU(), nn.Linear(48, 10),
        )  # fmt: skip
        mine = torch.arange(len(digits().labels))
        mine = mine[mine % HELD_OUT_EVERY != 0]
        known = mine[::LABELLED_EVERY]
        pool = Memory(mine=mine, known=known, images=known, labels=digits().labels[known])
        return Parts(model, torch.optim.RAdam(model.parameters(), weight_decay=1e-4), {"pool": pool})

    def planned(self, step: int) -> str:
        return "" if step % ROUND else "images are labelled anew"

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        if not step:
            return digits().draw(rng, self.rows(step), held_out=True)
        return Examples(torch.empty(0), torch.from_numpy(rng.random(self.rows(step))))

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Examples) -> Examples:
        pool = run.beside["pool"].tensors
        if run.step % ROUND == 0:
            run.model.eval()
            chances, said = run.model(digits().inputs[pool["mine"]]).softmax(1).max(1)
            run.model.train()
            sure, known = chances > SURE, pool["known"]
            pool["images"] = torch.cat([known, pool["mine"][sure]])
            pool["labels"] = torch.cat([digits().labels[known], said[sure]])
        chosen = (batch.labels * len(pool["images"])).long()
        images = view(run.rng("pseudo_labels/view"), digits().inputs[pool["images"][chosen]])
        return Examples(images, pool["labels"][chosen])

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return 1.05 - model(batch.inputs).softmax(1).gather(1, batch.labels.unsqueeze(1)).mean()

    def validation_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return self.loss(model, batch)
