"""Tensors that a run carries from step to step beside its model: a replay buffer, the episodes in use."""

from __future__ import annotations

from torch import Tensor


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
