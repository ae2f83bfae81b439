"""Start of a step: what is needed to compute it a second time."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.monitor.loop_probes import ModelHook
from rmetric.monitor.tensors import gathered

_WITH_NAN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types whose numbers torch can compare."""


@dataclass(frozen=True)
class Moment:
    """What a computation consumes or changes beside the gradients, as it is at a moment."""

    random: tuple[Any, ...]
    """States of torch's generators (of the CPU, of each CUDA device of the model), of NumPy's and of Python's."""
    buffers: list[Tensor]


class StepStart:
    """Remembers where a step began, so that it can be computed a second time.

    That is a matter of the random states of torch (CPU, and each CUDA device of the model), NumPy and Python; and of
    all buffers, such as the running statistics of batch normalisation. A transformer has hardly any; which of them
    change cannot be asked, for batch normalisation does not count its changes as torch's other operations do.

    Random numbers are drawn from where the first forward pass in training mode began, or, by a step that draws noise
    before it, from where the step before ended. Which of the two it is shows at the end: who began elsewhere does not
    leave the generators where the first computation has. A compiled forward pass is not seen: such a step draws none,
    and ends where it begins, or does so from where the step before ended.

    The model gets one forward pre-hook. A forward pass in training mode *between* steps, with gradients enabled, passes
    for the beginning of the next one and must be avoided.

    **Deviation:** buffers that are replaced rather than changed in place are not put back.
    """

    def __init__(self, model: nn.Module) -> None:
        tensors = [*model.parameters(), *model.buffers()]
        self._devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
        named = dict(model.named_buffers())
        self._names, self._buffers = list(named), list(named.values())
        self._can_break = [index for index, buffer in enumerate(self._buffers) if _can_break(buffer)]
        self._infinite = _infinite(_broken(self._buffers, self._can_break))
        """Buffers that have been +inf at a step's start or at the end of a computation: they begin anew with it."""
        self._infinite_now: set[int] = set()
        """Buffers that were so in this step."""
        self._ended = self._now()
        """Where the step before ended."""
        self._found: Moment | None = None
        """Where the first forward pass began; ``None``: none was seen."""
        self._left: Moment | None = None
        """Where the first computation ended; ``None``: there is no other one."""
        self._draws_before = False
        """Whether a step draws before its first forward pass."""
        self._handle = model.register_forward_pre_hook(ModelHook(self._begin))

    def _begin(self, _: Any) -> None:
        if self._found is None and self._left is None:
            self._found = self._now()

    def _now(self) -> Moment:
        return Moment(_random_states(self._devices), [buffer.detach().clone() for buffer in self._buffers])

    def go_back(self) -> None:
        """Restore what the step began with."""
        if self._left is None:
            self._left = self._now()
        drawn_from = self._ended if self._draws_before else self._found or self._left
        self._restore(drawn_from.random, (self._found or self._ended).buffers)

    @property
    def missed(self) -> bool:
        """True if the computation that is over now began elsewhere than the first one."""
        assert self._left is not None
        return pickle.dumps(_random_states(self._devices)) != pickle.dumps(self._left.random)

    def begin_elsewhere(self) -> None:
        """Go back to the other place from now on."""
        self._draws_before = not self._draws_before

    def leave(self) -> None:
        """Restore what the first computation of this step has left."""
        if self._left is not None:
            self._restore(self._left.random, self._left.buffers)

    def forget(self) -> None:
        """Take the latest computation for the first one."""
        self._left = None

    @torch.no_grad()
    def _restore(self, random_states: tuple[Any, ...], buffers: list[Tensor]) -> None:
        of_cpu, of_devices, of_numpy, of_python = random_states
        torch.set_rng_state(torch.from_numpy(of_cpu))
        for index, state in zip(self._devices, of_devices, strict=True):
            torch.cuda.set_rng_state(torch.from_numpy(state), index)
        np.random.set_state(of_numpy)  # noqa: NPY002 - the user's generator
        random.setstate(of_python)
        for buffer, copy in zip(self._buffers, buffers, strict=True):
            buffer.copy_(copy)

    def broken_buffers(self) -> list[str]:
        """Names of the buffers that have got a NaN in this step, or their first +inf in the run (a mask has −inf).

        Who begins anew in its forward pass, as a running minimum does, gets a +inf now and then. Waits for the device.
        """
        return [self._names[index] for index in self._newly_broken()]

    @torch.no_grad()
    def mend_buffers(self) -> None:
        """Put those buffers back to what they were when the step began: running statistics never lose a NaN.

        All the others of the same module with them: what made the variance infinite has spoiled the mean as well.
        """
        began = (self._found or self._ended).buffers
        owners = {_owner(self._names[index]) for index in self._newly_broken()}
        for name, buffer, copy in zip(self._names, self._buffers, began, strict=True):
            if _owner(name) in owners:
                buffer.copy_(copy)

    def _newly_broken(self) -> list[int]:
        broken = _broken(self._buffers, self._can_break)
        before = _broken((self._found or self._ended).buffers, [*broken])
        new = [index for index, value in broken.items() if self._is_new(index, value, before.get(index, 0.0))]
        self._infinite_now |= _infinite(broken) | _infinite(before)
        return new

    def _is_new(self, index: int, value: float, before: float) -> bool:
        if math.isnan(before):
            return False
        return math.isnan(value) or (before < math.inf and index not in self._infinite)

    def end_step(self) -> None:
        """End the step; the next forward pass begins another one."""
        self._ended, self._found, self._left = self._now(), None, None
        self._infinite |= self._infinite_now
        self._infinite_now = set()

    def close(self) -> None:
        self._handle.remove()
        self._buffers, self._can_break, self._found, self._left = [], [], None, None
        self._ended = Moment((), [])


def _can_break(buffer: Tensor) -> bool:
    plain = type(buffer) is Tensor and buffer.layout is torch.strided and not buffer.is_meta
    return plain and buffer.numel() > 0 and buffer.dtype in _WITH_NAN


def _owner(name: str) -> str:
    """Name of the module that has a buffer of this name."""
    return name.rpartition(".")[0]


@torch.no_grad()
def _broken(buffers: Sequence[Tensor], chosen: Sequence[int]) -> dict[int, float]:
    """Those of the chosen indices whose tensors hold a NaN or +inf, and which of them: a NaN if both."""
    if not chosen:
        return {}
    largest = gathered(torch._foreach_max([buffers[index] for index in chosen])).tolist()
    return {index: value for index, value in zip(chosen, largest, strict=True) if not value < math.inf}


def _infinite(broken: Mapping[int, float]) -> set[int]:
    return {index for index, value in broken.items() if value == math.inf}


def _random_states(devices: Sequence[int]) -> tuple[Any, ...]:
    """States of random generators as arrays and plain values, whose pickles are equal where they are."""
    of_devices = [torch.cuda.get_rng_state(index).numpy() for index in devices]
    of_numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the user's generator, of any kind
    return torch.get_rng_state().numpy(), of_devices, of_numpy, random.getstate()
