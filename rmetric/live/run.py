"""Live runs: a model, its optimizer and its data, and the hooks through which a fault reaches in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.live.corpus import Corpus
from rmetric.network.copies import copied
from rmetric.streams import stable_hash

FURTHER = 10**6
"""Steps that no run has are those of further batches."""
Moment = Literal["batch", "micro_batch", "loss", "gradients", "update"]
"""When a hook is called: ``batch``: the batch is there, nothing is computed; ``micro_batch``: before each forward pass;
``loss``: after it, before the backward pass; ``gradients``: all gradients are there, nobody has seen or clipped them;
``update``: the optimizer has stepped."""


@dataclass(frozen=True, kw_only=True)
class LiveRunConfig:
    """Settings of a training. Shapes: B rows, T tokens."""

    seed: int = 0
    """Seed of the order of the batches and of the faults' own draws; not of the weights."""
    rows: int = 16
    """Sequences a step, B."""
    length: int = 64
    """Tokens a sequence, T."""
    workers: int = 4
    """Equal parts of a batch, one backward pass each: what data-parallel workers would do, on one device."""
    learning_rate: float = 1e-3
    """Peak of the schedule."""
    warm_up_steps: int = 20
    """Steps in which the learning rate rises linearly; it is constant then, unless a run has a schedule of its own."""
    clip: float = 1.0
    """Largest global gradient norm; infinity: not clipped."""
    autocast: torch.dtype | None = None
    """Type of the forward pass where it is not that of the weights."""

    def __post_init__(self) -> None:
        if self.workers < 1 or self.rows % self.workers:
            raise UserError(f"{self.rows} rows cannot be shared equally by {self.workers} workers; choose a divisor")


class Splittable(Protocol):
    """A batch, of which workers get equal parts."""

    def part(self, index: int, parts: int) -> Self: ...


@dataclass(frozen=True)
class Batch:
    """Input of a language model's forward pass, each of shape (rows, tokens), on the model's device."""

    input_ids: Tensor
    labels: Tensor

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(self.input_ids.chunk(parts)[index], self.labels.chunk(parts)[index])


class Observer(Protocol):
    """Observer of a run; :class:`rmetric.monitor.TrainingMonitor` is one."""

    def step(self, loss: Tensor, *, recompute: Callable[[], Tensor] | None = None) -> bool: ...
    def note(self, event: str, **fields: Any) -> None: ...
    def planned(self, what: str) -> None: ...
    def hardware_event(self, component: str, *, kind: str, worker: int = 0, details: str = "") -> None: ...


class NoObserver:
    def step(self, loss: Tensor, *, recompute: Callable[[], Tensor] | None = None) -> bool:
        return True

    def note(self, event: str, **fields: Any) -> None:
        pass

    def planned(self, what: str) -> None:
        pass

    def hardware_event(self, component: str, *, kind: str, worker: int = 0, details: str = "") -> None:
        pass


