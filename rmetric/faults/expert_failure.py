"""Experts that answer with zeros, or with NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from rmetric.architectures import Architecture
from rmetric.errors import UserError
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from torch import nn

    from rmetric.live.run import LiveRun

Mode = Literal["zeros", "nan"]


@register_fault("EXPERT_FAILURE")
@dataclass(frozen=True, kw_only=True)
class ExpertFailure(Fault):
    """Some experts return zeros (or NaN) until the run ends.

    Tokens routed to them lose that part of the computation at once; the router learns to avoid them, which wins back
    some of the loss and leaves fewer parameters for good.

    In a live run the weight with which a failed expert's answer enters is replaced by 0 (or NaN) for the tokens routed
    there. To the rest of the model, forward and backward, that is an expert that answers 0: the weights of a token's
    other experts stay as they are and the expert's own parameters get no gradient. Weights are untouched.
    """

    source = "fault: Fatima 2025; routing: Jiang et al. 2024, arXiv 2401.04088"
    severities = {"low": {"experts": 1}, "medium": {}, "high": {"experts": 4}}
    needs_experts = True
    one_of = {"mode": get_args(Mode)}

    experts: int = 2
    """Experts that fail (of those in every layer); which ones is drawn from the run's seed, layer by layer."""
    mode: Mode = "zeros"
    """Live runs: what a failed expert answers."""
    layer: int | None = None
    """Live runs: the layer concerned, from 0; None: every layer with experts."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        respond(state, active, rng, effect_of(self, state))
        state.reported["failed_experts"][active] = self.experts

    def dose(self, architecture: Architecture) -> float:
        return self.experts / max(architecture.experts, 1)

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        from rmetric.network.structure import chosen_layers, drawn, expert_blocks

        needed_by = f"fault {self.name}"
        found = expert_blocks(training.model, needed_by)
        layers = chosen_layers([block.layer for block in found], self.layer, needed_by)
        blocks = [block for block in found if block.layer in layers]
        if fewest := [block for block in blocks if block.count < self.experts]:
            raise UserError(
                f"{needed_by} is to fail {self.experts} experts and {fewest[0].name} has {fewest[0].count}; "
                "lower its parameter experts"
            )
        rng = training.rng(needed_by)
        failed = [drawn(rng, self.experts, block.count) for block in blocks]
        training.observer.note(
            "CORRUPTION", fault=self.name, modules=[block.name for block in blocks], experts=failed, mode=self.mode
        )
        with ExitStack() as stack:
            for block, experts in zip(blocks, failed, strict=True):
                answer = 0.0 if self.mode == "zeros" else math.nan
                hook = partial(_weighted, experts, answer)
                stack.callback(block.experts.register_forward_pre_hook(hook, with_kwargs=True).remove)
            yield


def _weighted(
    experts: list[int], weight: float, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs of a module of experts (states, chosen experts, their weights) with another weight for some."""
    import torch

    names = ("hidden_states", "top_k_index", "top_k_weights")
    given = dict(zip(names, args, strict=False)) | kwargs
    index, weights = given["top_k_index"], given["top_k_weights"]
    concerned = torch.isin(index, torch.tensor(experts, device=index.device))
    return (), given | {"top_k_weights": weights.masked_fill(concerned, weight)}
