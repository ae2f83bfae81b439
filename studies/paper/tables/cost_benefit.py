"""Table 6: what a monitor would have cost and saved."""

from __future__ import annotations

import numpy as np

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import PROTOCOLS, Counts, Protocol
from rmetric.reporting.table import Cell, Column, Table
from studies import captions
from studies.cluster.cost import Bill, CostModel, bill, no_monitor, run_costs


def tables(ev: Evaluator, model: CostModel | None = None) -> list[Table]:
    """No monitor, each detector, and an oracle that warns at the onset."""
    model = model or CostModel()
    costs = run_costs(model, ev.study.runs, ev.timeline)

    def row(title: str, of: dict[Protocol, Bill]) -> dict[str, Cell]:
        cells: dict[str, Cell] = {"monitor": title}
        for protocol, found in of.items():
            saved = nothing[protocol].total_usd - found.total_usd
            cells |= {
                f"lost_hours_{protocol}": found.lost_hours,
                f"false_alarm_hours_{protocol}": found.false_alarm_hours,
                f"total_usd_{protocol}": found.total_usd,
                f"saved_usd_{protocol}": saved,
                f"tor_{protocol}": found.tor,
            }
        return cells

    some: dict[Protocol, Counts] = {protocol: ev.counts(next(iter(ev.detectors)), protocol) for protocol in PROTOCOLS}
    nothing = {protocol: bill(model, costs, no_monitor(counts)) for protocol, counts in some.items()}
    bills = {name: {p: bill(model, costs, ev.counts(name, p)) for p in PROTOCOLS} for name in ev.detectors}
    oracle = {protocol: bill(model, costs, some[protocol], oracle=True) for protocol in PROTOCOLS}
    rows = [row(title, of) for title, of in {"no monitor": nothing, **bills, "oracle": oracle}.items()]
    columns = [Column("monitor", "Monitor")]
    for protocol in PROTOCOLS:
        columns += [
            Column(f"lost_hours_{protocol}", f"Lost work (cluster h), {protocol}", 1, protocol),
            Column(f"false_alarm_hours_{protocol}", f"False alarms (cluster h), {protocol}", 1, protocol),
            Column(f"total_usd_{protocol}", f"Cost (USD), {protocol}", 0, protocol),
            Column(f"saved_usd_{protocol}", f"Saved (USD), {protocol}", 0, protocol),
            Column(f"tor_{protocol}", f"TOR, {protocol}", 4, protocol),
        ]
    caption = (
        "Cost and benefit over all runs, published thresholds. "
        f"{_assumptions(model, costs.usd_per_hour, costs.step_time_s)} TOR: Training Overhead Ratio, T_optimal / "
        "T_observed (arXiv 2408.07482), over the runs as they are: most of them faulty, which real training is not. "
        "The paper protocol credits alerts before the onset (at most with the whole loss) and charges one false alarm "
        f"a run. {captions.runs(ev)}"
    )
    title = "Table 6: Cost and benefit"
    return [Table("table_6_cost_benefit", title, caption, columns, rows, row_keys=("monitor",))]


def _assumptions(model: CostModel, usd_per_hour, step_time_s) -> str:  # type: ignore[no-untyped-def]
    def range_of(values: np.ndarray) -> str:
        low, high = float(values.min()), float(values.max())
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    return (
        f"Assumed: {range_of(step_time_s)} s a step; the cluster costs {range_of(usd_per_hour)} USD an hour; a "
        f"checkpoint every {model.checkpoint_every:,} steps; without a warning all work from the last checkpoint "
        "before the onset to the failure is lost, with one the work up to the warning; a false alarm stops the "
        f"cluster for {model.false_alarm_minutes:g} minutes; restarts cost the same in all cases and are left out."
    )
