"""Look at the batches that a model is trained with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from rmetric.monitor.batch_shapes import Shape
from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_probes.hooks import ModelHook, remove_hooks
from rmetric.monitor.loop_probes.samples import INPUTS, LEAVES, TENSORS, WEIGHTS, Measured, is_plain, is_same, sample_of
from rmetric.monitor.tensors import stride_of

EXAMPLES, FEW = 1024, 4
"""Examples of a batch that are compared with each other, by 64 entries of each; so few are none to compare."""
WEIGHT_BITS, KEYS = 19, 16_777_213
"""Bits of the weights by which a batch's entries, of 32 bits, are added up: the sum does not overflow 64. Its rest by
the largest prime of 24 bits is a whole number in single precision."""


class BatchProbe:
    """Looks at the batch of the first forward pass of a step that trains.

    Is it the one before, by which number is it known again, are its examples copies, how large are the inputs, and
    around which mean?

    Parameters
    ----------
    model
        Gets a hook. So do its parts, until it is called as a whole: a loop may call them instead. Copies of it, and
        files of it, have none. What is called through ``torch.compile(model)`` is not looked at, unless that is what
        is given here.
    """

    watched = "the batches that the model is trained with"

    def __init__(self, model: nn.Module) -> None:
        self.armed = True
        """Whether the next step is looked at."""
        self.closed = False
        """True if nothing is looked at any more."""
        self.shape: Shape = ()
        """Of each tensor of the latest batch that was looked at; empty: none was."""
        self._before: Tensor | None = None
        self._weights = self._mixed = torch.empty(0)
        self._measured: Measured = {}
        self._of_model = model.register_forward_pre_hook(ModelHook(self._called_as_a_whole), with_kwargs=True)
        hook = ModelHook(self._look)
        self._of_parts = [part.register_forward_pre_hook(hook, with_kwargs=True) for part in _parts(model)]

    def measure(self) -> Measured:
        """``batch_repeated``, ``batch_key``, ``examples_repeated``, ``input_scale`` and ``input_mean``, on the device.

        Two truth values, the second where half of the examples or more are copies of others; a whole number that is the
        same for the same batch; the inputs' root mean square, and their mean. ``None`` or missing: not known, as where
        the model is given no tensors. The next step begins.
        """
        measured, self._measured = self._measured, {}
        return measured

    def _called_as_a_whole(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        remove_hooks(self._of_parts)
        self._look(args, kwargs)

    @ends_alone
    def _look(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not self.armed or self._measured:
            return
        given = islice(tree_iter((args, kwargs)), LEAVES)
        batch = [*islice(filter(is_plain, given), TENSORS)]
        if not batch:
            return
        self.shape = tuple([tuple(tensor.shape) for tensor in batch])
        tensors = [*map(_by_example, batch)]
        samples = [sample_of(tensor) for tensor in tensors]
        home = samples[0].device  # to fetch what is elsewhere could wait
        now = torch.cat([sample.float() for sample in samples if sample.device == home])
        # One number is none of the inputs: the Trainer of transformers hands over how many targets there are.
        inputs = next((sample.float() for sample in samples if sample.is_floating_point() and len(sample) > 1), None)
        key = self._key(now)
        self._measured = {
            "batch_repeated": is_same(key, self._before),
            "batch_key": key % KEYS,
            "examples_repeated": self._copies(tensors),
            "input_scale": None if inputs is None else torch.linalg.vector_norm(inputs) / math.sqrt(len(inputs)),
            "input_mean": None if inputs is None else inputs.mean(),
        }
        self._before = key

    def _key(self, sample: Tensor) -> Tensor:
        """Sum of the entries' bits, weighted: what differs in an entry has another, whatever its size."""
        if self._weights.device != sample.device or not len(self._weights):
            cosines = torch.arange(1, TENSORS * INPUTS + 1, device=sample.device).cos()
            self._weights = (cosines * 2**WEIGHT_BITS).long()
        return (sample.view(torch.int32) * self._weights[: len(sample)]).sum()

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
        """Give back the hooks. May be called twice."""
        self.closed = True
        self._of_model.remove()
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


def _by_example(tensor: Tensor) -> Tensor:
    """Shape (examples, entries of each), in memory's order of the entries: nothing is copied to take a few of them."""
    tensor = tensor.detach()
    for dim in range(tensor.ndim - 1, 0, -1):
        if tensor.stride(dim) == 0:  # expanded: the same all along
            tensor = tensor.select(dim, 0)
    if tensor.ndim < 2:
        return tensor.reshape(-1, 1)
    inner = sorted(range(1, tensor.ndim), key=tensor.stride, reverse=True)
    return tensor.permute(0, *inner).flatten(1)
