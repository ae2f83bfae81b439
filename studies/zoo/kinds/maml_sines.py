"""Learning to learn: the loss is that after one step of gradient descent on a few points of each task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Examples, Kind, Parts, register_kind

SHOWN, INNER_RATE = 10, 0.05
"""Points from which a task is learnt, of twice as many; rate of the step that does it."""


@register_kind("maml_sines")
@dataclass(frozen=True, kw_only=True)
class MamlSines(Kind):
    """Sine waves of some amplitude and phase; gradients go through a gradient, in training and in evaluation.

    **Source:** Finn et al. 2017, Model-Agnostic Meta-Learning, section 5.1.
    """

    family = "tabular"
    optimizer = "Adam"
    why = "an inner step of training within the loss; a batch of few tasks, each as hard as its amplitude"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=2e-3, warm_up_steps=0, clip=10.0)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        tasks = self.rows(step)
        points = rng.uniform(-5.0, 5.0, (tasks, 2 * SHOWN, 1))
        amplitude, phase = rng.uniform(0.1, 3.0, (tasks, 1, 1)), rng.uniform(0.0, np.pi, (tasks, 1, 1))
        return Examples(torch.from_numpy(points).float(), torch.from_numpy(amplitude * np.sin(points + phase)).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        weights: dict[str, Tensor] = dict(model.named_parameters())

        def error(weights: dict[str, Tensor], points: Tensor, values: Tensor) -> Tensor:
            return functional.mse_loss(functional_call(model, weights, (points,)), values)

        def after_a_step(points: Tensor, values: Tensor) -> Tensor:
            slopes = grad(error)(weights, points[:SHOWN], values[:SHOWN])
            learnt = {name: each - INNER_RATE * slopes[name] for name, each in weights.items()}
            return error(learnt, points[SHOWN:], values[SHOWN:])

        return vmap(after_a_step)(batch.inputs, batch.labels).mean()
