"""Benign disturbances: no faults, but what hurts a run in practice.

Control runs have them, and an alert in such a run is a false alarm.

Each is entered as a fault is, right before the first disturbed step, and lasts to the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from rmetric.components import GPU_MEMORY
from rmetric.live.corpus import BYTES, documentation
from rmetric.live.run import Batch, LanguageModelRun, LiveRun


class Disturbance(Protocol):
    """A benign change of a live run."""

    name: ClassVar[str]

    def disturb(self, training: LanguageModelRun) -> AbstractContextManager[None]:
        """Do it, as long as the context lasts."""


@dataclass(frozen=True, kw_only=True)
class DataMix:
    """Replace a share of the rows by another kind of text: prose in place of program code.

    Prose is the easier text for a model of bytes: the training loss comes down by some per cent, the held-out loss,
    which is of code alone, goes up by one or two, and the workers of a step agree less.
    """

    name: ClassVar[str] = "data_mix"
    row_share: float = 0.3
    """Share of the rows of every batch, in [0, 1]."""

    def disturb(self, training: LanguageModelRun) -> AbstractContextManager[None]:
        text = documentation()

        def mix(batch: Batch) -> Batch:
            rows, length = batch.input_ids.shape
            chosen = training.rng("data mix/rows").choice(rows, size=round(self.row_share * rows), replace=False)
            other = text.batch(training.config.seed, training.step, len(chosen), length)
            return _with_rows(batch, chosen, torch.from_numpy(other))

        return training.at("batch", mix)


@dataclass(frozen=True, kw_only=True)
class LearningRateRestart:
    """A warm restart: the learning rate jumps and comes back linearly; large, and safe."""

    name: ClassVar[str] = "lr_restart"
    factor: float = 3.0
    """Multiple of the scheduled learning rate at the restart."""
    steps: int = 60
    """Until it is back."""

    @contextmanager
    def disturb(self, training: LiveRun) -> Iterator[None]:
        first, before = training.step + 1, training.learning_rate_factor

        def come_back() -> None:
            left = max(0.0, 1.0 - (training.step + 1 - first) / self.steps)
            training.learning_rate_factor = before * (1.0 + (self.factor - 1.0) * left)

        training.learning_rate_factor = before * self.factor
        try:
            with training.at("update", come_back):
                yield
        finally:
            training.learning_rate_factor = before


@dataclass(frozen=True, kw_only=True)
class BadBatch:
    """One batch whose rows are partly noise. The loss leaps for one step, and training heals what it did."""

    name: ClassVar[str] = "bad_batch"
    row_share: float = 0.5
    """Share of the rows that are random bytes, in [0, 1]."""

    def disturb(self, training: LanguageModelRun) -> AbstractContextManager[None]:
        first = training.step + 1

        def spoil(batch: Batch) -> Batch:
            if training.step != first:
                return batch
            rows, length = batch.input_ids.shape
            draw = training.rng("bad batch")
            chosen = draw.choice(rows, size=round(self.row_share * rows), replace=False)
            noise = draw.integers(BYTES, size=(len(chosen), length))
            return _with_rows(batch, chosen, torch.from_numpy(noise))

        return training.at("batch", spoil)


@dataclass(frozen=True, kw_only=True)
class StrayEvents:
    """A correctable hardware event now and then, as any machine has it. Nothing follows from it."""

    name: ClassVar[str] = "stray_events"
    events_per_step: float = 1 / 150
    """Probability of an event in a step."""

    def disturb(self, training: LanguageModelRun) -> AbstractContextManager[None]:
        first = training.step + 1

        def report(batch: Batch) -> Batch:
            draw = training.rng("stray events")
            if training.step == first or draw.random() < self.events_per_step:
                worker = int(draw.integers(training.config.workers))
                training.observer.hardware_event(GPU_MEMORY, kind="correctable", worker=worker)
            return batch

        return training.at("batch", report)


DISTURBANCES: dict[str, Disturbance] = {
    item.name: item for item in (DataMix(), LearningRateRestart(), BadBatch(), StrayEvents())
}
"""Name → disturbance, in the order in which control runs take turns."""


def described(disturbance: Disturbance, step: int | None) -> dict[str, Any]:
    """A disturbance and its step, as they stand in the log's config."""
    return {"type": disturbance.name, "step": step, "params": asdict(disturbance)}  # type: ignore[call-overload]


def _with_rows(batch: Batch, rows: np.ndarray[Any, np.dtype[np.int64]], tokens: Tensor) -> Batch:
    """The same batch with other tokens in some rows."""
    ids, labels = batch.input_ids.clone(), batch.labels.clone()
    place = torch.from_numpy(rows).to(ids.device)
    ids[place] = labels[place] = tokens.to(ids.device)
    return Batch(ids, labels)
