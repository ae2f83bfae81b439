"""The next byte from the eight before it, under float16 autocast with a loss scale that is found by overflow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.kinds.ngram_bf16 import ngram_model, ngrams
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("ngram_fp16")
@dataclass(frozen=True, kw_only=True)
class NgramFp16(Kind):
    """A gradient that overflows now and then is the scaler's normal work: it skips the step and halves the scale."""

    family = "language"
    optimizer = "Adamax"
    why = "float16 autocast with GradScaler, Adamax"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=4e-3, warm_up_steps=50, autocast=torch.float16)

    def make(self, seed: int) -> Parts:
        model = ngram_model()
        return Parts(model, torch.optim.Adamax(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return ngrams(rng, self.config.rows, held_out=step == 0)
