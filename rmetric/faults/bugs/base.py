"""The contract of a bug: a fault of the training script, brought upon live runs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmetric.errors import UserError
from rmetric.faults.base import Fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from torch.nn import Parameter

    from rmetric.live.run import LiveRun


@dataclass(frozen=True, kw_only=True)
class Bug(Fault):
    """A mistake in the script, its settings or its data: it begins at the onset and lasts until the run ends.

    How training responds to it depends on model, optimizer and data, so nobody could say how to simulate it.
    """

    simulated = False

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        raise UserError(f"{self.name} is a bug and is brought upon live runs alone; it cannot be simulated")


@dataclass(frozen=True, kw_only=True)
class PartialBug(Bug):
    """A bug of a part of something: tensors, steps, examples. A subclass says of what."""

    above = {"share": 0.0}
    at_most = {"share": 1.0}

    share: float = 0.5
    """Above 0 and up to 1."""


def trained_parameters(training: LiveRun) -> list[tuple[str, Parameter]]:
    """Parameters that require a gradient, with their names, in the order of the model."""
    return [(name, item) for name, item in training.model.named_parameters() if item.requires_grad]


def number_of(share: float, of: int) -> int:
    """Number of items that a share of ``of`` items makes, rounded, from 1 to ``of``."""
    return max(1, min(of, math.floor(share * of + 0.5)))


def number_but_one(bug: PartialBug, tensors: Sequence[object]) -> int:
    """The bug's share of some tensors as a number that leaves one; raises :class:`UserError` for fewer than two."""
    if len(tensors) < 2:
        raise UserError(f"{bug.name} needs a model with at least two tensors that are trained")
    return min(number_of(bug.share, len(tensors)), len(tensors) - 1)


def randomness_kept(training: LiveRun) -> AbstractContextManager[None]:
    """A context whose draws from torch's generators leave no trace in the training."""
    import torch

    return torch.random.fork_rng(devices=[training.device] if training.device.type == "cuda" else [])


def is_distributed(training: LiveRun) -> bool:
    from torch.nn.parallel import DistributedDataParallel

    return isinstance(training.model, DistributedDataParallel)
