"""An MLP-Mixer trained by sharpness-aware minimisation: each gradient is taken where the loss is worst nearby."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import AugmentedDigitsKind
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Parts, register_kind

PATCH, PATCHES, REACH = 2, 16, 0.05
"""Pixels of a patch's side; how far away the weights are at which a gradient is taken."""


class Mixing(nn.Module):
    """Two layers across the patches, then two across the features, each beside a residual path."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.patches = nn.Sequential(nn.Linear(PATCHES, 2 * PATCHES), nn.GELU(), nn.Linear(2 * PATCHES, PATCHES))
        self.features = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, PATCHES, width) to the same."""
        hidden = hidden + self.patches(self.before(hidden).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = hidden + self.features(self.between(hidden))
        return mixed


class Mixer(nn.Module):
    """From images to logits of digits."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into = nn.Linear(PATCH**2, width)
        self.layers = nn.Sequential(Mixing(width), Mixing(width), nn.LayerNorm(width))
        self.out = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (B, 10), of images, (B, 1, 8, 8)."""
        patches = functional.pixel_unshuffle(images, PATCH).flatten(2).transpose(1, 2)
        logits: Tensor = self.out(self.layers(self.into(patches)).mean(1))
        return logits


def climbed(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Weights by name, a step of length :data:`REACH` up the loss away; gradients pass through to the model's own."""
    weights = dict(model.named_parameters())
    slopes = torch.autograd.grad(loss, list(weights.values()))
    length = torch.stack([slope.norm() for slope in slopes]).norm() + 1e-12
    return {
        name: weight + REACH / length * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)
    }


@register_kind("mixer_sharpness")
@dataclass(frozen=True, kw_only=True)
class MixerSharpness(AugmentedDigitsKind):
    """The loss that is handed over is the one uphill, above that of the weights themselves; held out is the latter.

    **Source:** Foret et al. 2021, Sharpness-Aware Minimization; Tolstikhin et al. 2021, MLP-Mixer.
    """

    family = "vision"
    optimizer = "SGD"
    why = "two gradients a step, the second at weights uphill; mixing of patches without attention; cosine"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.1, warm_up_steps=100, clip=1.0)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = Mixer()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        uphill = climbed(model, self.held_out_loss(model, batch))
        return functional.cross_entropy(functional_call(model, uphill, (batch.inputs,)), batch.labels)

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return super().loss(model, batch)
