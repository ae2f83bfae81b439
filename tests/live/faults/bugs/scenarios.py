"""What several processes do with a bug; see :mod:`tests.live.processes`."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rmetric.faults import make_fault
from rmetric.live.run import LiveRun
from tests.live.faults.classifier import ClassifierRun
from tests.live.faults.common import trained
from tests.live.processes import main


def drift(folder: Path, rank: int) -> list[float]:
    """Largest difference between the weights of two processes: before the bug, and with it."""
    run = ClassifierRun(workers=1, seed=rank)
    run.model = DistributedDataParallel(run.model)
    differences = [_difference(trained(run, 2))]
    with make_fault("WORKERS_DRIFT").inject(run):
        differences.append(_difference(trained(run, 2)))
    return differences


def _difference(run: LiveRun) -> float:
    weights = torch.cat([item.detach().flatten() for item in run.model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, weights)
    return float((everybodys[0] - everybodys[1]).abs().max())


if __name__ == "__main__":
    main({"drift": drift})
