"""Checksums of tensors that no single flipped bit leaves unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rmetric.training.injection.bits import FORMATS
from rmetric.training.live_run import LiveRun


def checksum(tensor: Tensor) -> int:
    """The sum of the numbers' bit patterns as whole numbers, modulo 2^64.

    It does not depend on the order of the sum, works for NaN, and one flipped bit changes it by a power of two. Two
    flips may cancel.

    >>> checksum(torch.tensor([1.0, float("nan")])) == checksum(torch.tensor([1.0, float("nan")]))
    True
    """
    layout = FORMATS.get(tensor.dtype)
    data = tensor.detach().contiguous()
    return int((data.view(layout.integer) if layout else data).sum(dtype=torch.int64))


def memory_of(run: LiveRun) -> dict[str, int]:
    """Name → checksum of every parameter and of all that the optimizer remembers of it."""
    return {name: checksum(tensor) for name, tensor in _memory(run)}


def digest(run: LiveRun) -> str:
    """SHA-256 over the bits of all parameters, buffers and of the optimizer's state: equal runs have equal ones."""
    sum_of_all = hashlib.sha256()
    for name, tensor in _memory(run):
        sum_of_all.update(name.encode())
        sum_of_all.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sum_of_all.hexdigest()


def _memory(run: LiveRun) -> Iterator[tuple[str, Tensor]]:
    model: nn.Module = run.model
    for name, buffer in model.named_buffers():
        yield f"buffer {name}", buffer
    for name, parameter in model.named_parameters():
        yield name, parameter
        for key, value in sorted(run.optimizer.state.get(parameter, {}).items()):
            if isinstance(value, Tensor) and value.dim():
                yield f"{name}.{key}", value
