"""What the processes of test_go_back_distributed.py do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import GoBack, TrainingStopped
from tests.live.processes import main
from tests.monitor.repair.scenarios import network

STEPS, ONSET = 150, 80


def trained(rank: int, lasts: int, **options: Any) -> dict[str, Any]:
    """Train with data of which one process gets wrong ones for some steps."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    policy = GoBack(every=10, hindsight=10, rest=5, **options)
    stopped = None
    with TrainingMonitor(model, optimizer, hardware=False, policy=policy, announce=False) as monitor:
        try:
            for step in range(1, STEPS + 1):
                data = torch.randn(32, 6, generator=torch.Generator().manual_seed(1000 * rank + step))
                wrong = rank == 1 and ONSET <= step < ONSET + lasts
                optimizer.zero_grad()
                loss = (model(data) - (30.0 if wrong else 1.0) * data[:, :3]).square().mean()
                loss.backward()
                if monitor.step(loss):
                    optimizer.step()
        except TrainingStopped as verdict:
            stopped = verdict.step
        repairs = [[item.step, item.verdict, item.details.get("to_step")] for item in monitor.repairs]
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return {"repairs": repairs, "stopped": stopped, "weights": weights.tolist()}


def go_back(folder: Path, rank: int) -> dict[str, Any]:
    return {"passes": trained(rank, 10), "stays": trained(rank, STEPS, max_tries=1)}


if __name__ == "__main__":
    main({"go_back": go_back})
