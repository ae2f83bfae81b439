"""A kind of training: its data, model, optimizer, loss and schedule. One small file in ``kinds/`` each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRun, LiveRunConfig
from rmetric.network.copies import copied
from rmetric.registry import Registry
from rmetric.streams import stable_hash

Family = Literal[
    "vision", "speech", "language", "graphs", "generative", "reinforcement", "contrastive", "tabular", "fine-tuning"
]
KINDS: Registry[type[Kind]] = Registry("kind of training")
K = TypeVar("K", bound="type[Kind]")


@dataclass(frozen=True)
class Batch:
    """Tensors that a step trains on, each with the examples as first dimension; a subclass has them as its fields."""

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(*(each.chunk(parts)[index] for each in vars(self).values()))


@dataclass(frozen=True)
class Examples(Batch):
    """Batch of examples: inputs of the model, and the labels that it is to predict."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Parts:
    """What a kind trains."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    beside: dict[str, Any] = field(default_factory=dict)
    """Further things with ``state_dict`` and ``load_state_dict`` that the steps to come depend on: a second optimizer,
    a target network. Modules that are trained belong to ``model``."""


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """One kind of training. Everything random in it is a function of the seed and the step.

    A step should take at most some 6 ms on one thread, so that a zoo of hundreds of thousands of steps is recorded
    within the hour.
    """

    name: ClassVar[str] = ""
    """Registered name."""
    family: ClassVar[Family]
    optimizer: ClassVar[str]
    """Name of the optimizer."""
    why: ClassVar[str] = ""
    """What is unlike other kinds, in some words."""
    zoo: ClassVar[str] = "zoo"
    """Name of the data set that its runs are published in."""
    processes: ClassVar[int] = 1
    """Processes of DistributedDataParallel."""
    config: ClassVar[LiveRunConfig] = LiveRunConfig(workers=1)
    """Peak learning rate, warm-up, clipping, precision; ``workers``: micro-batches whose gradients are accumulated."""
    held_out_rows: ClassVar[int] = 256
    """Examples of a held-out batch: enough that its loss says more of the model than of the examples."""

    @abstractmethod
    def make(self, seed: int) -> Parts:
        """Model and optimizer before the first step; torch is seeded already."""

    @abstractmethod
    def batch(self, rng: np.random.Generator, step: int) -> Any:
        """A batch to train on, with a method ``part``; :class:`Examples` serve most kinds. Step 0: a held-out one."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Loss of a batch, a scalar: what the training loop hands to the monitor. Cross entropy, unless another."""
        return functional.cross_entropy(model(batch.inputs), batch.labels)

    def experience(self, run: KindRun, batch: Any) -> Any:
        """What a step trains on where it depends on the model: episodes that it played, answers that it gave."""
        return batch

    def held_out_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """What is to become small, on a held-out batch; another measure where the training loss is none of success.

        By it a run is judged against its twin, so it should be positive and have little noise.
        """
        return self.loss(model, batch)

    def validation_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """What the run's own evaluations tell its monitor: :meth:`held_out_loss`, unless people log another."""
        return self.held_out_loss(model, batch)

    def rows(self, step: int) -> int:
        """Examples of a step's batch, for :meth:`batch`; more in a held-out one."""
        return self.config.rows if step else self.held_out_rows

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of a step over its peak: warm-up, times :attr:`schedule`."""
        return min(1.0, step / max(self.config.warm_up_steps, 1)) * self.schedule(step / steps)

    @staticmethod
    def schedule(done: float) -> float:
        """Share of the peak by the share of the steps that is done, one of :mod:`studies.zoo.schedules`; constant."""
        return 1.0

    def planned(self, step: int) -> str:
        """What is changed on purpose right before a step, as who trains so would announce it; empty: nothing.

        For what comes so seldom that a run has a course between two of them, and is known beforehand.
        """
        return ""

    def before_step(self, run: KindRun, batch: Any) -> None:  # noqa: B027 - most kinds have none
        """Work of a step besides the loss: a discriminator's update, a target network that follows."""


class KindRun(LiveRun):
    """A live run of a kind of training."""

    def __init__(self, kind: Kind, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        parts = kind.make(seed)
        super().__init__(parts.model, parts.optimizer, replace(kind.config, seed=seed))
        self.kind, self.steps, self.beside = kind, steps, parts.beside
        self._held_out: dict[str, Any] = {}

    def batch(self) -> Any:
        if what := self.kind.planned(self.step):
            self.observer.planned(what)
        batch = self.kind.batch(self.rng(f"{self.kind.name}/batch"), self.step)
        self.kind.before_step(self, batch)
        return self.kind.experience(self, batch)

    def further_batch(self, number: int) -> Any:
        return self.kind.batch(self.rng(f"{self.kind.name}/batch/{number}"), self.step)

    def loss_of(self, batch: Any) -> Tensor:
        return self.kind.loss(self.model, batch)

    def held_out_loss_of(self, batch: Any, purpose: str) -> Tensor:
        return self.measure(purpose)(self.model, batch)

    def measure(self, purpose: str) -> Callable[[nn.Module, Any], Tensor]:
        """What a held-out batch of that purpose is measured by."""
        return self.kind.validation_loss if purpose == "validation" else self.kind.held_out_loss

    def held_out_batch(self, purpose: str) -> Any:
        if purpose not in self._held_out:
            rng = np.random.default_rng((stable_hash(self.kind.name), stable_hash(purpose)))
            self._held_out[purpose] = self.kind.batch(rng, 0)
        return self._held_out[purpose]

    def held_out_loss(self, purpose: str) -> float:
        """As of :class:`LiveRun`; a loss that draws random numbers draws the same each time, and training's stay."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return super().held_out_loss(purpose)

    def rate_at(self, step: int) -> float:
        return self.config.learning_rate * self.kind.rate(step, self.steps)

    def state_dict(self) -> dict[str, Any]:
        beside = {name: thing.state_dict() for name, thing in self.beside.items()}
        return {**super().state_dict(), "beside": copied(beside)}

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        super().load_state_dict(state)
        for name, thing in self.beside.items():
            thing.load_state_dict(copied(state["beside"][name]))
        return self


def register_kind(name: str) -> Callable[[K], K]:
    """Class decorator: make a kind of training known by name."""

    def register(kind: K) -> K:
        if kind.family not in get_args(Family):
            raise ValueError(f"{name}: family {kind.family!r} is none of {', '.join(get_args(Family))}")
        kind.name = name
        KINDS.add(name, kind)
        return kind

    return register
