"""Direct preference optimisation: the loss begins at ln 2 exactly, whatever the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import other_domain, pretrained
from studies.zoo.text import next_bytes
from studies.zoo.training import Examples, Kind, Parts, register_kind
from studies.zoo.transformer import Transformer

PROMPT = 8
"""Tokens that both answers share."""
STRENGTH = 0.1
MISTAKEN = 0.15
"""Share of the pairs whose better answer is said to be the worse one."""


@cache
def _reference() -> Transformer:
    return pretrained().requires_grad_(False)


def margin(model: nn.Module, pairs: Tensor) -> Tensor:
    """Log-likelihood of the first answer over that of the second, (rows,), of passages, (rows, 2, tokens)."""
    flat = pairs.flatten(0, 1)
    known = -functional.cross_entropy(model(flat[:, :-1]).transpose(1, 2), flat[:, 1:], reduction="none")
    better, worse = known[:, PROMPT:].sum(1).unflatten(0, (-1, 2)).unbind(1)
    return better - worse


@register_kind("dpo_preferences")
@dataclass(frozen=True, kw_only=True)
class DpoPreferences(Kind):
    """The true continuation of a text is preferred to source code, with mistakes as people make them.

    **Source:** Rafailov et al. 2023, Direct Preference Optimization, equation 7.
    """

    family = "fine-tuning"
    optimizer = "AdamW"
    why = "starts at ln 2; gradients grow from a flat start; a frozen reference"
    config = LiveRunConfig(workers=1, rows=8, length=20, learning_rate=1e-4, warm_up_steps=100)

    def make(self, seed: int) -> Parts:
        model = pretrained()
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.0))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        length, rows = self.config.length, self.config.rows
        true, other = (
            next_bytes(rng, rows, length, held_out=step == 0, corpus=text) for text in (other_domain(), None)
        )
        false = torch.cat([true.inputs[:, :PROMPT], other.inputs[:, PROMPT:]], dim=1)
        pairs = torch.stack([true.inputs, false], dim=1)
        mistaken = torch.from_numpy(rng.random(len(pairs)) < (MISTAKEN if step else 0.0))
        pairs = torch.where(mistaken[:, None, None], pairs.flip(1), pairs)
        with torch.no_grad():
            return Examples(pairs, margin(_reference(), pairs))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return -functional.logsigmoid(STRENGTH * (margin(model, batch.inputs) - batch.labels)).mean()
