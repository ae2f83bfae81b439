"""Many logs at once: in several processes as in one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.replay import batch as replay_batch
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


@pytest.mark.usefixtures("always_a_pool")
def test_one_log_is_replayed_in_this_process(logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_batch, "_in_processes", lambda *_: pytest.fail("a pool for one log"))
    assert len(replay_logs(logs[:1], folder(tmp_path / "out"), jobs=8)) == 1


def test_only_what_was_being_written_for_these_logs_counts_as_unfinished(tmp_path: Path) -> None:
    ours = [tmp_path / f".run.{ending}.{os.getpid()}.part" for ending in ("csv", "png", "summary.json")]
    for path in (*ours, tmp_path / ".other.csv.1.part", tmp_path / ".run.part", tmp_path / "run.csv"):
        path.touch()
    assert set(unfinished_files(tmp_path, ["run"])) == set(ours)
