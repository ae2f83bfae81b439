"""Differential privacy: each example's gradient is clipped, noise is added, and batches differ in size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.training import Examples, Kind, Parts, register_kind

LARGEST = 1.0
"""Norm to which an example's gradient is clipped."""
EXPECTED_ROWS, NOISE = 96, 1.0
"""Mean size of a batch; noise of the sum of gradients, in norms of a clipped one."""


class NoisySgd(torch.optim.SGD):
    """SGD with momentum that adds Gaussian noise to each gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update."""
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    weights.grad.add_(torch.randn_like(weights), alpha=NOISE * LARGEST / EXPECTED_ROWS)
        return super().step(closure)


@register_kind("private_digits")
@dataclass(frozen=True, kw_only=True)
class PrivateDigits(Kind):
    """The loss that is handed on is the plain mean; its gradient is that of the clipped examples.

    **Source:** Abadi et al. 2016, Deep Learning with Differential Privacy; each example takes part by chance.
    """

    family = "vision"
    optimizer = "DP-SGD"
    why = "clipping by example and noise on gradients; the number of rows is random; slow and noisy learning"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=EXPECTED_ROWS, learning_rate=0.3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
        return Parts(model, NoisySgd(model.parameters(), lr=0.3, momentum=0.5))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = max(int(rng.poisson(EXPECTED_ROWS)), 1) if step else self.held_out_rows
        return digits().draw(rng, rows, held_out=step == 0)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        errors = functional.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
        clipped = (shares(model, batch) * errors).sum() / EXPECTED_ROWS
        return errors.detach().mean() + clipped - clipped.detach()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return super().loss(model, batch)


def shares(model: nn.Module, batch: Examples) -> Tensor:
    """By what each example's gradient is multiplied, (B,), so that none is longer than :data:`LARGEST`."""
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def error(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, weights, (image.unsqueeze(0),))
        return functional.cross_entropy(logits, label.unsqueeze(0))

    gradients = vmap(grad(error), in_dims=(None, 0, 0))(weights, batch.inputs, batch.labels)
    squared = torch.stack([each.flatten(1).square().sum(1) for each in gradients.values()])
    return (LARGEST / squared.sum(0).sqrt().clamp(min=1e-9)).clamp(max=1.0)
