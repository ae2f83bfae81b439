"""Bugs of the gradients: not cleared, of the wrong sign or size, of another step, clipped wrongly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmetric.attributes import replaced
from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug, PartialBug, number_of, trained_parameters

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import LiveRun


@register_fault("MISSING_ZERO_GRAD")
@dataclass(frozen=True, kw_only=True)
class MissingZeroGrad(Bug):
    """``optimizer.zero_grad()`` is not called: each step adds to the gradients of all steps before it.

    It acts like a momentum of 1: the gradient norm climbs, and steps overshoot as with a rate that is too high. What
    was clipped stays clipped and is added to.
    """

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (stackoverflow-60335387)"
    severities = {"low": {"clear_every": 20}, "medium": {}, "high": {}}

    clear_every: int = 0
    """Steps after which the gradients are cleared all the same (once an epoch, say); 0: never."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        optimizer = training.optimizer
        clear = optimizer.zero_grad

        def seldom(set_to_none: bool = True) -> None:
            if self.clear_every and training.step % self.clear_every == 0:
                clear(set_to_none)

        try:
            with replaced(optimizer, "zero_grad", seldom):
                yield
        finally:
            optimizer.zero_grad()


@register_fault("GRADIENT_SIGN")
@dataclass(frozen=True, kw_only=True)
class GradientSign(PartialBug):
    """The gradients of some tensors have the wrong sign: their weights climb the loss.

    It happens in hand-written backward passes and in losses that are maximised by mistake.
    """

    source = "Humbatova et al. 2020, arXiv 1910.11015 (wrong computation of the loss)"
    severities = {"low": {"share": 0.1}, "medium": {}, "high": {"share": 1.0}}

    share: float = 0.5
    """Share of the tensors, drawn at the onset; above 0 and up to 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        import torch

        tensors = trained_parameters(training)
        size = number_of(self.share, len(tensors))
        chosen = [tensors[index] for index in training.rng(self.name).choice(len(tensors), size, replace=False)]
        training.observer.note("CORRUPTION", fault=self.name, tensors=len(chosen), of=len(tensors))

        def flip() -> None:
            torch._foreach_neg_([parameter.grad for _, parameter in chosen if parameter.grad is not None])

        return training.at("gradients", flip)


@register_fault("STALE_GRADIENTS")
@dataclass(frozen=True, kw_only=True)
class StaleGradients(PartialBug):
    """In a share of the steps the gradients of the step before are applied once more.

    It happens where a step whose gradients overflowed is skipped only halfway, or where a worker sends what it had.
    """

    source = "overflow and skipped steps: Micikevicius et al. 2018, arXiv 1710.03740; staleness: Zheng et al. 2017, arXiv 1609.08326"  # noqa: E501
    severities = {"low": {"share": 0.2}, "medium": {}, "high": {"share": 0.9}}

    share: float = 0.5
    """Share of the steps, drawn step by step; above 0 and up to 1. At 1 the first gradients are applied for ever."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        before: dict[str, Tensor] = {}

        def apply_again() -> None:
            stale = bool(before) and training.rng(self.name).random() < self.share
            for name, parameter in trained_parameters(training):
                if stale and parameter.grad is not None and name in before:
                    parameter.grad.copy_(before[name])
                elif not stale and parameter.grad is not None:
                    before[name] = parameter.grad.clone()

        return training.at("gradients", apply_again)


@register_fault("ACCUMULATION_NOT_DIVIDED")
@dataclass(frozen=True, kw_only=True)
class AccumulationNotDivided(Bug):
    """The gradients of micro-batches are added and not averaged: they are larger by the number of micro-batches.

    The loss in the log is the right one. Clipping, and optimizers that divide by the size of the gradient, hide it;
    plain SGD makes steps that are too long.
    """

    source = "PyTorch documentation, automatic mixed precision examples (the loss is divided by iters_to_accumulate)"
    severities = {"low": {"micro_batches": 4}, "medium": {}, "high": {"micro_batches": 64}}
    at_least = {"micro_batches": 2}

    micro_batches: int = 16
    """Number by which is not divided, at least 2."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return _multiplied(training, float(self.micro_batches))


@register_fault("GRADIENT_CLIPPED_TOO_LOW")
@dataclass(frozen=True, kw_only=True)
class GradientClippedTooLow(Bug):
    """Gradients are clipped to a norm far below their usual one, so that every step is clipped.

    With SGD the weights all but stand still; Adam divides by the size and goes on until its ε is reached.
    """

    source = "Pascanu et al. 2013, arXiv 1211.5063 (the threshold goes by the usual norm)"
    severities = {"low": {"clip": 1e-2}, "medium": {}, "high": {"clip": 1e-6}}
    above = {"clip": 0.0}

    clip: float = 1e-3
    """Largest global gradient norm, above 0."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        if training.config.clip <= self.clip:
            raise UserError(f"{self.name} changes nothing: this run clips at {training.config.clip:g} already")
        return replaced(training, "config", replace(training.config, clip=self.clip))


@register_fault("NO_CLIPPING")
@dataclass(frozen=True, kw_only=True)
class NoClipping(Bug):
    """Gradients are no longer clipped (the call was lost, or clips before they are unscaled)."""

    source = "Pascanu et al. 2013, arXiv 1211.5063"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        if not math.isfinite(training.config.clip):
            raise UserError(f"{self.name} changes nothing: this run does not clip its gradients")
        return replaced(training, "config", replace(training.config, clip=math.inf))


@register_fault("GRADIENTS_SCALED")
@dataclass(frozen=True, kw_only=True)
class GradientsScaled(Bug):
    """Gradients keep the factor by which the loss was scaled for half precision: they are not unscaled."""

    source = "PyTorch documentation, automatic mixed precision examples (unscale gradients before they are modified)"
    severities = {"low": {"factor": 8.0}, "medium": {}, "high": {"factor": 65536.0}}
    above = {"factor": 1.0}

    factor: float = 1024.0
    """Multiple of the true gradients, above 1."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return _multiplied(training, self.factor)


def _multiplied(training: LiveRun, factor: float) -> AbstractContextManager[None]:
    """All gradients are so many times as large."""
    import torch

    def multiply() -> None:
        gradients = [item.grad for _, item in trained_parameters(training) if item.grad is not None]
        torch._foreach_mul_(gradients, factor)

    return training.at("gradients", multiply)
