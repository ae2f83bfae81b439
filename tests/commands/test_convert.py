"""``rmetric convert``: what is read back is the same run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from rmetric import read_run
from rmetric.commands import main
from rmetric.conversion import chunk_of, log_lines, write_converted
from rmetric.dataset.read import read_runs, read_stored
from rmetric.errors import UserError
from rmetric.importers import Caveats, LoggedPortions, portions_of
from rmetric.log_reader import Chunk, assemble
from rmetric.records import Observations, Run
from rmetric.replay import replay_log
from tests.helpers import ROOT

REAL_RUNS = sorted((Path(__file__).parents[1] / "data" / "real_runs").glob("*.jsonl"))
SAMPLE = sorted((ROOT / "logs_FULL_METRIC" / "sample").glob("*.jsonl"))[:2]
CSV = "iteration,loss,eval_loss\n1,2.123456789012,\n2,nan,2.5\n3,1.9,\n4,1.8,2.5\n"


def assert_same(one: Run, other: Run, *, verdicts: bool = True) -> None:
    """Records, events and configuration; of a log also what its own detectors said."""
    assert np.array_equal(one.observations.step, other.observations.step)
    measured = {name for name in one.observations.columns if one.observations.has(name)}
    assert measured == {name for name in other.observations.columns if other.observations.has(name)}
    for name in measured:
        assert np.array_equal(one.observations[name], other.observations[name], equal_nan=True), name
    assert np.array_equal(one.observations.evaluated, other.observations.evaluated)
    assert (one.config, one.events) == (other.config, other.events)
    if verdicts:
        assert one.alerts == other.alerts
        assert one.verdicts.keys() == other.verdicts.keys()
        for name, values in one.verdicts.items():
            assert np.array_equal(values, other.verdicts[name], equal_nan=True), name


@pytest.mark.parametrize("log", [*REAL_RUNS[:4], *SAMPLE], ids=lambda log: log.stem)
def test_a_log_comes_back_as_the_same_run(log: Path, tmp_path: Path) -> None:
    assert main(["convert", str(log), "--out", str(tmp_path / "run.jsonl")]) == 0
    assert_same(read_run(log), read_run(tmp_path / "run.jsonl"))


def test_logs_come_back_out_of_a_data_set(tmp_path: Path) -> None:
    out = tmp_path / "runs.parquet"
    assert main(["convert", *map(str, REAL_RUNS), "--out", str(out)]) == 0
    for log, run in zip(REAL_RUNS, read_runs(out), strict=True):
        assert_same(read_run(log), run, verdicts=False)


def test_a_data_set_is_diagnosed_run_by_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs.parquet"
    assert main(["convert", *map(str, REAL_RUNS[:3]), "--out", str(out)]) == 0
    assert main(["diagnose", str(out)]) == 1
    assert capsys.readouterr().out.count("600 records (steps 0 to 599)\n") >= 3


def test_a_csv_keeps_its_digits_its_gaps_and_its_evaluations(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(CSV)
    assert main(["convert", str(tmp_path / "metrics.csv"), "--out", str(tmp_path / "run.jsonl")]) == 0
    seen = read_run(tmp_path / "run.jsonl").observations
    assert seen.step.tolist() == [1, 2, 3, 4]
    assert seen["training_loss"].tolist() == [2.123456789012, np.inf, 1.9, 1.8]
    assert seen.evaluated.tolist() == [False, True, False, True]


@pytest.mark.parametrize("through", ["run.jsonl", "run.parquet"])
def test_another_program_s_log_is_judged_as_before(
    through: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, again = tmp_path / "run.csv", tmp_path / "again" / "run.jsonl"
    rows = "".join(f"{step},{2 + step % 7 / 100 + 3 * (step >= 250)}\n" for step in range(400))
    log.write_text(f"step,loss\n{rows}")
    assert main(["convert", str(log), "--out", str(tmp_path / through)]) == 0
    assert main(["convert", str(tmp_path / through), "--out", str(again)]) == 0
    told = []
    for one in (log, tmp_path / through, again):
        capsys.readouterr()
        assert main(["diagnose", str(one)]) == 1
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] == told[2]
    before, after = replay_log(log), replay_log(again)
    assert (after.outcome, after.fault) == ("not stated", "-")
    assert after.shown_detector == before.shown_detector == "R-Metric (robust)"
    assert after.shown_first_alert == before.shown_first_alert


def test_a_data_set_invents_no_label_of_another_program_s_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(CSV)
    assert (
        main(["convert", str(tmp_path / "metrics.csv"), str(SAMPLE[0]), "--out", str(tmp_path / "runs.parquet")]) == 0
    )
    foreign, own = (
        [run.labels[name] for name in ("fault", "outcome")] for run in read_stored(tmp_path / "runs.parquet")
    )
    assert foreign == [None, None]
    assert None not in own


def test_a_log_that_lacks_its_begin_gets_none(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"event": "METRICS", "step": 1, "training_loss": 2.5}\n')
    assert main(["convert", str(tmp_path / "run.jsonl"), "--out", str(tmp_path / "again.jsonl")]) == 0
    assert b"EXPERIMENT_START" not in (tmp_path / "again.jsonl").read_bytes()


def test_measurements_of_the_mechanism_come_back(tmp_path: Path) -> None:
    entropy = np.array([np.nan, 0.25, np.inf])
    run = Run("run", {}, Observations(np.arange(3), {"training_loss": np.ones(3), "qk_entropy": entropy}))
    (tmp_path / "run.jsonl").write_bytes(log_lines(chunk_of(run)))
    assert_same(run, read_run(tmp_path / "run.jsonl"))


def test_a_log_is_never_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.jsonl").write_text('{"step": 1, "loss": 2.0, "accuracy": 0.1}\n')
    (tmp_path / "run.csv").write_text(CSV)
    before = (tmp_path / "run.jsonl").read_bytes()
    unasked = "is there already; choose another --out, or replace it with --overwrite"
    for log, out, told in (
        ("run.jsonl", "run.jsonl", "is an input log and would be overwritten"),
        ("run.csv", ".", unasked),
    ):
        assert main(["convert", str(tmp_path / log), "--out", str(tmp_path / out)]) == 2
        assert told in capsys.readouterr().err
    assert (tmp_path / "run.jsonl").read_bytes() == before
    assert main(["convert", str(tmp_path / "run.csv"), "--out", str(tmp_path), "--overwrite"]) == 0
    assert len(read_run(tmp_path / "run.jsonl").observations) == 4


def test_the_index_of_a_data_set_replaces_no_log_and_nothing_else_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, other = tmp_path / "runs_index.csv", tmp_path / "other.csv"
    index.write_text(CSV)
    other.write_text(CSV)
    out = ["--out", str(tmp_path / "runs.parquet")]
    assert main(["convert", str(index), *out, "--overwrite"]) == 2
    assert "runs_index.csv is an input log and would be overwritten" in capsys.readouterr().err
    assert main(["convert", str(other), *out]) == 2
    assert "runs_index.csv is there already; choose another --out" in capsys.readouterr().err
    assert index.read_text() == CSV
    assert not (tmp_path / "runs.parquet").exists()
    assert main(["convert", str(other), *out, "--overwrite"]) == 0
    assert index.read_text().startswith("set,run,")


@pytest.mark.parametrize("name", ["RUN.JSONL", "RUNS.Parquet"])
def test_the_case_of_an_ending_does_not_matter(name: str, tmp_path: Path) -> None:
    assert main(["convert", str(REAL_RUNS[0]), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / name).is_file()


def test_runs_of_one_name_are_told_apart_by_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.csv").write_text(CSV)
    logs = [str(tmp_path / folder / "run.csv") for folder in ("a", "b")]
    assert main(["convert", *logs, "--out", str(tmp_path / "runs.parquet")]) == 2
    assert "rename one of the logs, or give each a --out of its own" in capsys.readouterr().err


def test_a_pipe_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.csv").write_text(CSV)
    for name in ("run.jsonl", "run.parquet"):
        os.mkfifo(tmp_path / name)
        assert main(["convert", str(tmp_path / "run.csv"), "--out", str(tmp_path / name), "--overwrite"]) == 2
        assert f"{name} is no file that could be replaced; choose another --out" in capsys.readouterr().err
        assert (tmp_path / name).is_fifo()


def test_a_folder_takes_a_log_a_run(tmp_path: Path) -> None:
    assert main(["convert", *map(str, REAL_RUNS[:2]), "--out", str(tmp_path / "logs")]) == 0
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [log.name for log in REAL_RUNS[:2]]


def test_several_runs_do_not_fit_in_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", *map(str, REAL_RUNS[:2]), "--out", str(tmp_path / "run.jsonl")]) == 2
    assert "takes one run" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_that_there_was_no_alert_is_kept_in_portions_of_any_size(tmp_path: Path) -> None:
    log, out = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    start = '{"event": "EXPERIMENT_START", "config": {}}\n'
    for first_alert in (99, 4):
        states = [{"spike": first_alert} if step >= first_alert else {} for step in range(8)]
        records = (
            {"event": "METRICS", "step": step, "training_loss": 2.5, "alerts": alerts}
            for step, alerts in enumerate(states)
        )
        log.write_text(start + "".join(json.dumps(record) + "\n" for record in records))
        for size in (3, 8):
            write_converted(portions_of(log, records=size), out, overwrite=True)
            assert [json.loads(line)["alerts"] for line in out.read_text().splitlines()[1:]] == states


@pytest.mark.parametrize("records", [1, 7, 250])
def test_the_size_of_the_portions_changes_nothing(records: int, tmp_path: Path) -> None:
    (written,) = write_converted(portions_of(REAL_RUNS[0], records=records), tmp_path / "run.jsonl")
    assert main(["convert", str(REAL_RUNS[0]), "--out", str(tmp_path / "whole.jsonl")]) == 0
    assert written.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def named(name: str) -> list[LoggedPortions]:
    chunk = Chunk(np.arange(2), {"training_loss": np.ones(2)}, [], None)
    return [LoggedPortions(name, "mlflow", iter([chunk]), lambda: Caveats([], 0))]


def test_a_run_s_name_may_have_folders_but_leads_nowhere_else(tmp_path: Path) -> None:
    assert write_converted(named("sweep/one"), tmp_path / "logs") == [tmp_path / "logs" / "sweep" / "one.jsonl"]
    with pytest.raises(UserError, match="would not lie in"):
        write_converted(named("../two"), tmp_path / "logs")
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_what_is_left_out_or_taken_for_another_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("iteration,loss\n1,2.5\n2\n3,2.4\n")
    assert main(["convert", str(log), "--out", str(tmp_path / "run.jsonl")]) == 0
    assert capsys.readouterr().err == "log: line 3: 1 cells where 2 cells are due; skipped\n"


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1" + "0" * 400, '"a text that was cut \\ud83d"', '{"inner": [NaN]}']
)
@pytest.mark.parametrize("out", ["again.jsonl", "again.parquet"])
def test_a_configuration_that_is_no_strict_json_comes_back(value: str, out: str, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    records = "".join(f'{{"event": "METRICS", "step": {step}, "training_loss": 2.5}}\n' for step in range(3))
    log.write_text(f'{{"event": "EXPERIMENT_START", "config": {{"note": {value}, "lr": 0.1}}}}\n{records}')
    assert main(["convert", str(log), "--out", str(tmp_path / out)]) == 0
    (found,) = [assemble(again.name, again.portions) for again in portions_of(tmp_path / out)]
    assert (found.config["lr"], len(found.observations)) == (0.1, 3)
    assert "note" in found.config


def test_a_log_whose_name_is_no_utf_8_fits_in_a_data_set(tmp_path: Path) -> None:
    log = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl")
    Path(log).write_text('{"event": "METRICS", "step": 1, "training_loss": 2.5}\n')
    assert main(["convert", log, "--out", str(tmp_path / "runs.parquet")]) == 0
    assert [run.name for run in read_runs(tmp_path / "runs.parquet")] == ["caf?"]


def test_a_log_of_no_use_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["convert", str(tmp_path / "empty.jsonl"), "--out", str(tmp_path / "new" / "run.jsonl")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["empty.jsonl"]


@pytest.mark.parametrize(
    ("given", "out"), [("run.jsonl", "run.jsonl"), (".", "."), (".", "run.jsonl"), ("link", "run.jsonl")]
)
def test_a_log_is_not_replaced_by_its_own_copy(
    given: str, out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.jsonl"
    log.write_bytes(SAMPLE[0].read_bytes())
    if given == "link":
        (tmp_path / given).symlink_to(log)
    assert main(["convert", str(tmp_path / given), "--out", str(tmp_path / out), "--overwrite"]) == 2
    assert "is an input log and would be overwritten" in capsys.readouterr().err
    assert log.read_bytes() == SAMPLE[0].read_bytes()
