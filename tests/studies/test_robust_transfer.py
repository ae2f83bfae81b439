"""Table 16: its numbers are those of the transfer, differences are differences, and what is undefined says why."""

from __future__ import annotations

import re

import pytest

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import Study
from rmetric.reporting.table import Table, to_markdown
from studies.paper.tables import build_tables, robust_transfer
from studies.robust.transfer import study_statistics, without_fault_kinds
from tests.robust.studies import ARCHITECTURES, GRADIENTS, LOSS, evaluated, made_study

NAMES = [
    "table_16_robust_transfer_faults",
    "table_16b_robust_transfer_architectures",
    "table_16c_robust_transfer_studies",
]


@pytest.fixture(scope="module")
def studies() -> dict[str, Evaluator]:
    return {"simulated": evaluated(made_study("simulator", first_seed=100)), "real": evaluated(made_study())}


@pytest.fixture(scope="module")
def tables(studies: dict[str, Evaluator]) -> dict[str, Table]:
    return {table.name: table for table in build_tables(studies, numbers=["16"])}


def score(cell: object) -> Score:
    assert isinstance(cell, Score)
    return cell


def test_two_studies_have_three_tables_and_one_has_two(tables: dict[str, Table], studies: dict[str, Evaluator]) -> None:
    assert list(tables) == NAMES
    assert [table.name for table in build_tables(studies["real"], numbers=["16"])] == NAMES[:2]


def test_rows_are_what_is_held_out(tables: dict[str, Table]) -> None:
    faults = [(row["held_out"], row["study"]) for row in tables[NAMES[0]].rows]
    kinds = (GRADIENTS, LOSS, robust_transfer.EACH)
    assert faults == [(kind, study) for kind in kinds for study in ("simulated", "real")]
    models = [row["held_out"] for row in tables[NAMES[1]].rows]
    assert models == [*ARCHITECTURES, robust_transfer.EACH] * 2
    ways = [(row["held_out"], row["moved"]) for row in tables[NAMES[2]].rows]
    assert ways == [
        (way, what) for way in ("simulated → real", "real → simulated") for what in ("all of it", "tails and weights")
    ]


def test_scores_are_those_of_the_transfer(tables: dict[str, Table], studies: dict[str, Evaluator]) -> None:
    ev = studies["real"]
    rows = {row["held_out"]: row for row in tables[NAMES[0]].rows if row["study"] == "real"}
    for item in without_fault_kinds(ev):
        row = rows[item.held_out]
        assert item.counts is not None and item.home is not None and item.fitted is not None
        assert row["recall"] == ev.summary_of(item.counts, item.scored)["recall"]
        assert row["f1_home"] == ev.summary_of(item.home, item.scored)["f1"]
        assert row["false_alarms"] == int(item.counts.fp[item.scored].sum())
        assert score(row["threshold"]).value == item.fitted.threshold
        assert (row["failed"], row["warnable"]) == (2, 2)


def test_differences_are_held_out_less_known(tables: dict[str, Table]) -> None:
    for table in tables.values():
        for row in table.rows:
            for key in ("recall", "f1"):
                parts = [score(row[f"{key}{ending}"]) for ending in ("", "_home", "_less")]
                if parts[0].defined:
                    assert parts[2].value == pytest.approx(parts[0].value - parts[1].value)


def test_all_kinds_together_have_a_recall_and_say_why_no_f1(tables: dict[str, Table]) -> None:
    row = tables[NAMES[0]].rows[-1]
    assert row["failed"] == 4
    assert score(row["recall"]).defined
    assert "false alarms of its own" in score(row["f1"]).reason
    assert score(tables[NAMES[1]].rows[-1]["f1"]).defined


def test_the_fit_with_everything_is_named(tables: dict[str, Table], studies: dict[str, Evaluator]) -> None:
    home = study_statistics(studies["real"]).home
    assert home is not None
    assert f"threshold {home.threshold:.3f}" in to_markdown(tables[NAMES[0]])


def test_false_alarms_of_a_moved_fit_have_their_causes_below(tables: dict[str, Table]) -> None:
    notes = tables[NAMES[2]].notes
    assert [note.split(",")[0] for note in notes] == ["simulated → real", "real → simulated"]
    for note, row in zip(notes, tables[NAMES[2]].rows[::2], strict=True):
        found = [int(number) for number in re.findall(r" (\d+)[,.]", note)]
        assert sum(found) == row["false_alarms"]


def test_without_another_kind_nothing_can_be_fitted() -> None:
    study = made_study()
    kept = [run for run in study.runs if run.fault != LOSS and run.model_type == ARCHITECTURES[0]]
    ev = evaluated(Study(study.folder, kept, checksums=["kept"]))
    faults, models = build_tables(ev, numbers=["16"])
    for table in (faults, models):
        assert len(table.rows) == 1  # no row of all
        row = table.rows[0]
        assert not score(row["f1"]).defined and not score(row["f1_less"]).defined
        assert score(row["f1_home"]).defined
        assert "no run of the fit half failed" in to_markdown(table)


def test_without_the_robust_metric_there_is_no_table(studies: dict[str, Evaluator]) -> None:
    ev = studies["real"]
    none = Evaluator(ev.study, {}, {}, ev.signals_3N, draws=10)
    assert build_tables(none, numbers=["16"]) == []
    assert NAMES[2] not in {table.name for table in build_tables({**studies, "real": none}, numbers=["16"])}
