"""Tests of studies.sdc: tables, map and files of a campaign."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from rmetric.cli import script
from rmetric.errors import UserError
from rmetric.reporting.table import to_markdown
from studies.sdc import figure
from studies.sdc.detection import SCORED
from studies.sdc.report import bit_name
from studies.sdc.tables import (
    bits_table,
    detection_table,
    localisation_table,
    repair_table,
    sensitivity_table,
)

NOT_SEEN = {f"delay_{name}": None for name in SCORED}


def _row(number: int, **fields: object) -> dict[str, object]:
    row = {
        "number": number, "stage": "backward", "target": "weight_gradient", "kernel": "mlp", "bit_name": "m1",
        "outcome": "benign", "harmful": False, "transient": True, "largest_excess": 0.0, "disagreement_alarm": False,
        "visible": True, "step_error": None, "worker_right": True, "layer_right": True, "tensor_right": True,
        "named": 1, "repaired": None, "outcome_repaired": "", **NOT_SEEN,
    }  # fmt: skip
    return row | fields


@pytest.fixture
def frame() -> pd.DataFrame:
    harm = {"bit_name": "e7", "outcome": "spike", "harmful": True, "step_error": 0, "delay_numerics": 0}
    return pd.DataFrame(
        [
            _row(0),
            _row(1, **harm, repaired=True, outcome_repaired="benign"),
            _row(2, **harm, repaired=False, outcome_repaired="spike"),
            _row(3, stage="memory", target="weight", worker_right=None, tensor_right=False, transient=False, **harm)
            | {
                "outcome": "non_finite",
                "repaired": True,
                "outcome_repaired": "benign",
                "delay_numerics": 4,
                "step_error": 4,
            },
            _row(4, stage="forward", target="output", kernel="scores", visible=False, worker_right=None)
            | {"layer_right": None, "tensor_right": None, "named": 0},
        ]
    )


def test_sensitivity_counts_outcomes_by_what_was_hit(frame: pd.DataFrame) -> None:
    table = sensitivity_table(frame, "")
    assert [(row["stage"], row["kernel"], row["injections"]) for row in table.rows] == [
        ("forward", "scores", 1), ("backward", "mlp", 3), ("memory", "mlp", 1)
    ]  # fmt: skip
    assert [table.rows[1][name] for name in ("benign", "spike", "non_finite")] == [1, 2, 0]
    assert table.rows[1]["harmful"].value == pytest.approx(2 / 3)
    assert [(row["stage"], row["bit"]) for row in bits_table(frame, "").rows] == [
        ("forward", "m1"), ("backward", "e7"), ("backward", "m1"), ("memory", "e7")
    ]  # fmt: skip


def test_the_largest_excess_is_that_of_the_worst_flip(frame: pd.DataFrame) -> None:
    frame.loc[:3, "largest_excess"] = [2.27091e-5, 3.53127e33, math.inf, math.inf]
    for table in (sensitivity_table(frame[:1], ""), bits_table(frame[:1], "")):
        assert to_markdown(table).endswith(" 0.00227 |\n")
    assert " 3.53e+35 |" in to_markdown(bits_table(frame[:2], ""))
    assert to_markdown(bits_table(frame, "")).count(" ∞ |") == 2


def test_detection_tells_harm_from_noise(frame: pd.DataFrame) -> None:
    known = dict.fromkeys([*SCORED, "disagreement"], 100)
    table = detection_table(frame, dict.fromkeys(known, 1), known, "")
    numerics = table.rows[list(SCORED).index("numerics")]
    assert numerics["harmful"].value == 1.0
    assert numerics["benign"].value == 0.0
    assert numerics["delay"] == 0.0
    assert numerics["per_1000"] == 10.0
    assert table.rows[-2]["harmful"].value == 0.0
    assert not table.rows[-2]["delay"].defined


def test_localisation_is_scored_over_what_was_visible(frame: pd.DataFrame) -> None:
    rows = {row["stage"]: row for row in localisation_table(frame, "").rows}
    assert rows["backward"]["worker"].value == 1.0
    assert not rows["memory"]["worker"].defined
    assert rows["memory"]["tensor"].value == 0.0
    assert rows["forward"]["visible"].value == 0.0
    assert rows["all"]["step"].value == pytest.approx(2 / 3)


def test_repairs_are_counted_by_kind(frame: pd.DataFrame) -> None:
    transient, lasting, memory = repair_table(frame, ("RecomputeStep",), None, "").rows
    assert (transient["flips"], transient["identical"].value) == (2, 0.5)
    assert not lasting["identical"].defined
    assert (memory["flips"], memory["identical"].value) == (1, 1.0)
    assert "RecomputeStep" in to_markdown(repair_table(frame, ("RecomputeStep",), None, ""))


def test_the_map_says_that_its_columns_are_bits(frame: pd.DataFrame) -> None:
    labels = [ax.get_xlabel() for ax in figure.figure(frame).axes if ax.get_visible()]
    assert labels.count("bit") == frame["stage"].nunique()


@pytest.mark.slow
def test_the_map_is_the_same_bytes_twice(frame: pd.DataFrame) -> None:
    one, other = (figure.draw(part, "").files for part in (frame, frame.copy()))
    assert one == other
    assert {*one} == {"png", "pdf"}


@pytest.mark.parametrize(
    ("dtype", "bit", "name"),
    [("float32", 31, "s"), ("float32", 23, "e0"), ("float16", 14, "e4"), ("bfloat16", 0, "m0")],
)
def test_bits_are_named_by_what_they_are(dtype: str, bit: int, name: str) -> None:
    assert bit_name(dtype, bit) == name


@pytest.mark.long
def test_the_suite_writes_everything_and_replays_its_campaign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra 'live'")
    pytest.importorskip("transformers", reason="needs the extra 'live'")
    from studies.sdc.cli import main

    first, again = tmp_path / "first", tmp_path / "again"
    drawn = ["--injections", "6", "--onsets", "3", "4", "--window", "5"]
    main([*drawn, "--jobs", "1", "--healthy-steps", "4", "--out", str(first)])
    shown = capsys.readouterr().out
    assert "where it was" in shown
    summary = json.loads((first / "summary.json").read_text())
    assert summary["injections"] == 6
    assert sum(summary["outcomes"].values()) == 6
    assert {"repaired_share", "repair_overhead_pct", "false_repairs"} <= summary.keys()
    assert len(list((first / "logs").glob("injection_????.jsonl"))) == 6
    main(["--campaign", str(first / "campaign.json"), "--jobs", "1", "--healthy-steps", "0", "--out", str(again)])
    assert (again / "campaign.json").read_bytes() == (first / "campaign.json").read_bytes()
    for name in ("outcomes.csv", "sdc_sensitivity.csv", "sdc_sensitivity_map.png"):
        assert (again / name).read_bytes() == (first / name).read_bytes()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--campaign", "nowhere.json"], "does not exist"),
        (["--campaign", "x.json", "--injections", "3"], "already"),
        (["--dtype", "int8"], "invalid choice"),
    ],
)
def test_what_a_user_can_mend_is_said_in_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra 'live'")
    from studies.sdc import cli as suite

    assert script(lambda given: suite.main(given or []))(argv) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_model_is_a_user_error() -> None:
    pytest.importorskip("transformers", reason="needs the extra 'live'")
    from studies.sdc.cli import main

    with pytest.raises(UserError, match="tiny-lama"):
        main(["--model", "tiny-lama", "--injections", "2"])
