"""Self-distillation: a student follows its own moving average, which is sharpened and centred."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits, view
from studies.zoo.memory import follow
from studies.zoo.probes import probe_error
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

OUTPUTS, FEATURES = 64, 24
STUDENT_TEMPERATURE, COLD, WARM, WARMED = 0.1, 0.04, 0.05, (200, 600)
"""Temperatures; the teacher's goes from cold to warm between these steps, and the student's loss with it."""
HEAD_FROM, FOLLOW, CENTRE_FOLLOW = 100, 0.02, 0.1
"""First step in which the last layer is trained."""


def tower() -> nn.Sequential:
    """Features, and a last layer that compares directions."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 48), nn.GELU(), nn.Linear(48, FEATURES),
        Directions(FEATURES, OUTPUTS),
    )  # fmt: skip


class Directions(nn.Linear):
    """Cosines of the angles to some learnt directions."""

    def forward(self, features: Tensor) -> Tensor:
        """Cosines, (B, OUTPUTS)."""
        return functional.linear(functional.normalize(features, dim=1), functional.normalize(self.weight, dim=1))


class Dino(nn.Module):
    """Student, teacher, the mean of what the teacher says, and its temperature."""

    centre: Tensor
    temperature: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.student = tower()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(OUTPUTS))
        self.register_buffer("temperature", torch.tensor(COLD))

    def answer(self, images: Tensor, temperature: Tensor | float) -> Tensor:
        """Chances of the outputs, (B, OUTPUTS), that the teacher gives to images, (B, 1, 8, 8)."""
        logits: Tensor = (self.teacher(images) - self.centre) / temperature
        return logits.softmax(1)


@register_kind("dino_teacher")
@dataclass(frozen=True, kw_only=True)
class DinoTeacher(Kind):
    """Cross entropy between views; its value says little, so held out is what the teacher's answers are worth.

    A batch is labels and, as inputs, two views of each image, (B, 2, 1, 8, 8); held out, the plain image.

    **Source:** Caron et al. 2021, Emerging Properties in Self-Supervised Vision Transformers.
    """

    family = "contrastive"
    optimizer = "AdamW"
    why = "a moving target: its temperature rises from step 200 to 600, and a layer is frozen up to step 100"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=1e-3, warm_up_steps=100, clip=3.0)
    schedule = staticmethod(partial(cosine, last=0.01))

    def make(self, seed: int) -> Parts:
        model = Dino()
        return Parts(model, torch.optim.AdamW(model.student.parameters(), weight_decay=0.04))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step)
        if not step:
            return drawn
        return Examples(torch.stack([view(rng, drawn.inputs), view(rng, drawn.inputs)], dim=1), drawn.labels)

    @torch.no_grad()
    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        follow(model.teacher, model.student, FOLLOW)
        model.centre.lerp_(model.teacher(batch.inputs.flatten(0, 1)).mean(0), CENTRE_FOLLOW)
        first, last = WARMED
        model.temperature.fill_(COLD + (WARM - COLD) * min(max((run.step - first) / (last - first), 0.0), 1.0))
        model.student[-1].requires_grad_(run.step >= HEAD_FROM)

    def loss(self, model: Any, batch: Examples) -> Tensor:
        first, second = batch.inputs.unbind(1)
        with torch.no_grad():
            said = [model.answer(each, model.temperature) for each in (first, second)]
        own = [(model.student(each) / STUDENT_TEMPERATURE).log_softmax(1) for each in (second, first)]
        return -0.5 * sum(
            ((one * other).sum(1).mean() for one, other in zip(said, own, strict=True)), torch.tensor(0.0)
        )

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return probe_error(lambda images: model.answer(images, COLD), batch)
