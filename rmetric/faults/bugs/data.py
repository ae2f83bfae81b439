"""Bugs of the data: NaN, the same again, in a bad order, badly scaled, zeros, or the answer among the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug, PartialBug
from rmetric.faults.bugs.batches import in_each_field, inputs_of, joined, labels_of, targets_of, tensors_of

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import LiveRun


MOST_BATCHES = 64
"""Batches that are looked through for examples of one class, at most."""


@register_fault("NAN_BATCH")
@dataclass(frozen=True, kw_only=True)
class NanBatch(Bug):
    """An example of a batch holds NaN (0 / 0 in the preparation, a missing value). An event of one step.

    Where inputs are floating-point numbers those of an example are NaN, and batch norm keeps it in its statistics;
    where they are token ids, the loss is. Unless such a step is skipped, all weights are NaN after it.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (quality of the training data)"

    duration_steps: int = 1

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        try:
            inputs_of(training.held_out_batch("validation"), self)
        except UserError:
            with training.at("loss", lambda loss: loss * float("nan")):
                yield
        else:
            with training.at("batch", self._spoilt):
                yield

    def _spoilt(self, batch: Any) -> Any:
        inputs = inputs_of(batch, self).clone()
        inputs[0] = float("nan")
        return replace(batch, inputs=inputs)


@register_fault("SAME_BATCH_FOR_EVER")
@dataclass(frozen=True, kw_only=True)
class SameBatchForEver(Bug):
    """The loader returns the same batch in every step: its iterator is made anew, or a test on one batch was left in.

    The training loss falls as nothing else does, and the held-out loss rises.
    """

    source = "Karpathy 2019, A Recipe for Training Neural Networks (overfit one batch: as a test, that is)"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return _in_turn(training, batches=1)


@register_fault("WORKERS_SHARE_SEED")
@dataclass(frozen=True, kw_only=True)
class WorkersShareSeed(Bug):
    """The workers of the loader have the same random seed, so that each returns the same examples.

    A batch holds some examples several times: gradients are noisier than its size says, and parts of it are equal.
    """

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (stackoverflow-67180955); Pärnamaa 2021 (PyTorch and NumPy)"  # noqa: E501
    severities = {"low": {"workers": 2}, "medium": {}, "high": {"workers": 16}}
    at_least = {"workers": 2}

    workers: int = 4
    """Times that each example is there, at least 2, as far as a batch has examples."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        tensors_of(training.held_out_batch("validation"), self)

        def repeated(rows: Tensor) -> Tensor:
            own = rows[: max(1, len(rows) // self.workers)]
            copies = -(-len(rows) // len(own))
            return own.repeat(copies, *(1 for _ in rows.shape[1:]))[: len(rows)]

        return training.at("batch", lambda batch: in_each_field(batch, self, repeated))


@register_fault("WRONG_NORMALISATION")
@dataclass(frozen=True, kw_only=True)
class WrongNormalisation(Bug):
    """Inputs are not divided by 255, or divided twice: training sees them at another scale than evaluation."""

    source = "Humbatova et al. 2020, arXiv 1910.11015 (missing preprocessing: normalisation)"
    severities = {"low": {"factor": 1 / 255}, "medium": {}, "high": {}}
    above = {"factor": 0.0}

    factor: float = 255.0
    """Multiple of the right inputs, above 0."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        inputs_of(training.held_out_batch("validation"), self)

        def scaled(batch: Any) -> Any:
            return replace(batch, inputs=inputs_of(batch, self) * self.factor)

        return training.at("batch", scaled)


