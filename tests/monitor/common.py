"""Parts of live runs, a detector that alerts when it is told to, and what a log says."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rmetric.detectors import StreamingDetector
from rmetric.live.run import Batch, LanguageModelRun
from rmetric.measurements import Observation
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.record_interval import RecordInterval
from rmetric.monitor.step_measurer import StepMeasurer


def batch_of(run: LanguageModelRun) -> Batch:
    """The batch of the run's current step."""
    tokens = run.corpus.batch(run.config.seed, run.step, run.config.rows, run.config.length)
    ids = torch.from_numpy(tokens).to(run.device)
    return Batch(ids, ids.clone())


def backward(run: LanguageModelRun, batch: Batch, workers: int = 1) -> Tensor:
    """Forward and backward pass of one worker's part of a batch; returns its loss."""
    loss = run.model(input_ids=batch.input_ids, labels=batch.labels).loss
    (loss / workers).backward()
    return loss.detach()


def measurer_of(run: LanguageModelRun) -> StepMeasurer:
    """Measures the steps of a run as a monitor with the default settings does."""
    return StepMeasurer(
        run.model, run.optimizer, scaler=None, parameters=None, update_entries=None, attention_logits=False,
        mechanism=None, phases=None, interval=RecordInterval(1),
    )  # fmt: skip


class Scheduled(StreamingDetector):
    """Alerts in the given steps."""

    name = "scheduled"
    threshold = 0.5

    def __init__(self, steps: Container[int]) -> None:
        self._steps = steps

    def update(self, observation: Observation) -> float:
        return float(observation.step in self._steps)


class Waits(TorchDispatchMode):
    """Counts what would make the host wait for the device: a scalar fetched, a tensor looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "unique"):
            self.calls.append(name)
        return func(*args, **(kwargs or {}))


def small_training() -> tuple[torch.nn.Sequential, torch.optim.Optimizer]:
    """A network of two layers and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def small_loss(model: torch.nn.Module, step: int) -> Tensor:
    """Loss of the batch of a step."""
    batch = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
    return (model(batch) - batch[:, :2]).square().mean()


def train(monitor: TrainingMonitor, model: Any, optimizer: Any, steps: Iterable[int]) -> None:
    """These steps of :func:`small_training`, watched."""
    for step in steps:
        optimizer.zero_grad()
        loss = small_loss(model, step)
        loss.backward()
        monitor.step(loss)
        optimizer.step()


def events_of(log: Path, event: str) -> list[dict[str, Any]]:
    """Lines of a log that tell of one kind of event."""
    return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == event]
