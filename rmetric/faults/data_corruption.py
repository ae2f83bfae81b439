"""A share of the training tokens is garbage."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("DATA_CORRUPTION")
@dataclass(frozen=True, kw_only=True)
class DataCorruption(Fault):
    """From the onset on, a share of the tokens in every batch is random.

    The training loss rises at once by (share × what a random token costs); the model's own distribution flattens only
    slowly, so the held-out loss follows over hundreds of steps. Gradients of the workers disagree more.
    """

    source = "shares 2 / 5 / 10 %: Fatima 2025; slow rise: real sample runs with 10 % corrupted labels"
    severities = {"low": {"token_share": 0.02}, "medium": {"token_share": 0.05}, "high": {"token_share": 0.10}}  # noqa: RUF012

    token_share: float = 0.05
    """Share of corrupted tokens, in [0, 1]."""
    floor_per_share: float = 1.4
    """Final relative excess of the held-out loss per share of corrupted tokens (median over runs)."""
    time_constant_steps: float = 250.0
    """Steps in which the held-out loss covers 63 % of the way."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        batch_share = self.token_share * (0.75 + 0.5 * rng.random("share of the batch"))
        cost = state.architecture.initial_loss - state.healthy_loss
        state.batch_loss += active * batch_share * cost
        floor = self.token_share * self.floor_per_share * rng.log_normal("strength", 0.25)
        state.raise_floor(active, floor, self.time_constant_steps * rng.log_normal("slowness", 0.3))
        state.gradient_noise_factor[active] *= 1.0 + 8.0 * self.token_share
