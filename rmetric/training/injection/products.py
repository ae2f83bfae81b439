"""Matrix products of a pass, as the device is asked for them: counted, and one of them flipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Pass = Literal["forward", "backward"]
PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_mm", "_scaled_grouped_mm")
)
"""Operations that multiply matrices. A fused attention kernel is none: let the model use ``eager`` attention."""


def is_product(operation: Any) -> bool:
    """Whether what a ``TorchDispatchMode`` is asked for multiplies matrices and returns the product."""
    return operation._schema.name in PRODUCTS and operation._overloadname in ("", "default", "dtype")


def current_pass() -> Pass:
    """Whether autograd is computing gradients in this thread (activation checkpointing computes forward in it)."""
    return "forward" if torch._C._current_graph_task_id() < 0 else "backward"


class ProductFlip(TorchDispatchMode):
    """While it is entered, changes what one of the matrix products returns.

    It sees what reaches the device, below autograd and autocast, so the product has the type in which it was computed
    and whatever made it does not know of the change. Entered for one forward and backward pass; nothing is hooked.

    Parameters
    ----------
    stage
        The products of the forward or of the backward pass are counted.
    call
        Which of them, from 0.
    strike
        Called with the product, which it may change in place.

    **Deviation:** the source flips bits at matrix-multiply *instructions* of a GPU; here a finished element of the
    product is hit, which is what a flip in the last accumulation leaves.
    """

    def __init__(self, stage: Pass, call: int, strike: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._stage, self._left, self._strike = stage, call, strike

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_product(func) and current_pass() == self._stage:
            if self._left == 0:
                self._strike(result)
            self._left -= 1
        return result
