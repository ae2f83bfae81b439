"""Look at the targets of a batch, through the gradient of what a model returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from torch import Tensor, nn
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


class TargetProbe:
    """Looks, through the gradient of what a model returns, at the targets of a step: are all of them one class?

    The gradient of a cross-entropy at the logits is the probabilities that are predicted, less 1 for the target: it
    sums to zero. At the logarithms of probabilities it is less than zero for the target and zero otherwise. The least
    entry is that of the target in both, wherever the loss is computed.

    Looked at are the classes in the last dimension of the first tensor with a gradient that the model returns.
    """

    watched = "the targets that the model is trained with"

    def __init__(self, model: nn.Module) -> None:
        self.armed = True
        """Whether the next step is looked at."""
        self.closed = False
        self._alike: Tensor | None = None
        self._of_pass: RemovableHandle | None = None
        self._of_model = model.register_forward_hook(ModelHook(self._look))

    def measure(self) -> Measured:
        """``targets_alike``, a truth value on the device; NaN or ``None``: not known. The next step begins."""
        alike, self._alike = self._alike, None
        self._leave_pass()
        return {"targets_alike": alike}

    @ends_alone
    def _look(self, _: Sequence[Any], returned: Any) -> None:
        if not self.armed or self._of_pass is not None:
            return
        tensors = filter(is_plain, islice(tree_iter(returned), LEAVES))
        logits = next((tensor for tensor in tensors if tensor.requires_grad and tensor.ndim > 1), None)
        if logits is not None and logits.shape[-1] > 1:
            self._of_pass = logits.register_hook(self._reached)

    @ends_alone
    def _reached(self, gradient: Tensor | None) -> None:
        if gradient is None:  # a compiled model has made its loss of them inside
            return
        rows = gradient.detach().reshape(-1, gradient.shape[-1])
        rows = rows[:: stride_of(len(rows), max(2 * TARGETS, LOGITS // rows.shape[1]))].float()
        least, targets = rows.min(dim=1)
        total = rows.sum(dim=1)
        counted = least < 0.0  # others are left out of the loss
        of_classes = (total * (total - least)).abs() <= ROUNDED * least.square()  # the sum is 0, or the least entry
        alike = targets.where(counted, -1).amax() == targets.where(counted, rows.shape[1]).amin()
        self._alike = alike.float().where(of_classes.all() & (counted.sum() >= TARGETS), math.nan)

    def _leave_pass(self) -> None:
        """Give back the hook of a pass: a model may return the same tensor again."""
        if self._of_pass is not None:
            self._of_pass.remove()
            self._of_pass = None

    def close(self) -> None:
        self.closed = True
        self._of_model.remove()
        self._leave_pass()
