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

from rmetric.errors import LOGGER
from rmetric.monitor.arguments import check_number
from rmetric.monitor.parameters import owned_by
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, Policy
from rmetric.monitor.tensors import bits, differing, stored

MAX_NAMED, REPEATED = 16, 2
"""Most corrupted elements that the log names; times that a tensor is put back before its changes are meant, and that it
is changed on purpose in a row before it is left alone."""
MEANT = 4.0
"""Largest factor between two numbers of which a program makes one of the other in a single bit, as it halves a
temperature; a flip of an exponent's higher bits, or of the sign, is none."""


@dataclass(frozen=True)
class _Change:
    """The first of the numbers of a tensor that have changed, of a complex one both parts counted."""

    name: str
    dtype: torch.dtype
    """Of each number."""
    places: Tensor
    sound: Tensor
    """As integers."""
    corrupted: Tensor
    is_frozen: bool
    """Whether the tensor is a parameter that no optimizer moves."""

    @property
    def flips_one_bit(self) -> bool:
        flipped = self.sound ^ self.corrupted
        return not bool((flipped & (flipped - 1)).any())

    @property
    def is_small(self) -> bool:
        """Whether each number is one that a program may have made of the one before by a single bit."""
        return all(
            map(_may_be_meant, _plain_numbers(self.sound, self.dtype), _plain_numbers(self.corrupted, self.dtype))
        )

    def places_in_words(self) -> list[str]:
        """Each number by its tensor's name and its place."""
        return [f"{self.name}[{place}]" for place in self.places.tolist()]

    def elements(self) -> list[dict[str, Any]]:
        """Old and new values of these numbers."""
        sound, corrupted = (_plain_numbers(each, self.dtype) for each in (self.sound, self.corrupted))
        return [
            {"tensor": self.name, "index": place, "sound": _in_json(before), "corrupted": _in_json(now)}
            for place, before, now in zip(self.places.tolist(), sound, corrupted, strict=True)
        ]


@dataclass(frozen=True)
class _Finding:
    """What one process has put back in a step."""

    names: list[str]
    has_weights: bool
    """Whether the gradients were made with some of it."""
    elements: list[dict[str, Any]]
    """See :meth:`_Change.elements`."""