@register_fault("SHUFFLING_OFF")
@dataclass(frozen=True, kw_only=True)
class ShufflingOff(Bug):
    """The data come sorted by class: for some steps all examples are of one class, then of the next.

    The model learns to answer with the class of the hour: the training loss has teeth, and the held-out loss is high.
    """

    source = "Bengio 2012, arXiv 1206.5533 (order of the examples: shuffle)"
    severities = {
        "low": {"steps_a_class": 2},
        "medium": {},
        "high": {"steps_a_class": 100},
    }
    at_least = {"steps_a_class": 1}

    steps_a_class: int = 20
    """Steps until the next class comes, at least 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        classes = self._classes(training.held_out_batch("validation"))
        steps = count()

        def sorted_by_class(batch: Any) -> Any:
            # Examples of the class out of this batch and of as many more as it takes, or of the nearest class above.
            turn = classes[next(steps) // self.steps_a_class % len(classes)]
            batches, rows, found = [batch], len(labels_of(batch, self)), _count(batch, turn, self)
            while len(batches) < MOST_BATCHES and found < rows:
                batches.append(training.further_batch(len(batches)))
                found += _count(batches[-1], turn, self)
            many = joined(batches, self)
            labels = labels_of(many, self).cpu().numpy()
            there = np.unique(labels)
            chosen = there[np.searchsorted(there, turn) % len(there)]
            kept = np.resize(np.flatnonzero(labels == chosen), rows).tolist()
            return in_each_field(many, self, lambda column: column[kept])

        return training.at("batch", sorted_by_class)

    def _classes(self, batch: Any) -> list[int]:
        labels = labels_of(batch, self)
        if labels.ndim != 1:
            raise UserError(f"{self.name} needs batches with a class an example")
        classes: list[int] = labels.unique().tolist()
        return classes


def _count(batch: Any, chosen: int, bug: Bug) -> int:
    return int((labels_of(batch, bug) == chosen).sum())


@register_fault("FEW_BATCHES")
@dataclass(frozen=True, kw_only=True)
class FewBatches(Bug):
    """The loader serves the same few batches in turn: its cache forgets the index, or a limit for tests was left in.

    The training loss falls, and the held-out loss rises.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (too little training data)"
    severities = {"low": {"batches": 64}, "medium": {}, "high": {"batches": 2}}
    at_least = {"batches": 1}

    batches: int = 6
    """Batches that are served, at least 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return _in_turn(training, self.batches)


def _in_turn(training: LiveRun, batches: int) -> AbstractContextManager[None]:
    """Serve the next batches, so many of them, again and again."""
    kept: list[Any] = []
    turns = count()

    def served(batch: Any) -> Any:
        if len(kept) < batches:
            kept.append(batch)
        return kept[next(turns) % batches]

    return training.at("batch", served)


@register_fault("INPUTS_ZEROED")
@dataclass(frozen=True, kw_only=True)
class InputsZeroed(PartialBug):
    """The inputs of many batches are 0: what a decoder or a sensor could not read was NaN, and NaN was made 0."""

    source = "Humbatova et al. 2020, arXiv 1910.11015 (missing or wrong preprocessing)"
    severities = {"low": {"share": 0.2}, "medium": {}, "high": {"share": 1.0}}

    share: float = 0.7
    """Share of the batches, drawn step by step; above 0 and up to 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        inputs_of(training.held_out_batch("validation"), self)

        def read(batch: Any) -> Any:
            lost = training.rng(self.name).random() < self.share
            return replace(batch, inputs=inputs_of(batch, self) * 0.0) if lost else batch

        return training.at("batch", read)


@register_fault("TARGET_LEAKS")
@dataclass(frozen=True, kw_only=True)
class TargetLeaks(Bug):
    """One of the features holds the target: a column that is only known afterwards was not left out.

    The training loss falls. Where the feature is not there, as when the model is used, the model has unlearned the
    rest.
    """

    source = "Kaufman et al. 2012, ACM TKDD 6(4), doi 10.1145/2382577.2382579 (leakage in data mining)"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        example = training.held_out_batch("validation")
        inputs_of(example, self)
        if targets_of(example, self).ndim != 1:
            raise UserError(f"{self.name} needs batches with one target an example")

        def leaking(batch: Any) -> Any:
            inputs, targets = inputs_of(batch, self).clone(), targets_of(batch, self)
            features = inputs.reshape(len(inputs), -1)
            features[:, 0] = targets.to(features.dtype) / targets.abs().max().clamp(min=1)
            return replace(batch, inputs=features.view_as(inputs))

        return training.at("batch", leaking)
