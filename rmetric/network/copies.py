"""Copies of the state of a training."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def copied(value: Any) -> Any:
    """A deep copy with its tensors on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value
