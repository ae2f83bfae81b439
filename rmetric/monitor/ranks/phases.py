"""Phases of a training step: which one a process is in, and how long each takes before it waits for the others."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rmetric.errors import LOGGER, on_one_line
from rmetric.monitor.loop_probes import PassHook, UpdateHook, remove_hooks
from rmetric.monitor.ranks.worker_times import BACKWARD, FORWARD, INPUT, TIMED

EXCHANGE = "exchange"
"""The rank's gradients are ready; it waits for those of the others."""
UPDATE, EVALUATION, PAUSED, ENDED = "update", "evaluation", "pause", "end"
NO_TIMES = (math.nan,) * len(TIMED)
Span = tuple[str, Any, Any]
"""A phase, its begin (``None``: it is not to be measured) and its end."""


@dataclass(frozen=True)
class Place:
    """Place of a process in its step. Replaced as a whole, so that another thread may read it at any time."""

    step: int = 0
    """Steps that are done."""
    phase: str = INPUT
    moves: int = 0
    """Changes of phase so far, which tell whether the process goes on."""
    since_s: float = 0.0
    """When this phase began, on the process's monotonic clock, seconds."""


class HostStopwatch:
    """The time of this process, by a clock in seconds."""

    lag = 0
    """Steps after which a step's marks are measured: at once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def mark(self) -> float:
        return self._now()

    def seconds(self, begin: float, end: float) -> float:
        return max(end - begin, 0.0)


class DeviceStopwatch:
    """Events on the stream that computes: the device's own time, whatever the host has queued ahead of it.

    Nothing waits: seconds are NaN between events that are not over. A host may be a step ahead of its device; two steps
    later, as a rule, they are.
    """

    lag = 2

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end) / 1000.0 if end.query() else math.nan


class PhaseClock:
    """Times the phases of a step by hooks on the model and the optimizer.

    *Input* runs from the end of an update to the next forward pass, *forward* is the model's own call, *backward* runs
    from its end until the last gradient is ready: what comes after that, the average over all ranks, takes a fast rank
    as long as the slowest one. Passes of one step (gradient accumulation) add up. A phase with an evaluation or a pause
    in it is not measured in its step: the others may wait for the rank that evaluates, and know nothing of it.

    Under ``fully_shard`` ranks wait for each other in the passes as well: only the input is a rank's own.

    ``now``: the time on the host, seconds; a model on an accelerator has a time of its own.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, now: Callable[[], float]) -> None:
        self.place = Place(since_s=time.monotonic())
        """Where this process is."""
        self._model = weakref.ref(model)
        self.steps = 0
        """Steps that were made since the start of this process."""
        self._longest_pause_s = 0.0
        on_device = any(parameter.is_cuda for parameter in model.parameters())
        self._watch: HostStopwatch | DeviceStopwatch = DeviceStopwatch() if on_device else HostStopwatch(now)
        self._spans: list[Span] = []
        self._of_steps: deque[list[Span]] = deque(maxlen=max(1, self._watch.lag))
        self._running: tuple[str, Any] | None = None
        inner: nn.Module = model
        self._own: tuple[str, ...] = (INPUT,)
        if isinstance(model, nn.parallel.DistributedDataParallel):
            inner, self._own = model.module, TIMED
        self._handles = [
            model.register_forward_pre_hook(PassHook(self._guarded(self._called))),
            inner.register_forward_pre_hook(PassHook(self._guarded(self._forward_begins))),
            inner.register_forward_hook(PassHook(self._guarded(self._forward_ended))),
        ]
        if hasattr(optimizer, "_optimizer_step_post_hooks"):  # a wrapper around an optimizer may lack it
            self._handles.append(optimizer.register_step_post_hook(UpdateHook(self._guarded(self._updated))))

    @property
    def evaluating(self) -> bool:
        """True while the model is in evaluation mode, or gone."""
        model = self._model()
        return model is None or not model.training

    @property
    def lag(self) -> int:
        return self._watch.lag

    def gradients_ready(self) -> tuple[float, ...]:
        """Say that the last gradient is ready; seconds of the :data:`TIMED` phases, NaN for one not measured.

        On an accelerator they are those of an earlier step, by :attr:`lag`.
        """
        self._close(BACKWARD)
        self._move(EXCHANGE)
        if not self._watch.lag:
            return self._seconds(self._spans)
        return self._seconds(self._of_steps[0]) if len(self._of_steps) == self._watch.lag else NO_TIMES

    def step_ended(self, step: int) -> None:
        """Begin the update of a step, the gradients of which are averaged."""
        self._close()
        self._of_steps.append(self._spans)
        self._spans = []
        self.steps += 1
        self._open(UPDATE)
        self._move(UPDATE, step)

    def leave_out(self) -> None:
        """Do not measure the phase in this step: something else than training takes place in it."""
        self._spoil()
        self._move(self.place.phase)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not measure the phase in which this context is."""
        phase = self.place.phase
        self._spoil()
        running, self._running = self._running, None
        self._move(PAUSED)
        try:
            yield
        finally:
            self._running = running
            self._move(phase)

    def longest_pause(self) -> float:
        """Longest time between two changes of phase since the last call, seconds; evaluations and pauses are none."""
        longest_s, self._longest_pause_s = self._longest_pause_s, 0.0
        return longest_s

    def close(self) -> None:
        remove_hooks(self._handles)
        self._running, self._spans = None, []
        self._of_steps.clear()
        self._move(ENDED)

    def _guarded(self, hook: Callable[..., None]) -> Callable[..., None]:
        """A hook that ends this clock, and not the training, where it fails."""

        @torch.compiler.disable
        def guarded(*arguments: Any) -> None:
            try:
                hook(*arguments)
            except Exception as error:  # noqa: BLE001 - the training must not end because it is watched
                self.close()
                LOGGER.warning("the phases of a step are not timed any longer: %s", on_one_line(error))

        return guarded

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _called(self, module: nn.Module, _: Any) -> None:
        if self._evaluating(module):
            return
        if self._running is not None and self._running[0] == UPDATE:  # a step without an update: skipped
            self._running = (INPUT, self._running[1])
        self._close(INPUT)

    def _forward_begins(self, module: nn.Module, _: Any) -> None:
        if not self._evaluating(module):
            self._close(INPUT)  # of a model that is called past its wrapper
            self._open(FORWARD)
            self._move(FORWARD)

    def _evaluating(self, module: nn.Module) -> bool:
        evaluating = not (module.training and torch.is_grad_enabled())
        if evaluating:
            self._spoil()
            self._move(EVALUATION)
        return evaluating

    def _forward_ended(self, _: nn.Module, __: Any, output: Any) -> None:
        if self.place.phase == EVALUATION:
            self._move(INPUT if self._running is None else self._running[0])
            return
        self._close(FORWARD)
        self._open(BACKWARD)
        self._move(BACKWARD)
        tensor = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad), None)
        if tensor is not None:
            tensor.register_hook(self._backward_begins)

    def _backward_begins(self, _: Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        """End a pass that was not followed by an exchange."""
        if self._close(BACKWARD):
            self._open(INPUT)
            self._move(INPUT)

    def _updated(self, *_: Any) -> None:
        if self.place.phase == UPDATE:  # a model with several optimizers: one of them is enough
            self._open(INPUT)
            self._move(INPUT)

    # -- spans --------------------------------------------------------------------------------------------------------

    def _move(self, phase: str, step: int | None = None) -> None:
        place, now = self.place, time.monotonic()
        if place.phase not in (EVALUATION, PAUSED):
            self._longest_pause_s = max(self._longest_pause_s, now - place.since_s)
        self.place = Place(place.step if step is None else step, phase, place.moves + 1, now)

    def _open(self, phase: str) -> None:
        self._running = (phase, self._watch.mark())

    def _spoil(self) -> None:
        """Let the running span be one of unknown length."""
        if self._running is not None:
            self._running = (self._running[0], None)

    def _close(self, phase: str | None = None) -> bool:
        """End the running span; one of another phase than the given one goes on. Returns whether it ended."""
        if self._running is None or phase not in (None, self._running[0]):
            return False
        self._spans.append((*self._running, self._watch.mark()))
        self._running = None
        return True

    def _seconds(self, spans: list[Span]) -> tuple[float, ...]:
        found = {phase: 0.0 for phase, _, _ in spans}
        for phase, begin, end in spans:
            found[phase] += math.nan if begin is None else self._watch.seconds(begin, end)
        return tuple(found[phase] if phase in found and phase in self._own else math.nan for phase in TIMED)
