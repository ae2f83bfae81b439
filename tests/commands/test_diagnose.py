"""``rmetric diagnose``: verdicts, exit statuses, JSON and SARIF."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema

from rmetric.commands import COMMANDS, main

REAL_RUNS = Path(__file__).parents[1] / "data" / "real_runs"
HEALTHY = str(REAL_RUNS / "real_seed0_00_none_twin.jsonl")
BROKEN = str(REAL_RUNS / "real_seed0_12_silent_data_corruption_wflip_k_proj_30.jsonl")
PASSED = str(REAL_RUNS / "real_seed0_08_lr_spike_lr_10_20.jsonl")


def test_a_healthy_run_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", HEALTHY]) == 0
    assert "healthy, 600 records (steps 0 to 599)" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["diagnose", "convert"])
def test_what_a_stranger_has_named_a_run_is_no_command_to_the_terminal(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("\x1b[2J\x1b[31mrun\nother: healthy", "plain")
    records = [{"step": step, "loss": 2.0, "run": name} for name in names for step in range(3)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    out = ["--out", str(tmp_path / "logs")] if command == "convert" else []
    assert main([command, str(tmp_path / "log.jsonl"), *out]) == 0
    shown = capsys.readouterr()
    assert "?[2J?[31mrun?other: healthy" in shown.out
    assert "\x1b" not in shown.out + shown.err
    assert "\nother" not in shown.out + shown.err


def test_findings_exit_with_1_and_fit_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", BROKEN]) == 1
    shown = capsys.readouterr().out
    assert "ERROR DEAD, step 398 to 423" in shown
    for part in ("likely causes:", "what to do:", "Not judged:", "runs show as much"):
        assert part in " ".join(shown.split())
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(("least", "status"), [("note", 1), ("warning", 0), ("error", 0)])
def test_fail_on_sets_the_mildest_finding_that_fails(least: str, status: int) -> None:
    assert main(["diagnose", PASSED, "--fail-on", least]) == status


def test_a_log_that_cannot_be_used_exits_with_2_and_the_others_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "picture.jsonl").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main(["diagnose", str(tmp_path / "picture.jsonl"), BROKEN]) == 2
    shown = capsys.readouterr()
    assert "DEAD" in shown.out
    assert shown.err.startswith("error:")


@pytest.mark.parametrize(
    ("content", "verdict", "status"),
    [
        ("step,loss\n" + "".join(f"{step};2,5\n" for step in range(50)), "nothing to judge", 2),
        ("step,accuracy,lr\n" + "".join(f"{step},0.5,0.1\n" for step in range(50)), "nothing to judge", 2),
        ("step,loss\n1,2.5\n2,2.4\n", "nothing found, but too short to tell", 0),
    ],
)
def test_what_nothing_can_be_said_of_is_not_called_healthy(
    content: str, verdict: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.csv").write_text(content)
    assert main(["diagnose", str(tmp_path / "run.csv")]) == status
    told = capsys.readouterr()
    assert f"run: {verdict}, " in told.out or told.err.startswith("error: ")
    assert "healthy" not in told.out


def test_notes_on_runs_without_findings_are_told_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"step": {step}, "loss": "oops"}}\n' for step in range(9)))
    main(["diagnose", str(tmp_path)])
    assert "Note (2 runs): line 1: training_loss is 'oops', not a number" in capsys.readouterr().out


def test_a_log_without_an_end_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path(HEALTHY).read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:-1]))
    for log, says_it in ((tmp_path / "cut.jsonl", True), (Path(HEALTHY), False)):
        main(["diagnose", str(log)])
        assert ("the log says no end of the run" in " ".join(capsys.readouterr().out.split())) == says_it


def test_a_missing_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "nowhere.jsonl"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: nowhere.jsonl does not exist")
    assert errors.count("\n") == 1


@pytest.mark.slow
def test_several_logs_have_a_line_each_and_the_unhealthy_ones_details(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(REAL_RUNS)]) == 1
    shown = capsys.readouterr().out
    logs = sorted(path.stem for path in REAL_RUNS.glob("*.jsonl"))
    assert [line.split(":")[0] for line in shown.splitlines()[: len(logs)]] == logs
    assert shown.count("none_twin: healthy") == 1
    assert shown.count("what to do:") >= 10


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", HEALTHY, BROKEN, "--json"]) == 1
    healthy, broken = json.loads(capsys.readouterr().out)
    assert healthy["healthy"] is True
    assert healthy["not_judged"]["hardware"]
    (finding,) = broken["findings"]
    assert finding["name"] == "DEAD"
    assert finding["advice"].endswith(".")
    assert broken["source"] == BROKEN


def test_sarif_has_the_structure_of_2_1_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", HEALTHY, BROKEN, PASSED, "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    assert StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate(log)  # made from the official schema
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert [result["level"] for result in run["results"]] == ["error", "note"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith(".jsonl")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes")
def test_sarif_names_a_file_whose_name_is_no_utf_8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.jsonl")
    shutil.copy(BROKEN, log)
    assert main(["diagnose", log, "--sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    (result,) = run["results"]
    (place,) = result["locations"]
    assert place["logicalLocations"][0]["name"] == "bad?"
    assert place["physicalLocation"]["artifactLocation"]["uri"].endswith("/bad%FF.jsonl")
    assert result["message"]["text"].startswith("bad?, step ")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"rmetric {command}" in shown.split("examples:")[1]


def test_without_a_command_the_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_what_is_left_of_a_log_that_is_largely_unread_is_not_called_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(
        "".join(
            f'{{"step": {step}, "who": "{who}", "loss": {3 / (step + 1) + (who == "b")}}}\n'
            for step in range(200)
            for who in "ab"
        )
    )
    assert main(["diagnose", str(log)]) == 2
    assert "nothing found, but 200 of 400 lines could not be used, 200 records" in capsys.readouterr().out


@pytest.mark.parametrize("gap", ["No log", "-", "N/A", "n/a", "pending"])
def test_cells_are_no_lines_and_those_without_a_measurement_no_damage(
    gap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.csv"
    rows = (f"{step},{3 / (step + 1)},{2.5 if step % 10 == 0 else gap},{gap}\n" for step in range(200))
    log.write_text("Step,Training Loss,Validation Loss,grad_norm\n" + "".join(rows))
    is_damage = gap == "pending"
    assert main(["diagnose", str(log)]) == (2 if is_damage else 0)
    shown = capsys.readouterr().out
    assert ("nothing found, but values in 200 of 200 lines could not be used" in shown) == is_damage
    assert ("not a number" in shown) == is_damage


@pytest.mark.slow
@pytest.mark.parametrize(("log", "status"), [(HEALTHY, 0), (BROKEN, 1)])
def test_a_reader_that_does_not_wait_changes_no_exit_status(log: str, status: int) -> None:
    command = f"env -u PYTHONUNBUFFERED {sys.executable} -m rmetric diagnose {log} | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], check=False, timeout=120).returncode == status
