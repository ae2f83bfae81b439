"""What the processes of test_disagreement.py do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rmetric.live.injection.workers import changed_payload
from studies.sdc.gradients import GradientSketch, among_processes
from tests.live.processes import main

FAULTY = 1
"""The process whose payload is changed."""


def payload(folder: Path, rank: int) -> dict[str, Any]:
    """Two steps under DDP; in the second one process sends a changed gradient."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 4))
    weight = model.module.weight
    torch.manual_seed(rank)

    def backward() -> None:
        model.zero_grad()
        model(torch.randn(64, 8)).square().sum().backward()

    with GradientSketch(model) as sketch:
        backward()
        healthy = among_processes(sketch.take())
    change = (lambda sent: sent.mul_(1e6)) if rank == FAULTY else (lambda sent: None)
    with changed_payload(weight, change), GradientSketch(model) as sketch:
        backward()
        found = among_processes(sketch.take())
    assert bool(weight.grad.abs().max() > 1e5), "what was sent was not averaged"
    return {"before": healthy.suspect if healthy.alarm else None, "suspect": found.suspect, "alarm": found.alarm}


if __name__ == "__main__":
    main({"payload": payload})
