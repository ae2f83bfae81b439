"""Images and captions in one space, with a temperature that is learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind

SHADES, TURNS = 4, 4
FILLERS = 6
"""Words of a caption that mean nothing."""
WORDS = 10 + SHADES + TURNS + FILLERS
HOTTEST = math.log(100.0)


class TwoTowers(nn.Module):
    """A network for images, a recurrent one for captions, and the logarithm of one over the temperature."""

    def __init__(self, width: int = 48, shared: int = 24) -> None:
        super().__init__()
        self.images = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, shared)
        )
        self.words, self.reader = nn.Embedding(WORDS, width), nn.GRU(width, width, batch_first=True)
        self.caption = nn.Linear(width, shared)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1.0 / 0.07)))

    def forward(self, images: Tensor, captions: Tensor) -> Tensor:
        """Logits, (B, B): how well each image, (B, 1, 8, 8), fits each caption, (B, words)."""
        seen = functional.normalize(self.images(images), dim=1)
        read = functional.normalize(self.caption(self.reader(self.words(captions))[1][0]), dim=1)
        logits: Tensor = self.log_scale.clamp(max=HOTTEST).exp() * seen @ read.T
        return logits


@register_kind("clip_pairs")
@dataclass(frozen=True, kw_only=True)
class ClipPairs(Kind):
    """Captions say the digit, its shade and how it is turned, in any order, with a filler; some fit several images.

    **Source:** Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision.
    """

    family = "contrastive"
    optimizer = "AdamW"
    why = "two towers; a learnt temperature that sharpens the loss; captions that occur twice in a batch"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=2e-3, warm_up_steps=100, clip=math.inf)
    held_out_rows = 192
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = TwoTowers()
        return Parts(model, torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.2))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        drawn = digits().draw(rng, rows, held_out=step == 0)
        shade, turn = rng.integers(0, SHADES, rows), rng.integers(0, TURNS, rows)
        turned = np.stack(
            [np.rot90(image[0], number) for image, number in zip(drawn.inputs.numpy(), turn, strict=True)]
        )
        bright = (0.4 + 0.3 * shade)[:, None, None] * turned + 0.05 * rng.standard_normal(turned.shape)
        words = [drawn.labels.numpy(), 10 + shade, 10 + SHADES + turn, WORDS - 1 - rng.integers(0, FILLERS, rows)]
        captions = rng.permuted(np.stack(words, axis=1), axis=1)
        return Examples(torch.from_numpy(bright).float().unsqueeze(1), torch.from_numpy(captions))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        logits = model(batch.inputs, batch.labels)
        partner = torch.arange(len(logits))
        return 0.5 * (functional.cross_entropy(logits, partner) + functional.cross_entropy(logits.T, partner))
