"""Sources of σ²: gradient norms of the parts of a batch (workers or micro-batches), whose variance it is.

A step's gradient is the mean of its parts' gradients: of the workers' (each worker's own gradient), or of the
micro-batches' (each one's contribution to the sum, times their number). Where a loop divides each loss by a fixed
number and a step has fewer micro-batches, its gradient is smaller by as much, and so are those of its parts: the noise
scale, which compares both, stays right.

Once a step, after its last backward pass, a source is asked to ``collect`` the norms, shape (parts,), float32, on the
device; ``None``: nothing in this step. It never waits for the device. Norms of a loss that a gradient scaler has
multiplied are as large as the scale makes them. Between two steps ``next_step`` and ``refresh`` tell, in every process
alike, whether the next one is measured, and that the model has other parameters. ``mean_loss``, too, is called once a
step in every process, also by one whose monitor has given up, without a loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor, nn

from rmetric.monitor.dispersion.collectives import CollectiveGuard, OwnTimes, WorkerExchange
from rmetric.monitor.dispersion.micro_batches import MicroBatchDispersion

__all__ = ["MicroBatchDispersion", "dispersion_source"]


def dispersion_source(
    model: nn.Module,
    own_times: OwnTimes = tuple,
    chosen: Callable[[Tensor], bool] = lambda _: True,
    guard: CollectiveGuard | None = None,
) -> WorkerExchange | MicroBatchDispersion:
    """The source that a model offers; without one, σ² is taken over a window of steps.

    - ``DistributedDataParallel`` and ``fully_shard`` over two or more workers: the workers.
    - One process: micro-batches, in the steps that have several.
    - Anything else that shards a parameter over devices (tensor parallelism, FSDP 1): micro-batches of no parameter, so
      that there is nothing to collect.

    ``own_times`` returns this process's own times, which the workers exchange with their norms; ``chosen`` says of a
    parameter whether it counts in micro-batches; ``guard`` is asked whether every process takes part.

    Make it, and call ``collect``, at the same place in every process. Raises :class:`rmetric.errors.UserError` for a
    distributed model that cannot be watched.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
    if not dist.is_available():
        return MicroBatchDispersion(model, chosen)
    guard = CollectiveGuard() if guard is None else guard
    from torch.nn.parallel import DistributedDataParallel

    from rmetric.monitor.dispersion.workers import WorkerDispersion

    if isinstance(model, DistributedDataParallel):
        workers = WorkerDispersion(model, own_times, guard)
        return workers if model.process_group.size() > 1 else MicroBatchDispersion(model, chosen)
    # Otherwise nobody can have made a sharded model, and importing them takes seconds.
    if {"torch.distributed.fsdp", "torch.distributed.tensor"} & sys.modules.keys():
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
        from torch.distributed.tensor import DTensor

        from rmetric.monitor.dispersion.sharded import ShardedDispersion

        modules = list(model.modules())
        if any(isinstance(module, FSDPModule) for module in modules):
            return ShardedDispersion(model, own_times, guard)
        parts = [*modules, *model.parameters()]
        if any(isinstance(part, FullyShardedDataParallel | DTensor) for part in parts):
            return MicroBatchDispersion(model, lambda _: False)
    return MicroBatchDispersion(model, chosen)
