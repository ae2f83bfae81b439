"""Flip bits of a live run: when, how often, in memory or in a matrix product, with a note in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rmetric.errors import UserError
from rmetric.live.injection.bits import FORMATS, Flip, bit_like_float32, flip_bit, float_format, read_bit, write_bit
from rmetric.live.injection.flip_sites import (
    Fetch,
    Site,
    choose,
    gradients,
    linear_layers,
    modules,
    optimizer_state,
    weights,
)
from rmetric.live.run import Batch, LiveRun, Moment


def note_flip(training: LiveRun, tensor: Tensor, index: tuple[int, ...], flip: Flip, where: dict[str, Any]) -> None:
    """Tell the run's observer of a flip: event CORRUPTION with the exact place and the number before and after.

    ``where``: what else there is to say of the place.
    """
    training.observer.note(
        "CORRUPTION",
        step=training.step,
        **where,
        index=int(np.ravel_multi_index(index, tensor.shape)) if index else 0,
        position=list(index),
        bit=flip.bit,
        bit_part=flip.part,
        dtype=float_format(tensor.dtype).name,
        before=flip.before,
        after=flip.after,
    )


Pass = Literal["forward", "backward"]
PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_mm", "_scaled_grouped_mm")
)
"""Operations that multiply matrices. A fused attention kernel is none: let the model use ``eager`` attention."""


def is_product(operation: Any) -> bool:
    """Return whether an operation that a ``TorchDispatchMode`` sees multiplies matrices and returns the product."""
    return operation._schema.name in PRODUCTS and operation._overloadname in ("", "default", "dtype")


def current_pass() -> Pass:
    """The pass of this thread: backward while autograd computes gradients, even where it computes a layer again."""
    return "forward" if torch._C._current_graph_task_id() < 0 else "backward"


class ProductFlip(TorchDispatchMode):
    """Change what one of the matrix products returns, while it is entered.

    It sees what reaches the device, below autograd and autocast, so the product has the type in which it was computed
    and whatever made it does not know of the change. Entered for one forward and backward pass; nothing is hooked.

    **Deviation:** the source flips bits at matrix-multiply *instructions* of a GPU; here a finished element of the
    product is hit, which is what a flip in the last accumulation leaves.

    Parameters
    ----------
    stage
        The products of the forward or of the backward pass are counted.
    call
        Which of them, from 0.
    change
        Called with the product, which it may change in place.
    """

    def __init__(self, stage: Pass, call: int, change: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._stage, self._left, self._change = stage, call, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_product(func) and current_pass() == self._stage:
            if self._left == 0:
                self._change(result)
            self._left -= 1
        return result


class FlipPlan(Protocol):
    """The bit to flip, its place and its time: the fields of :class:`rmetric.faults.SilentDataCorruption`."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Literal["weight", "gradient", "activation", "matmul", "optimizer"]: ...
    @property
    def bit(self) -> int: ...
    @property
    def persistence(self) -> Literal["transient", "recurring", "permanent"]: ...
    @property
    def flips_per_step(self) -> float: ...
    @property
    def tensor(self) -> str: ...
    @property
    def stage(self) -> Literal["forward", "backward"]: ...


class Flipper:
    """Flips bits of one tensor as often as a fault says, and notes each flip.

    Parameters
    ----------
    training
        The run; draws its random numbers, is told of the flips.
    fault
        Says which bit, and how often: *transient*: once; *recurring*: once, and in later steps with the probability
        ``flips_per_step``, each time in an element drawn anew; *permanent*: one bit of one element is stuck at the
        value that it did not have.
    tensor_name
        As it stands in the note.
    **where
        More for the note.
    """

    def __init__(self, training: LiveRun, fault: FlipPlan, tensor_name: str, **where: Any) -> None:
        self._training, self._fault = training, fault
        self._where = {"fault": fault.name, "tensor": tensor_name, **where}
        self._asked_step: int | None = None
        self._stuck: tuple[tuple[int, ...], bool] | None = None

    def is_due(self) -> bool:
        """Return whether a bit has to be flipped now. Asked again in a step (a layer is computed again): no."""
        step, first = self._training.step, self._asked_step is None
        if self._stuck is not None:
            return True
        if self._asked_step == step:
            return False
        self._asked_step = step
        recurs = self._fault.persistence == "recurring"
        return first or (recurs and self._random("flips").random() < self._fault.flips_per_step)

    def apply(self, tensor: Tensor) -> None:
        """Flip the bit that is due, in place."""
        bit = bit_like_float32(self._fault.bit, tensor.dtype)
        if self._stuck is not None:
            index, value = self._stuck
            self._note(tensor, index, write_bit(tensor, index, bit, value))
            return
        element = int(self._random("element").integers(tensor.numel()))
        index = tuple(int(number) for number in np.unravel_index(element, tensor.shape))
        if self._fault.persistence == "permanent":
            self._stuck = index, not read_bit(tensor, index, bit)
        self._note(tensor, index, flip_bit(tensor, index, bit))

    def _random(self, what: str) -> np.random.Generator:
        return self._training.rng(f"{self._fault.name}/{what}")

    def _note(self, tensor: Tensor, index: tuple[int, ...], flip: Flip | None) -> None:
        if flip is None:  # a stuck bit that has the value anyway
            return
        note_flip(self._training, tensor, index, flip, self._where)


