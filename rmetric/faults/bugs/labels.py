"""Bugs of the labels: another map of classes or tokens, or the labels of other examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import PartialBug, number_of
from rmetric.faults.bugs.batches import IGNORED_LABELS, labels_of, targets_of, tensors_of

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import LiveRun


@register_fault("LABEL_MAP_SHIFT")
@dataclass(frozen=True, kw_only=True)
class LabelMapShift(PartialBug):
    """A part of the data numbers its classes (or tokens) otherwise: each has the number of the next.

    A class of its own for the background, or one more special token in the tokenizer, is enough. Evaluation keeps the
    right map.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (wrong labels of the training data)"
    severities = {"low": {"share": 0.2}, "medium": {"share": 0.5}, "high": {"share": 1.0}}  # noqa: RUF012

    share: float = 0.5
    """Share of the examples (of a language model: of the sequences) in each batch; above 0 and up to 1."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        classes = int(labels_of(training.held_out_batch("validation"), self).max()) + 1
        if classes < 2:
            raise UserError(f"{self.name} needs labels of at least two classes")

        def shift(values: Tensor, rows: list[int]) -> Tensor:
            shifted = values.clone()
            counted = values[rows] > IGNORED_LABELS
            shifted[rows] = values[rows].where(~counted, (values[rows] + 1) % classes)
            return shifted

        def mapped(batch: Any) -> Any:
            labels = labels_of(batch, self)
            size = number_of(self.share, len(labels))
            rows = training.rng(self.name).choice(len(labels), size, replace=False).tolist()
            tokens = {"input_ids": shift(batch.input_ids, rows)} if "input_ids" in tensors_of(batch, self) else {}
            return replace(batch, labels=shift(labels, rows), **tokens)

        with training.at("batch", mapped):
            yield


@register_fault("LABELS_MISALIGNED")
@dataclass(frozen=True, kw_only=True)
class LabelsMisaligned(PartialBug):
    """Inputs and labels no longer belong together: one of them was shuffled or filtered alone.

    A share of the examples have the labels of others. In language models each place has the label of the next, as where
    labels that are shifted already are shifted once more.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (wrong labels of the training data)"
    severities = {"low": {"share": 0.2}, "medium": {"share": 0.5}, "high": {"share": 1.0}}  # noqa: RUF012

    share: float = 0.5
    """Share of the examples in each batch, from the first one on; above 0 and up to 1."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        targets_of(training.held_out_batch("validation"), self)

        def moved(batch: Any) -> Any:
            labels = targets_of(batch, self)
            rows = number_of(self.share, len(labels))
            if _has_sequences(labels):
                return replace(batch, labels=_rolled(labels, rows, dimension=1))
            return replace(batch, labels=_rolled(labels, max(rows, 2), dimension=0))

        with training.at("batch", moved):
            yield


def _has_sequences(labels: Tensor) -> bool:
    """Whether each example has a row of classes or tokens."""
    return labels.ndim > 1 and not labels.is_floating_point()


def _rolled(labels: Tensor, rows: int, dimension: int) -> Tensor:
    """The labels, those of the first rows moved on by one place of a dimension."""
    rolled = labels.clone()
    rolled[:rows] = labels[:rows].roll(-1, dims=dimension)
    return rolled
