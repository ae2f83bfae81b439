"""Gather scalars of several devices; compare tensors bit for bit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number → the integers of that size."""


def gathered(scalars: Sequence[Tensor]) -> Tensor:
    """Stack scalars of one or several devices on the first one's device."""
    home = scalars[0].device
    return torch.stack([item if item.device == home else item.to(home, non_blocking=True) for item in scalars])


@torch.no_grad()
def norms_of(tensors: list[Tensor], order: float = 2.0) -> Sequence[Tensor]:
    """Norm of the stored values of each tensor, a scalar in single precision and without a graph.

    Torch refuses to narrow the norms of doubles by itself, and gradients of ``create_graph=True`` have a graph.
    """
    tensors = [real(stored(tensor)) for tensor in tensors]
    kinds = {tensor.dtype for tensor in tensors}
    if torch.float64 in kinds:
        return [norm.float() for norm in torch._foreach_norm(tensors, order, torch.float64)]
    return torch._foreach_norm(tensors, order, torch.float32)


def to_device(values: Sequence[float], device: torch.device) -> Tensor:
    """Some numbers in single precision on a device, without waiting for it."""
    host = torch.tensor(values, dtype=torch.float32, device="cpu")  # not that of ``torch.set_default_device``
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def on_cpu(tensor: Tensor | None) -> Tensor | None:
    """Copy a tensor to the CPU, for a checkpoint."""
    return None if tensor is None else tensor.detach().to("cpu", copy=True)


def own_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream for ``torch.cuda.stream`` that waits for nothing that is queued on the device; ``None``: no GPU."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def stored(tensor: Tensor) -> Tensor:
    """Stored values of a tensor: of a sparse one the entries, of a sharded one this process's part."""
    if tensor.is_sparse:
        return tensor.coalesce().values()
    if type(tensor) is Tensor:  # as nearly all are; to ask it for a method that it lacks takes ten times as long
        return tensor
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local


def real(tensor: Tensor) -> Tensor:
    """A tensor of real numbers as it is, of a complex one both parts of each, in its memory.

    >>> real(torch.tensor([1.0 + 2.0j])).tolist()
    [[1.0, 2.0]]
    """
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def flat(tensor: Tensor) -> Tensor:
    """All numbers (of a sharded tensor, of this process's part) in one dimension, sharing its memory where it can."""
    return real(stored(tensor.detach())).reshape(-1)


def stride_of(total: int, entries: int | None) -> int:
    """Step between sampled entries of ``total``, so that there are about ``entries`` of them; 1 for ``None``: all."""
    return 1 if entries is None else max(1, math.ceil(total / max(entries, 1)))


def stride_over(tensors: Iterable[Tensor], entries: int | None) -> int:
    """Step between sampled entries of :func:`flat` tensors, so that there are about ``entries`` in all of them."""
    return stride_of(sum(real(stored(tensor.detach())).numel() for tensor in tensors), entries)


def bits(tensor: Tensor) -> Tensor:
    """View the stored values as integers that can be subtracted and indexed: torch lacks most operations of others.

    >>> bits(torch.tensor([1.0, -0.0])).tolist()
    [1065353216, -2147483648]
    """
    values = real(stored(tensor.detach()))
    return values.view(INTEGERS[values.element_size()])


def differing(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[int]:
    """Indices of the pairs that are not the same, bit for bit. Waits for the device once."""
    pairs = list(zip(one, other, strict=True))
    alike = [_same_form(a, b) for a, b in pairs]
    where = [index for index, same in enumerate(alike) if same]
    if all(stored(pairs[index][0]).device.type == "cpu" for index in where):
        unequal = [not torch.equal(bits(pairs[index][0]), bits(pairs[index][1])) for index in where]
    else:
        flags = [(bits(pairs[index][0]) != bits(pairs[index][1])).any() for index in where]
        unequal = gathered(flags).tolist() if flags else []
    found = {index for index, different in zip(where, unequal, strict=True) if different}
    return [index for index, same in enumerate(alike) if not same or index in found]


def _same_form(one: Tensor, other: Tensor) -> bool:
    one, other = stored(one), stored(other)
    return one.shape == other.shape and one.dtype == other.dtype and one.device == other.device


def relative_difference(one: Tensor, other: Tensor) -> float:
    """‖one − other‖ / ‖other‖, in single precision; infinite where that is not a number."""
    first, second = real(stored(one)).float(), real(stored(other)).float()
    ratio = float(torch.linalg.vector_norm(first - second) / torch.linalg.vector_norm(second).clamp_min(1e-45))
    return ratio if ratio == ratio else float("inf")
