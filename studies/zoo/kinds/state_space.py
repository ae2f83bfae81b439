"""A language model whose channels each forget at a rate of their own, as RWKV and state-space models do; Muon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.optimizers import MuonAndAdamW
from studies.zoo.schedules import linear
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind
from studies.zoo.transformer import Size, Transformer


class Recurrence(nn.Module):
    """A gated linear recurrence, h_t = e^(-d) h_(t-1) + x_t in each channel, computed for all tokens at once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
        self.log_decay = nn.Parameter(torch.linspace(-4.0, 1.0, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Gated states; (rows, tokens, width) to the same."""
        value, gate = self.into(hidden).chunk(2, dim=-1)
        tokens = torch.arange(hidden.shape[1])
        ago = tokens[:, None] - tokens
        decay = self.log_decay.exp()
        weight = (-ago.clamp(min=0)[..., None] * decay).exp() * (ago >= 0)[..., None] * decay.clamp(max=1.0).sqrt()
        out: Tensor = self.out(torch.einsum("tsw,bsw->btw", weight, value) * gate.sigmoid())
        return out


@register_kind("state_space")
@dataclass(frozen=True, kw_only=True)
class StateSpace(NextByteKind):
    """No attention: the past is summed with weights that decay."""

    family = "language"
    optimizer = "Muon"
    why = "linear recurrence, Muon for matrices and AdamW for the rest"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=2e-3, warm_up_steps=50)
    schedule = staticmethod(partial(linear, last=0.1))

    def make(self, seed: int) -> Parts:
        model = Transformer(Size(layers=1))
        for block in model.blocks:
            block.attention = Recurrence(Size().width)
        matrices = [parameter for parameter in model.blocks.parameters() if parameter.ndim == 2]
        known = {id(parameter) for parameter in matrices}
        others = [parameter for parameter in model.parameters() if id(parameter) not in known]
        return Parts(model, MuonAndAdamW(matrices, others))
