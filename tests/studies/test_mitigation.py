"""The study of mitigations: its plan holds together, a small run of it, and its table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.faults import parse_fault
from studies.mitigation.plan import FAULTS, HEALTHY, MITIGATIONS, MONITOR, NOTHING
from studies.mitigation.report import table


def row(mitigation: str, fault: str, held_out: float | None, seed: int = 1) -> dict[str, object]:
    return {
        "model": "tiny-llama", "seed": seed, "mitigation": mitigation, "fault": fault, "held_out": held_out,
        "interventions": 2, "step_s": 0.003 if mitigation in MITIGATIONS else 0.002,
    }  # fmt: skip


def test_every_mitigation_has_a_fault_that_it_is_meant_for_and_one_that_it_is_not() -> None:
    for mitigation in MITIGATIONS.values():
        faults = {fault for model in mitigation.models for fault in FAULTS[model]}
        assert {*mitigation.meant_for} & faults
        assert faults - {*mitigation.meant_for}
    assert all(parse_fault(fault).label for faults in FAULTS.values() for fault in faults)


def test_the_table_compares_with_the_twin_and_with_doing_nothing() -> None:
    rows = [
        row(NOTHING, HEALTHY, 2.0),
        row(MONITOR, HEALTHY, 2.0),
        row(NOTHING, "LARGE_LR@high", 4.0),
        row(NOTHING, "NAN_BATCH", None),
        row("LowerLearningRate", HEALTHY, 2.2),
        row("LowerLearningRate", "LARGE_LR@high", 2.02),
        row("LowerLearningRate", "NAN_BATCH", None),
    ]
    healthy, meant, other = table(rows).to_dict("records")
    assert (healthy["doing nothing"], healthy["with it"], healthy["better in"]) == ("1.000", "1.100", "0 of 1")
    assert (healthy["time of a healthy step"], meant["time of a healthy step"]) == ("1.50", "")
    assert (meant["meant for it"], meant["doing nothing"], meant["with it"]) == ("yes", "2.000", "1.010")
    assert (meant["better in"], meant["within 5 %: nothing, with it"]) == ("1 of 1", "0, 1")
    assert (other["meant for it"], other["with it"], other["better in"]) == ("no", "not finite", "0 of 1")


def test_a_call_that_is_stopped_leaves_the_earlier_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from studies.courses import FILE
    from studies.mitigation import run

    def stopped(*asked: object) -> Iterator[tuple[int, list[dict[str, object]]]]:
        yield 0, [row(NOTHING, HEALTHY, 2.0)]
        raise UserError("stopped")

    earlier = json.dumps(row(NOTHING, HEALTHY, 3.0)) + "\n"
    (tmp_path / FILE).write_text(earlier)
    monkeypatch.setattr(run, "in_fresh_processes", stopped)
    assert run.main(["--out", str(tmp_path)]) == 2
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(FILE, earlier)]


@pytest.mark.long
def test_a_run_without_a_fault_and_without_an_intervention_is_its_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    from studies.mitigation.run import train_group

    monkeypatch.setitem(FAULTS, "tiny-moe", FAULTS["tiny-moe"][:1])
    rows = {(row["mitigation"], row["fault"]): row for row in train_group("tiny-moe", 1, 60)}
    twin = rows[NOTHING, HEALTHY]["held_out"]
    quiet = [name for name in MITIGATIONS if not rows[name, HEALTHY]["interventions"]]
    assert quiet
    assert all(rows[name, HEALTHY]["held_out"] == pytest.approx(twin, rel=1e-6) for name in quiet)
