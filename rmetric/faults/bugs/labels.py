"""Bugs of labels and tokens: another map of them, too few bits, or the labels of other examples."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug, PartialBug, number_of
from rmetric.faults.bugs.batches import IGNORED_LABELS, labels_of, targets_of, tensors_of

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import LiveRun


def _classes(training: LiveRun, bug: Bug) -> int:
    """Classes (or tokens) of the labels; raises :class:`UserError` for fewer than two."""
    classes = int(labels_of(training.held_out_batch("validation"), bug).max()) + 1
    if classes < 2:
        raise UserError(f"{bug.name} needs labels of at least two classes")
    return classes


@register_fault("LABEL_MAP_SHIFT")
@dataclass(frozen=True, kw_only=True)
class LabelMapShift(PartialBug):
    """A part of the data numbers its classes (or tokens) otherwise: each has the number of the next.

    A class of its own for the background, or one more special token in the tokenizer, is enough. Evaluation keeps the
    right map.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (wrong labels of the training data)"
    severities = {"low": {"share": 0.2}, "medium": {}, "high": {"share": 1.0}}

    share: float = 0.5
    """Share of the examples (of a language model: of the sequences) in each batch; above 0 and up to 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        classes = _classes(training, self)

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

        return training.at("batch", mapped)


@register_fault("LABELS_MISALIGNED")
@dataclass(frozen=True, kw_only=True)
class LabelsMisaligned(PartialBug):
    """Inputs and labels no longer belong together: one of them was shuffled or filtered alone.

    A share of the examples have the labels of others. In language models each place has the label of the next, as where
    labels that are shifted already are shifted once more.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (wrong labels of the training data)"
    severities = {"low": {"share": 0.2}, "medium": {}, "high": {"share": 1.0}}

    share: float = 0.5
    """Share of the examples in each batch, from the first one on; above 0 and up to 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        targets_of(training.held_out_batch("validation"), self)

        def moved(batch: Any) -> Any:
            labels = targets_of(batch, self)
            rows = number_of(self.share, len(labels))
            if _has_sequences(labels):
                return replace(batch, labels=_rolled(labels, rows, dimension=1))
            return replace(batch, labels=_rolled(labels, max(rows, 2), dimension=0))

        return training.at("batch", moved)


def _has_sequences(labels: Tensor) -> bool:
    """Whether each example has a row of classes or tokens."""
    return labels.ndim > 1 and not labels.is_floating_point()


def _rolled(labels: Tensor, rows: int, dimension: int) -> Tensor:
    """The labels, those of the first rows moved on by one place of a dimension."""
    rolled = labels.clone()
    rolled[:rows] = labels[:rows].roll(-1, dims=dimension)
    return rolled


@register_fault("LABELS_WRAPPED")
@dataclass(frozen=True, kw_only=True)
class LabelsWrapped(PartialBug):
    """Labels are kept in a type that is too small: those beyond its range begin again at 0."""

    source = "NumPy documentation, data types (overflow errors: whole numbers wrap around)"
    severities = {"low": {"share": 0.9}, "medium": {}, "high": {"share": 0.2}}

    share: float = 0.5
    """Share of the classes (or tokens) that fit, at most all but one; above 0 and up to 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        classes = _classes(training, self)
        fitting = min(number_of(self.share, classes), classes - 1)

        def wrapped(batch: Any) -> Any:
            labels = labels_of(batch, self)
            return replace(batch, labels=labels.where(labels <= IGNORED_LABELS, labels % fitting))

        return training.at("batch", wrapped)


def _of_tokens(batch: Any, bug: Bug) -> list[str]:
    """Fields that hold token ids: those of the inputs, and labels of the same shape."""
    there = {name: field for name, field in tensors_of(batch, bug).items() if not field.is_floating_point()}
    inputs = next((name for name in ("input_ids", "inputs") if name in there and there[name].ndim > 1), None)
    if inputs is None:
        raise UserError(f"{bug.name} needs batches with a field input_ids or inputs that holds token ids")
    alike = "labels" in there and there["labels"].shape == there[inputs].shape
    return [inputs, "labels"] if alike else [inputs]


@register_fault("TOKENIZER_MISMATCH")
@dataclass(frozen=True, kw_only=True)
class TokenizerMismatch(Bug):
    """A part of the data comes from another tokenizer: each token has the number that is another one's."""

    source = "Humbatova et al. 2020, arXiv 1910.11015 (missing or wrong preprocessing)"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        example = training.held_out_batch("validation")
        ids = getattr(example, _of_tokens(example, self)[0])
        tokens = int(ids.max()) + 1
        others = ids.new_tensor(training.rng(self.name).permutation(tokens).tolist())

        def renumbered(values: Tensor) -> Tensor:
            known = (values > IGNORED_LABELS) & (values < tokens)
            return values.where(~known, others[values.clamp(0, tokens - 1)])

        def tokenized(batch: Any) -> Any:
            return replace(batch, **{name: renumbered(getattr(batch, name)) for name in _of_tokens(batch, self)})

        return training.at("batch", tokenized)
