"""Look at the batches that a model is trained with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from rmetric.monitor.batch_shapes import Shape
from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_invariants import TENSORS, TENSORS_REPEATED
from rmetric.monitor.loop_probes.hooks import ModelHook, remove_hooks
from rmetric.monitor.loop_probes.samples import (
    INPUTS,
    LEAVES,
    WEIGHTS,
    Measured,
    is_plain,
    is_same,
    sample_of,
)
from rmetric.monitor.tensors import stride_of

EXAMPLES, FEW = 1024, 4
"""Examples of a batch that are compared with each other, by 64 entries of each; so few are none to compare."""
WEIGHT_BITS, KEYS = 19, 16_777_213
"""Bits of the weights by which a batch's entries, of 32 bits, are added up: the sum does not overflow 64. Its rest by
the largest prime of 24 bits is a whole number in single precision."""
ROWS, COLUMNS, VARIED = 32, 8, 16
"""Examples of a tensor, and entries of each, that are compared with the next example's, and how many must differ for a
repetition to be no chance, as it is of classes of few examples, of the positions of tokens, or of a mask of ones."""
PASSES = 4
"""Passes of a step that may still train, at most, of which the batch is remembered."""


class _Pass:
    """A forward pass, which trains if what it returns gets a gradient; it lives as long as that may come.

    It is the hook of what was returned, and goes with its graph.
    """

    __torch_unserializable__ = True  # for torch, which warns where a tensor with another hook is sent to a process

    def __init__(self, number: int, batch: Sequence[Tensor], reached: Callable[[_Pass], None]) -> None:
        self.number, self.batch, self._reached = number, batch, reached

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:  # a compiled model has others for what it returns and nobody uses
            self._reached(self)


class BatchProbe:
    """Looks at the batch of the first forward pass of a step that trains: a gradient reaches what it returns.

    So an agent that acts with gradients before it learns is looked at as it learns. In the first two steps, and where
    no gradient is seen, as of what is returned in an object of a kind of its own, it is the first pass of all.

    Is it the one before, or one of its tensors, by which number is it known again, are its examples copies, how large
    are the inputs, and around which mean?

    It takes a hook of the model, and of its parts until the model is called as a whole: a loop may call them instead.
    Copies of the model, and files of it, have none. What is called through ``torch.compile(model)`` is not looked at,
    unless that is what is given here.
    """

    watched = "the batches that the model is trained with"

    def __init__(self, model: nn.Module) -> None:
        self.armed = True
        """Whether the next step is looked at."""
        self.closed = False
        self.shape: Shape = ()
        """Of each tensor of the latest batch that was looked at; empty: none was."""
        self._before: Tensor | None = None
        self._keys: dict[int, Tensor] = {}  # of the tensors of the latest batch, by place
        self._weights = self._mixed = torch.empty(0)
        self._measured: Measured = {}
        self._passes: WeakSet[_Pass] = WeakSet()
        self._first: _Pass | None = None
        self._trained: _Pass | None = None
        self._count = 0
        self._several = self._acts = False  # a step has had several passes; the first of them has had no gradient
        self._called: int | None = None  # the one of model and parts that came first: others are given other things
        whole, *of_parts = [
            module.register_forward_hook(ModelHook(partial(self._returned, place)), with_kwargs=True)
            for place, module in enumerate((model, *_parts(model)))
        ]
        self._of_model = [model.register_forward_pre_hook(ModelHook(self._called_as_a_whole)), whole]
        self._of_parts = of_parts

    def measure(self) -> Measured:
        """``batch_repeated``, ``batch_key``, ``examples_repeated``, ``input_scale`` and ``input_mean``, on the device.

        Two truth values, the second where half of the examples or more are copies of others; a whole number that is the
        same for the same batch; the inputs' root mean square, and their mean. Of a batch of several tensors also
        ``tensor_0_repeated`` to ``tensor_3_repeated``: is that one, of examples that differ, the one before? ``None``
        or missing: not known, as where the model is given no tensors, or one of another shape than before. The next
        step begins.
        """
        self.settle()
        self._called = None
        measured, self._measured = self._measured, {}
        return measured

    @ends_alone
    def settle(self) -> None:
        """Look at the batch of the step, the passes of which are over."""
        if self._first is None:
            return
        self._acts |= self._trained is None
        trained, self._first, self._trained = self._trained or self._first, None, None
        self._look(trained.batch)
        for other in self._passes:
            other.batch = []  # a graph may outlive its step
        self._passes.clear()

    def _called_as_a_whole(self, *_: Any) -> None:
        remove_hooks(self._of_parts)

    @ends_alone
    def _returned(self, module: int, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> None:
        if not self.armed or self._trained or self._called not in (None, module) or len(self._passes) == PASSES:
            return
        if self._measured or (self._first is not None and not self._acts):
            self._several = True
            return
        given = islice(tree_iter((args, kwargs)), LEAVES)
        batch = [tensor.detach() for tensor in islice(filter(is_plain, given), TENSORS)]
        if not batch:
            return
        self._called = module
        leaves = islice(tree_iter(returned), LEAVES) if self._several else ()
        watched = [*islice(filter(_has_graph, leaves), TENSORS)]
        if watched:
            self._wait_for(watched, batch)
        elif self._first is None:
            self._look(batch)

    def _wait_for(self, returned: Sequence[Tensor], batch: Sequence[Tensor]) -> None:
        self._count += 1
        this = _Pass(self._count, batch, self._reached)
        self._passes.add(this)
        self._first = self._first or this
        for tensor in returned:
            tensor.register_hook(this)

    @ends_alone
    def _reached(self, this: _Pass) -> None:
        """Take in that a gradient has come to what a pass has returned; to the latest pass it comes first."""
        if this not in self._passes:  # of a step before
            return
        if self._trained is None or this.number < self._trained.number:
            self._trained = this
        if this is self._first:
            self.settle()

    def _look(self, batch: Sequence[Tensor]) -> None:
        shapes, self.shape = self.shape, tuple([tuple(tensor.shape) for tensor in batch])
        tensors = [*map(_by_example, batch)]
        samples = [sample_of(tensor).float() for tensor in tensors]
        home = samples[0].device  # to fetch what is elsewhere could wait
        keys = {place: self._key(sample) for place, sample in enumerate(samples) if sample.device == home}
        # One number is none of the inputs: the Trainer of transformers hands over how many targets there are.
        fractions = (some for given, some in zip(batch, samples, strict=True) if given.is_floating_point())
        inputs = next((some for some in fractions if len(some) > 1), None)
        key = self._key(torch.stack([*keys.values()]))
        self._measured = {
            "batch_repeated": is_same(key, self._before),
            "batch_key": key % KEYS,
            "examples_repeated": self._copies(tensors),
            "input_scale": None if inputs is None else torch.linalg.vector_norm(inputs) / math.sqrt(len(inputs)),
            "input_mean": None if inputs is None else inputs.mean(),
        }
        if len(keys) > 1:
            self._measured |= self._each_repeated(tensors, keys, shapes)
        self._before, self._keys = key, keys

    def _each_repeated(self, tensors: Sequence[Tensor], keys: Mapping[int, Tensor], shapes: Shape) -> Measured:
        """Whether each tensor beside others is the one before: others may be drawn anew, or carried on.

        What follows from its shape alone, as a causal mask does, is never looked at or never new.
        """
        found: Measured = {}
        for place, key in keys.items():
            same = is_same(key, self._keys.get(place)) if shapes[place : place + 1] == (self.shape[place],) else None
            if same is not None:
                found[TENSORS_REPEATED[place]] = same & _are_varied(tensors[place])
        return found

    def _key(self, sample: Tensor) -> Tensor:
        """Sum of the entries' bits, weighted: what differs in an entry has another, whatever its size."""
        if self._weights.device != sample.device or not len(self._weights):
            cosines = torch.arange(1, TENSORS * INPUTS + 1, device=sample.device).cos()
            self._weights = (cosines * 2**WEIGHT_BITS).long()
        bits = sample.view(torch.int32)
        return (bits * self._weights[: len(bits)]).sum()

    def _copies(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """Whether at least half of the examples are copies; of the first tensor that holds several numbers of each."""
        examples = next((tensor for tensor in tensors if tensor.shape[1] > 1), None)
        if examples is None or len(examples) <= FEW:
            return None
        few = examples[:: stride_of(len(examples), EXAMPLES), :: stride_of(examples.shape[1], WEIGHTS)].float()
        if self._mixed.shape != few.shape[1:] or self._mixed.device != few.device:
            self._mixed = torch.arange(1, few.shape[1] + 1, device=few.device).cos()
        # What differs in some entry differs in a mixture of all. No matrix product: autocast would round it.
        keys = (few * self._mixed).sum(dim=1).sort().values
        return 2 * (keys[1:] == keys[:-1]).sum() >= len(keys)

    def close(self) -> None:
        self.closed = True
        remove_hooks(self._of_model)
        remove_hooks(self._of_parts)


def _parts(model: nn.Module) -> list[nn.Module]:
    """Modules in it that a loop can call instead of it; of a mere container, without ``forward``, those in that."""
    found: list[nn.Module] = []
    for child in model.children():
        if getattr(child.forward, "__func__", None) is nn.Module.forward:
            found += _parts(child)
        elif not isinstance(child, torch.jit.ScriptModule):  # it takes no hook
            found.append(child)
    return found


def _has_graph(value: Any) -> bool:
    """Whether this is a tensor that a gradient may come to, in the passes of this step alone."""
    return is_plain(value) and value.grad_fn is not None


def _are_varied(tensor: Tensor) -> Tensor:
    """Whether examples differ from the next in many entries; of a tensor as :func:`_by_example` gives it."""
    few = tensor[:: stride_of(len(tensor), ROWS), :: stride_of(tensor.shape[1], COLUMNS)].float()
    return (few[1:] != few[:-1]).count_nonzero() >= VARIED


def _by_example(tensor: Tensor) -> Tensor:
    """Shape (examples, entries of each), in memory's order of the entries: nothing is copied to take a few of them."""
    for dim in range(tensor.ndim - 1, 0, -1):
        if tensor.stride(dim) == 0:  # expanded: the same all along
            tensor = tensor.select(dim, 0)
    if tensor.ndim < 2:
        return tensor.reshape(-1, 1)
    inner = sorted(range(1, tensor.ndim), key=tensor.stride, reverse=True)
    return tensor.permute(0, *inner).flatten(1)
