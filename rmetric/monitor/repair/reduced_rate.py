"""A lower learning rate for some updates."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


class ReducedRate:
    """Multiplies the learning rates of an optimizer while it steps, for some updates.

    The factor is there only while the optimizer steps: a scheduler, the training loop and the log see the scheduled
    rate, and neither of them can multiply twice.
    """

    def __init__(self, optimizer: Optimizer, factor: float) -> None:
        self._factor = factor
        self._scheduled: list[Any] = []
        self.left = 0
        """Updates to come with the lower rate."""
        self._handles = [
            optimizer.register_step_pre_hook(self._lower),
            optimizer.register_step_post_hook(self._give_back),
        ]

    def _lower(self, optimizer: Optimizer, *_: Any) -> None:
        if self.left <= 0:
            return
        self._scheduled = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self._factor

    def _give_back(self, optimizer: Optimizer, *_: Any) -> None:
        if self._scheduled:
            for group, rate in zip(optimizer.param_groups, self._scheduled, strict=True):
                group["lr"] = rate
            self._scheduled = []
            self.left -= 1

    def close(self) -> None:
        """Give back the hooks. May be called twice."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
