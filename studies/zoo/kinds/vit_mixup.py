"""A vision transformer on mixed images: its loss has two levels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Parts, register_kind


class PatchTransformer(nn.Module):
    """Transformer encoder over patches of 2 × 2 pixels of an image of 8 × 8, averaged, with ten classes."""

    def __init__(self, width: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        self.places = nn.Parameter(0.02 * torch.randn(16, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(depth)
            ),
            nn.LayerNorm(width),
        )
        self.classes = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (B, 10), of images, (B, 1, 8, 8)."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.classes(self.layers(tokens).mean(dim=1))


@register_kind("vit_mixup")
@dataclass(frozen=True, kw_only=True)
class VitMixup(DigitsKind):
    """Every other batch or so is mixed with itself in another order: losses alternate between two levels.

    **Source:** Zhang et al. 2018, mixup.
    """

    family = "vision"
    optimizer = "AdamW"
    why = "vision transformer; mixup on half of the batches, so that the loss has two levels"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=2e-3, warm_up_steps=50, clip=1.0)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = PatchTransformer()
        return Parts(model, torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.05))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        if torch.rand(()) < 0.5:
            return self.held_out_loss(model, batch)
        order = torch.randperm(len(batch.labels))
        share = float(torch.empty(()).uniform_(0.5, 0.9))
        logits = model(share * batch.inputs + (1.0 - share) * batch.inputs[order])
        own, other = (functional.cross_entropy(logits, labels) for labels in (batch.labels, batch.labels[order]))
        return share * own + (1.0 - share) * other

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return super().loss(model, batch)
