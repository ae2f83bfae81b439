"""Sources of σ²: gradient norms of the parts of a batch (workers or micro-batches), whose variance it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar, Protocol

import torch.distributed as dist
from torch import Tensor, nn

from rmetric.monitor.dispersion.collectives import CollectiveGuard, OwnTimes
from rmetric.monitor.dispersion.mean_loss import PendingMean
from rmetric.monitor.dispersion.micro_batches import MicroBatchDispersion

__all__ = ["DispersionSource", "MicroBatchDispersion", "dispersion_source"]


class DispersionSource(Protocol):
    """A source of the gradient norms whose variance is σ².

    A step's gradient is the mean of its parts' gradients: of the workers' (each worker's own gradient), or of the
    micro-batches' (each one's contribution to the sum, times their number). Where a loop divides each loss by a fixed
    number and a step has fewer micro-batches, its gradient is smaller by as much, and so are those of its parts: the
    noise scale, which compares both, stays right.
    """

    name: ClassVar[str]
    """``workers`` or ``micro_batches``, as the log has it."""

    @property
    def worker_times(self) -> Tensor | None:
        """Each worker's own times in the step collected last, shape (workers, times); ``None``: not exchanged."""

    def collect(self) -> Tensor | None:
        """Return the norms of the parts' gradients, shape (parts,), float32, on the device; begin a new step.

        Called once a step, after its last backward pass. Never waits for the device. ``None``: nothing in this step.
        Norms of a loss that a gradient scaler has multiplied are as large as the scale makes them.
        """

    def start_measuring(self) -> None:
        """Begin at once: a resumed run, which was measured before, need not find out again that it can be.

        Called before the first step, in every process if there are several.
        """

    def next_step(self, measured: bool) -> None:
        """Take in whether the next step is measured; in one that is not, as little as possible is done.

        Called between two steps, the same in every process.
        """

    def mean_loss(self, loss: Tensor | None) -> PendingMean | None:
        """Begin to average the loss of a step over the workers; ``None``: one worker, or nothing is exchanged yet.

        Called once a step, in every process; also by one whose monitor has given up, without a loss.
        """

    def refresh(self) -> None:
        """Take in that the model has other parameters now; between two steps."""

    def close(self) -> None:
        """Give back every hook. May be called twice."""


def dispersion_source(
    model: nn.Module,
    own_times: OwnTimes = tuple,
    chosen: Callable[[Tensor], bool] = lambda _: True,
    guard: CollectiveGuard | None = None,
) -> DispersionSource | None:
    """The source that a model offers; without one, σ² is taken over a window of steps.

    - ``DistributedDataParallel`` and ``fully_shard`` over two or more workers: the workers.
    - One process: micro-batches, in the steps that have several.
    - Anything else that shards a parameter over devices (tensor parallelism, FSDP 1): none.

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
            return None
    return MicroBatchDispersion(model, chosen)
