"""What a run carries from step to step beside what is trained: a replay buffer, a network that follows another."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Memory:
    """Named tensors with a state, for :attr:`studies.zoo.training.Parts.beside`."""

    def __init__(self, **tensors: Tensor) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return self.tensors

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Hold these tensors in place of the present ones."""
        self.tensors = dict(state)


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module, share: float) -> None:
    """Move the weights of a moving average by a share, in (0, 1], of the way to those of the model that it follows."""
    for old, new in zip(average.parameters(), model.parameters(), strict=True):
        old.lerp_(new, share)
