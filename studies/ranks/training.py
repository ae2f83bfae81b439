"""A small training in several processes whose phases take as long as they are told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import TrainingMonitor

PHASE_S = 0.03
"""Seconds that a phase sleeps: a machine with fewer cores than processes would measure its own scheduler otherwise."""
SCATTER = 0.05
"""Standard deviation of the logarithm of a phase's time: no two batches are alike."""


@dataclass(frozen=True)
class Slowing:
    """What slows one worker."""

    phase: str
    """``input``, ``forward`` or ``backward``; empty: nothing does."""
    kind: str
    """``20 %``: from the onset on. ``200 ms``: in one step of ten, at random, from the onset on."""
    worker: int
    onset: int
    """First step that may be slow."""

    def seconds(self, usual_s: float, rng: np.random.Generator) -> float:
        """Time of the slowed phase in a step after the onset."""
        if self.kind == "20 %":
            return 1.2 * usual_s
        return usual_s + 0.2 * (rng.random() < 0.1)


class _Sleeping(nn.Module):
    """A layer whose passes take time."""

    def __init__(self, sleep: Callable[[str], None]) -> None:
        super().__init__()
        self.layer, self._sleep = nn.Linear(16, 16), sleep

    def forward(self, batch: Tensor) -> Tensor:
        self._sleep("forward")
        answer: Tensor = self.layer(batch)
        answer.register_hook(lambda _: self._sleep("backward"))
        return answer


def train(rank: int, log: Path, steps: int, slowing: Slowing, seed: int) -> None:
    """One process: train under the monitor, which writes the log in the first one."""
    rng = np.random.default_rng([seed, rank])
    step = 0

    def sleep(phase: str) -> None:
        seconds = PHASE_S * float(np.exp(SCATTER * rng.standard_normal()))
        if (rank, phase) == (slowing.worker, slowing.phase) and step >= slowing.onset:
            seconds = slowing.seconds(seconds, rng)
        time.sleep(seconds)

    torch.manual_seed(seed)
    model = DistributedDataParallel(_Sleeping(sleep))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False) as monitor:
        for step in range(1, steps + 1):  # noqa: B007 - the sleeping phases look at it
            sleep("input")
            loss = model(torch.from_numpy(rng.standard_normal((4, 16)).astype(np.float32))).square().mean()
            loss.backward()
            monitor.step(loss)
            optimizer.step()
            optimizer.zero_grad()
