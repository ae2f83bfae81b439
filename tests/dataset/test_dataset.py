"""The data set gives back what the logs hold, once, in the same bytes; and says so when it cannot."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmetric.conversion import chunk_of, labels_of
from rmetric.dataset import unpack
from rmetric.dataset.layout import EXTRA_SETS, RUN_COLUMNS, SCHEMA
from rmetric.dataset.read import read_runs, read_stored
from rmetric.dataset.sources import companion, data_set_of
from rmetric.dataset.stored import StoredRun
from rmetric.dataset.write import write_stored
from rmetric.detectors import make_detector
from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.scoring import score_study
from rmetric.evaluation.studies import load_extra_sets, load_study
from rmetric.log_reader import read_log
from rmetric.records import Observations, Run
from rmetric.replay import replay_log
from rmetric.signals import event_worker
from studies.real_runs import card
from studies.real_runs import publish as command
from studies.real_runs.publish import write_data_set, write_runs
from tests.dataset.logs import ONSET, STEPS, write_log, write_study
from tests.helpers import ROOT, bits

SLOW_STEPS = ("straggler", "stall")
"""Components of events that λ counts and ``hardware_events`` does not."""
REAL_RUNS = ROOT / "tests" / "data" / "real_runs"
REAL = ROOT / "data" / "real_runs.parquet"
PUBLISHED = [
    REAL,
    *(companion(REAL, part) for part in EXTRA_SETS),
    *(REAL.with_name(f"{n}.parquet") for n in ("zoo", "zoo_2", "zoo_3", "bugs")),
]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "logs")


@pytest.fixture
def data_set(study: Path, tmp_path: Path) -> Path:
    return write_data_set(study, tmp_path / "runs.parquet", jobs=1).path


def assert_same(found: Run, wanted: Run) -> None:
    assert (found.name, found.config, found.events) == (wanted.name, wanted.config, wanted.events)
    mine, theirs = found.observations, wanted.observations
    assert mine.step.dtype == theirs.step.dtype
    assert np.array_equal(mine.step, theirs.step)
    assert np.array_equal(mine.evaluated, theirs.evaluated)
    assert mine.columns.keys() == theirs.columns.keys()
    for name, column in theirs.columns.items():
        assert bits(mine.columns[name]) == bits(column), name


def assert_gives_back(folder: Path, runs: list[Run]) -> None:
    paths = sorted(folder.glob("*.jsonl"))
    assert [run.name for run in runs] == [path.stem for path in paths]
    for run, path in zip(runs, paths, strict=True):
        assert_same(run, read_log(path))


# --- Round trip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [REAL_RUNS, ROOT / "logs_FULL_METRIC" / "sample"], ids=lambda path: path.name)
def test_real_and_simulated_logs_come_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    written = write_data_set(folder, tmp_path / "runs.parquet", jobs=1)
    assert_gives_back(folder, read_runs(written.path))


def test_forks_store_what_is_their_own_and_come_back_whole(study: Path, data_set: Path) -> None:
    assert_gives_back(study, read_runs(data_set))
    rows = pd.read_parquet(data_set).groupby("run")
    own = {name: len(part) for name, part in rows}
    forked = STEPS - ONSET + 1
    assert own == {
        "a_fork": forked, "m_twin": STEPS, "z_late_fork": forked, "z_mixed": forked,
        "other_seed": STEPS, "wrong_twin": STEPS, "no_twin": STEPS,
    }  # fmt: skip
    assert rows["shared_records"].first()["a_fork"] == ONSET - 1


def test_a_run_that_differs_from_its_twin_before_its_onset_is_stored_in_full(study: Path, tmp_path: Path) -> None:
    written = write_data_set(study, tmp_path / "runs.parquet", jobs=1)
    assert written.whole == ["no_twin", "wrong_twin"]
    assert (written.runs, written.records) == (7, 7 * STEPS)
    assert written.rows == written.records - 3 * (ONSET - 1)


def test_every_column_of_a_run_stands_in_each_of_its_rows(data_set: Path) -> None:
    steps = pd.read_parquet(data_set)
    assert list(steps.columns) == SCHEMA.names
    for name in RUN_COLUMNS:
        assert len(steps[["run", name]].drop_duplicates()) == 7, name
    fork = steps[steps["run"] == "a_fork"].iloc[-1]
    assert (fork["fault"], fork["onset"], fork["outcome"], fork["failure_step"]) == (
        "LR_SPIKE", ONSET, "failed", ONSET + 11,
    )  # fmt: skip
    assert fork["parameters"] == '{"factor":15.0}'
    assert np.isinf(fork["grad_norm"])
    assert steps["config"].notna().sum() == 7


@pytest.mark.slow
def test_the_same_logs_give_the_same_bytes(study: Path, data_set: Path, tmp_path: Path) -> None:
    again = write_data_set(study, tmp_path / "again" / "runs.parquet", jobs=2)
    assert again.path.read_bytes() == data_set.read_bytes()
    assert again.index.read_bytes() == data_set.with_name("runs_index.csv").read_bytes()
    assert len(list(again.path.parent.iterdir())) == 2  # nothing is left beside them


def test_the_index_has_one_line_a_run(data_set: Path) -> None:
    lines = list(csv.DictReader(data_set.with_name("runs_index.csv").read_text(encoding="utf-8").splitlines()))
    assert [line["run"] for line in lines] == sorted(line["run"] for line in lines)
    assert {line["records"] for line in lines} == {str(STEPS)}
    assert [line["onset"] for line in lines if line["fault"] == "NONE"] == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("file", PUBLISHED, ids=lambda path: path.stem)
def test_published_runs_are_those_of_their_index(file: Path) -> None:
    lines = list(csv.DictReader(file.with_name(f"{file.stem}_index.csv").read_text(encoding="utf-8").splitlines()))
    stored = read_stored(file)
    assert [line["run"] for line in lines] == [run.name for run in stored]
    assert [line["outcome"] for line in lines] == [run.labels["outcome"] for run in stored]
    assert [int(line["records"]) for line in lines] == [len(run.chunk.step) for run in stored]


def test_all_data_sets_together_are_small() -> None:
    assert sum(path.stat().st_size for path in REAL.parent.iterdir()) <= 45e6


@pytest.mark.long
def test_published_records_name_the_worker_whose_event_was_reported() -> None:
    """Of two sets the column was made afterwards, from the events that stand in the logs; of one while it trained."""
    seen = 0
    for run in (stored.run() for file in PUBLISHED for stored in read_stored(file)):
        workers: dict[int, list[int]] = defaultdict(list)
        for event in run.events:
            if event["event"] == "HARDWARE_EVENT" and event["component"] not in SLOW_STEPS:
                workers[event["step"]].append(event["worker"])
        steps = run.observations.step.tolist()
        wanted = [event_worker(workers[step]) for step in steps]
        assert np.array_equal(run.observations["event_worker"], wanted, equal_nan=True), run.name
        assert np.array_equal(run.observations["hardware_events"], [len(workers[step]) for step in steps])
        seen += len(workers)
    assert seen > 1000


def test_runs_in_memory_come_back_at_the_precision_of_a_log(study: Path, tmp_path: Path) -> None:
    runs = [read_log(path) for path in sorted(study.glob("*.jsonl"))]
    runs[0].observations.columns["grad_norm"][3] = 0.123456789
    written = write_runs(runs, tmp_path / "strangers.parquet", [{"reason": run.name} for run in runs])
    runs[0].observations.columns["grad_norm"][3] = 0.1234568
    for mine, theirs in zip(read_runs(written.path), runs, strict=True):
        assert_same(mine, theirs)
    assert [stored.labels["reason"] for stored in read_stored(written.path)] == [run.name for run in runs]
    with pytest.raises(ValueError, match="no column is named 'licence'"):
        write_runs(runs, tmp_path / "strangers.parquet", [{"licence": "MIT"}] * len(runs))


# --- As a study ------------------------------------------------------------------------------------------------------


def test_a_study_is_the_same_from_logs_and_from_the_data_set(study: Path, data_set: Path) -> None:
    logs, stored = load_study(study, jobs=1), load_study(data_set)
    assert stored.truths == logs.truths
    assert stored.warnings() == []
    for mine, theirs in zip(stored.runs, logs.runs, strict=True):
        assert bits(mine.observations["delta_l"]) == bits(theirs.observations["delta_l"])
    detector = {"loss_spike": make_detector("loss_spike")}
    scores = [score_study(each, detector, jobs=1)["loss_spike"] for each in (logs, stored)]
    assert np.array_equal(*scores, equal_nan=True)
    mine, theirs = Timeline.of(stored.runs), Timeline.of(logs.runs)
    assert np.array_equal(mine.healthy_steps, theirs.healthy_steps)


def test_a_set_lies_beside_the_study_and_leaves_it_as_it_is(study: Path, data_set: Path, tmp_path: Path) -> None:
    before = data_set.read_bytes()
    (tmp_path / "transfer").mkdir()
    write_log(tmp_path / "transfer", "m_twin", seed=9, model_type="tiny-qwen")
    write_log(tmp_path / "transfer", "q_fork", seed=9, model_type="tiny-qwen", fault="LARGE_LR", twin="m_twin")
    path = write_data_set(tmp_path / "transfer", companion(data_set, "transfer"), jobs=1).path
    assert (path.name, data_set.read_bytes()) == ("runs_transfer.parquet", before)
    moved = load_study(f"{data_set}:transfer")
    assert [run.name for run in moved.runs] == ["m_twin", "q_fork"]
    assert [stored.labels["set"] for stored in read_stored(path)] == ["runs_transfer"] * 2
    assert_gives_back(tmp_path / "transfer", read_runs(path))
    assert load_study(data_set).checksums != moved.checksums
    found = {part: load_extra_sets(part, {"real": data_set}) for part in EXTRA_SETS}
    assert {part for part, sets in found.items() if sets} == {"transfer"}
    with pytest.raises(UserError, match=r"runs_test\.parquet does not exist"):
        load_study(f"{data_set}:test")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("a/b.parquet", "a/b.parquet"),
        ("a/b.parquet:transfer", "a/b_transfer.parquet"),
        ("logs", None),
        ("logs:transfer", None),
        ("a.parquet/logs", None),
    ],
)
def test_what_names_a_data_set(source: str, place: str | None) -> None:
    assert data_set_of(source) == (None if place is None else Path(place))


def test_unpacked_logs_are_replayed_as_the_logs_were(study: Path, data_set: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "unpacked"
    assert unpack.main([str(data_set), "--out", str(out)]) == 0
    assert_gives_back(study, [read_log(path) for path in sorted(out.glob("*.jsonl"))])
    scores: dict[str, list[np.ndarray]] = {}
    for folder in (study, out):
        found = scores.setdefault(folder.name, [])
        replay_log(folder / "a_fork.jsonl", sink=lambda columns, found=found: found.append(columns["r_metric"]))
    assert np.array_equal(np.concatenate(scores["logs"]), np.concatenate(scores["unpacked"]), equal_nan=True)
    assert unpack.main([str(data_set), "--runs", "a_frok", "--out", str(out)]) == 2
    assert "did you mean a_fork?" in capsys.readouterr().err


def test_a_log_is_not_replaced_by_what_a_data_set_holds_of_it(
    study: Path, data_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = study / "z_late_fork.jsonl"
    before = log.read_bytes()
    (study / "a_fork.jsonl").unlink()
    assert unpack.main([str(data_set), "--out", str(study)]) == 2
    assert "is there already; choose another --out, or replace it with --overwrite" in capsys.readouterr().err
    assert log.read_bytes() == before
    assert not (study / "a_fork.jsonl").exists()
    assert unpack.main([str(data_set), "--out", str(study), "--overwrite"]) == 0
    assert b"alerts" not in log.read_bytes()


def test_the_name_of_an_unpacked_run_may_have_folders_but_leads_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = Observations(np.arange(2), {"training_loss": np.ones(2)})
    runs = [Run(name, {}, records) for name in ("lr/0.1", "lr/0.2", "../up")]
    packed = str(write_stored([StoredRun(labels_of(run), chunk_of(run)) for run in runs], tmp_path / "a.parquet").path)
    out = tmp_path / "out"
    assert unpack.main([packed, "--out", str(out)]) == 2
    assert "a run named '../up' would not lie in" in capsys.readouterr().err
    assert not [*out.iterdir(), *tmp_path.glob("*.jsonl")]
    assert unpack.main([packed, "--runs", "lr/0.1", "lr/0.2", "--out", str(out)]) == 0
    assert sorted(path.name for path in (out / "lr").iterdir()) == ["0.1.jsonl", "0.2.jsonl"]


# --- Bad input -------------------------------------------------------------------------------------------------------


def rewritten(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("harm", ["cut", "flipped", "text", "foreign", "newer", "no_twin", "no_config", "backwards"])
def test_a_damaged_or_foreign_file_is_one_line(harm: str, data_set: Path, tmp_path: Path) -> None:
    content, table, path = data_set.read_bytes(), pq.read_table(data_set), tmp_path / "bad.parquet"
    if harm == "cut":
        path.write_bytes(content[:-20])
    elif harm == "flipped":
        path.write_bytes(content[:300] + bytes([content[300] ^ 255]) + content[301:])
    elif harm == "text":
        path.write_text("step,training_loss\n")
    elif harm == "foreign":
        rewritten(path, pa.table({"step": [1, 2]}))
    elif harm == "newer":
        rewritten(path, table.replace_schema_metadata({"rmetric_data_set": "5"}))
    elif harm == "no_twin":
        rewritten(path, table.filter(pa.compute.not_equal(table["run"], "m_twin")))
    elif harm == "no_config":
        rewritten(path, table.slice(1))
    else:
        rewritten(path, table.take(list(range(20, -1, -1))))
    with pytest.raises(UserError, match=r"damaged|no data set") as refused:
        sum(len(run.observations.columns) for run in load_study(path).runs)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


def test_a_measurement_that_is_younger_than_the_file_was_not_measured(data_set: Path, tmp_path: Path) -> None:
    older = rewritten(tmp_path / "older.parquet", pq.read_table(data_set).drop_columns(["update_rms"]))
    runs = read_runs(older)
    assert [run.name for run in runs] == [run.name for run in read_runs(data_set)]
    assert not any(run.observations.has("update_rms") for run in runs)
    assert all(run.observations.has("training_loss") for run in runs)


def test_a_missing_file_or_a_folder_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; name a data set, or make one"):
        load_study(tmp_path / "gone.parquet")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        load_study(tmp_path / "folder.parquet")


def test_logs_that_cannot_be_written(study: Path, tmp_path: Path) -> None:
    (study / "zz_empty.jsonl").write_bytes(b"")
    written = write_data_set(study, tmp_path / "runs.parquet", jobs=1)
    assert (written.empty, written.runs) == (["zz_empty"], 7)
    with open(study / "a_fork.jsonl", "ab") as log:
        log.write(b"{broken\n")
    with pytest.raises(UserError, match=r"a_fork\.jsonl, line \d+: "):
        write_data_set(study, tmp_path / "runs.parquet", jobs=1)
    (tmp_path / "only_empty").mkdir()
    (tmp_path / "only_empty" / "one.jsonl").write_bytes(b"")
    with pytest.raises(UserError, match="nothing to write"):
        write_data_set(tmp_path / "only_empty", tmp_path / "runs.parquet", jobs=1)


# --- Commands and card -----------------------------------------------------------------------------------------------


def test_the_command_says_what_it_wrote(study: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "data" / "runs.parquet"
    assert command.main(["--from", str(study), "--out", str(out), "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "7 runs, 280 records in 220 rows" in shown
    assert "2 runs are stored in full" in shown
    assert command.main(["--from", str(study), "--out", "runs.csv"]) == 2
    assert "does not end in .parquet" in capsys.readouterr().err


def test_the_card_counts_what_the_file_holds(data_set: Path, tmp_path: Path, capsys) -> None:
    text = card.figures([data_set])
    healthy = STEPS + 3 * (ONSET - 1)  # the twin and, once each, the beginnings of the other seeds
    healthy += STEPS - ONSET + 1  # z_mixed shares what comes before its disturbance with the twin
    assert f"| runs | 7 | 280 | 5 | 0 | 2 | 0 | 0 | {healthy} |" in text
    assert "| runs | LR_SPIKE | high | 4 | 4 | 0 | 0 | 0 | 0 | 11 (11 to 11) |" in text
    assert "| runs | NONE | data_mix | 1 | 0 | 0 | 1 | 0 | 0 | – |" in text
    assert "| `grad_norm` | 100.0 % | 45 |" in text
    path = tmp_path / "README.md"
    path.write_text(f"before\n{card.BEGIN}\nold\n{card.END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        assert card.main([str(data_set), "--into", str(path)]) == 0
        assert path.read_text(encoding="utf-8") == f"before\n{card.BEGIN}\n\n{text}\n{card.END}\nafter\n"
    path.write_text("no place", encoding="utf-8")
    assert card.main([str(data_set), "--into", str(path)]) == 2
    assert "no place for this" in capsys.readouterr().err


@pytest.mark.slow
def test_the_published_card_names_every_column_and_has_the_figures_of_the_file() -> None:
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    assert 0 < text.find(card.BEGIN) < text.find(card.END)
    for name in SCHEMA.names:
        assert f"`{name}`" in text, name
    assert card.figures(PUBLISHED) in text
