"""What generative adversarial networks share: layers, a discriminator's step, the measure of what is generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from studies.zoo.memory import follow
from studies.zoo.training import Examples, KindRun

AVERAGED = 0.02
"""Share by which the generator's moving average follows it in a step."""
LATENT = 8
"""Numbers that a generator of points in the plane gets."""


def layers(into: int, out: int, width: int = 64) -> nn.Module:
    """Three layers: a generator of points, or their discriminator."""
    return nn.Sequential(
        nn.Linear(into, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, out)
    )


def step_discriminator(run: KindRun, batch: Examples, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """One step of the discriminator; the generator's moving average follows.

    ``loss`` gets what the discriminator says of the real (the batch's labels) and of the generated (from its inputs).
    """
    model: Any = run.model
    optimizer = run.beside["discriminator"]
    follow(model.average, model.generator, AVERAGED)
    model.discriminator.requires_grad_(True)
    real = model.discriminator(batch.labels)
    made = model.discriminator(model.generator(batch.inputs).detach())
    loss(real, made).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.discriminator.requires_grad_(False)


def energy_distance(made: Tensor, real: Tensor) -> Tensor:
    """Distance of two distributions from samples of them, (B, features) each; 0 if they are alike.

    **Source:** Székely, Rizzo 2013, Energy statistics.
    """
    between = 2.0 * torch.cdist(made, real).mean() - torch.cdist(made, made).mean() - torch.cdist(real, real).mean()
    return between.clamp(min=0.0).sqrt()
