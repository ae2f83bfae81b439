"""The paper's tables and this project's own, one file each; :data:`TABLES` has them in the order they are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import REAL, backend_of
from rmetric.reporting.table import Table
from studies.calibration import tables as simulated_vs_real
from studies.cluster import report as overhead_ratio
from studies.live_results import LiveResults
from studies.paper.tables import (
    approaches,
    claims_ledger,
    cost_benefit,
    detectors,
    fault_types,
    headline,
    held_out,
    robust_transfer,
    scenario_matrix,
    sensitivity,
    transfer,
    unseen,
    weights,
)
from studies.paper.tables.side_by_side import same_for_all, side_by_side
from studies.risk import diagnosis_tables as diagnosis
from studies.risk import risk_tables as risk
from studies.several import pair_of

T = TypeVar("T")

TABLES: dict[str, Callable[[Evaluator], list[Table]]] = {
    "1": approaches.tables,
    "2": scenario_matrix.tables,
    "3": detectors.tables,
    "4": fault_types.tables,
    "5": sensitivity.tables,
    "6": cost_benefit.tables,
    "7": transfer.tables,
    "8": claims_ledger.tables,
    "9": held_out.tables,
    "11": weights.tables,
    "16": robust_transfer.tables,
    "headline": headline.tables,
}
"""What each is made from is one study; Tables 10 and 18 need a set beside it as well (:mod:`.unseen`)."""

REAL_TABLES: dict[str, Callable[[Evaluator], list[Table]]] = {
    "12": risk.tables,
    "14": diagnosis.tables,
}
"""Made from a real study alone, on whose kind of runs the risk model is fitted; 12 has Table 13 as well."""

NUMBERS = (*(str(number) for number in range(1, 13)), "14", "15", "16", "17", "18", "headline")
"""All, in order. 10 and 18 need a set beside the study; 15 and 16c a simulated and a real study; 17 a real one, and it
takes the repair from live runs."""


def build_tables(
    studies: Evaluator | Mapping[str, Evaluator],
    protocol: str = "both",
    live: LiveResults | None = None,
    beside: Mapping[str, Mapping[str, Evaluator]] | None = None,
    numbers: Sequence[str] = (),
) -> list[Table]:
    """The tables, in order.

    Parameters
    ----------
    studies
        The evaluated study, or several by name: then side by side.
    protocol
        ``paper`` or ``strict``: without the columns and rows of the other one.
    live
        What real runs gave, for the ledger and for Table 17.
    beside
        Name of a set (:data:`rmetric.dataset.layout.EXTRA_SETS`) → study → its evaluated set; studies that have none
        are left out.
    numbers
        Of the tables, from :data:`NUMBERS`; none: all that these studies have.
    """
    named = {"": studies} if isinstance(studies, Evaluator) else dict(studies)
    found: list[Table] = []
    for number in NUMBERS:
        if numbers and number not in numbers:
            continue
        if number == "8":
            found += _ledger(named, live)
        elif number in unseen.PARTS:
            found += _unseen(named, beside or {}, unseen.PARTS[number])
        elif number == "15":
            found += _simulated_vs_real(named)
        elif number == "16":
            found += _robust_transfer(named)
        elif number == "17":
            found += _of_all(_real(named), lambda ev: overhead_ratio.tables(ev, live), side_by_side)
        elif number in REAL_TABLES:
            found += _of_all(_real(named), REAL_TABLES[number], side_by_side)
        else:
            found += _of_all(named, TABLES[number], same_for_all if number == "1" else side_by_side)
            found += [headline.short(named)] if number == "headline" else []
    return [table.limited_to(protocol) for table in found]


def sets_beside(numbers: Sequence[str] = ()) -> list[str]:
    """Sets beside a study that tables of these numbers are made of; all of them if there is no number."""
    return [part for number, parts in unseen.PARTS.items() if not numbers or number in numbers for part in parts]


def _ledger(named: Mapping[str, Evaluator], live: LiveResults | None) -> list[Table]:
    if len(named) == 1:
        return claims_ledger.tables(next(iter(named.values())), live)
    return claims_ledger.of_several(named, live)


def _unseen(
    named: Mapping[str, Evaluator], beside: Mapping[str, Mapping[str, Evaluator]], parts: Sequence[str]
) -> list[Table]:
    found: list[Table] = []
    for part in parts:
        pairs = {study: (named[study], target) for study, target in beside.get(part, {}).items()}
        found += _of_all(pairs, partial(_of_set, part), side_by_side)
    return found


def _of_set(part: str, pair: tuple[Evaluator, Evaluator]) -> list[Table]:
    return unseen.tables(part, *pair)


def _real(named: Mapping[str, Evaluator]) -> dict[str, Evaluator]:
    return {name: ev for name, ev in named.items() if backend_of(ev.study) == REAL}


def _simulated_vs_real(named: Mapping[str, Evaluator]) -> list[Table]:
    both = pair_of(named)
    return simulated_vs_real.tables(simulated_vs_real.compared(*both)) if both else []


def _robust_transfer(named: Mapping[str, Evaluator]) -> list[Table]:
    both = pair_of(named)
    return [*_of_all(named, TABLES["16"], side_by_side), *(robust_transfer.between(*both) if both else [])]


def _of_all(
    of_study: Mapping[str, T], build: Callable[[T], list[Table]], join: Callable[[Mapping[str, Table]], Table]
) -> list[Table]:
    """The tables of each study, those of the same name as one."""
    by_name: dict[str, dict[str, Table]] = {}
    for study, item in of_study.items():
        for table in build(item):
            by_name.setdefault(table.name, {})[study] = table
    return [join(tables) for tables in by_name.values()]


__all__ = ["NUMBERS", "REAL_TABLES", "TABLES", "build_tables"]
