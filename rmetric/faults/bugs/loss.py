"""Bugs of the loss: its mean counts what should not count, or is no mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import LiveRun


@register_fault("LOSS_OVER_PADDING")
@dataclass(frozen=True, kw_only=True)
class LossOverPadding(Bug):
    """The sum of the loss is divided by all positions, padding included, and the share of padding varies by batch.

    Loss and gradient shrink by the share of the positions that count, another one in every micro-batch, so that short
    examples weigh less. Evaluation is right.
    """

    source = "Hugging Face 2024, Fixing Gradient Accumulation (the denominator must be the tokens that count)"
    severities = {"low": {"padding": 0.2}, "medium": {}, "high": {"padding": 0.9}}
    above = {"padding": 0.0}
    below = {"padding": 1.0}

    padding: float = 0.5
    """Mean share of padding, in (0, 1); that of a micro-batch is drawn uniformly as far around it as 0 and 1 allow."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        reach = min(self.padding, 1.0 - self.padding)
        micro_batch = 0

        def begin(worker: int) -> None:
            nonlocal micro_batch
            micro_batch = worker

        def diluted(loss: Tensor) -> Tensor:
            padding = self.padding + reach * training.rng(f"{self.name}/{micro_batch}").uniform(-1.0, 1.0)
            return loss * (1.0 - padding)

        with training.at("micro_batch", begin), training.at("loss", diluted):
            yield


@register_fault("LOSS_SUMMED")
@dataclass(frozen=True, kw_only=True)
class LossSummed(Bug):
    """The loss is summed where it was a mean: it and its gradients are as many times as large as there are terms."""

    source = "PyTorch documentation, torch.nn.CrossEntropyLoss (reduction)"
    severities = {"low": {"terms": 8}, "medium": {}, "high": {"terms": 1024}}
    at_least = {"terms": 2}

    terms: int = 64
    """Terms of the sum, at least 2."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return training.at("loss", lambda loss: loss * self.terms)
