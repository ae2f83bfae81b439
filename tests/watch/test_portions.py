"""A log read as it grows gives what the same log gives as a whole."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rmetric.diagnosis import diagnose_runs
from rmetric.diagnosis.new_records import NewRecords
from rmetric.records import Observations
from rmetric.watch import News, Watcher
from rmetric.watch.places import Places
from rmetric.watch.sources import source_of
from rmetric.watch.watched_log import WatchedLog
from tests.helpers import bits, healthy_observations
from tests.importers.event_files import event_file
from tests.watch.conftest import eventually, losses

REAL = sorted((Path(__file__).parent.parent / "data" / "real_runs").glob("*lr_spike_lr_300*.jsonl"))[0]


def as_csv(folder: Path) -> bytes:
    """A table with training and validation rows of their own, as Lightning writes it."""
    rows = ["step,train_loss,val_loss"]
    for step in range(400):
        rows.append(f"{step},{'nan' if step == 350 else 2.0 + 1.5 * 0.99**step + 0.01 * (step % 7)},")
        if step % 50 == 49:
            rows.append(f"{step},,{2.2 + 1.5 * 0.99**step}")
    return "\n".join(rows).encode() + b"\n"


def as_savetxt(folder: Path) -> bytes:
    """A table whose header is a comment, as NumPy writes it."""
    rows = [f"{step},{2.0 + 1.5 * 0.99**step if step != 350 else 'nan'}" for step in range(400)]
    return "\n".join(["# step,loss", *rows]).encode() + b"\n"


def as_jsonl(folder: Path) -> bytes:
    """Nested names, and an evaluation now and then."""
    lines = [b'{"settings": {"lr": 0.1}}']
    for step in range(400):
        record = {"_step": step, "train": {"loss": 1.5 + 2.0 * 0.98**step + 0.01 * (step % 5) + 3.0 * (step > 300)}}
        lines.append(json.dumps(record | ({"eval_loss": 2.0} if step % 100 == 0 else {})).encode())
    return b"\n".join(lines) + b"\n"


def two_runs(folder: Path) -> bytes:
    """A run that was started again from the beginning, in the same file."""
    first = [b'{"step": %d, "loss": %f}' % (step, 3.0 - 0.005 * step) for step in range(200)]
    again = [b'{"step": %d, "loss": %s}' % (step, b"2.5" if step < 210 else b"NaN") for step in range(230)]
    return b"\n".join([*first, *again]) + b"\n"


def resumed(folder: Path) -> bytes:
    """A run that went on from an earlier step, and failed before it was as far as it had been."""
    steps = [*range(300), *range(200, 280)]
    broken = len(steps) - 30
    return b"".join(
        b'{"step": %d, "loss": %s}\n' % (step, b"%f" % (3.0 - 0.005 * step) if row < broken else b"NaN")
        for row, step in enumerate(steps)
    )


def with_a_setting_that_changed(folder: Path) -> bytes:
    """A log of the monitor's format; which setting it was stands in a line of its own."""
    lines = []
    for step in range(1, 200):
        changed = step == 150
        if changed:
            lines.append({"event": "SETTING_CHANGED", "step": step, "setting": "eps", "before": 1e-8, "now": 0.1})
        record = {"event": "METRICS", "step": step, "training_loss": 2.0 + 0.01 * (step % 7)}
        lines.append(record | {"settings_changed": float(changed)})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


