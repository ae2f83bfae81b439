"""Key/value heads that serve the wrong group of query heads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmetric.architectures import Architecture
from rmetric.errors import UserError
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rmetric.live.run import LiveRun
    from rmetric.network.attention import AttentionFunction


@register_fault("GQA_MISMATCH")
@dataclass(frozen=True, kw_only=True)
class GqaMismatch(Fault):
    """Key/value heads of a share of the layers are paired with the wrong query groups (a resharding error).

    The layers lose what they had learned at once, then learn a new pairing, within some hundred steps.

    In a live run the keys and values of each layer concerned are rolled by one head right before the attention: query
    group g is answered by key/value head g - 1, forward and backward. Weights are untouched. A model with as many
    key/value heads as query heads can be mismatched too; one with a single key/value head cannot.
    """

    source = "fault: Fatima 2025; grouped queries: Ainslie et al. 2023, arXiv 2305.13245"
    severities = {"low": {"layer_share": 0.03}, "medium": {}, "high": {"layer_share": 0.35}}

    layer_share: float = 0.09
    """Share of the layers concerned, in [0, 1]; in a live run at least one layer, drawn from the run's seed."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        respond(state, active, rng, effect_of(self, state))
        state.reported["force_gqa_mismatch"][active] = 1.0

    def dose(self, architecture: Architecture) -> float:
        return self.layer_share

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.network.attention import wrapped_attention
        from rmetric.network.structure import attentions, drawn

        needed_by = f"fault {self.name}"
        found = attentions(training.model, needed_by)
        if single := [attention for attention in found if attention.key_value_heads < 2]:
            raise UserError(
                f"{needed_by} needs two key/value heads or more, and {single[0].name} has one; choose another model"
            )
        count = min(len(found), max(1, round(self.layer_share * len(found))))
        chosen = [found[place] for place in drawn(training.rng(needed_by), count, len(found))]
        training.observer.note("CORRUPTION", fault=self.name, modules=[attention.name for attention in chosen])
        return wrapped_attention([attention.module for attention in chosen], _rolled)


def _rolled(
    inner: AttentionFunction,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention with the keys and values of the head before: their heads are dimension 1."""
    return inner(module, query, key.roll(1, dims=1), value.roll(1, dims=1), mask, **options)
