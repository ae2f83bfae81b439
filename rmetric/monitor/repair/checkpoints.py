"""Copies of a training to go back to, and which of them were healthy in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rmetric.monitor.tensors import stored
from rmetric.network.copies import copied

Save = Callable[[], Any]
"""Makes a snapshot of the training as it is between two updates."""
Load = Callable[[Any], object]
"""Puts the training back into a snapshot that :data:`Save` has made."""
SCHEDULED = ("lr", "initial_lr", "momentum", "weight_decay")
"""Numbers of a parameter group that schedules and training loops set; others an optimizer may count in itself."""


class HostCopies:
    """Copies of weights, buffers and optimizer state in the host's memory; a pair of save and load functions.

    Only what is trained is copied, numbers that an optimizer keeps in its parameter groups included: the position in
    the data, what a schedule sets there and the random states go on, so that the batches in between are not used again.
    Under ``fully_shard`` each process copies its own part.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}

    def _trained(self) -> Iterable[Tensor]:
        return (parameter for group in self._optimizer.param_groups for parameter in group["params"])

    @torch.no_grad()
    def save(self) -> dict[str, Any]:
        """Copy everything; waits for the device."""
        state = self._optimizer.state
        return {
            "tensors": {name: stored(tensor).detach().to("cpu", copy=True) for name, tensor in self._tensors().items()},
            "optimizer": [copied(_stored_state(state.get(parameter, {}))) for parameter in self._trained()],
            "groups": [copied(_stored_state(_counted(group))) for group in self._optimizer.param_groups],
        }

    @torch.no_grad()
    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Put everything back in place: no tensor becomes another one, so that hooks and buckets stay valid."""
        for name, tensor in self._tensors().items():
            if name in snapshot["tensors"]:
                stored(tensor).copy_(snapshot["tensors"][name])
        for parameter, kept in zip(self._trained(), snapshot["optimizer"], strict=False):
            if kept:
                _put(self._optimizer.state[parameter], kept)
            else:
                self._optimizer.state.pop(parameter, None)
        for group, kept in zip(self._optimizer.param_groups, snapshot["groups"], strict=False):
            _put(group, kept)


def _put(state: dict[str, Any], kept: Mapping[str, Any]) -> None:
    """Put kept values back, into the tensors that are there."""
    for key, value in kept.items():
        if isinstance(value, Tensor) and isinstance(state.get(key), Tensor):
            stored(state[key]).copy_(value)
        else:
            state[key] = copied(value)


def _counted(group: Mapping[str, Any]) -> dict[str, Any]:
    """What an optimizer may count in a parameter group, such as Prodigy's ``d`` and a schedule-free one's ``k``."""
    return {key: value for key, value in group.items() if key not in SCHEDULED and _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Tensor) and not isinstance(value, bool)


def _stored_state(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: stored(value) if isinstance(value, Tensor) else value for key, value in state.items()}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    position: int
    """Updates that the weights have seen, plus 1: the step that comes next in the training that was kept."""
    step: int
    """Step of the monitor in which it was made; the same as long as nothing was undone."""
    snapshot: Any
    history: Any
    """State of what judges the training, as plain values."""


class Checkpoints:
    """The checkpoints of a run, oldest first.

    A checkpoint is known to be good when ``hindsight`` records have come after it without a sign: a fault may begin
    before it shows. The newest good ones are kept, however many newer ones there are.

    At least one is kept (``keep``); ``discard`` is called with the snapshot of each one that is dropped.
    """

    def __init__(self, keep: int, hindsight: int, discard: Callable[[Any], object] = lambda snapshot: None) -> None:
        self._keep, self._hindsight, self._discard = keep, hindsight, discard
        self.held: list[Checkpoint] = []

    def good_until(self, position: int, first_sign: int | None) -> int:
        """Latest position of a good checkpoint, when the training has got to a position, perhaps with a first sign."""
        return (position if first_sign is None else min(position, first_sign)) - self._hindsight

    def add(self, checkpoint: Checkpoint) -> None:
        """Add the newest one, of a training without a sign."""
        held = [*self.held, checkpoint]
        until = self.good_until(checkpoint.position, None)
        surplus = [item for item in held if item.position <= until][: -self._keep]
        self._hold([item for item in held if item not in surplus], of=held)

    def choose(self, until: int) -> Checkpoint:
        """Return the newest one up to a position, the oldest of all if there is none; newer ones are dropped."""
        able = [item for item in self.held if item.position <= until]
        self._hold(able or self.held[:1], of=self.held)
        return self.held[-1]

    def _hold(self, kept: list[Checkpoint], *, of: list[Checkpoint]) -> None:
        self.held = kept
        for dropped in of:
            if dropped not in kept:
                self._discard(dropped.snapshot)
