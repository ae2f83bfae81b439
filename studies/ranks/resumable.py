"""A training in several processes that goes on from its checkpoint, with the monitor's state in it."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import TrainingMonitor

SAVED_EVERY, EVALUATED_EVERY = 5, 8
CHECKPOINT, LOG, WEIGHTS = "checkpoint.pt", "run.jsonl", "weights.pt"
PEER_LOST = 3
"""Exit code of a process whose peer was killed."""


def train(rank: int, folder: Path, steps: int, step_s: float) -> None:
    """Train to a step; the log, the checkpoint and at last the weights are in a folder.

    The clock counts its calls, so that all that is logged is the same in every run.
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    calls = itertools.count()
    monitor = TrainingMonitor(
        model, optimizer, log=folder / LOG, hardware=False, announce=False, clock=lambda: 0.001 * next(calls)
    )
    done = 0
    if (folder / CHECKPOINT).exists():
        state = torch.load(folder / CHECKPOINT, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        monitor.load_state_dict(state["monitor"])
        done = state["step"]
    try:
        with monitor:
            for step in range(done + 1, steps + 1):
                time.sleep(step_s)
                loss = _loss(model, rank, step)
                loss.backward()
                monitor.step(loss)
                optimizer.step()
                optimizer.zero_grad()
                if step % EVALUATED_EVERY == 0:
                    with torch.no_grad():
                        monitor.validation(float(_loss(model.module, 0, 0)))
                if step % SAVED_EVERY == 0:
                    _save(folder, rank, step, model, optimizer, monitor)
    except RuntimeError:
        os._exit(PEER_LOST)
    if rank == 0:
        torch.save(model.state_dict(), folder / WEIGHTS)


def _loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    batch = torch.randn(16, 8, generator=torch.Generator().manual_seed(1000 * rank + step))
    target = batch.sum(dim=1, keepdim=True).sin()
    loss: torch.Tensor = (model(batch) - target).square().mean()
    return loss


def _save(
    folder: Path, rank: int, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, monitor: TrainingMonitor
) -> None:
    """Save what all processes have reached: a step in which a peer died is not kept, for its mean loss is not known."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state["monitor"] = monitor.state_dict()  # in every process: a checkpoint is no part of a step's time in any
    dist.barrier()  # raises where a peer has died
    if rank == 0:
        torch.save(state, folder / "checkpoint.new")
        os.replace(folder / "checkpoint.new", folder / CHECKPOINT)
