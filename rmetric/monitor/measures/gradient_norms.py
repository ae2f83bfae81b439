"""Norms of gradients, whole ones and sharded ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from rmetric.monitor.dispersion.collectives import CollectiveGuard
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.tensors import gathered, norms_of


class GradientNorms:
    """Euclidean norm of each gradient, in single precision whatever the gradients' own type.

    A tensor that holds a NaN or an infinity has a norm that is not finite, and so has one whose norm overflows; nothing
    else has. That is why no second pass over the gradients is needed to find them.
    """

    def __init__(self, parameters: ModelParameters, guard: CollectiveGuard | None = None) -> None:
        self._parameters = parameters
        self._shards = _Shards(parameters.tensors, CollectiveGuard() if guard is None else guard)
        self._measured_in = 0

    def measure(self, step: int) -> tuple[list[int], Tensor | None]:
        """Return the numbers of the parameters that have a gradient in a step, and the norms, shape (gradients,).

        ``None`` if there is no gradient at all. Nothing here waits for the device.
        """
        self._parameters.refresh()
        tensors = self._parameters.tensors
        gradients = {index: item.grad for index, item in enumerate(tensors) if item.grad is not None}
        present, self._measured_in = list(gradients), step
        if not present:
            return present, None
        whole = self._shards.whole([*gradients.values()])
        return present if whole is not None else [], whole

    def keep_pace(self, step: int) -> None:
        """Take part in the sums over processes of a step that are still owed, if any, without a use for them."""
        if self._measured_in != step and self._shards.are_exchanged:
            with suppress(Exception):  # whoever calls this has no guard any more
                self.measure(step)


class _Shards:
    """Norms of whole gradients from those of their shards, by a small all-reduce over each group that shares some.

    What ``fully_shard`` or tensor parallelism has cut is summed over the dimensions of the mesh that cut it, and over
    no other: along those a gradient is the same in every process, as one that is no ``DTensor`` is in all. What FSDP 1
    has cut is not summed: there each process has the norms of its own part, and waits for nobody.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], guard: CollectiveGuard) -> None:
        meshes = [item.device_mesh for item in parameters if hasattr(item, "device_mesh")]
        groups = [mesh.get_group(dim) for mesh in meshes for dim in range(mesh.ndim)]
        self._groups, self._guard = {group.group_name for group in groups}, guard

    @property
    def are_exchanged(self) -> bool:
        """Whether a norm needs the other processes."""
        return bool(self._groups)

    def whole(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """Shape (gradients,); ``None`` if not every process asks, and a part would pass for the whole."""
        if not self.are_exchanged:
            return gathered(norms_of([*gradients]))
        groups: dict[dist.ProcessGroup, list[int]] = {}
        for index, gradient in enumerate(gradients):
            for group, cuts in _groups_of(gradient):
                groups.setdefault(group, []).extend([index] * cuts)
        agreed = [self._is_agreed(group) for group in groups]  # each is asked: others wait for the answer
        if not all(agreed):
            return None
        squares = gathered(norms_of([_summed(gradient) for gradient in gradients])).square()
        for group, shared in groups.items():
            if shared:
                sums = squares[shared]
                dist.all_reduce(sums, group=group)
                squares[shared] = sums
        return squares.sqrt()

    def _is_agreed(self, group: dist.ProcessGroup) -> bool:
        return group.group_name in self._groups and self._guard.all_ready(group, "gradient norms are off")


def _groups_of(gradient: Any) -> list[tuple[dist.ProcessGroup, bool]]:
    """Process groups over which a gradient is split, each with whether by entries (else as terms of a sum)."""
    if type(gradient) is Tensor or not hasattr(gradient, "placements"):
        return []
    mesh, places = gradient.device_mesh, enumerate(gradient.placements)
    return [(mesh.get_group(dim), not place.is_partial()) for dim, place in places if not place.is_replicate()]


def _summed(gradient: Any) -> Tensor:
    """A gradient of which no process has only a term of a sum, as sequence parallelism leaves some."""
    places = getattr(gradient, "placements", ())
    if not any(place.is_partial() for place in places):
        whole: Tensor = gradient
        return whole
    from torch.distributed.tensor import Replicate  # of use here alone, and slow to import

    summed: Tensor = gradient.redistribute(placements=[Replicate() if it.is_partial() else it for it in places])
    return summed
