"""A variational autoencoder whose second term is switched off and on again, four times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.kinds.vae_annealed import Vae, VaeAnnealed, Weighted
from studies.zoo.training import Parts, register_kind

CYCLE = 350
"""Steps; in the first half of each the weight grows from 0 to 1, then it stays."""


@register_kind("vae_cyclical")
@dataclass(frozen=True, kw_only=True)
class VaeCyclical(VaeAnnealed):
    """The loss is a saw: it falls in one step where the divergence costs nothing again (Fu et al. 2019)."""

    family = "generative"
    optimizer = "NAdam"
    zoo = "zoo_2"
    why = "the weight of the divergence is a saw of 350 steps, and so is the loss"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-3, warm_up_steps=20, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Vae(width=96, latent=6)
        return Parts(model, torch.optim.NAdam(model.parameters()))

    def planned(self, step: int) -> str:
        return "" if step % CYCLE else "the next cycle"

    def batch(self, rng: np.random.Generator, step: int) -> Weighted:
        weight = min(2.0 * (step % CYCLE) / CYCLE, 1.0) if step else 1.0
        return Weighted(digits().of_step(self, rng, step).inputs, weight)
