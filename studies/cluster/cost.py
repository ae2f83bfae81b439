"""Cost and savings of a monitor: Table 6, a model whose every assumption is a parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import PROTOCOLS, Counts, Timeline
from rmetric.evaluation.scores import Score
from rmetric.records import Run
from rmetric.reporting.table import Cell, Column
from rmetric.simulation.logbook import USD_PER_ACCELERATOR_HOUR
from studies import captions
from studies.catalogue import Part, table


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Assumptions.

    Without a monitor, a failed run is noticed at its failure and all work since the last checkpoint before the fault's
    onset is lost. With a warning, work ends at the warning. A run that is warned is saved exactly its lead; an alert
    before the onset (which only the paper protocol credits) saves at most the whole loss. Each false alarm stops the
    whole cluster for a while. Restarting costs the same in all cases and is left out; alerts during faults that heal
    are not charged. Running the detector itself is taken to cost nothing.
    """

    step_time_s: float = 5.0
    """Seconds a step, where a log does not say (the paper's 5)."""
    accelerators: int = 8
    """In the cluster, where a log does not say (the paper's 8)."""
    usd_per_accelerator_hour: float = USD_PER_ACCELERATOR_HOUR
    """Where a log does not say."""
    checkpoint_every: int = 500
    """Steps between checkpoints; one more at step 0."""
    false_alarm_minutes: float = 15.0
    """For which a false alarm stops the whole cluster."""


@dataclass(frozen=True)
class RunCosts:
    """Costs of the runs of a study, arrays of shape (runs,): read from logs by :func:`run_costs`."""

    useful_steps: NDArray[np.float64]
    """Steps that a run is to make."""
    onset: NDArray[np.float64]
    failure_step: NDArray[np.float64]
    """NaN unless failed."""
    step_time_s: NDArray[np.float64]
    usd_per_hour: NDArray[np.float64]
    """Of the whole cluster."""


@dataclass(frozen=True)
class Bill:
    """Hours and dollars over all counted runs."""

    lost_hours: float
    """Cluster hours of training whose result was thrown away."""
    false_alarm_hours: float
    """Cluster hours in which false alarms stopped training."""
    lost_usd: float
    false_alarm_usd: float
    tor: Score
    """Training Overhead Ratio T_optimal / T_observed, in (0, 1].

    **Source:** Lu et al. 2024, arXiv 2408.07482.
    """

    @property
    def total_usd(self) -> float:
        return self.lost_usd + self.false_alarm_usd


def bill(model: CostModel, costs: RunCosts, counts: Counts, *, oracle: bool = False) -> Bill:
    """Cost of the counted runs beyond a run without faults.

    Parameters
    ----------
    counts
        A detector's; with all of ``tp`` and ``fp`` 0 the bill of having no monitor (:func:`no_monitor`).
    oracle
        Warn every failed run at its onset and raise no false alarm instead.
    """
    counted = counts.counted
    failed = counted & ~np.isnan(costs.failure_step) & ~np.isnan(costs.onset)
    since = np.floor(costs.onset / model.checkpoint_every) * model.checkpoint_every
    worst = costs.failure_step - since
    lead = np.where(counts.tp > 0, counts.lead, 0.0)
    kept = costs.failure_step - costs.onset if oracle else np.minimum(lead, worst)
    lost_h = np.where(failed, worst - kept, 0.0) * costs.step_time_s / 3600.0
    alarms = np.zeros(len(counts)) if oracle else np.where(counted, counts.fp, 0)
    stopped_h = alarms * model.false_alarm_minutes / 60.0
    optimal_h = float((np.where(counted, costs.useful_steps, 0.0) * costs.step_time_s).sum() / 3600.0)
    observed_h = optimal_h + float(lost_h.sum() + stopped_h.sum())
    tor = Score(optimal_h / observed_h) if observed_h > 0 else Score.undefined("there is no run")
    return Bill(
        float(lost_h.sum()),
        float(stopped_h.sum()),
        float((lost_h * costs.usd_per_hour).sum()),
        float((stopped_h * costs.usd_per_hour).sum()),
        tor,
    )


