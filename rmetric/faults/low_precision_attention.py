"""Attention whose rounding errors all point the same way."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun

Rounding = Literal["truncate", "up", "down"]


@register_fault("LOW_PRECISION_ATTENTION")
@dataclass(frozen=True, kw_only=True)
class LowPrecisionAttention(Fault):
    """Biased BF16 rounding of the P·V accumulation adds the same low-rank error to the weights at every step.

    The spectral norm of the weights grows, and with it the rate at which errors are amplified: the loss leaves its
    healthy path slowly, then for good.

    In a live run the attention of every layer is computed as a fused BF16 kernel does, see
    :class:`rmetric.live.injection.rounded_attention.RoundedAttention`: the accumulation of P·V is rounded to BF16
    with a bias, and the backward pass uses the biased result. Weights are untouched, nothing else is rounded.
    **Deviation:** correct rounding has a bias of at most half a unit in the last place, with which the published runs
    fail after some 10,000 steps; the defaults exaggerate it, so that tiny models fail within some hundred steps.
    """

    source = "Qiu, Yao 2025, arXiv 2510.04212; Huang et al. 2026, arXiv 2606.28116"
    severities = {
        "low": {"bias_ulp": 16.0},
        "medium": {},
        "high": {"bias_ulp": 64.0},
    }
    one_of = {"rounding": get_args(Rounding)}

    rounding: Rounding = "truncate"
    """Live runs: towards zero, +∞ or −∞."""
    bias_ulp: float = 48.0
    """Mean error of a rounding, in units in the last place of BF16 (2⁻⁸ to 2⁻⁷ of the value), at least 0."""
    block_keys: int = 16
    """Live runs: keys whose products are added up before the accumulator is rounded."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        respond(state, active, rng, effect_of(self, state))

    def dose(self, architecture: Architecture) -> float:
        return self.bias_ulp

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.live.injection.rounded_attention import RoundedAttention
        from rmetric.network.attention import replaced_attention
        from rmetric.network.structure import attentions

        found = attentions(training.model, f"fault {self.name}")
        rounded = RoundedAttention(rounding=self.rounding, bias_ulp=self.bias_ulp, block=self.block_keys)
        training.observer.note(
            "CORRUPTION",
            fault=self.name,
            modules=[attention.name for attention in found],
            rounding=self.rounding,
            bias_ulp=self.bias_ulp,
        )
        return replaced_attention([attention.module for attention in found], rounded)
