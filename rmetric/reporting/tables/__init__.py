"""The paper's tables and this project's own, one file each; :data:`TABLES` has them in the order they are printed."""

from __future__ import annotations

from collections.abc import Callable

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.formats import Table
from rmetric.reporting.tables import (
    approaches,
    claims_ledger,
    cost_benefit,
    detectors,
    fault_types,
    headline,
    scenario_matrix,
    sensitivity,
    transfer,
)

TABLES: dict[str, Callable[[Evaluator], list[Table]]] = {
    "1": approaches.tables,
    "2": scenario_matrix.tables,
    "3": detectors.tables,
    "4": fault_types.tables,
    "5": sensitivity.tables,
    "6": cost_benefit.tables,
    "7": transfer.tables,
    "8": claims_ledger.tables,
    "headline": headline.tables,
}


def build_tables(evaluator: Evaluator, protocol: str = "both") -> list[Table]:
    """All tables, in order; with ``protocol`` ``paper`` or ``strict`` without the columns of the other one."""
    return [table.limited_to(protocol) for build in TABLES.values() for table in build(evaluator)]


__all__ = ["TABLES", "build_tables"]