class LiveRun(ABC):
    """Trains a model, one step a call; a subclass says on what, and what the loss is.

    Learning rates of the optimizer are set here at every step.

    A step is: *batch* hooks; for each worker that is left *micro-batch* hooks, forward, *loss* hooks and backward;
    *gradients* hooks; the observer; clipping; the optimizer; *update* hooks. All it depends on is in :meth:`state_dict`
    and in the number of the step, so a run and its fork share every batch and every bit.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, config: LiveRunConfig) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.step = 0
        """The step that is being done, from 1; between steps, the last one done."""
        self.observer: Observer = NoObserver()
        self.learning_rate_factor = 1.0
        """Multiplies the scheduled learning rate. A fault may change it and must restore it."""
        self.schedule_ahead_steps = 0
        """Steps by which the schedule is ahead of the training. A fault may change it and must restore it."""
        self.active_workers = list(range(config.workers))
        """Workers that still compute; change it by :meth:`lose_worker`."""
        self.worker_lost_step: int | None = None
        """Step of the first :meth:`lose_worker`."""
        self.non_finite_step: int | None = None
        """First step whose loss was not finite."""
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.autocast is torch.float16)
        """Scales the loss where the forward pass has too small a range."""
        self.hooks: dict[Moment, list[Callable[..., Any]]] = defaultdict(list)
        """Calls by moment, in their order; change them by :meth:`at`."""

    # -- what is trained, for a subclass ------------------------------------------------------------------------------

    @abstractmethod
    def batch(self) -> Splittable:
        """The batch of the current step, before any hook changes it; a function of the seed and the step alone."""

    @abstractmethod
    def loss_of(self, batch: Any) -> Tensor:
        """Loss of a batch or of a part of it, a scalar on the device; may run under autocast."""

    @abstractmethod
    def held_out_batch(self, purpose: str) -> Any:
        """The fixed held-out batch of that purpose, the same for all runs of this kind."""

    def held_out_loss_of(self, batch: Any, purpose: str) -> Tensor:
        """What is to become small, on a held-out batch: the loss, unless a subclass has a better measure."""
        return self.loss_of(batch)

    def rate_at(self, step: int) -> float:
        """Learning rate that the schedule has for a step, from 1."""
        return self.config.learning_rate * min(1.0, step / max(self.config.warm_up_steps, 1))

    def further_batch(self, number: int) -> Any:
        """Another batch of the current step for each number from 1, for a fault that needs more examples.

        Training does not get them, and nothing of the run may change by them.
        """
        step, self.step = self.step, self.step + number * FURTHER
        try:
            return self.batch()
        finally:
            self.step = step

    # -- for faults ---------------------------------------------------------------------------------------------------

    @contextmanager
    def at(self, moment: Moment, call: Callable[..., Any]) -> Iterator[None]:
        """Call something at a moment of every step, as long as the context lasts.

        ``batch`` calls get a :class:`Batch` and return the one to use; ``micro_batch`` calls get the worker's number;
        ``loss`` calls get the loss of a micro-batch, a scalar, and return the one to use; ``gradients`` and ``update``
        calls get nothing. Several are called in the order in which they came.
        """
        self.hooks[moment].append(call)
        try:
            yield
        finally:
            self.hooks[moment].remove(call)

    def rng(self, name: str) -> np.random.Generator:
        """Random numbers for this step: a function of the run's seed, ``name`` and the step, and of nothing else."""
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence((self.config.seed, stable_hash(name), self.step)))
        )

    def lose_worker(self, worker: int) -> None:
        """Lose a worker for good: its share of every later batch is not computed."""
        if worker in self.active_workers and len(self.active_workers) > 1:
            self.active_workers.remove(worker)
        self.worker_lost_step = self.worker_lost_step or self.step

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    # -- training -----------------------------------------------------------------------------------------------------

    def train_step(self) -> Tensor:
        """One step; returns the mean loss over the workers, a detached scalar on the device."""
        self.step += 1
        self.model.train()
        self._set_learning_rate()
        batch = self.batch()
        for call in self.hooks["batch"]:
            batch = call(batch)
        computed = [self._gradients(batch)]

        def recompute() -> Tensor:
            self.optimizer.zero_grad()
            computed.append(self._gradients(batch))
            return computed[-1]

        proceed = self.observer.step(computed[0], recompute=recompute)
        loss = computed[-1]
        if math.isfinite(self.config.clip):
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        if proceed:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        for call in self.hooks["update"]:
            call()
        if self.non_finite_step is None and not math.isfinite(loss.item()):
            self.non_finite_step = self.step
        return loss

    def _gradients(self, batch: Splittable) -> Tensor:
        """Do the forward and backward passes of a step and return the mean loss; hooks are called each time."""
        losses = [self._backward(batch.part(worker, self.config.workers), worker) for worker in self.active_workers]
        self.scaler.unscale_(self.optimizer)
        for call in self.hooks["gradients"]:
            call()
        return torch.stack(losses).mean()

    def _set_learning_rate(self) -> None:
        rate = self.rate_at(self.step + self.schedule_ahead_steps) * self.learning_rate_factor
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _backward(self, batch: Any, worker: int) -> Tensor:
        for call in self.hooks["micro_batch"]:
            call(worker)
        with self._precision():
            loss = self.loss_of(batch)
        for call in self.hooks["loss"]:
            loss = call(loss)
        self.scaler.scale(loss / len(self.active_workers)).backward()
        return loss.detach()

    def _precision(self) -> AbstractContextManager[Any]:
        precision = self.config.autocast
        return torch.autocast(self.device.type, precision) if precision else nullcontext()

    @torch.no_grad()
    def held_out_loss(self, purpose: str) -> float:
        """Mean loss on the fixed held-out batch of that purpose, nats; NaN or infinity as it comes."""
        batch = self.held_out_batch(purpose)
        self.model.eval()
        with self._precision():
            return float(self.held_out_loss_of(batch, purpose))

    # -- forking ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that the steps to come depend on: tensors (copies, on the CPU) and plain values."""
        return {
            "step": self.step,
            "active_workers": list(self.active_workers),
            "model": copied(self.model.state_dict()),
            "optimizer": copied(self.optimizer.state_dict()),
            "scaler": self.scaler.state_dict(),
            "random": torch.get_rng_state(),
            "random_of_device": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        """Go on from a state; returns this run."""
        self.step, self.worker_lost_step, self.non_finite_step = state["step"], None, None
        self.learning_rate_factor, self.schedule_ahead_steps, self.observer = 1.0, 0, NoObserver()
        self.active_workers = list(state["active_workers"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copied(state["optimizer"]))
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if state["random_of_device"] is not None:
            torch.cuda.set_rng_state(state["random_of_device"], self.device)
        return self


class LanguageModelRun(LiveRun):
    """Trains a causal language model of transformers.

    Parameters
    ----------
    model
        Takes ``input_ids`` and ``labels``, returns something with a scalar ``loss``.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, corpus: Corpus, config: LiveRunConfig
    ) -> None:
        super().__init__(model, optimizer, config)
        self.corpus = corpus

    def batch(self) -> Batch:
        tokens = self.corpus.batch(self.config.seed, self.step, self.config.rows, self.config.length)
        ids = torch.from_numpy(tokens).to(self.device, non_blocking=True)
        return Batch(ids, ids.clone())

    def loss_of(self, batch: Batch) -> Tensor:
        loss: Tensor = self.model(input_ids=batch.input_ids, labels=batch.labels).loss
        return loss

    def held_out_batch(self, purpose: str) -> Batch:
        tokens = self.corpus.held_out_batch(purpose, self.config.rows, self.config.length)
        ids = torch.from_numpy(tokens).to(self.device)
        return Batch(ids, ids)
