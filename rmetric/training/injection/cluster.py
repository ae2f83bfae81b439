"""The workers of a live run, which may be processes of their own, and how one of them is taken away."""

from __future__ import annotations

import os
import signal

import torch.distributed as dist

from rmetric.training.live_run import LiveRun


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
