"""The workers of a live run: their number, taking one away, and changing one's contribution to the gradient."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor, nn

from rmetric.live.run import LiveRun


def processes() -> int:
    """Processes that train together; 1: nobody else."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def worker_count(training: LiveRun) -> int:
    """Workers of a run: its processes, or in a single one the parts into which it shares a batch."""
    return processes() if processes() > 1 else training.config.workers


def take_away(training: LiveRun, worker: int, component: str) -> None:
    """Lose a worker for good, in the step that is being done.

    A worker that is a process is killed, and nobody is told: the others find out as they would in earnest, by a
    collective that fails. Of a run in one process the worker's share of the batches is lost from now on, and
    ``component`` is reported to have failed, as a cluster manager would.
    """
    if processes() == 1:
        training.lose_worker(worker)
        training.observer.hardware_event(component, kind="fatal", worker=worker)
    elif dist.get_rank() == worker:
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def changed_payload(parameter: nn.Parameter, change: Callable[[Tensor], None]) -> Iterator[None]:
    """Let every backward pass hand on a changed gradient of a parameter, as long as the context lasts.

    ``change`` gets a copy of what the pass has made, before it is added to ``.grad``, and may change it in place: what
    a worker sends. Hooks that are put on the parameter later see the changed one. Under ``DistributedDataParallel``,
    entered in one process after the model was wrapped or before, it changes what that process sends: DDP fills its
    buckets from ``.grad``.
    """

    def hook(gradient: Tensor) -> Tensor:
        sent = gradient.clone()
        change(sent)
        return sent

    handle = parameter.register_hook(hook)
    try:
        yield
    finally:
        handle.remove()
