"""Lottery tickets: every 350 steps half of the weights are taken out, and the others go back to their early values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import AugmentedDigitsKind
from studies.zoo.memory import Memory
from studies.zoo.schedules import drops
from studies.zoo.stages import begins_anew
from studies.zoo.training import Examples, KindRun, Parts, register_kind

ROUND, EARLY, TAKEN = 350, 40, 0.5
"""Steps of a training; steps after which weights are kept for later; share of what is left that goes each time."""


def masked_layers(model: nn.Module) -> list[nn.Module]:
    """Layers of which weights can be taken out."""
    return [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]


def take_out(layer: nn.Module, share: float) -> None:
    """Take out this share of the weights of a layer that are left, the smallest ones; the last one stays."""
    mask, weight = layer.get_buffer("weight_mask"), layer.get_parameter("weight_orig").detach()
    size = weight.abs()[mask > 0.0]
    if len(size) > 1:  # else a run of more than the usual steps would have none left
        mask.mul_(weight.abs() > size.kthvalue(max(1, round(share * len(size)))).values)


@register_kind("lottery_rewinding")
@dataclass(frozen=True, kw_only=True)
class LotteryRewinding(AugmentedDigitsKind):
    """Four trainings in a row, each with its own warm-up and drops; the loss leaps back to that of step 40.

    **Source:** Frankle, Carbin 2019, The Lottery Ticket Hypothesis; Frankle et al. 2020 on early weights.
    """

    family = "vision"
    optimizer = "SGD"
    why = "weights are taken out and set back three times, and the rate begins anew: a sawtooth of whole trainings"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.05, warm_up_steps=20, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
        for layer in masked_layers(model):
            prune.identity(layer, "weight")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        return Parts(model, optimizer, {"early": Memory()})

    def planned(self, step: int) -> str:
        return "weights are pruned, the others rewound; the schedule restarts" if begins_anew(step, ROUND) else ""

    def before_step(self, run: KindRun, batch: Examples) -> None:
        early, weights = run.beside["early"].tensors, dict(run.model.named_parameters())
        if run.step == EARLY + 1:
            early.update({name: weight.detach().clone() for name, weight in weights.items()})
        if not begins_anew(run.step, ROUND):
            return
        for layer in masked_layers(run.model):
            take_out(layer, TAKEN)
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(early[name])
        run.optimizer.state.clear()  # what has momentum belongs to the training before

    def rate(self, step: int, steps: int) -> float:
        place = (step - 1) % ROUND + 1
        return super().rate(place, steps) * drops(place / ROUND, at=(0.6, 0.85), factor=0.2)
