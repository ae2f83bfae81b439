"""A masked language model: BERT in small, whose loss counts one token of seven."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rmetric.live.corpus import BYTES
from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import linear
from studies.zoo.text import TokenKind, next_bytes
from studies.zoo.training import Examples, Parts, register_kind
from studies.zoo.transformer import Size, Transformer

MASK, IGNORED = BYTES, -100
CHOSEN = 0.15
"""Share of the tokens that are to be told; of these 8 in 10 are masked, 1 is another token, 1 stays (Devlin 2019)."""


@register_kind("bert_masked")
@dataclass(frozen=True, kw_only=True)
class BertMasked(TokenKind):
    """Few tokens count, so the loss is noisy, and it lingers before it falls."""

    family = "language"
    optimizer = "AdamW"
    why = "masked tokens: few of them count; linear decay to 0"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=2e-3, warm_up_steps=100)
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = Transformer(Size(vocabulary=BYTES + 1, causal=False))
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.01))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        text = next_bytes(rng, self.config.rows, self.config.length, held_out=step == 0).inputs
        chosen, way = torch.from_numpy(rng.random((2, *text.shape)))
        others = torch.from_numpy(rng.integers(0, BYTES, size=text.shape))
        told = chosen < CHOSEN
        shown = text.where(~told | (way >= 0.9), others).where(~told | (way >= 0.8), torch.tensor(MASK))
        return Examples(shown, text.masked_fill(~told, IGNORED))
