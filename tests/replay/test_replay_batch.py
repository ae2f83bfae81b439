"""Many logs at once: in several processes as in one."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.read import events_of
from rmetric.replay import batch as replay_batch
from rmetric.replay import report as replay_report
from rmetric.replay.batch import replay_logs
from rmetric.replay.report import unfinished_files
from tests.replay.logs import written_run


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Two whole logs, and between them one with a damaged line and one without any record."""
    folder = tmp_path / "logs"
    folder.mkdir()
    whole = [written_run(folder / f"{name}.jsonl", seed=seed) for seed, name in enumerate("ad")]
    damaged, empty = folder / "b.jsonl", folder / "c.jsonl"
    damaged.write_bytes(whole[0].read_bytes() + b"oops\n")
    empty.touch()
    return [whole[0], damaged, empty, whole[1]]


@pytest.fixture
def always_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_batch, "POOL_PAYS_FROM_S", 0.0)


def folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("always_a_pool")
def test_several_processes_give_the_files_the_order_and_the_warnings_of_one(
    logs: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files, said, found = [], [], []
    for jobs in (1, 2):
        out = folder(tmp_path / f"out{jobs}")
        found.append([replay.to_dict() for replay in replay_logs(logs, out, jobs=jobs)])
        files.append({path.name: path.read_bytes() for path in out.iterdir()})
        said.append([line for line in capfd.readouterr().err.splitlines() if line.startswith("warning: ")])
    assert files[0] == files[1]
    assert {"a.png", "b.png", "d.png", "c.summary.json"} <= files[0].keys()
    assert said[0] == said[1]
    assert ["b.jsonl" in line for line in said[0]] == [True, False]
    assert found[0] == found[1]
    assert [result["log"] for result in found[0]] == [str(log) for log in logs]


@pytest.mark.slow
@pytest.mark.usefixtures("always_a_pool")
def test_strict_names_the_first_damaged_log_whatever_the_number_of_processes(logs: list[Path], tmp_path: Path) -> None:
    for jobs in (1, 2):
        with pytest.raises(UserError, match=r"b\.jsonl, line \d+: not JSON"):
            replay_logs(logs, folder(tmp_path / f"out{jobs}"), jobs=jobs, strict=True)


@pytest.mark.usefixtures("always_a_pool")
def test_an_error_in_another_process_names_its_file(logs: list[Path], tmp_path: Path) -> None:
    out = folder(tmp_path / "out")
    (out / "a.summary.json").mkdir()
    with pytest.raises(OSError, match=r"a\.summary\.json") as raised:
        replay_logs(logs, out, jobs=2, plot=False)
    assert raised.value.errno in (errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EACCES, errno.EPERM)
    assert not list(out.glob(".*.part"))


def test_a_little_work_is_done_in_this_process(
    logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_batch, "_in_processes", lambda *_: pytest.fail("a pool for four small logs"))
    assert len(replay_logs(logs, folder(tmp_path / "out"), jobs=8, plot=False)) == 4


@pytest.fixture
def of_several_runs(tmp_path: Path) -> list[Path]:
    """Two logs of another program, each of two runs."""
    tables = [tmp_path / f"{name}.csv" for name in "ab"]
    for table in tables:
        rows = [f"{run},{step},{2.0 - step / 50}\n" for run in ("first", "second") for step in range(20)]
        table.write_text("run,step,loss\n" + "".join(rows))
    return tables


def test_a_log_of_several_runs_is_read_once_for_all_and_damage_counts_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, opened = tmp_path / "sweep.csv", []
    rows = [f"{run},{step},{2.0 - step / 500}\n" for run in ("first", "second") for step in range(400)]
    rows[700] = "damaged\n"
    log.write_text("run,step,loss\n" + "".join(rows))

    def noted(path: Path, *options: Any) -> tuple[str, Iterator[NumberedEvent]]:
        opened.append(path)
        return events_of(path, *options)

    monkeypatch.setattr(replay_report, "events_of", noted)
    replays = replay_logs([log], folder(tmp_path / "out"), plot=False)
    assert opened == [log]
    counted = [(replay.name, replay.records, replay.damaged) for replay in replays]
    assert counted == [("first", 400, 0), ("second", 399, 1)]


def test_a_log_that_breaks_off_has_the_runs_before_that(
    of_several_runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(events: Iterator[NumberedEvent]) -> Iterator[NumberedEvent]:
        yield from islice(events, 30)
        raise UserError("the disk is gone")

    def broken(path: Path, *options: Any) -> tuple[str, Iterator[NumberedEvent]]:
        name, events = events_of(path, *options)
        return name, breaking(events)

    monkeypatch.setattr(replay_report, "events_of", broken)
    first, second = replay_logs(of_several_runs[:1], folder(tmp_path / "out"), plot=False)
    assert (first.records, first.unusable, second.records) == (20, "", 0)
    assert second.unusable == "the disk is gone"


@pytest.mark.usefixtures("always_a_pool")
def test_the_names_of_runs_are_looked_for_in_other_processes(
    of_several_runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_logs(of_several_runs, alone := folder(tmp_path / "alone"), plot=False)
    monkeypatch.setattr(replay_batch, "runs_named_in", lambda *_: pytest.fail("in this process"))
    replay_logs(of_several_runs, together := folder(tmp_path / "together"), jobs=2, plot=False)
    names = [sorted(path.name for path in out.iterdir()) for out in (alone, together)]
    assert names[0] == names[1] and len(names[0]) == 8


def test_both_attempts_of_a_resumed_trainer_are_replayed(tmp_path: Path) -> None:
    log, steps = tmp_path / "seed3" / "trainer_state.json", [*range(10, 400, 10), *range(210, 600, 10)]
    entries = [{"step": step, "epoch": step / 50, "loss": 2.0 / (1.0 + step / 100.0)} for step in steps]
    log.parent.mkdir()
    log.write_text(json.dumps({"global_step": 590, "log_history": entries}))
    replays = replay_logs([log], folder(tmp_path / "out"), plot=False)
    assert [replay.records for replay in replays] == [39, 39]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.csv")) == ["seed3-2.csv", "seed3.csv"]


def test_how_far_the_search_for_names_is_is_shown(
    of_several_runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    replay_logs(of_several_runs, folder(tmp_path / "out"), plot=False)
    shown = capsys.readouterr().err
    assert 0 <= shown.find("looking for runs:") < shown.find("0/4")


@pytest.mark.usefixtures("always_a_pool")
def test_one_log_is_replayed_in_this_process(logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_batch, "_in_processes", lambda *_: pytest.fail("a pool for one log"))
    assert len(replay_logs(logs[:1], folder(tmp_path / "out"), jobs=8)) == 1


def test_only_what_was_being_written_for_these_logs_counts_as_unfinished(tmp_path: Path) -> None:
    ours = [tmp_path / f".run.{ending}.{os.getpid()}.part" for ending in ("csv", "png", "summary.json")]
    for path in (*ours, tmp_path / ".other.csv.1.part", tmp_path / ".run.part", tmp_path / "run.csv"):
        path.touch()
    assert set(unfinished_files(tmp_path, ["run"])) == set(ours)
