"""Marks by which gradients are known again: the very same ones as before, with another pass added, or cleared."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rmetric.monitor.tensors import stored

KEPT = 8
"""Smallest gradients that a stamp keeps alive."""


class GradientStamp:
    """Gradients at one moment, without a copy of them.

    Parameters
    ----------
    parameters
        Those that are trained.
    values
        Also look whether the smallest gradients hold anything but zeros; waits for the device.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, values: bool) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self._marks = [(id(gradient), gradient._version) for gradient in gradients]
        # As long as they live, no other tensor gets their identity; in the smallest it costs no memory.
        small = sorted(gradients, key=Tensor.numel)[:KEPT]
        self._kept = [(gradient, gradient._version) for gradient in small]
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
        added = {version - before for (_, version), (_, before) in zip(self._kept, other._kept, strict=True)}
        return 1 in added and added <= {0, 1}

    def _same_tensors(self, other: GradientStamp) -> bool:
        pairs = zip(self._kept, other._kept, strict=False)
        return len(self._kept) == len(other._kept) and all(one is two for (one, _), (two, _) in pairs)


class ClearedProbe:
    """Looks, when a backward pass reaches one parameter, whether its gradient holds anything yet.

    Parameters
    ----------
    parameter
        Gets a hook. A small one: to look waits for the device.
    """

    def __init__(self, parameter: nn.Parameter) -> None:
        self._parameter = parameter
        self._passes = self._cleared = 0
        self._handle = parameter.register_hook(self._look)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Begin to count: an update was made."""
        self._passes = self._cleared = 0

    @property
    def never_cleared(self) -> bool:
        """True if there were passes since the update, and each of them found a gradient."""
        return self._passes > 0 and not self._cleared

    def _look(self, gradient: Tensor) -> None:
        earlier = self._parameter.grad
        self._passes += 1
        self._cleared += earlier is None or not bool(stored(earlier).any())

    def close(self) -> None:
        """Give back the hook."""
        self._handle.remove()
