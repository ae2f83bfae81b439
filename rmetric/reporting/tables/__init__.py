"""The paper's tables and this project's own, one file each; :data:`TABLES` has them in the order they are printed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.live_results import LiveResults
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


def build_tables(evaluator: Evaluator, protocol: str = "both", live: LiveResults | None = None) -> list[Table]:
    """All tables, in order.

    Parameters
    ----------
    evaluator
        The evaluated study.
    protocol
        ``paper`` or ``strict``: without the columns of the other one.
    live
        What real runs gave, for the ledger.
    """
    builders: dict[str, Callable[[Evaluator], list[Table]]] = {**TABLES, "8": partial(claims_ledger.tables, live=live)}
    return [table.limited_to(protocol) for build in builders.values() for table in build(evaluator)]


__all__ = ["TABLES", "build_tables"]
