"""The next byte from the eight before it, in weights of eight bits of precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.corpus import BYTES
from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.text import next_bytes
from studies.zoo.training import Examples, Kind, Parts, register_kind

BEFORE, WIDTH = 8, 96


def ngram_model() -> nn.Sequential:
    """Logits of the next byte, (rows, bytes), of the bytes before it, (rows, 8)."""
    return nn.Sequential(
        nn.Embedding(BYTES, 16), nn.Flatten(), nn.Linear(16 * BEFORE, WIDTH), nn.GELU(), nn.Linear(WIDTH, BYTES)
    )


def ngrams(rng: np.random.Generator, rows: int, *, held_out: bool) -> Examples:
    """Eight bytes each, (rows, 8), and the next one, (rows,)."""
    text = next_bytes(rng, rows // BEFORE, 2 * BEFORE - 1, held_out=held_out)
    return Examples(text.inputs.unfold(1, BEFORE, 1).flatten(0, 1), text.labels[:, BEFORE - 1 :].flatten())


@register_kind("ngram_bf16")
@dataclass(frozen=True, kw_only=True)
class NgramBf16(Kind):
    """Small updates vanish in the rounding, so weights, gradients and optimizer state move in grains."""

    family = "language"
    optimizer = "AdamW"
    why = "bfloat16 weights, gradients and optimizer state"
    config = LiveRunConfig(workers=1, rows=256, learning_rate=2e-3, warm_up_steps=50)
    schedule = staticmethod(partial(cosine, last=0.1))

    def make(self, seed: int) -> Parts:
        model = ngram_model().bfloat16()
        return Parts(model, torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return ngrams(rng, self.config.rows, held_out=step == 0)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.cross_entropy(model(batch.inputs).float(), batch.labels)
