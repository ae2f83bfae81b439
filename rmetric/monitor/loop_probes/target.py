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
ROUNDED_AWAY = 32.0
"""Units in the last place of the largest gradient of a batch below which that of a target is rounding."""
MOST_LEARNED = 3
"""Targets of a batch, as a multiple of those whose gradient is not rounding."""
ALONG = 0.99
"""Least cosine between a target's gradient and that of a cross-entropy: of soft targets it has another direction."""


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
            last = logits.ndim - 1
            places = {last, 1} if self.counts else {last}
            self._logits = {place: _rows(logits.detach(), place) for place in places if logits.shape[place] > 1}

    @ends_alone
    def _reached(self, gradient: Tensor | None) -> None:
        if gradient is None:  # a compiled model has made its loss of them inside
            return
        rows_of = {place: _rows(gradient.detach(), place) for place in self._logits}
        last = gradient.ndim - 1
        self._alike = _alike(self._logits[last], rows_of[last], torch.finfo(gradient.dtype).eps)
        if self.counts:
            for place, logits in self._logits.items():
                found = _cross_entropy(logits, rows_of[place])
                other = found if self._of_classes is None else self._of_classes
                self._of_classes = found.where(other.isnan(), other)

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


def _alike(logits: Tensor, gradient: Tensor, precision: float) -> Tensor:
    """Whether all targets that a gradient tells of are one class; NaN: they are few, or it is not that of their loss.

    Both of shape (rows, classes). Where a loss is maximised, the class that all are predicted to be seems the target:
    the gradient is then large where that class is probable, and not where it is improbable.
    """
    least, targets = gradient.min(1)
    total, largest = gradient.sum(1), least.min()
    counted = least < ROUNDED_AWAY * precision * largest  # others are left out of the loss, or learned
    of_classes = (total * (total - least)).abs() <= ROUNDED * least.square()  # the sum is 0, or the least entry
    probability = (logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)).exp()
    expected = torch.stack([1.0 - probability, probability]).where(counted, 0.0)
    if_minimised, if_maximised = functional.cosine_similarity(-least / largest.abs().clamp_min(SMALLEST), expected)
    maximised = (if_maximised > if_minimised) & (total.abs().sum() < 0.5 * least.abs().sum())  # at logarithms: none
    alike = targets.where(counted, -1).amax() == targets.where(counted, gradient.shape[1]).amin()
    in_loss = (least < 0.0) | (gradient.amax(1) > 0.0)
    most = MOST_LEARNED * counted.sum() >= in_loss.sum()  # else a rare class is what is left to learn
    known = (of_classes | ~counted).all() & (counted.sum() >= TARGETS) & most & ~(alike & maximised)
    return alike.float().where(known, math.nan)


def _cross_entropy(logits: Tensor, gradient: Tensor) -> Tensor:
    """Number of classes, and the mean cross-entropy of the targets that a gradient tells of, nats; NaN: it has none.

    Both of shape (rows, classes); rows without a gradient are left out of the loss.
    """
    logs = logits.log_softmax(1)
    probabilities = logs.exp()
    of_logits = gradient - probabilities * gradient.sum(1, keepdim=True)  # if it is that of logarithms already
    least, targets = of_logits.min(1, keepdim=True)
    counted = least < 0.0
    expected = probabilities.scatter_add(1, targets, -torch.ones_like(least))
    along = functional.cosine_similarity(of_logits / least.abs().clamp_min(SMALLEST), expected)[:, None]
    mean = -logs.gather(1, targets).where(counted, 0.0).sum() / counted.sum()
    is_one = ((along > ALONG) | ~counted).all()
    return torch.stack([torch.full_like(mean, logits.shape[1]), mean]).where(is_one, math.nan)