@dataclass(kw_only=True)
class RestoreState(Policy):
    """Keeps a copy of weights and of the optimizer's state, and compares bit for bit before each update.

    Weights are those that the optimizer updates, and frozen ones; another optimizer's are not watched, nor are buffers,
    which a forward pass may change, nor tensors that are quantized, or sparse and not coalesced COO.

    Between an update and the next nobody may change them, so a number that is another one was corrupted in memory. It
    is put back, and the gradients, which were made with it, are computed again (if the training loop says how; else the
    update is skipped). List it before :class:`RecomputeStep`, whose second computation would agree with the first.

    More than ``most_elements`` changed numbers are not taken for corruption: somebody has loaded a checkpoint, averaged
    or pruned the weights. Nor is what changes in a tensor that has been put back twice: a loop that clamps its weights
    does that. Then it is the new state; but for single bits, which memory flips here and there, or where it is stuck:
    those are put back every time. In a frozen tensor a single bit counts as well where the same number was put back
    twice and is an integer, or changes by a factor of four at most: a counter that is raised and a temperature that is
    halved change one bit, too. A tensor that is changed on purpose in two comparisons in a row, as the exponential
    average of a teacher is, is no longer watched. What a program changes between updates is best a buffer.

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
    _put_back: Counter[str] = field(init=False, repr=False, default_factory=Counter)
    """Times that each tensor was, for more than a bit of its elements, and each number of a frozen one."""
    _meant: Counter[str] = field(init=False, repr=False, default_factory=Counter)
    """Comparisons in a row, up to the last one, in which each tensor was changed on purpose."""
    _left_alone: set[str] = field(init=False, repr=False, default_factory=set)
    """Tensors that are no longer watched."""
    _told: set[str] = field(init=False, repr=False, default_factory=set)
    """Tensors of which a change was told to be meant."""
    _updates: int = field(init=False, repr=False, default=0)
    _done: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        check_number("check_every", self.check_every, example=1)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._parameters = list(model.named_parameters())
        self._optimizer = optimizer
        self._remember()

    def _live(self) -> dict[str, Tensor]:
        """Everything that can be watched, by name."""
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
        return {name: it for name, it in found.items() if name not in self._left_alone and _has_memory_to_compare(it)}

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
            if not self._found:
                self._meant.clear()
        return bool(self._found)

    @torch.no_grad()
    def before_update(self, context: StepContext) -> Decision:
        live = self._live() if self._found else {}
        changes = {index: self._change(index, live[self._names[index]]) for index in self._found}
        many = context.any(sum(len(change.places) for change in changes.values()) > self.most_elements)
        meant = [index for index in changes if many or self._is_meant(changes[index])]
        corrupted = {index: change for index, change in changes.items() if index not in meant}
        for index, change in corrupted.items():
            self._put_back[change.name] += not change.flips_one_bit
            self._put_back.update(change.places_in_words() if change.is_frozen else ())
            self._watched[index].copy_(self._copies[index])
        self._tell_of_meant([] if many else [self._names[index] for index in meant], context.step)
        self._take_over([self._names[index] for index in meant], context.step)
        if not context.any(bool(corrupted)):
            return Decision.PASS
        return self._compute_without(corrupted, context)

    def _compute_without(self, corrupted: Mapping[int, _Change], context: StepContext) -> Decision:
        """Compute the step again with what was restored."""
        self._done += 1
        said = context.votes.gather(self._finding([*corrupted.values()]))
        workers = [worker for worker, finding in enumerate(said) if finding.names] if len(said) > 1 else []
        reached = any(finding.has_weights for finding in said)
        lost = reached and not (context.can_recompute and context.replace())
        names = dict.fromkeys(name for finding in said for name in finding.names)
        whose = [{"worker": worker} if workers else {} for worker in range(len(said))]
        elements = [own | element for own, finding in zip(whose, said, strict=True) for element in finding.elements]
        details = {"elements": elements[:MAX_NAMED]}
        context.report(self, "restored", differing=[*names], workers=workers, details=details)
        if lost:
            return Decision.SKIP
        return Decision.PASS if context.suspicious else Decision.ACCEPT

    def _finding(self, corrupted: list[_Change]) -> _Finding:
        names = [change.name for change in corrupted]
        elements = [element for change in corrupted for element in change.elements()][:MAX_NAMED]
        return _Finding(names, not {*names}.isdisjoint(name for name, _ in self._parameters), elements)

    def _is_meant(self, change: _Change) -> bool:
        """Whether a loop changes this tensor, or these numbers of it, now and then, and has done so again."""
        if not change.flips_one_bit and self._put_back[change.name] >= REPEATED:
            return True
        known = change.is_frozen and all(self._put_back[place] >= REPEATED for place in change.places_in_words())
        return known and change.is_small

    def _tell_of_meant(self, names: list[str], step: int) -> None:
        """Tell, once of each tensor, that few changed numbers are the new state: they might have been corrupted."""
        new = [name for name in names if name not in self._told]
        if new:
            self._told.update(new)
            LOGGER.warning(
                "step %d: RestoreState has put back %s before and takes what changes there for meant from now on; if "
                "no line of your program changes it, its memory is faulty",
                step, ", ".join(new),
            )  # fmt: skip

    def _take_over(self, meant: list[str], step: int) -> None:
        """Take what is in memory for sound; leave alone from now on what is changed on purpose every time."""
        self._meant = Counter({name: self._meant[name] + 1 for name in meant})  # which ends all other rows
        if not meant:
            return
        always = [name for name in meant if self._meant[name] >= REPEATED]
        if always:
            LOGGER.log(
                logging.INFO if self._left_alone else logging.WARNING,
                "step %d: RestoreState no longer watches %d tensor(s) that the loop changes between updates, such as "
                "%s; it goes on watching the others",
                step, len(always), always[0],
            )  # fmt: skip
            self._left_alone.update(always)
        else:
            LOGGER.info("step %d: weights were changed from outside; that is their new state", step)
        self._remember()

    def _change(self, index: int, tensor: Tensor) -> _Change:
        now, before = self._watched[index].reshape(-1), self._copies[index].reshape(-1)
        where = torch.nonzero(now != before).flatten()[: self.most_elements + 1]
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
        return _Change(self._names[index], tensor.dtype.to_real(), where, before[where], now[where], is_frozen)

    def end_update(self) -> None:
        self._updates += 1
        if self._due:
            self._remember()

    def state_dict(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "updates": self._updates,
            "put_back": dict(self._put_back),
            "left_alone": sorted(self._left_alone),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The copies are made anew: weights are loaded before the monitor's state."""
        self._done, self._updates = state["done"], state["updates"]
        self._put_back, self._left_alone = Counter(state["put_back"]), {*state["left_alone"]}
        self._remember()

    def close(self) -> None:
        self._parameters, self._optimizer = [], None
        self._places, self._names, self._watched, self._copies, self._found = [], [], [], [], []


def _has_memory_to_compare(tensor: Tensor) -> bool:
    """Whether a tensor's numbers lie in memory in the order in which they are read: not of every layout of torch."""
    dense = tensor.layout is torch.strided and not tensor.is_quantized
    return dense or (tensor.is_sparse and tensor.is_coalesced())


def _may_be_meant(before: float, now: float) -> bool:
    """Whether a program may make one number of the other in a single bit: integers, or numbers of one magnitude."""
    return isinstance(before, int) or (before != 0.0 and 1.0 / MEANT <= now / before <= MEANT)


def _plain_numbers(integers: Tensor, dtype: torch.dtype) -> list[float]:
    """Numbers whose bits are these; the integers of a type that torch cannot read (float4, bits)."""
    try:
        numbers: list[float] = integers.view(dtype).tolist()
    except RuntimeError:
        numbers = integers.tolist()
    return numbers


def _in_json(number: float) -> float | str:
    """A number for strict JSON; text if it is not finite."""
    return number if math.isfinite(number) else str(number)
