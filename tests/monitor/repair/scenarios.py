"""What the processes of test_distributed.py do. Each scenario gets (folder, rank) and returns what fits JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import Decision, GoBack, Policy, RecomputeStep, RestoreState, SkipUpdate, TrainingStopped
from rmetric.monitor.repair.context import StepContext
from tests.live.processes import main

STEPS, FLIP_STEP, VICTIM = 24, 20, 1
LONG, ONSET = 150, 80


def network() -> nn.Module:
    """With dropout: each process has its own random numbers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 3))


class Failing(Policy):
    """Fails in one process."""

    def __init__(self, rank: int) -> None:
        self.rank, self.last_step = rank, 0

    def inspect(self, context: StepContext) -> bool:
        self.last_step = context.step
        return context.step == FLIP_STEP

    def before_update(self, context: StepContext) -> Decision:
        if self.rank == VICTIM:
            raise ValueError("mine")
        return Decision.PASS


class Training:
    """A distributed training in which one process may compute something wrong."""

    def __init__(self, rank: int, model: nn.Module, flips: int, kind: str) -> None:
        self.rank, self.model, self.flips, self.kind = rank, model, flips, kind
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        self.step, self.done = 0, 0
        torch.manual_seed(100 + rank)

    def compute(self) -> Tensor:
        self.optimizer.zero_grad()
        generator = torch.Generator().manual_seed(1000 * self.rank + self.step)
        data = torch.randn(16, 6, generator=generator)
        self.done += 1
        wrong = self.rank == VICTIM and self.step == FLIP_STEP and self.done <= self.flips
        output = self.model(data)
        if wrong and self.kind == "backward":
            output.register_hook(lambda gradient: gradient * 1e6)
        loss = (output - data[:, :3]).square().mean()
        loss.backward()
        if self.kind == "fails" and self.rank == VICTIM and self.step == FLIP_STEP and self.done == 2:
            raise MemoryError("full")
        if wrong and self.kind in ("after", "fails"):  # in the memory of one process, after all have averaged
            local(next(self.model.parameters()).grad).view(-1)[0] = torch.nan
        return loss.detach()

    def train(self, monitor: TrainingMonitor | None) -> list[bool]:
        proceeded = []
        self.model.train()
        for step in range(1, STEPS + 1):
            self.step, self.done = step, 0
            loss = self.compute()
            proceed = monitor.step(loss, recompute=self.compute) if monitor is not None else True
            if proceed:
                self.optimizer.step()
            if step == FLIP_STEP - 1 and self.kind == "memory" and self.flips and self.rank == VICTIM:
                local(next(self.model.parameters())).detach().view(-1)[0] += 1.0
            proceeded.append(proceed)
        return proceeded


def local(tensor: Any) -> Tensor:
    """This process's part."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def outcome(rank: int, wrap: Any, flips: int, kind: str, policies: list[Any]) -> dict[str, Any]:
    """Train with policies, and a healthy twin without, and compare."""
    twin, training = Training(rank, wrap(network()), 0, kind), None
    twin.train(None)
    training = Training(rank, wrap(network()), flips, kind)
    with TrainingMonitor(training.model, training.optimizer, hardware=False, policy=policies) as monitor:
        proceeded = training.train(monitor)
        repairs = [
            [repair.step, repair.policy, repair.verdict, list(repair.workers), len(repair.differing)]
            for repair in monitor.repairs
        ]
        told = [[repair.message, repair.details.get("elements")] for repair in monitor.repairs]
        reasons = [list(repair.reasons) for repair in monitor.repairs if repair.verdict != "agrees"]
        enabled = monitor.enabled
    pairs = zip(training.model.parameters(), twin.model.parameters(), strict=True)
    same = all(torch.equal(local(one), local(other)) for one, other in pairs)
    skipped = [step for step, made in enumerate(proceeded, 1) if not made]
    weights = sum(float(local(parameter).detach().double().sum()) for parameter in training.model.parameters())
    return {
        "repairs": repairs, "told": told, "reasons": reasons, "same": same, "skipped": skipped, "enabled": enabled,
        "weights": weights, "last_step": getattr(policies[0], "last_step", None),
    }  # fmt: skip


def distributed(folder: Path, rank: int) -> dict[str, Any]:
    """All of it in one go: starting processes is what costs time."""
    wrap = DistributedDataParallel
    return {
        "healthy": outcome(rank, wrap, 0, "backward", [RestoreState(), RecomputeStep()]),
        "backward": outcome(rank, wrap, 1, "backward", [RecomputeStep()]),
        "after": outcome(rank, wrap, 1, "after", [RecomputeStep()]),
        "memory": outcome(rank, wrap, 1, "memory", [RestoreState(), RecomputeStep()]),
        "stays": outcome(rank, wrap, 99, "backward", [RecomputeStep(), SkipUpdate(certain=False)]),
        "recompute_fails": outcome(rank, wrap, 1, "fails", [RecomputeStep()]),
        "policy_fails": outcome(rank, wrap, 1, "after", [Failing(rank), RecomputeStep()]),
        "policy_fails_calmly": outcome(rank, wrap, 0, "after", [Failing(rank)]),
        "sharded": outcome(rank, fully_shard, 1, "backward", [RestoreState(), RecomputeStep()]),
    }


def trained_on_wrong_data(rank: int, lasts: int, **options: Any) -> dict[str, Any]:
    """Train with data of which one process gets wrong ones for some steps."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    policy = GoBack(every=10, hindsight=10, rest=5, **options)
    stopped = None
    with TrainingMonitor(model, optimizer, hardware=False, policy=policy, announce=False) as monitor:
        try:
            for step in range(1, LONG + 1):
                data = torch.randn(32, 6, generator=torch.Generator().manual_seed(1000 * rank + step))
                wrong = rank == VICTIM and ONSET <= step < ONSET + lasts
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
    passes, stays = trained_on_wrong_data(rank, 10), trained_on_wrong_data(rank, LONG, max_tries=1)
    return {"onset": ONSET, "passes": passes, "stays": stays}


if __name__ == "__main__":
    main({"distributed": distributed, "go_back": go_back})