def flipping(training: LiveRun, fault: FlipPlan) -> AbstractContextManager[None]:
    """Flip bits of a run as the fault says, as long as the context lasts.

    - ``weight``: a parameter in memory, before the forward pass; the only one that leaves a tensor changed for good.
    - ``optimizer``: a tensor of the optimizer's state in memory, before it is used.
    - ``gradient``: a gradient after all backward passes, before anybody looks at it.
    - ``activation``: the output of a module in the forward pass of one worker.
    - ``matmul``: the product of one linear layer: its output in the forward pass of one worker; with stage
      ``backward``, the gradient with regard to its input.

    Whatever reads a flipped activation or product sees the flipped value; what made it does not know.

    Raises
    ------
    UserError
        On entering: for a name that fits nothing, a bit the tensor's type does not have. In the second step: for an
        optimizer that still remembers nothing.
    """
    return _in_memory(training, fault) if fault.target in _IN_MEMORY else _in_computation(training, fault)


_IN_MEMORY = {"weight": weights, "gradient": gradients, "optimizer": optimizer_state}
_COMPUTED = {"activation": modules, "matmul": linear_layers}


def _chosen(training: LiveRun, fault: FlipPlan, sites: list[Site[Any]]) -> Site[Any]:
    site = choose(sites, fault.tensor, training.rng(f"{fault.name}/tensor"), fault.target)
    bit_like_float32(fault.bit, site.dtype)  # so that a bit which is not there is refused on entering
    return site


@contextmanager
def _in_memory(training: LiveRun, fault: FlipPlan) -> Iterator[None]:
    """Flip bits of a tensor that is there between the passes."""
    memory = None if fault.target == "optimizer" and not training.optimizer.state else _memory(training, fault)
    steps = count(1)

    def flip(batch: Batch | None = None) -> Batch | None:
        nonlocal memory
        if memory is None and not training.optimizer.state and next(steps) == 1:
            return batch  # the optimizer's first step has yet to make what can flip
        memory = memory or _memory(training, fault)
        fetch, flipper = memory
        tensor = fetch()
        if tensor is not None and flipper.is_due():
            flipper.apply(tensor)
        return batch

    with ExitStack() as stack:
        for moment in _moments(fault):
            stack.enter_context(training.at(moment, flip))
        yield


def _memory(training: LiveRun, fault: FlipPlan) -> tuple[Fetch, Flipper]:
    """The call that gets the tensor, and the flipper of its bits."""
    sites = _IN_MEMORY[fault.target](training)
    if fault.target == "optimizer" and not sites:
        raise UserError("the optimizer keeps nothing that could flip; choose one that does, such as AdamW")
    site: Site[Fetch] = _chosen(training, fault, sites)
    stage = "backward" if fault.target == "gradient" else "memory"
    where = {"target": fault.target, "persistence": fault.persistence, "stage": stage}
    return site.item, Flipper(training, fault, site.name, **where)


def _moments(fault: FlipPlan) -> tuple[Moment, ...]:
    if fault.target == "gradient":
        return ("gradients",)
    if fault.target == "weight" and fault.persistence == "permanent":
        return ("batch", "update")  # the optimizer has written the number anew, and an evaluation may read it next
    return ("batch",)


@contextmanager
def _in_computation(training: LiveRun, fault: FlipPlan) -> Iterator[None]:
    """Flip bits of what one worker computes in a module."""
    site: Site[nn.Module] = _chosen(training, fault, _COMPUTED[fault.target](training))
    worker = int(training.rng(f"{fault.name}/worker").choice(training.active_workers))
    flipper = Flipper(
        training,
        fault,
        site.name,
        target=fault.target,
        persistence=fault.persistence,
        stage=fault.stage,
        worker=worker,
    )
    computing = False  # whether it is that worker's turn; never in an evaluation

    def begin(current: int) -> None:
        nonlocal computing
        computing = current == worker

    def end() -> None:
        nonlocal computing
        computing = False

    def hook(module: nn.Module, given: Any, result: Any) -> Any:
        value = given if fault.stage == "backward" else result
        tensor = value[0] if isinstance(value, tuple) else value
        if not computing or tensor is None or not flipper.is_due():  # None: nothing below the layer is trained
            return None
        if not isinstance(tensor, Tensor) or tensor.dtype not in FORMATS:
            raise UserError(f"the output of {site.name} is no tensor of numbers; name another module with tensor=")
        flipped = tensor.clone()  # the operation that made it may need it unchanged in its backward pass
        flipper.apply(flipped)
        return (flipped, *value[1:]) if isinstance(value, tuple) else flipped

    with ExitStack() as stack:
        stack.enter_context(training.at("micro_batch", begin))
        stack.enter_context(training.at("gradients", end))
        backward = fault.stage == "backward"
        register = site.item.register_full_backward_hook if backward else site.item.register_forward_hook
        stack.callback(register(hook).remove)
        yield
