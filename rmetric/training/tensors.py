"""Small help with tensors that may lie on several devices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def gathered(scalars: Sequence[Tensor]) -> Tensor:
    """Scalars of one or several devices as one tensor on the first one's device."""
    home = scalars[0].device
    return torch.stack([item if item.device == home else item.to(home, non_blocking=True) for item in scalars])
