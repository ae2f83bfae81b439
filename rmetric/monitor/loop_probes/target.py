"""Look at the targets of a batch, and at the classes, through the gradient of what a model returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_iter
from torch.utils.hooks import RemovableHandle

from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_probes.hooks import ModelHook
from rmetric.monitor.loop_probes.samples import LEAVES, Measured, is_plain
from rmetric.monitor.tensors import stride_of

TARGETS, LOGITS = 16, 2**15
"""Targets of a batch that tell of its classes, at least; logits of which gradients are looked at, about."""
ROUNDED = 0.05
"""Rest in the sum of a target's gradient that is rounding, as a multiple of its least entry (half precision)."""
SMALLEST = 1e-30
"""Entry of a gradient that is not divided by."""
ALONG = 0.99
"""Least cosine between a target's gradient and that of a cross-entropy: of soft targets it has another direction."""
ROUGHLY = 0.7
"""The same where only the targets matter: the loss may smooth labels, or scale the logits. Also for all targets as one:
those of one class weigh about the same. Where a loss is maximised, the class predicted next seems the target, with any
weight."""


class TargetProbe:
    """Looks, through the gradient of what a model returns, at the targets of a step: are all of them one class?

    The gradient of a cross-entropy at the logits is the probabilities that are predicted, less 1 for the target: it
    sums to zero. At the logarithms of probabilities it is less than zero for the target and zero otherwise. The least
    entry is that of the target in both, wherever the loss is computed.

    Looked at are the classes in the last dimension of the first tensor with a gradient that the model returns. How many
    classes there are, if ``counts``, is also looked for in its second dimension, where torch's losses have them.
    """

    watched = "the targets that the model is trained with"

    def __init__(self, model: nn.Module) -> None:
        self.armed = True
        """Whether the next step is looked at."""
        self.counts = True
        """Whether its classes are."""
        self.closed = False
        self._alike: Tensor | None = None
        self._logits: dict[int, Tensor] = {}  # rows of the logits, by the dimension of the classes
        self._of_classes: Tensor | None = None  # their number, and the cross-entropy
        self._of_pass: RemovableHandle | None = None
        self._of_model = model.register_forward_hook(ModelHook(self._look))

    def measure(self) -> Measured:
        """``targets_alike``, a truth value; ``classes``, their number, and ``cross_entropy``, nats, the mean over the
        targets looked at, if the gradient is that of one. On the device; NaN, ``None`` or missing: not known. The next
        step begins.
        """
        measured: Measured = {"targets_alike": self._alike}
        if self._of_classes is not None:
            measured |= {"classes": self._of_classes[0], "cross_entropy": self._of_classes[1]}
        self._alike = self._of_classes = None
        self._leave_pass()
        return measured

    @ends_alone
    def _look(self, _: Sequence[Any], returned: Any) -> None:
        if not self.armed or self._of_pass is not None:
            return
        tensors = filter(is_plain, islice(tree_iter(returned), LEAVES))
        logits = next((tensor for tensor in tensors if tensor.requires_grad and tensor.ndim > 1), None)
        if logits is not None and logits.shape[-1] > 1:
            self._of_pass = logits.register_hook(self._reached)
            places = [logits.ndim - 1, *([1] if self.counts and logits.ndim > 2 and logits.shape[1] > 1 else [])]
            self._logits = {place: _rows(logits.detach(), place) for place in places}

    @ends_alone
    def _reached(self, gradient: Tensor | None) -> None:
        if gradient is None:  # a compiled model has made its loss of them inside
            return
        seen = [_Targets(logits, _rows(gradient.detach(), place)) for place, logits in self._logits.items()]
        self._alike = seen[0].alike()
        if self.counts:
            first, *others = (targets.classes() for targets in seen)
            self._of_classes = first.where(~first.isnan(), *others) if others else first

    def _leave_pass(self) -> None:
        """Give back the hook of a pass: a model may return the same tensor again."""
        if self._of_pass is not None:
            self._of_pass.remove()
            self._of_pass = None
        self._logits = {}

    def close(self) -> None:
        self.closed = True
        self._of_model.remove()
        self._leave_pass()


def _rows(tensor: Tensor, place: int) -> Tensor:
    """Some rows of classes, which are in this dimension of a tensor; a copy in single precision."""
    classes = tensor.shape[place]
    most = max(2 * TARGETS, LOGITS // classes)
    if place == tensor.ndim - 1:
        rows = tensor.reshape(-1, classes)
        rows = rows[:: stride_of(len(rows), most)]
    else:  # positions before they are moved: to move all of them would copy the tensor
        few = tensor[:: stride_of(len(tensor), 2 * TARGETS)].flatten(2)
        few = few[..., :: stride_of(len(few) * few.shape[2], most)]
        rows = few.movedim(1, -1).reshape(-1, classes)
    return rows.to(torch.float32, copy=True)


class _Targets:
    """Targets that a gradient tells of, if it is that of their cross-entropy; it and the logits have a row each.

    At the logits, other classes than the target have a gradient of their probability times the weight of the target.
    The target's own says less: of one that is well predicted it is rounded.
    """

    def __init__(self, logits: Tensor, gradient: Tensor) -> None:
        self._logs = logits.log_softmax(1)
        probabilities = self._logs.exp()
        total = gradient.sum(1, keepdim=True)
        of_logits = gradient - probabilities * total  # if it is that of logarithms already
        least, self._targets = of_logits.min(1, keepdim=True)
        self._counted = least[:, 0] < 0.0  # rows without a gradient are left out of the loss
        expected = probabilities.where(least < 0.0, 0.0)
        self._expected, self._others = (each.scatter(1, self._targets, 0.0) for each in (expected, of_logits))
        lowest = gradient.amin(1, keepdim=True)
        of_classes = (total * (total - lowest)).abs() <= ROUNDED * lowest.square()  # its sum is 0, or the least entry
        self._cosine = _cosine(self._others, self._expected).where(of_classes[:, 0], 0.0)

    def alike(self) -> Tensor:
        """Whether all are of one class; NaN: they are few, or the gradient is not that of their cross-entropy."""
        targets, classes = self._targets[:, 0], self._logs.shape[1]
        along = self._counted & (self._cosine > ROUGHLY)
        alike = targets.where(along, -1).amax() == targets.where(along, classes).amin()
        known = (along.sum() >= TARGETS) & (2 * along.sum() > self._counted.sum())
        as_one = _cosine(self._others.flatten()[None], self._expected.flatten()[None])[0] > ROUGHLY
        return alike.float().where(known & (as_one | ~alike), math.nan)

    def classes(self) -> Tensor:
        """Number of classes, and the mean cross-entropy, nats; NaN: the gradient is not that of one."""
        mean = -self._logs.gather(1, self._targets)[:, 0].where(self._counted, 0.0).sum() / self._counted.sum()
        is_one = ((self._cosine > ALONG) | ~self._counted).all()
        return torch.stack([torch.full_like(mean, self._logs.shape[1]), mean]).where(is_one, math.nan)


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    """Cosine of each row, however small its entries are."""
    one, other = (functional.normalize(each, p=math.inf, dim=1, eps=SMALLEST) for each in (one, other))
    return functional.cosine_similarity(one, other)
