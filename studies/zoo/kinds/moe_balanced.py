"""A mixture of four experts, one a token, with a loss that keeps them equally busy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.text import NextByteKind, token_loss
from studies.zoo.training import Examples, Parts, register_kind
from studies.zoo.transformer import Block, FeedForward, Size, Transformer

EXPERTS, BALANCE, LOGITS = 4, 0.02, 0.001


class Experts(nn.Module):
    """A router sends each token to one expert (Fedus 2021)."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.router = nn.Linear(size.width, EXPERTS, bias=False)
        self.experts = nn.ModuleList(FeedForward(size) for _ in range(EXPERTS))
        self.beside = torch.tensor(0.0)
        """Loss of the last forward pass for unequal loads and for large logits."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Output of the chosen expert, weighted by its probability; (rows, tokens, width) to the same."""
        tokens = hidden.flatten(0, 1)
        logits = self.router(tokens)
        shares = logits.softmax(-1)
        weight, chosen = shares.max(-1)
        out = torch.zeros_like(tokens)
        load = torch.bincount(chosen, minlength=EXPERTS) / len(chosen)
        for index, expert in enumerate(self.experts):
            mine = (chosen == index).nonzero().squeeze(1)
            out = out.index_add(0, mine, expert(tokens[mine]) * weight[mine, None])
        self.beside = BALANCE * EXPERTS * (load * shares.mean(0)).sum() + LOGITS * logits.logsumexp(-1).square().mean()
        return out.view_as(hidden)


@register_kind("moe_balanced")
@dataclass(frozen=True, kw_only=True)
class MoeBalanced(NextByteKind):
    """Tokens change their expert from step to step, and the loss has a part that is no likelihood."""

    family = "language"
    optimizer = "AdamW"
    why = "mixture of experts, balance and router losses added"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=2e-3, warm_up_steps=50)

    def make(self, seed: int) -> Parts:
        size = Size(layers=1)
        model = Transformer(size)
        model.blocks = nn.Sequential(Block(size), Block(size, Experts(size)))
        return Parts(model, torch.optim.AdamW(model.parameters()))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        told = token_loss(model, batch)
        return told + sum(module.beside for module in model.modules() if isinstance(module, Experts))

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return token_loss(model, batch)
