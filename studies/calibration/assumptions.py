"""Numbers that tiny models on one machine cannot tell: from the literature, or assumed and marked so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmetric.architectures import ARCHITECTURES
from rmetric.faults.router_imbalance import STALL_S
from rmetric.simulation.hardware import CORRECTABLE_PER_FATAL, GPU_HOURS, INTERRUPTIONS, RESTART_STALL_S


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One number, or some, with the reason why it is not fitted."""

    value: Any
    unit: str
    what: str = ""
    """What it is, where no docstring of :class:`rmetric.simulation.parameters.HealthyParameters` says so."""
    source: str


HEALTHY: dict[str, Assumption] = {
    "warm_up_share": Assumption(value=0.05, unit="share of the steps", source="common practice"),
    "final_learning_rate_rel": Assumption(
        value=0.1, unit="1", source="common practice; the real runs keep theirs constant"
    ),
    "loss_exponent": Assumption(
        value=0.35,
        unit="1",
        source="order of Kaplan et al. 2020, arXiv 2001.08361, for short runs; tiny models say nothing of it",
    ),
    "loss_scale_steps": Assumption(value=10.0, unit="steps", source="assumed; tiny models say nothing of it"),
    "jitter_nats": Assumption(value=2e-4, unit="nats", source="assumed; far below what can be measured"),
    "warm_up_spikes": Assumption(value=1.5, unit="a run", source="assumed; the warm-up of the real runs has 20 steps"),
    "mix_shift_steps": Assumption(
        value=[150, 700], unit="steps", source="assumed; those of the real runs last to the end"
    ),
    "step_time_spread": Assumption(
        value=0.02, unit="1", source="assumed; 20 ms on a shared processor say nothing of a cluster"
    ),
    "straggler_probability": Assumption(value=0.003, unit="a step", source="assumed, as above"),
    "straggler_s": Assumption(value=3.0, unit="s", source="assumed, as above"),
}
"""Parameters of healthy training that real runs of this kind cannot tell."""

UNSEEN: dict[str, Assumption] = {
    "benign_spike_size": Assumption(value=0.1, unit="1", source="assumed; no spike in these runs"),
    "benign_spike_spread": Assumption(value=0.7, unit="1", source="assumed; no spike in these runs"),
    "benign_spike_held_out": Assumption(value=0.5, unit="share", source="assumed; too few bad batches in these runs"),
    "benign_spike_gradient": Assumption(value=1.0, unit="1", source="assumed; too few bad batches in these runs"),
    "benign_spike_worker_spread": Assumption(value=1.0, unit="1", source="assumed; too few bad batches in these runs"),
    "mix_shifts_per_1000_steps": Assumption(value=0.3, unit="1 / 1,000 steps", source="assumed"),
    "mix_shift_size": Assumption(value=0.0, unit="1", source="assumed; too few changes of the data mix"),
    "mix_shift_spread": Assumption(value=0.02, unit="1", source="assumed; too few changes of the data mix"),
    "mix_shift_held_out": Assumption(value=0.01, unit="1", source="assumed; too few changes of the data mix"),
    "mix_shift_worker_spread": Assumption(value=0.1, unit="1", source="assumed; too few changes of the data mix"),
    "benign_spikes_per_1000_steps": Assumption(value=0.8, unit="1 / 1,000 steps", source="assumed"),
    "minibatch_noise": Assumption(value=0.012, unit="1", source="assumed"),
    "held_out_noise": Assumption(value=0.004, unit="1", source="assumed"),
    "healing_rate": Assumption(value=0.06, unit="1 / step", source="assumed"),
    "gradient_per_excess": Assumption(value=50.0, unit="1", source="assumed"),
    "worker_spread": Assumption(value=0.06, unit="1", source="assumed"),
    "worker_tail": Assumption(value=0.12, unit="1", source="assumed"),
    "update_level": Assumption(value=0.25, unit="1", source="assumed"),
    "update_spread": Assumption(value=0.02, unit="1", source="assumed"),
    "update_correlation_steps": Assumption(value=1.0, unit="steps", source="assumed"),
    "wobble_correlation_steps": Assumption(value=5.0, unit="steps", source="assumed"),
}
"""Values for numbers whose runs are missing."""

ELSEWHERE: dict[str, Assumption] = {
    "step_time_s": Assumption(
        value={name: profile.step_time_s for name, profile in ARCHITECTURES.items()},
        unit="s",
        what="mean step time of a production cluster (rmetric.architectures)",
        source="the paper; a tiny model's step says nothing of it",
    ),
    "irreducible_loss": Assumption(
        value={name: profile.irreducible_loss for name, profile in ARCHITECTURES.items()},
        unit="nats",
        what="loss that the power law approaches (rmetric.architectures)",
        source="assumed",
    ),
    "hazard_per_gpu_hour": Assumption(
        value=sum(INTERRUPTIONS.values()) / GPU_HOURS,
        unit="1 / GPU-hour",
        what="fatal hardware events of a healthy cluster, in all (rmetric.simulation.hardware)",
        source="Llama 3 405B, arXiv 2407.21783, Table 5: 419 in 54 days on 16,384 GPUs",
    ),
    "correctable_per_fatal": Assumption(
        value=CORRECTABLE_PER_FATAL,
        unit="1",
        what="correctable hardware events per fatal one of the same component (rmetric.simulation.hardware)",
        source="assumed",
    ),
    "restart_stall_s": Assumption(
        value=RESTART_STALL_S,
        unit="s",
        what="until a healthy cluster has replaced a worker (rmetric.simulation.hardware)",
        source="assumed",
    ),
    "router_stall_s": Assumption(
        value=STALL_S,
        unit="s",
        what="wait of a step for the busiest expert (rmetric.faults.router_imbalance)",
        source="assumed; one process waits for no expert",
    ),
    "hardware_faults": Assumption(
        value=None,
        unit="",
        what="NODE_FAILURE and NETWORK_DEGRADATION: rates, delays and incubation are those of the injected fault",
        source="the same parameters bring them upon the real runs, so there is nothing to fit",
    ),
    "LARGE_LR": Assumption(
        value=None,
        unit="",
        what="responds as LR_SPIKE of the same factor, and does not heal while it lasts",
        source="assumed; no run of the fit half has it",
    ),
    "learning_rate_schedule": Assumption(
        value=None,
        unit="",
        what="the effect of a high learning rate goes with ln(factor × scheduled rate over its peak)",
        source="assumed; the real runs have a constant rate after their warm-up",
    ),
    "long_horizon": Assumption(
        value=None,
        unit="",
        what="after 540 steps a run stays where the fitted path leads",
        source="assumed; no real run was watched longer after its onset",
    ),
}
"""Assumptions that stand in other parts of the simulator, named here so that all are in one place."""
