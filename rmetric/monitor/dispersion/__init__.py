"""σ² from what is there: sources of gradient norms whose variance tells how far the parts of a batch disagree."""

from __future__ import annotations

import sys

import torch.distributed as dist
from torch import nn

from rmetric.monitor.dispersion.base import UNKNOWN_WORKER, DispersionSource, WorkerLost
from rmetric.monitor.dispersion.micro_batches import MicroBatchDispersion

__all__ = ["UNKNOWN_WORKER", "DispersionSource", "MicroBatchDispersion", "WorkerLost", "dispersion_sources"]


def dispersion_sources(model: nn.Module) -> list[DispersionSource]:
    """The sources that this model offers, best first; none: a window of steps has to do.

    - ``DistributedDataParallel`` and ``fully_shard`` over two or more workers: the workers.
    - One process: micro-batches, in the steps that have several.
    - Anything else that spreads a parameter over devices (tensor parallelism, FSDP 1): none.

    Make it, and call ``collect``, at the same place in every process. Raises :class:`rmetric.errors.UserError` for a
    distributed model that cannot be watched.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
    if dist.is_available():
        from torch.nn.parallel import DistributedDataParallel

        from rmetric.monitor.dispersion.workers import WorkerDispersion

        if isinstance(model, DistributedDataParallel):
            workers = WorkerDispersion(model)
            return [workers] if model.process_group.size() > 1 else [MicroBatchDispersion(model)]
        if (sharded := _sharded(model)) is not None:
            return sharded
    return [MicroBatchDispersion(model)]


def _sharded(model: nn.Module) -> list[DispersionSource] | None:
    """Sources of a model whose parameters are spread over devices; ``None``: they are not."""
    if not {"torch.distributed.fsdp", "torch.distributed.tensor"} & sys.modules.keys():
        return None  # nobody can have made such a model, and importing them takes seconds
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    from rmetric.monitor.dispersion.sharded import ShardedDispersion

    modules = list(model.modules())
    if any(isinstance(module, FSDPModule) for module in modules):
        return [ShardedDispersion(model)]
    if any(isinstance(module, FullyShardedDataParallel) for module in modules):
        return []
    return [] if any(isinstance(parameter, DTensor) for parameter in model.parameters()) else None
