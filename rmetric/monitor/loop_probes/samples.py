"""A few entries of a tensor, whatever its size, and whether they are the same as before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rmetric.monitor.tensors import flat, stride_of

LEAVES = 64
"""Arguments among which a batch's tensors are."""
WEIGHTS, INPUTS = 64, 1024
"""Entries of each: of weights and statistics, and of a batch's."""
Measured = dict[str, Tensor | None]


def is_plain(value: Any) -> bool:
    """Whether this is a tensor with numbers to look at; those inside ``torch.func`` may not be kept."""
    return (
        type(value) is Tensor
        and value.layout is torch.strided
        and value.numel() > 0
        and not value.is_complex()
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def sample_of(tensor: Tensor, entries: int = INPUTS) -> Tensor:
    """About so many entries, evenly spread."""
    values = flat(tensor)
    return values[:: stride_of(len(values), entries)]


def is_same(now: Tensor, before: Tensor | None) -> Tensor | None:
    """Whether two samples are the same; ``None`` without a former one."""
    if before is None or before.device != now.device:
        return None
    return (now == before).all() if now.shape == before.shape else now.new_zeros(())
