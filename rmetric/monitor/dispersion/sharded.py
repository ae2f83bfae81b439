"""σ² over the workers of FSDP2 (``fully_shard``): the norm of each worker's own gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from rmetric.errors import UserError
from rmetric.monitor.dispersion.collectives import CollectiveGuard, NormGather, OwnTimes, WorkerExchange
from rmetric.monitor.loop_probes import PassHook


class ShardedDispersion(WorkerExchange):
    """Gradient norms of the workers, from the third step on.

    A worker's whole gradient exists only group by group (a group of parameters is what one ``fully_shard`` call made),
    right before it is reduced and scattered. So the reduce-scatter of each group is wrapped: norm first, then what was
    there before. In the first step all processes agree, as with DDP; in the second one the order of the groups is
    learnt: after the last one the norms are exchanged. With replicas of shards (HSDP) the workers are those of one
    replica; the loss is averaged over all replicas, unless other processes train as well (HSDP beside tensor or
    pipeline parallelism). Accumulate gradients with ``set_requires_gradient_sync(False)``; without it a step has no
    norm of its own.

    Once wrapped, it stays so, also after :meth:`close`: the other processes still wait for the exchange.

    Raises :class:`UserError` for a model that cannot be watched: an older torch, gradients that are reduced as float16.
    """

    def __init__(self, model: nn.Module, own_times: OwnTimes, guard: CollectiveGuard) -> None:
        groups = _groups(model)
        workers: dist.ProcessGroup = groups[0][1]._reduce_scatter_process_group
        everyone = _everyone(groups[0][1], workers)

        def gather() -> _GroupGather:
            return _wrapped(model, groups, _GroupGather(workers, own_times, everyone=everyone))

        super().__init__(everyone, gather, guard)


class _GroupGather(NormGather):
    """Receives the gradients group by group, and learns which group is the last."""

    _last_group: object = None
    _latest: object = None

    def reduces(self, group: object, gradient: Tensor) -> None:
        self._latest = group
        self.add(gradient)

    def reduced(self, group: object) -> None:
        if group is self._last_group:
            self.finish()

    def collect(self) -> Tensor | None:
        norms = super().collect()
        self.begin()
        if self._last_group is None:
            self._last_group = self._latest
        return norms


def _wrapped(model: nn.Module, groups: Sequence[tuple[FSDPModule, Any]], gather: _GroupGather) -> _GroupGather:
    """Wrap the reduce-scatter of each group, so that the gather receives what goes into it."""
    model.register_forward_pre_hook(PassHook(gather.losses.settle), prepend=True)  # a forward pass gathers parameters
    for module, group in groups:
        watched: Any = _MeasuredReduceScatter(group._reduce_scatter_comm, gather)
        module.set_custom_reduce_scatter(watched)
    return gather


class _MeasuredReduceScatter:
    """A reduce-scatter that takes the norm of what goes into it (``torch.distributed.fsdp``'s protocol)."""

    def __init__(self, inner: Any, gather: _GroupGather) -> None:
        self._inner, self._gather = inner, gather

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        buffer: Tensor = self._inner.allocate(size, dtype=dtype, device=device)
        return buffer

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        self._gather.reduces(self, input_tensor)
        work: dist.Work | None = self._inner(
            output_tensor=output_tensor, input_tensor=input_tensor, group=group, op=op, async_op=async_op
        )
        self._gather.reduced(self)
        return work


_INSTEAD = "use torch 2.8 or newer with MixedPrecisionPolicy(reduce_dtype=torch.float32), or DistributedDataParallel"


def _groups(model: nn.Module) -> list[tuple[FSDPModule, Any]]:
    """Every group of parameters with the module to which it belongs: torch has no public way to read what is there."""
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    try:
        owned = {id(group): (module, group) for module in modules if (group := _group_of(module)) is not None}
    except (AttributeError, ValueError) as error:
        raise UserError(f"FSDP2 of torch {torch.__version__} cannot be watched ({error}); {_INSTEAD}") from error
    if any(_reduced_as(module, group) is torch.float16 for module, group in owned.values()):
        raise UserError(f"FSDP2 cannot be watched where it reduces gradients as float16, rescaled; {_INSTEAD}")
    return list(owned.values())


def _group_of(module: FSDPModule) -> Any:
    """Return the module's group; raises if this torch does not have all that is needed."""
    group = module._get_fsdp_state()._fsdp_param_group
    if group is not None:
        _ = module.set_custom_reduce_scatter, group._reduce_scatter_comm, group._reduce_scatter_process_group
    return group


def _everyone(group: Any, workers: dist.ProcessGroup) -> dist.ProcessGroup:
    """The workers of all replicas, if these are all processes, since torch has a group of those; else of one."""
    world = dist.distributed_c10d._get_default_group()
    return world if group.mesh_info.mesh.size() == world.size() else workers


def _reduced_as(module: nn.Module, group: Any) -> torch.dtype:
    policy = group.mp_policy
    return policy.reduce_dtype or policy.param_dtype or next(module.parameters()).dtype
