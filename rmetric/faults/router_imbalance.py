"""A router that sends most tokens to a few experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import Batch, LiveRun
    from rmetric.network.structure import ExpertBlock


STALL_S = 1.5
"""Seconds that a simulated step waits for the busiest expert if all tokens go to the favoured ones: an assumption."""


@register_fault("ROUTER_IMBALANCE")
@dataclass(frozen=True, kw_only=True)
class RouterImbalance(Fault):
    """Router logits are biased; the favoured experts learn more, so the imbalance feeds itself.

    The busiest expert becomes the straggler of every step, the idle ones stop learning.

    In a live run the logits of as many experts a layer as a token has are raised by a constant, before the router
    chooses: the mean of what would send ``imbalance_factor`` of the routing there in each batch of the ramp. The bias
    rises within ``ramp_steps`` and stays, whatever the router learns against it. The router's weights are untouched.
    """

    source = "factors 0.7 to 0.8: Fatima 2025; collapse of routing: Huang et al. 2026, arXiv 2606.28116"
    severities = {
        "low": {"imbalance_factor": 0.7},
        "medium": {},
        "high": {"imbalance_factor": 0.8},
    }
    needs_experts = True

    imbalance_factor: float = 0.75
    """Final share of the tokens that go to the favoured experts, in [0, 1]."""
    ramp_steps: int = 20
    """Steps in which the bias rises linearly to its constant value."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        respond(state, active, rng, effect_of(self, state))
        # A single process waits for no expert: how long a cluster does is an assumption.
        ramp = np.minimum(np.cumsum(active, axis=1) / max(self.ramp_steps, 1), 1.0)
        state.stall_s += active * STALL_S * self.imbalance_factor * ramp
        state.reported["router_imbalance_factor"][active] = self.imbalance_factor

    def dose(self, architecture: Architecture) -> float:
        return self.imbalance_factor

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        from rmetric.live.injection.routing import changed_logits
        from rmetric.network.structure import drawn, expert_blocks

        needed_by = f"fault {self.name}"
        blocks = expert_blocks(training.model, needed_by)
        rng = training.rng(needed_by)
        favoured = [drawn(rng, block.top_k, block.count) for block in blocks]
        training.observer.note(
            "CORRUPTION", fault=self.name, modules=[block.name for block in blocks], experts=favoured
        )
        with ExitStack() as stack:
            for block, experts in zip(blocks, favoured, strict=True):
                bias = _Bias(block, experts, self.imbalance_factor, max(self.ramp_steps, 1))
                stack.enter_context(training.at("batch", bias.begin_step))
                stack.enter_context(changed_logits(block.router, block.count, bias))
            yield


@dataclass
class _Bias:
    """Raises the logits of some experts of one layer by a constant that the batches of the ramp determine.

    It is the same in all passes of a step: one that is computed again for the gradient must give the same result.
    """

    block: ExpertBlock
    experts: list[int]
    share: float
    ramp_steps: int
    elapsed_steps: int = 0
    """Steps begun since the onset."""
    constant: Tensor | None = None
    """The bias at the end of the ramp; None: in the first step, in which each batch has its own."""
    single: list[Tensor] = field(default_factory=list)
    """Value that each batch of the ramp alone would give."""

    def begin_step(self, batch: Batch) -> Batch:
        import torch

        self.elapsed_steps += 1
        self.constant = torch.stack(self.single).mean() if self.single else None
        return batch

    def __call__(self, logits: Tensor) -> Tensor:
        import torch

        from rmetric.live.injection.routing import bias_for_share

        expert = torch.arange(logits.shape[-1], device=logits.device)
        favoured = torch.isin(expert, torch.tensor(self.experts, device=logits.device))
        constant = self.constant
        if constant is None or self.elapsed_steps <= self.ramp_steps:
            own = bias_for_share(logits, favoured, self.block.top_k, self.share)
            constant = own if constant is None else constant
            if self.block.router.training:  # what validation sees leaves no trace
                self.single.append(own)
        risen = min(1.0, max(self.elapsed_steps, 1) / self.ramp_steps)
        return logits + (favoured * constant * risen).to(logits.dtype)