CONTENTS = {
    "run.jsonl": lambda folder: REAL.read_bytes(),
    "table.csv": as_csv,
    "savetxt.csv": as_savetxt,
    "any.jsonl": as_jsonl,
    "two.jsonl": two_runs,
    "resumed.jsonl": resumed,
    "settings.jsonl": with_a_setting_that_changed,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_any_portions_give_the_diagnosis_of_the_whole(name: str, seed: int, tmp_path: Path) -> None:
    content, rng = CONTENTS[name](tmp_path), np.random.default_rng(seed)
    path = tmp_path / name
    watched = WatchedLog(path)
    cuts = [*np.sort(rng.integers(0, len(content), 12)).tolist(), len(content)]
    told = []
    for now, cut in enumerate(cuts):
        path.write_bytes(content[:cut]) if now == 0 else append_to(path, content[:cut])
        told += watched.poll(float(now))[1]
    expected = list(diagnose_runs(path))

    def caught_up() -> bool:  # a log that is read again as a whole is read at leisure
        told.extend(watched.poll(float(len(cuts)))[1])
        return [run.diagnosis.records for run in watched.runs] == [whole.records for whole in expected]

    eventually(caught_up, "all records")
    told += watched.poll(float(len(cuts)))[1]
    for run, whole in zip(watched.runs, expected, strict=True):
        found = run.diagnosis
        assert (found.run, found.records, found.last_step) == (whole.run, whole.records, whole.last_step)
        assert found.findings == whole.findings
        assert {finding.name for finding in found.findings} <= {news.name for news in told}
    assert any(run.diagnosis.findings for run in watched.runs)


def lost(name: str, row: int) -> bytes:
    """A row of a run whose loss is left empty from the 300th on."""
    loss = 2.0 + 1.5 * 0.99**row + 0.01 * (row % 7) if row < 300 else None
    if name.endswith("csv"):
        return f"{row},{'' if loss is None else loss},0.001\n".encode()
    return json.dumps({"step": row, "loss": loss, "lr": 1e-3}).encode() + b"\n"


def seldom_evaluated(name: str, row: int) -> bytes:
    """A row of a healthy run that has NaN where it was not evaluated."""
    loss = 2.0 + 1.5 * 0.99**row + 0.01 * (row % 7)
    held_out = loss + 0.1 if row % 20 == 0 else math.nan
    if name.endswith("csv"):
        return f"{row},{loss},{held_out}\n".encode()
    return json.dumps({"step": row, "loss": loss, "val_loss": held_out}).encode() + b"\n"


@pytest.mark.slow
@pytest.mark.parametrize("row_of", [lost, seldom_evaluated])
@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_what_the_whole_log_tells_of_a_gap_is_told(
    name: str, row_of: Callable[[str, int], bytes], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes((b"step,loss,lr\n" if row_of is lost else b"step,loss,val_loss\n") if name == "run.csv" else b"")
    watched, told = WatchedLog(path), []
    for row in range(400):
        with open(path, "ab") as file:
            file.write(row_of(name, row))
        if row % 10 == 9:
            told += watched.poll(float(row))[1]
    (whole,) = diagnose_runs(path)

    def caught_up() -> bool:
        told.extend(watched.poll(400.0)[1])
        return watched.runs[0].diagnosis.records == whole.records

    eventually(caught_up, "all records")
    assert {finding.name for finding in whole.findings} == {item.name for item in told if item.kind == "finding"}


def append_to(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content[path.stat().st_size :])


def test_an_evaluation_of_the_last_known_step_counts_at_the_next_record() -> None:
    def of(steps: list[int], **columns: list[float]) -> Observations:
        return Observations(np.array(steps), {name: np.array(values) for name, values in columns.items()})

    nan, records = float("nan"), NewRecords()
    records.of(of([1, 2], training_loss=[3.0, 2.9]))
    assert len(records.of(of([2], validation_loss=[3.5]))) == 0
    later = records.of(of([3, 4], training_loss=[2.8, 2.7], validation_loss=[nan, nan]))
    assert later["validation_loss"].tolist() == [3.5, 3.5]
    assert later.evaluated.tolist() == [True, False]


def test_a_whole_log_read_again_gives_only_what_is_new() -> None:
    whole, records = healthy_observations(60), NewRecords()
    given = [records.of(whole.rows(slice(0, length))) for length in (10, 10, 33, 60)]
    assert [len(part) for part in given] == [10, 0, 23, 27]
    joined = given[0] + given[2] + given[3]
    assert joined.step.tolist() == whole.step.tolist()
    for name in ("training_loss", "validation_loss", "lambda"):
        assert bits(joined[name]) == bits(whole[name])
    assert joined.evaluated.tolist() == whole.evaluated.tolist()


@pytest.mark.parametrize(("loss", "runs"), [(2.0, [140]), (2.5, [120, 140])], ids=["the same, longer", "another"])
def test_a_file_that_is_replaced_by_a_longer_one(loss: float, runs: list[int], tmp_path: Path) -> None:
    def written(records: int, loss: float) -> bytes:
        return b"".join(b'{"step": %d, "loss": %f}\n' % (step, loss + 0.01 * (step % 7)) for step in range(records))

    path, aside = tmp_path / "run.jsonl", tmp_path / "aside"
    path.write_bytes(written(120, 2.0))
    watched = WatchedLog(path)
    watched.poll(0.0)
    aside.write_bytes(written(140, loss))
    aside.replace(path)
    watched.poll(1.0)
    assert [run.diagnosis.records for run in watched.runs] == runs
    assert [run.name for run in watched.runs] == ["run", "run-2"][: len(runs)]


def test_a_log_that_begins_again_as_it_began_before_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    watched = WatchedLog(path)
    start = "".join(f'{{"step": {step}, "loss": {3.0 - 0.01 * step}}}\n' for step in range(20))
    for worse, last in ((0.0, 60), (1.0, 70)):
        again = "".join(f'{{"step": {step}, "loss": {3.0 - 0.01 * step + worse}}}\n' for step in range(20, last))
        path.write_text(start + again)
        watched.poll(0.0)
    assert [run.diagnosis.records for run in watched.runs] == [60, 70]


def test_a_log_that_is_replaced_again_and_again_has_each_evaluation_once(tmp_path: Path) -> None:
    lines = []
    for step in range(200):
        lines.append({"event": "METRICS", "step": step, "training_loss": 2.0 + 1.5 * 0.98**step + 0.01 * (step % 7)})
        if step % 50 == 49:
            lines.append({"event": "VALIDATION", "step": step, "validation_loss": 2.1 + 0.002 * step})
    path, aside = tmp_path / "run.jsonl", tmp_path / "aside"
    watched, told = WatchedLog(path), []
    for now in range(16):
        aside.write_text("".join(json.dumps(line) + "\n" for line in lines))
        aside.replace(path)
        told += watched.poll(float(now))[1]
    (whole,) = diagnose_runs(path)
    assert watched.runs[0].diagnosis.findings == whole.findings == ()
    assert not [item for item in told if item.kind == "finding"]


def test_lines_that_could_not_be_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(b'{"step": %d, "loss": %f}\n' % (step, 3.0 - step / 100) for step in range(100)))
    watched = WatchedLog(path)
    watched.poll(0.0)
    with open(path, "ab") as file:
        file.write(b"".join(b'{"step": %d, "loss": %f}\n' % (step, 2.0 - step / 1000) for step in range(100, 200)))
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        watched.poll(1.0)
    with open(path, "ab") as file:
        file.write(b'{"step": 200, "loss": 1.7}\n')
    watched.poll(2.0)
    assert watched.runs[0].diagnosis.records == 201


def test_a_table_whose_first_line_never_ends_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmetric.watch.sources.PORTION_BYTES", 64)
    (tmp_path / "run.csv").write_bytes(b"step,loss" + b"".join(b"\r%d,2.5" % step for step in range(100)))
    watched = WatchedLog(tmp_path / "run.csv", format="csv")
    watched.poll(0.0)
    assert watched.runs == []


def test_a_log_that_comes_within_one_tick_of_the_folders_clock_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    stamp = tmp_path.stat().st_mtime_ns
    places = Places(tmp_path)
    assert len(places.logs()) == 1
    (tmp_path / "b.jsonl").touch()
    os.utime(tmp_path, ns=(stamp, stamp))  # as a file system has it that counts in seconds
    assert len(places.logs()) == 2


def test_an_attempt_that_went_further_does_not_hide_the_one_that_runs(tmp_path: Path) -> None:
    for now, step in enumerate((30, 10, 20)):
        state = tmp_path / f"checkpoint-{step}" / "trainer_state.json"
        state.parent.mkdir()
        state.write_text(json.dumps({"log_history": [{"step": step, "loss": 3.0}]}))
        os.utime(state, (1e9 + now, 1e9 + now))
    assert [file.parent.name for file in Places(tmp_path).logs().values()] == ["checkpoint-20"]


def test_the_files_that_changed_last_are_watched_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmetric.watch.places.MOST_LOGS", 5)
    (tmp_path / "1/2/3/4/5/6").mkdir(parents=True)
    for number in range(8):
        (tmp_path / f"{number}.txt").touch()
        os.utime(tmp_path / f"{number}.txt", (1e9, 1e9))
    (tmp_path / "z.jsonl").touch()
    places = Places(tmp_path)
    assert len(logs := places.logs()) == 5
    assert tmp_path / "z.jsonl" in logs
    assert ["levels" in remark for remark in places.left_out] == [True, False]


@pytest.mark.slow
def test_a_folder_that_is_one_log_is_watched_as_one(tmp_path: Path) -> None:
    def told(of_run: list[str]) -> list[str]:
        look()
        return [name for name in of_run if any(news.run == name and news.name == "DEAD" for news in seen)]

    seen: list[News] = []
    watcher = Watcher(tmp_path, lambda news, _: seen.append(news))
    look = partial(watcher.look, 0.0)
    nan = math.nan
    keras, tables = tmp_path / "keras", tmp_path / "dvc/plots/metrics"
    for folder in (keras / "train", keras / "validation", tables / "train", tmp_path / "mlruns/1/ab/metrics"):
        folder.mkdir(parents=True)
    event_file(keras / "train/events.out.tfevents.1", [("epoch_loss", step, 2.5) for step in range(30)])
    look()
    event_file(
        keras / "validation/events.out.tfevents.1", [("epoch_loss", step, 2.5 - step / 90) for step in range(30)]
    )
    event_file(keras / "train/events.out.tfevents.2", [("epoch_loss", step, nan) for step in range(30, 99)])
    (tables / "train/loss.tsv").write_text("step\tloss\n" + "".join(f"{step}\t2.5\n" for step in range(30)))
    (tmp_path / "dvc/metrics.json").write_text('{"step": 29, "train": {"loss": 2.5}}')
    (tmp_path / "mlruns/1/ab/meta.yaml").touch()
    (tmp_path / "mlruns/1/ab/metrics/loss").write_text("".join(f"{step} 2.5 {step}\n" for step in range(30)))
    look()
    with open(tables / "train/loss.tsv", "a") as table, open(tmp_path / "mlruns/1/ab/metrics/loss", "a") as metric:
        table.writelines(f"{step}\tnan\n" for step in range(30, 99))
        metric.writelines(f"{step} nan {step}\n" for step in range(30, 99))
    names = ["dvc", "keras", "mlruns/1/ab"]
    eventually(lambda: told(names) == names, "findings of all three")
    assert sorted(run.diagnosis.run for run in watcher.runs) == names
    assert {run.diagnosis.run: run.diagnosis.findings for run in watcher.runs} == {
        folder: diagnosis.findings for folder in names for diagnosis in diagnose_runs(tmp_path / folder)
    }


def test_folders_that_turn_out_to_be_one_run_are_no_runs_of_their_own(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, lambda *_: None)
    for data in ("train", "val"):
        (tmp_path / f"a_{data}").mkdir()
        event_file(tmp_path / f"a_{data}/events.out.tfevents.1", [("loss", step, 2.5) for step in range(30)])
        watcher.look(0.0)
        assert [run.name for run in watcher.runs] == [{"train": "a_train", "val": "a"}[data]]


@pytest.mark.parametrize("how", ["renamed", "cut"])
def test_a_log_that_is_rotated_while_it_is_read_is_not_read_on_in_the_middle_of_the_next(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmetric.watch.sources.PORTION_BYTES", 1 << 10)
    path = tmp_path / "run.jsonl"
    path.write_text(losses(0, 60))
    read = source_of(path, "auto", {}).read()
    first = next(read).observations.step
    if how == "renamed":
        path.rename(tmp_path / "run.jsonl.1")
    path.write_text(losses(60, 300))
    rest = [step for portion in read for step in portion.observations.step]
    assert [*first, *rest] == [*range(60 if how == "renamed" else len(first))]


def test_a_file_that_is_replaced_where_the_clock_is_behind_is_not_silent(tmp_path: Path) -> None:
    path, aside = tmp_path / "run.jsonl", tmp_path / "aside"
    watched, told = WatchedLog(path, silent_after_s=30.0), []
    for now in range(0, 80, 10):
        aside.write_text(losses(0, 20 + now))
        os.utime(aside, (1e9, 1e9))
        aside.replace(path)
        told += [(now, news.name) for news in watched.poll(float(now))[1]]
    assert told == [(0, "SILENT"), (10, "GOES_ON")]


def test_a_run_that_resumes_from_a_checkpoint_is_the_same_run(tmp_path: Path) -> None:
    def write(*parts: str) -> list[int]:
        path.write_text("".join(parts))
        return [news.finding.until for news in watched.poll(0.0)[1] if news.finding]

    path = tmp_path / "run.jsonl"
    watched = WatchedLog(path)
    head = losses(0, 100) + losses(100, 103, "NaN") + losses(103, 300)
    assert write(head, losses(300, 400)) == [102]
    assert write(head) == []
    assert write(head, losses(300, 350), losses(350, 353, "NaN")) == [352]
    (run,) = watched.runs
    assert run.diagnosis.records == 353


def test_a_run_that_was_cut_back_and_went_on_between_two_looks_is_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    watched, told = WatchedLog(path), []
    for log in (losses(0, 400), losses(0, 300) + losses(300, 303, "NaN")):
        path.write_text(log)
        told += watched.poll(0.0)[1]
    (run,) = watched.runs
    assert run.diagnosis.records == 303
    assert [news.finding.until for news in told if news.finding] == [302]


@pytest.mark.parametrize("first", [1, 9, 60], ids=["one record", "a few", "the first losses are all the same"])
def test_a_run_that_starts_over_with_the_same_losses_is_another_run(first: int, tmp_path: Path) -> None:
    begin = losses(0, first) if first < 60 else losses(0, 60, "0.6931")
    path = tmp_path / "run.jsonl"
    watched = WatchedLog(path)
    for log in (begin + losses(first, 80) + losses(80, 90, "NaN"), begin, begin + losses(first, 95)):
        path.write_text(log)
        watched.poll(0.0)
    assert [run.diagnosis.records for run in watched.runs] == [90, 95]
    assert watched.runs[0].diagnosis.findings


def test_a_run_of_which_less_than_half_is_left_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    watched = WatchedLog(path)
    for log in (losses(0, 120), losses(0, 50)):
        path.write_text(log)
        watched.poll(0.0)
    assert [run.diagnosis.records for run in watched.runs] == [120, 50]


def test_of_a_long_run_some_records_are_remembered() -> None:
    whole, records = healthy_observations(20_000), NewRecords()
    for begin in range(0, 20_000, 500):
        records.of(whole.rows(slice(begin, begin + 500)))
    assert records.begin_with(whole.rows(slice(0, 9_000)))
    assert not records.begin_with(healthy_observations(9_000, seed=7))