def run_costs(model: CostModel, runs: Sequence[Run], timeline: Timeline) -> RunCosts:
    """Read what the logs say about cost, with the model's values where they say nothing."""

    def planned(run: Run, key: str, default: float) -> float:
        value = run.config.get(key)
        return float(value) if isinstance(value, int | float) and value > 0 else default

    return RunCosts(
        useful_steps=np.array([float(truth.horizon) for truth in timeline.truths]),
        onset=timeline.onset,
        failure_step=timeline.failure_step,
        step_time_s=np.array([planned(run, "step_time_s", model.step_time_s) for run in runs]),
        usd_per_hour=np.array(
            [
                planned(run, "num_workers", model.accelerators)
                * planned(run, "usd_per_accelerator_hour", model.usd_per_accelerator_hour)
                for run in runs
            ]
        ),
    )


def no_monitor(counts: Counts) -> Counts:
    """The same runs without a single alert."""
    zero = np.zeros_like(counts.tp)
    return Counts(**{**vars(counts), "tp": zero, "fp": zero, "lead": np.full(len(counts), math.nan)})


# --- Table 6 ---------------------------------------------------------------------------------------------------------

NO_MONITOR, ORACLE = "no monitor", "oracle"


@table(
    "table_6_cost_benefit",
    "Cost and benefit",
    "Cost and benefit over all runs, published thresholds. {assumed} {step} {price} TOR: Training Overhead Ratio, "
    "T_optimal / T_observed (arXiv 2408.07482), over the runs as they are: most of them faulty, which real training is "
    "not. The paper protocol credits alerts before the onset (at most with the whole loss) and charges one false alarm "
    "a run. {runs}",
    [
        Column("monitor", "Monitor"),
        *(
            column
            for protocol in PROTOCOLS
            for column in (
                Column(f"lost_hours_{protocol}", f"Lost work (cluster h), {protocol}", 1, protocol),
                Column(f"false_alarm_hours_{protocol}", f"False alarms (cluster h), {protocol}", 1, protocol),
                Column(f"total_usd_{protocol}", f"Cost (USD), {protocol}", 0, protocol),
                Column(f"saved_usd_{protocol}", f"Saved (USD), {protocol}", 0, protocol),
                Column(f"tor_{protocol}", f"TOR, {protocol}", 4, protocol),
            )
        ),
    ],
    about=("monitor",),
)
def cost_benefit(ev: Evaluator) -> Part:
    """No monitor, each detector, and an oracle that warns at the onset."""
    model = CostModel()
    costs = run_costs(model, ev.study.runs, ev.timeline)
    rows: dict[str, dict[str, Cell]] = {}
    for protocol in PROTOCOLS:
        some = ev.counts(next(iter(ev.detectors)), protocol)
        nothing = bill(model, costs, no_monitor(some))
        bills = {
            NO_MONITOR: nothing,
            **{name: bill(model, costs, ev.counts(name, protocol)) for name in ev.detectors},
            ORACLE: bill(model, costs, some, oracle=True),
        }
        for name, found in bills.items():
            rows.setdefault(name, {"monitor": name}).update(
                {
                    f"lost_hours_{protocol}": found.lost_hours,
                    f"false_alarm_hours_{protocol}": found.false_alarm_hours,
                    f"total_usd_{protocol}": found.total_usd,
                    f"saved_usd_{protocol}": nothing.total_usd - found.total_usd,
                    f"tor_{protocol}": found.tor,
                }
            )
    return Part([*rows.values()], {**_assumed(model, costs), **captions.facts(ev)})


def _assumed(model: CostModel, costs: RunCosts) -> dict[str, str]:
    """What studies have in common apart from what they may differ in, so that a caption says it once."""
    return {
        "step": f"Assumed: a step of {_range(costs.step_time_s)} s.",
        "price": f"Assumed: a cluster of {_range(costs.usd_per_hour)} USD an hour.",
        "assumed": f"Assumed: a checkpoint every {model.checkpoint_every:,} steps; without a warning all work from the "
        "last checkpoint before the onset to the failure is lost, with one the work up to the warning; a false alarm "
        f"stops the cluster for {model.false_alarm_minutes:g} minutes; restarts cost the same in all cases and are "
        "left out.",
    }


def _range(values: NDArray[np.float64]) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
