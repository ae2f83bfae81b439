"""Restore numbers that changed in memory between two updates."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rmetric.monitor.parameters import owned_by
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, Policy
from rmetric.monitor.tensors import bits, differing, stored

LOGGER = logging.getLogger("rmetric")
MAX_NAMED, REPEATED = 16, 2
"""Most corrupted elements that the log names; times that an element is put back before its changes are meant."""


@dataclass(kw_only=True)
class RestoreState(Policy):
    """Keeps a copy of weights and of the optimizer's state, and compares bit for bit before each update.

    Weights are those that the optimizer updates, and frozen ones; another optimizer's are not watched, nor are buffers,
    which a forward pass may change.

    Between an update and the next nobody may change them, so a number that is another one was corrupted in memory. It
    is put back, and the gradients, which were made with it, are computed again (if the training loop says how; else the
    update is skipped). List it before :class:`RecomputeStep`, whose second computation would agree with the first.

    More than ``most_elements`` changed numbers are not taken for corruption: somebody has loaded a checkpoint, averaged
    or pruned the weights. Nor are those that have been put back twice, for more than a bit that is stuck: a loop that
    clamps a temperature now and then does that. Then they are the new state, and nothing is restored.

    It costs memory as large as the weights and the optimizer's state (with AdamW three times the weights), on the same
    devices, and reads and writes all of it once a step. Only what is in memory is protected: a fault in the arithmetic
    of the optimizer's own step is copied as well.
    """

    check_every: int = 1
    """Steps between comparisons. The copy is made anew only where it will be compared; a corrupted number that has gone
    into an update cannot be told from a sound one any more."""
    most_elements: int = 16
    """Changed elements that are still taken for corruption."""
    max_interventions: int = 1000
    """Most interventions in a run."""
    _parameters: list[tuple[str, nn.Parameter]] = field(init=False, repr=False, default_factory=list)
    _optimizer: Optimizer | None = field(init=False, repr=False, default=None)
    _places: list[tuple[int, int]] = field(init=False, repr=False, default_factory=list)
    _names: list[str] = field(init=False, repr=False, default_factory=list)
    _watched: list[Tensor] = field(init=False, repr=False, default_factory=list)
    """The tensors themselves, as integers."""
    _copies: list[Tensor] = field(init=False, repr=False, default_factory=list)
    _found: list[int] = field(init=False, repr=False, default_factory=list)
    _put_back: Counter[tuple[str, int]] = field(init=False, repr=False, default_factory=Counter)
    """Times that each element was, for more than a bit."""
    _updates: int = field(init=False, repr=False, default=0)
    _done: int = field(init=False, repr=False, default=0)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._parameters = list(model.named_parameters())
        self._optimizer = optimizer
        self._remember()

    def _live(self) -> dict[str, Tensor]:
        """Everything that is watched, by name."""
        assert self._optimizer is not None
        updated = owned_by(self._optimizer)
        # What is frozen nobody updates; what requires a gradient and is none of these belongs to another optimizer.
        parameters = [(name, it) for name, it in self._parameters if id(it) in updated or not it.requires_grad]
        found: dict[str, Tensor] = dict(parameters)
        state = self._optimizer.state
        for name, parameter in parameters:
            for key, value in state[parameter].items() if parameter in state else ():
                if isinstance(value, Tensor):
                    found[f"{name}.{key}"] = value
        return found

    @torch.no_grad()
    def _remember(self) -> None:
        """Copy what is in memory now: it is sound."""
        live = self._live()
        places = [(id(tensor), stored(tensor).data_ptr()) for tensor in live.values()]
        if places != self._places or not places:  # the first update makes the optimizer's state; a model may be moved
            self._places, self._names = places, list(live)
            self._watched = [bits(tensor) for tensor in live.values()]
            self._copies = [tensor.clone() for tensor in self._watched]
        else:
            torch._foreach_copy_(self._copies, self._watched)

    @property
    def _due(self) -> bool:
        return self._updates % self.check_every == 0

    def inspect(self, context: StepContext) -> bool:
        self._found = []
        if self._due and self._done < self.max_interventions:
            self._found = differing(self._watched, self._copies)
        return bool(self._found)

    @torch.no_grad()
    def before_update(self, context: StepContext) -> Decision:
        places = [place for index in self._found for place in self._elements(index)]
        elements = [(place["tensor"], place["index"]) for place in places]
        known = bool(elements) and all(self._put_back[element] >= REPEATED for element in elements)
        deliberate = len(places) > self.most_elements or known
        if context.any(deliberate):
            if deliberate:
                LOGGER.info("step %d: the weights were changed from outside; that is their new state", context.step)
            self._remember()
            return Decision.PASS
        self._done += 1
        # a bit of the memory that is stuck comes again, too; no line of a program flips one bit
        flipped = {self._names[index] for index in self._found if self._flips_one_bit(index)}
        self._put_back.update(element for element in elements if element[0] not in flipped)
        for index in self._found:
            self._watched[index].copy_(self._copies[index])
        found = tuple(self._names[index] for index in self._found)
        reached = context.any(not {*found}.isdisjoint(name for name, _ in self._parameters))
        lost = reached and not (context.can_recompute and context.replace())
        context.report(self, "restored", differing=found, details={"elements": places[:MAX_NAMED]})
        if lost:
            return Decision.SKIP
        return Decision.PASS if context.suspicious else Decision.ACCEPT

    def _elements(self, index: int) -> list[dict[str, Any]]:
        """Describe the elements of a tensor that changed, with their old and new values."""
        name = self._names[index]
        dtype = self._live()[name].dtype
        now, before = self._watched[index].reshape(-1), self._copies[index].reshape(-1)
        where = torch.nonzero(now != before).flatten()[: self.most_elements + 1]
        found = zip(where.tolist(), before[where].view(dtype).tolist(), now[where].view(dtype).tolist(), strict=True)
        return [
            {"tensor": name, "index": place, "sound": _plain(sound), "corrupted": _plain(corrupted)}
            for place, sound, corrupted in found
        ]

    def _flips_one_bit(self, index: int) -> bool:
        """Whether each element of a tensor that changed differs in one bit."""
        bits_flipped = self._watched[index] ^ self._copies[index]
        return not bool((bits_flipped & (bits_flipped - 1)).any())

    def end_update(self) -> None:
        self._updates += 1
        if self._due:
            self._remember()

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done, "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The copies are made anew: weights are loaded before the monitor's state."""
        self._done, self._updates = state["done"], state["updates"]
        self._remember()

    def close(self) -> None:
        self._parameters, self._optimizer = [], None
        self._places, self._names, self._watched, self._copies, self._found = [], [], [], [], []


def _plain(number: float) -> float | str:
    """A number for strict JSON; text if it is not finite."""
    return number if math.isfinite(number) else str(number)
