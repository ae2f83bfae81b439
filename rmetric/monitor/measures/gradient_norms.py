"""Norms of gradients, whole ones and sharded ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmetric.monitor.dispersion.collectives import CollectiveGuard
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.tensors import gathered, norms_of


class GradientNorms:
    """Euclidean norm of each gradient, in single precision whatever the gradients' own type.

    A tensor that holds a NaN or an infinity has a norm that is not finite, and so has one whose norm overflows; nothing
    else has. That is why no second pass over the gradients is needed to find them.

    Parameters
    ----------
    parameters
        Those that are watched.
    guard
        Asked whether every process takes part where gradients are sharded.
    """

    def __init__(self, parameters: ModelParameters, guard: CollectiveGuard | None = None) -> None:
        self._parameters = parameters
        self._shards = _Shards(parameters, CollectiveGuard() if guard is None else guard)

    def measure(self) -> tuple[list[int], Tensor | None]:
        """Return the numbers of the parameters that have a gradient, and the norms, shape (gradients,).

        ``None`` if there is no gradient at all. Nothing here waits for the device.
        """
        self._parameters.refresh()
        tensors = self._parameters.tensors
        gradients = {index: item.grad for index, item in enumerate(tensors) if item.grad is not None}
        elsewhere = self._shards.elsewhere(tensors)
        parts = dict(sorted({**gradients, **elsewhere}.items())) if elsewhere else gradients
        whole = self._shards.whole([tensors[index] for index in parts], [*parts.values()]) if parts else None
        if whole is None or not gradients:
            return [], None
        return [*parts], whole

    def keep_pace(self) -> None:
        """Take part in the sums over processes, if there are any, without a use for them."""
        if self._shards.are_exchanged:
            with suppress(Exception):  # whoever calls this has no guard any more
                self.measure()


class _Shards:
    """Norms of whole gradients from those of their shards, by a small all-reduce over each group that shares some.

    What ``fully_shard`` or tensor parallelism has cut is summed over the dimensions of the mesh that cut it, and over
    no other: along those a gradient is the same in every process, as one that is no ``DTensor`` is in all. What FSDP 1
    has cut is summed over the processes of its unit, each of which may have no part of some parameters.
    """

    def __init__(self, parameters: ModelParameters, guard: CollectiveGuard) -> None:
        meshes = [item.device_mesh for item in parameters.tensors if hasattr(item, "device_mesh")]
        self._flat = _flat_shards(parameters.model)
        groups = [*(mesh.get_group(dim) for mesh in meshes for dim in range(mesh.ndim)), *self._flat]
        self._groups, self._guard = {group.group_name for group in groups}, guard

    @property
    def are_exchanged(self) -> bool:
        """Whether a norm needs the other processes."""
        return bool(self._groups)

    def elsewhere(self, parameters: Sequence[nn.Parameter]) -> dict[int, Tensor]:
        """Number of a parameter of FSDP 1 without a gradient here → this process's part of it: nothing."""
        cut = {identity for shards in self._flat.values() for identity in shards.places}
        return {
            index: item.new_empty(0)
            for index, item in enumerate(parameters if cut else ())
            if id(item) in cut and item.grad is None and item.requires_grad
        }

    def whole(self, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> Tensor | None:
        """Shape (gradients,); ``None`` if not every process asks, and a part would pass for the whole."""
        if not self.are_exchanged:
            return gathered(norms_of([*gradients]))
        groups: dict[dist.ProcessGroup, list[int]] = {}
        for index, gradient in enumerate(gradients):
            for group, cuts in _groups_of(gradient):
                groups.setdefault(group, []).extend([index] * cuts)
        agreed = [self._is_agreed(group) for group in (*groups, *self._flat)]  # each: others wait for the answer
        if not all(agreed):
            return None
        squares = gathered(norms_of([_summed(gradient) for gradient in gradients])).square()
        for group, shared in groups.items():
            if shared:
                sums = squares[shared]
                dist.all_reduce(sums, group=group)
                squares[shared] = sums
        for group, shards in self._flat.items():
            here = [index for index, item in enumerate(parameters) if id(item) in shards.places]
            places = [shards.places[id(parameters[index])] for index in here]
            sums = torch.zeros(len(shards.places), device=shards.device)
            sums[places] = squares[here].to(shards.device)
            dist.all_reduce(sums, group=group)
            squares[here] = sums[places].to(squares.device)
        return squares.sqrt()

    def _is_agreed(self, group: dist.ProcessGroup) -> bool:
        return group.group_name in self._groups and self._guard.all_ready(group, "gradient norms are off")


class _FlatShards(NamedTuple):
    """Parameters that FSDP 1 has cut, one behind the other, into a part for each process of a group."""

    device: torch.device
    """Device of the group's collectives: gradients may have been moved away from it."""
    places: dict[int, int]
    """Identity of a parameter → its number, the same in every process."""


def _flat_shards(model: nn.Module) -> dict[dist.ProcessGroup, _FlatShards]:
    """What FSDP 1 has cut, by group; its parameters are flat ones or, with ``use_orig_params``, views of these."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:  # nobody can have made such a model, and the import takes seconds
        return {}
    found: dict[dist.ProcessGroup, _FlatShards] = {}
    units: list[Any] = [module for module in model.modules() if isinstance(module, fsdp.FullyShardedDataParallel)]
    for unit in units:
        handle = unit._handle
        if handle is not None and handle.uses_sharded_strategy:  # one without parameters of its own has none
            shards = found.setdefault(unit.process_group, _FlatShards(unit.compute_device, {}))
            for parameter in (handle.flat_param, *(handle.flat_param._params or ())):
                shards.places.setdefault(id(parameter), len(shards.places))
    return found


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
