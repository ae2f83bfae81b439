"""Benign disturbances of any kind of training: no faults, but what happens to a run in practice.

Control forks have them, and an alert in such a fork is a false alarm. Each is entered right before the first disturbed
step and lasts to the end of the run.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rmetric.live.run import LiveRun
from studies.real_runs.disturbances import LearningRateRestart
from studies.zoo.training import Examples


@dataclass(frozen=True, kw_only=True)
class ZooDisturbance(ABC):
    """A benign change of a live run."""

    name: ClassVar[str]

    def fits(self, batch: Any) -> bool:
        """Whether a kind of training with such batches can have it."""
        return True

    @abstractmethod
    def disturb(self, run: LiveRun) -> AbstractContextManager[None]:
        """Do it, as long as the context lasts."""


@dataclass(frozen=True, kw_only=True)
class RowDisturbance(ZooDisturbance):
    """A disturbance of some rows of batches that are :class:`~studies.zoo.training.Examples`."""

    row_share: float = 0.3
    """Share of the rows, in [0, 1]."""

    def fits(self, batch: Any) -> bool:
        return isinstance(batch, Examples)

    def chosen(self, run: LiveRun, batch: Examples) -> Tensor:
        """Numbers of the rows to disturb in this step."""
        rows = len(batch.inputs)
        drawn = run.rng(f"{self.name}/rows").choice(rows, size=round(self.row_share * rows), replace=False)
        return torch.from_numpy(drawn)


@dataclass(frozen=True, kw_only=True)
class BadBatch(RowDisturbance):
    """One batch with senseless rows: each of their inputs comes from another example, their labels stay."""

    name: ClassVar[str] = "bad_batch"
    row_share: float = 0.5

    @contextmanager
    def disturb(self, run: LiveRun) -> Iterator[None]:
        first = run.step + 1

        def spoil(batch: Examples) -> Examples:
            if run.step != first:
                return batch
            rows, inputs = self.chosen(run, batch), batch.inputs.clone()
            flat = inputs.reshape(len(inputs), -1)  # a value keeps its column, whose range it fits
            donors = torch.from_numpy(run.rng("bad batch").integers(len(flat), size=(len(rows), flat.shape[1])))
            flat[rows] = batch.inputs.reshape(len(inputs), -1).gather(0, donors)
            return replace(batch, inputs=flat.reshape(inputs.shape))

        with run.at("batch", spoil):
            yield


@dataclass(frozen=True, kw_only=True)
class DataShift(RowDisturbance):
    """From the step on a share of every batch is brighter and of more contrast, as from another camera or sensor."""

    name: ClassVar[str] = "data_shift"
    scale: float = 1.1
    shift: float = 0.1
    """In standard deviations of the batch's inputs."""

    def fits(self, batch: Any) -> bool:
        return super().fits(batch) and batch.inputs.is_floating_point()

    @contextmanager
    def disturb(self, run: LiveRun) -> Iterator[None]:
        def move(batch: Examples) -> Examples:
            rows, inputs = self.chosen(run, batch), batch.inputs.clone()
            inputs[rows] = self.scale * inputs[rows] + self.shift * inputs.std()
            return replace(batch, inputs=inputs)

        with run.at("batch", move):
            yield


@dataclass(frozen=True, kw_only=True)
class DataMix(RowDisturbance):
    """From the step on a share of every batch comes from a part of the domain: the half with the smaller inputs.

    With three times the share, one run in three is worse on held-out data to the end by more than 5 %.
    """

    name: ClassVar[str] = "data_mix"
    row_share: float = 0.1

    @contextmanager
    def disturb(self, run: LiveRun) -> Iterator[None]:
        def mix(batch: Examples) -> Examples:
            rows = self.chosen(run, batch)
            size = batch.inputs.reshape(len(batch.inputs), -1).double().mean(dim=1)
            part = size.argsort(stable=True)[: max(1, len(size) // 2)]
            source = torch.arange(len(size))
            source[rows] = part[torch.from_numpy(run.rng("data mix").integers(len(part), size=len(rows)))]
            return type(batch)(batch.inputs[source], batch.labels[source])

        with run.at("batch", mix):
            yield


@dataclass(frozen=True, kw_only=True)
class Restart(ZooDisturbance):
    """A warm restart: three times the learning rate, which comes back linearly."""

    name: ClassVar[str] = "lr_restart"
    factor: float = 3.0
    steps: int = 60
    """Until it is back."""

    def disturb(self, run: LiveRun) -> AbstractContextManager[None]:
        return LearningRateRestart(factor=self.factor, steps=self.steps).disturb(run)


@dataclass(frozen=True, kw_only=True)
class Stall(ZooDisturbance):
    """A few slow steps in a row: a disk that others use, a data loader that has run dry."""

    name: ClassVar[str] = "stall"
    steps: int = 3
    least_s: float = 0.05
    most_s: float = 0.3
    """Bounds of the delay of a step, in seconds; drawn on a logarithmic scale."""

    @contextmanager
    def disturb(self, run: LiveRun) -> Iterator[None]:
        first = run.step + 1

        def wait(batch: Any) -> Any:
            if first <= run.step < first + self.steps:
                bounds = np.log([self.least_s, self.most_s])
                time.sleep(float(np.exp(run.rng("stall").uniform(*bounds))))
            return batch

        with run.at("batch", wait):
            yield


@dataclass(frozen=True, kw_only=True)
class Checkpoints(ZooDisturbance):
    """Every so many steps a longer evaluation and a checkpoint, of which nobody tells the monitor."""

    name: ClassVar[str] = "checkpoint"
    every: int = 100
    evaluations: int = 10
    """Held-out losses that are taken before each checkpoint."""

    @contextmanager
    def disturb(self, run: LiveRun) -> Iterator[None]:
        first = run.step + 1

        def save() -> None:
            if (run.step - first) % self.every == 0:
                for _ in range(self.evaluations):
                    run.held_out_loss("validation")
                torch.save(run.state_dict(), Path(folder) / "checkpoint.pt")

        with tempfile.TemporaryDirectory() as folder, run.at("update", save):
            yield


DISTURBANCES: dict[str, ZooDisturbance] = {
    item.name: item for item in (BadBatch(), Restart(), Stall(), Checkpoints(), DataShift(), DataMix())
}
"""Name → disturbance."""
