"""Optimizers that torch does not have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

WEIGHT_DECAY = 0.1
"""Of Muon, and of the AdamW beside it."""


class _OneByOne(torch.optim.Optimizer):
    """Updates each tensor by itself."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; ``closure`` computes loss and gradients anew and its value is returned."""
        loss = _evaluated(closure)
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self._update(weights, weights.grad, group)
        return loss

    @abstractmethod
    def _update(self, weights: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update a tensor of a group in place."""


class Lion(_OneByOne):
    """Steps by the sign of a momentum, all of the same size.

    **Source:** Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def _update(self, weights: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        fast, slow = group["betas"]
        momentum = self.state[weights].setdefault("momentum", torch.zeros_like(weights))
        direction = torch.lerp(gradient, momentum, fast).sign_()
        weights.mul_(1.0 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
        momentum.lerp_(gradient, 1.0 - slow)


class Lamb(_OneByOne):
    """Adam whose step of each tensor is as long as the tensor, times the rate.

    **Source:** You et al. 2020, Large Batch Optimization for Deep Learning, algorithm 2.
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-2, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    def _update(self, weights: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weights]
        if not state:
            state.update(step=0, mean=torch.zeros_like(weights), square=torch.zeros_like(weights))
        state["step"] += 1
        state["mean"].lerp_(gradient, 0.1)
        state["square"].lerp_(gradient.square(), 0.001)
        mean = state["mean"] / (1.0 - 0.9 ** state["step"])
        spread = (state["square"] / (1.0 - 0.999 ** state["step"])).sqrt() + 1e-6
        direction = mean / spread + group["weight_decay"] * weights
        length, size = weights.norm(), direction.norm()
        trust = torch.where((length > 0.0) & (size > 0.0), length / size, 1.0)
        weights.sub_(group["lr"] * trust * direction)


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for matrices and AdamW for all else, as it is used in practice; a rate means the same for both.

    **Source:** Jordan et al. 2024, Muon; Liu et al. 2025, Muon is Scalable for LLM Training, section 2.2.

    Parameters
    ----------
    matrices
        Weights of hidden layers, with two dimensions each.
    others
        Embeddings, biases, scales.
    lr
        Of both.
    """

    def __init__(self, matrices: Iterable[Tensor], others: Iterable[Tensor], lr: float = 1e-3) -> None:
        muon = torch.optim.Muon(matrices, lr, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw")
        adamw = torch.optim.AdamW(others, lr, weight_decay=WEIGHT_DECAY)
        self._parts = (muon, adamw)
        super().__init__([group for part in self._parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; ``closure`` computes loss and gradients anew and its value is returned."""
        loss = _evaluated(closure)
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state  # of this object, also after a state was loaded
            part.step()
        return loss


def _evaluated(closure: Callable[[], Any] | None) -> Any:
    """What a closure returns, with gradients; ``None`` without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
