"""Addition modulo a prime: learnt by heart first, understood later."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.training import Examples, Kind, Parts, register_kind

PRIME = 31


@cache
def sums() -> Examples:
    """All pairs and their sums, in a fixed order; the first half is trained on."""
    order = np.random.default_rng(stable_hash("sums")).permutation(PRIME**2)
    pairs = np.stack([order // PRIME, order % PRIME], axis=1)
    return Examples(torch.from_numpy(pairs), torch.from_numpy(pairs.sum(axis=1) % PRIME))


class Adder(nn.Module):
    """One table of vectors for both numbers, and a network on their sum."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.numbers = nn.Embedding(PRIME, width)
        self.layers = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, PRIME))

    def forward(self, pairs: Tensor) -> Tensor:
        """Logits of the sum, (B, PRIME), of pairs, (B, 2)."""
        return self.layers(self.numbers(pairs).sum(dim=1))


@register_kind("grokking")
@dataclass(frozen=True, kw_only=True)
class Grokking(Kind):
    """All pairs of the training half in every batch, strong weight decay: no noise of sampling at all.

    Held out is the probability of wrong sums over all pairs, with 0.05 added: the cross entropy of the untrained half
    is a matter of how overconfident the model is, and of chance in when it understands.

    **Source:** Power et al. 2022, Grokking.
    """

    family = "tabular"
    optimizer = "AdamW"
    why = "full batches; weight decay of 1; the training loss falls to 1e-3 at once, the held-out one much later"
    config = LiveRunConfig(workers=1, rows=PRIME**2 // 2, learning_rate=5e-3, warm_up_steps=10, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Adder()
        return Parts(model, torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=1.0))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        every = sums()
        count = self.config.rows if step else len(every.labels)
        chosen = torch.from_numpy(rng.permutation(count))
        return Examples(every.inputs[chosen], every.labels[chosen])

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        right = model(batch.inputs).softmax(dim=1).gather(1, batch.labels.unsqueeze(1))
        return 1.05 - right.mean()

    def validation_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return self.loss(model, batch)
