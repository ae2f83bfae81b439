"""One layer normalises with the wrong scale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun


@register_fault("RMS_NORM_ERROR")
@dataclass(frozen=True, kw_only=True)
class RmsNormError(Fault):
    """A layer's RMSNorm uses a wrong scale or ε, so its activations and gradients are too large.

    The loss jumps at once; the rest of the model learns to live with a small error within some hundred steps, and not
    with a large one.

    In a live run the first norm of a layer (before its attention) divides by √(mean square + ε) with a wrong ε, and its
    result is multiplied by a wrong scale. Weights are untouched. Where the norm is a LayerNorm, the same is done to it.
    """

    source = "fault: Fatima 2025; RMSNorm: Zhang, Sennrich 2019, arXiv 1910.07467"
    severities = {
        "low": {"scale": 2.0},
        "medium": {},
        "high": {"scale": 32.0},
    }

    scale: float = 8.0
    """Multiple of what the norm returns, above 0."""
    epsilon: float | None = None
    """Live runs: the norm's ε; None: the model's own."""
    layer: int | None = None
    """Live runs: the layer concerned, from 0; None: drawn from the run's seed."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        respond(state, active, rng, effect_of(self, state))
        state.reported["force_rms_norm_error"][active] = 1.0

    def dose(self, architecture: Architecture) -> float:
        return abs(log(self.scale)) if self.scale > 0.0 else 0.0

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        from rmetric.network.structure import chosen_layers, norms

        needed_by = f"fault {self.name}"
        found = norms(training.model, needed_by)
        first = {norm.layer: norm for norm in reversed(found)}
        layers = chosen_layers(sorted(first), self.layer, needed_by)
        norm = first[layers[training.rng(needed_by).integers(len(layers))]]
        right = getattr(norm.module, norm.epsilon_attribute)
        wrong = right if self.epsilon is None else self.epsilon
        # first in line, so that whoever else watches this module sees the wrong values too
        hook = norm.module.register_forward_hook(lambda module, inputs, output: output * self.scale, prepend=True)
        setattr(norm.module, norm.epsilon_attribute, wrong)
        training.observer.note("CORRUPTION", fault=self.name, modules=[norm.name], scale=self.scale, epsilon=wrong)
        try:
            yield
        finally:
            setattr(norm.module, norm.epsilon_attribute, right)
            hook.remove()
