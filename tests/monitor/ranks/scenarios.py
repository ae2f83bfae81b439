"""What the processes of the tests of this folder do. Each scenario gets (folder, rank)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import TrainingMonitor
from tests.live.processes import main

Sleep = Callable[[str, int], float]
"""Phase and step → seconds."""


class Slow(nn.Module):
    """A layer whose forward and backward passes sleep."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self._seconds = nn.Linear(6, 3), seconds

    def forward(self, batch: Tensor) -> Tensor:
        time.sleep(self._seconds("forward"))
        answer: Tensor = self.layer(batch)
        answer.register_hook(lambda _: time.sleep(self._seconds("backward")))  # type: ignore[no-untyped-call]
        return answer


def train(folder: Path, rank: int, steps: int, seconds: Sleep, **options: Any) -> TrainingMonitor:
    """Train for some steps, each phase of which takes as long as it is told to."""
    step = 0
    model = DistributedDataParallel(Slow(lambda phase: seconds(phase, step)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = TrainingMonitor(model, optimizer, log=folder / "run.jsonl", hardware=False, announce=False, **options)
    with monitor:
        for step in range(1, steps + 1):
            time.sleep(seconds("input", step))
            loss = model(torch.ones(2, 6)).square().mean()
            loss.backward()
            monitor.step(loss)
            optimizer.step()
            optimizer.zero_grad()
    return monitor


def slow_forward(folder: Path, rank: int) -> None:
    """The second worker's forward passes take longer from step 60 on; all other phases of both take 4 ms."""

    def seconds(phase: str, step: int) -> float:
        return 0.024 if (rank, phase) == (1, "forward") and step > 60 else 0.004

    train(folder, rank, 120, seconds)


def stalls(folder: Path, rank: int) -> None:
    """The first worker's input now and then takes 300 ms more."""

    def seconds(phase: str, step: int) -> float:
        return 0.304 if (rank, phase) == (0, "input") and step in (40, 47) else 0.004

    train(folder, rank, 50, seconds)


if __name__ == "__main__":
    main({"slow_forward": slow_forward, "stalls": stalls})
