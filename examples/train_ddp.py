"""Data-parallel training with the monitor in every process: NCCL on GPUs, else Gloo.

torchrun --standalone --nproc-per-node 2 examples/train_ddp.py run.jsonl
sbatch examples/train.sbatch                                    # the same on the nodes of a SLURM cluster
rmetric diagnose run.jsonl                                      # afterwards, or `rmetric watch run.jsonl` meanwhile
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rmetric

STEPS = 200


def main() -> None:
    """Train a small regression on data that differ from process to process."""
    p = argparse.ArgumentParser(description="Data-parallel training with the monitor in every process.")
    p.add_argument("log", nargs="?", default="run.jsonl", help="written by the first process")
    args = p.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(0)  # the same weights everywhere
    target = nn.Linear(32, 1).to(device).requires_grad_(False)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator(device).manual_seed(1 + dist.get_rank())  # other data in each process

    with rmetric.TrainingMonitor(model, optimizer, log=args.log) as monitor:
        for _ in range(STEPS):
            inputs = torch.randn(64, 32, device=device, generator=draws)
            loss = nn.functional.mse_loss(model(inputs), target(inputs))
            loss.backward()
            monitor.step(loss)
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
