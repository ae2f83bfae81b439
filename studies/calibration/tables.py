"""How near the simulator comes to real training: noise, faults and detectors, and what does not match."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.table import Cell, Column, Table
from studies.calibration.comparison import TOLERANCE, Compared, Comparison, compare, with_detectors

VERDICTS = {True: "yes", False: "no", None: "–"}


@lru_cache(maxsize=2)
def compared(simulated: Evaluator, real: Evaluator) -> Comparison:
    """Two evaluated studies, with the detectors that both have scores of."""
    return with_detectors(compare(simulated.study.runs, real.study.runs), simulated, real)


def tables(comparison: Comparison) -> list[Table]:
    """Noise, faults, and detectors if some were compared."""
    simulated, real = comparison.runs
    whose = (
        f"{simulated:,} simulated runs, {real:,} real ones (even repetitions, to which nothing was fitted); 95 % "
        f"intervals over runs. Alike: within the real interval, or within {100 * TOLERANCE:.0f} %."
    )
    found = [_noise(comparison, whose), _faults(comparison, whose)]
    return [*found, _detectors(comparison, whose)] if comparison.detectors else found


def _noise(comparison: Comparison, whose: str) -> Table:
    title = "Table 15: Simulated against real, noise of healthy runs"
    caption = (
        f"Logarithm of a signal less its trend (running median of 15 records), in records of {comparison.every} steps: "
        f"means of loss and step time, largest values of the others. {whose}"
    )
    columns = [Column("signal", "Signal"), Column("statistic", "Statistic"), *_worlds("", 4)]
    rows = [{"signal": row.of[0], "statistic": row.statistic, **_cells(row, "")} for row in comparison.noise]
    return Table("table_15_simulated_vs_real_noise", title, caption, columns, rows, _unlike(comparison.noise))


def _faults(comparison: Comparison, whose: str) -> Table:
    title = "Table 15b: Simulated against real, what becomes of a fault"
    caption = f"Shares of the decided runs; incubation: median steps from onset to failure, of failed runs. {whose}"
    statistics = {"failed": "Failed", "recovered": "Recovered", "incubation": "Incubation (steps)"}
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row in comparison.faults:
        fault, severity = row.of
        rows.setdefault(row.of, {"fault": fault, "severity": severity}).update(_cells(row, f"{row.statistic}_"))
    columns = [Column("fault", "Fault"), Column("severity", "Severity")]
    for key, name in statistics.items():
        columns += _worlds(f"{key}_", 0 if key == "incubation" else 2, f"{name}, ")
    notes = _unlike(comparison.faults)
    return Table("table_15b_simulated_vs_real_faults", title, caption, columns, [*rows.values()], notes)


def _detectors(comparison: Comparison, whose: str) -> Table:
    title = "Table 15c: Simulated against real, detectors"
    caption = (
        "Strict F1 on the score half of each world, at the threshold that keeps one false alarm per 10,000 healthy "
        f"steps on its fit half; the best real one first. {whose}"
    )
    columns = [Column("detector", "Detector"), *_worlds("", 3)]
    rows: list[dict[str, Cell]] = [{"detector": row.of[0], **_cells(row, "")} for row in comparison.detectors]
    ranks: dict[str, Cell] = {"detector": "rank correlation (Spearman)", "real": comparison.rank_correlation}
    notes = _unlike(comparison.detectors)
    return Table("table_15c_simulated_vs_real_detectors", title, caption, columns, [*rows, ranks], notes)


def _worlds(prefix: str, digits: int, title: str = "") -> list[Column]:
    return [
        Column(f"{prefix}simulated", f"{title}simulated", digits, interval=False),
        Column(f"{prefix}real", f"{title}real", digits),
        Column(f"{prefix}alike", "Alike"),
    ]


def _cells(row: Compared, prefix: str) -> dict[str, Cell]:
    return {
        f"{prefix}simulated": row.simulated,
        f"{prefix}real": row.real,
        f"{prefix}alike": VERDICTS[row.matches],
    }


def _unlike(rows: Sequence[Compared]) -> list[str]:
    """One note that names what does not match."""
    known = [row for row in rows if row.matches is not None]
    odd = [f"{' '.join(row.of)} ({row.statistic})" for row in known if not row.matches]
    if not known:
        return ["Nothing could be compared."]
    if not odd:
        return [f"All {len(known)} numbers match."]
    return [f"{len(known) - len(odd)} of {len(known)} numbers match. Those that do not: {', '.join(odd)}."]
