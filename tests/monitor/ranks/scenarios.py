"""What the processes of the tests of this folder do. Each scenario gets (folder, rank)."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import Hang, HangWatch, TrainingMonitor
from rmetric.monitor.dispersion.workers import Communication, communication_of
from tests.live.processes import main

SLOW_NETWORK_AT = 50
"""Record, of two steps, in which it is."""
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
        answer.register_hook(lambda _: time.sleep(self._seconds("backward")))
        return answer


def train(
    folder: Path,
    rank: int,
    steps: int,
    seconds: Sleep,
    made: Callable[[nn.Module, TrainingMonitor], object] = lambda model, monitor: None,
    **options: Any,
) -> TrainingMonitor:
    """Train for some steps, each phase of which takes as long as it is told to."""
    step = 0
    model = DistributedDataParallel(Slow(lambda phase: seconds(phase, step)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = TrainingMonitor(model, optimizer, log=folder / "run.jsonl", hardware=False, announce=False, **options)
    made(model, monitor)
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


def waits_for_an_evaluation(folder: Path, rank: int) -> None:
    """The first worker evaluates now and then, the second one waits for it; only the first says so."""
    monitors: list[TrainingMonitor] = []

    def seconds(phase: str, step: int) -> float:
        if phase == "input" and step in (40, 47):
            if rank == 0:
                time.sleep(0.3)
                monitors[0].validation(1.0)
            dist.barrier()
        return 0.004

    train(folder, rank, 50, seconds, lambda model, monitor: monitors.append(monitor))


def pauses_alone(folder: Path, rank: int) -> None:
    """The second worker pauses now and then, in steps with a record and between two; once the network is slow."""
    monitors: list[TrainingMonitor] = []
    networks: list[Communication] = []

    def seconds(phase: str, step: int) -> float:
        if phase == "input" and step == 2 * SLOW_NETWORK_AT:
            networks[0].delay_s = 0.5
        if phase == "input" and step == 2 * SLOW_NETWORK_AT + 1:
            networks[0].delay_s = 0.0
        if phase == "input" and rank == 1 and step in (80, 91):
            with monitors[0].paused():
                time.sleep(0.5)
        return 0.004

    def made(model: nn.Module, monitor: TrainingMonitor) -> None:
        monitors.append(monitor)
        networks.append(communication_of(model))  # type: ignore[arg-type]

    train(folder, rank, 110, seconds, made, record_every=2)


# -- hangs ------------------------------------------------------------------------------------------------------------

HANGS_AT = 30
SETTINGS = {"floor_s": 3.0, "interval_s": 0.2}


def _hanging(folder: Path, rank: int, hang: Callable[[int], None], steps: int = HANGS_AT + 5) -> None:
    """Train until ``hang`` does not return; every live rank writes the first hang that it is told of, and leaves."""

    def told(found: Hang) -> None:
        (folder / f"told_{rank}.json").write_text(json.dumps(asdict(found)))
        threading.Timer(2.0, os._exit, [0]).start()  # time for the log and for the others

    def seconds(phase: str, step: int) -> float:
        if phase == "input" and step == HANGS_AT:
            hang(rank)
        return 0.002

    (folder / f"pid_{rank}").write_text(str(os.getpid()))
    train(folder, rank, steps, seconds, hang=HangWatch(**SETTINGS, on_hang=told))


def _deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def deadlock_in_data_loading(folder: Path, rank: int) -> None:
    """The second of three ranks waits for a lock that nobody gives back."""
    _hanging(folder, rank, lambda rank: _deadlock() if rank == 1 else None)


def never_enters_the_collective(folder: Path, rank: int) -> None:
    """The last rank waits for messages of its own instead of training."""
    _hanging(folder, rank, lambda rank: queue.Queue[int]().get() if rank == 2 else None)


def _stop_self(folder: Path, alive: Sequence[int]) -> None:
    """Stop this process; a child ends it when those that are alive have told of it and left."""
    pid, told = os.getpid(), " -a ".join(f"-e {folder}/told_{rank}.json" for rank in alive)
    subprocess.Popen(["sh", "-c", f"while kill -0 {pid} && ! [ {told} ]; do sleep 0.1; done; sleep 3; kill -9 {pid}"])
    os.kill(pid, signal.SIGSTOP)


def stopped(folder: Path, rank: int) -> None:
    """The second of two ranks gets SIGSTOP."""
    _hanging(folder, rank, lambda rank: _stop_self(folder, [0]) if rank == 1 else None)


def first_stopped(folder: Path, rank: int) -> None:
    """The rank that writes the log gets SIGSTOP."""
    _hanging(folder, rank, lambda rank: _stop_self(folder, [1, 2]) if rank == 0 else None)


def slow_but_in_order(folder: Path, rank: int) -> None:
    """The first rank evaluates, saves, pauses, each for longer than the patience, while the other one waits."""
    monitors: list[TrainingMonitor] = []
    model_of: list[nn.Module] = []

    def seconds(phase: str, step: int) -> float:
        if phase == "input" and rank == 0 and step == 15:
            model_of[0].eval()
            time.sleep(4.0)
            model_of[0].train()
        if phase == "input" and rank == 0 and step == 20:
            with monitors[0].paused():
                time.sleep(4.0)
        if phase == "input" and rank == 0 and step == 25:
            torch.save(_SlowToSave(), folder / "checkpoint.pt")
        return 0.002

    def made(model: nn.Module, monitor: TrainingMonitor) -> None:
        model_of.append(model)
        monitors.append(monitor)

    train(folder, rank, 30, seconds, made, hang=HangWatch(**SETTINGS))


class _SlowToSave:
    def __reduce__(self) -> Any:
        time.sleep(4.0)
        return int, ()


if __name__ == "__main__":
    main(
        {
            "slow_forward": slow_forward,
            "stalls": stalls,
            "waits_for_an_evaluation": waits_for_an_evaluation,
            "pauses_alone": pauses_alone,
            "deadlock_in_data_loading": deadlock_in_data_loading,
            "never_enters_the_collective": never_enters_the_collective,
            "stopped": stopped,
            "first_stopped": first_stopped,
            "slow_but_in_order": slow_but_in_order,
        }
    )
