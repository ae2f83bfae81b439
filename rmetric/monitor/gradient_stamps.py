"""Marks by which gradients are known again: the very same ones as before, or with another pass added."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from torch import Tensor, nn

from rmetric.monitor.tensors import stored

COMPARED = 8
"""Smallest gradients of a stamp that are known again as the very same tensors."""


class GradientStamp:
    """Gradients at one moment, without a copy of them.

    With ``values`` it looks whether the smallest gradients hold anything but zeros, which waits for the device.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, values: bool) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self._marks = [(id(gradient), gradient._version) for gradient in gradients]
        # A weak reference to the smallest: another tensor may get the identity of one that is gone, and to keep all of
        # them would keep a second set of gradients in memory.
        small = sorted(gradients, key=Tensor.numel)[:COMPARED]
        self._compared = [(ref(gradient), gradient._version) for gradient in small]
        self._zero = values and not any(bool(stored(gradient).any()) for gradient in small)

    def __bool__(self) -> bool:
        """Return whether there are gradients, and not zeros alone."""
        return bool(self._marks) and not self._zero

    def same(self, other: GradientStamp) -> bool:
        """Return whether nothing has been written into any gradient from one moment to the other."""
        return self._marks == other._marks and self._same_tensors(other)

    def one_pass_more(self, other: GradientStamp) -> bool:
        """Return whether these are the other's gradients with one backward pass added."""
        if not self._same_tensors(other):
            return False
        added = {version - before for (_, version), (_, before) in zip(self._compared, other._compared, strict=True)}
        return 1 in added and added <= {0, 1}

    def _same_tensors(self, other: GradientStamp) -> bool:
        pairs = zip(self._compared, other._compared, strict=False)
        alike = all(one() is two() is not None for (one, _), (two, _) in pairs)
        return len(self._compared) == len(other._compared) and alike
