"""A study on a cluster: killed workers, a scheduler that goes away and full disks leave the bytes of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import generate_paper_tables
import run_modern_experiments
from rmetric.evaluation.studies import load_study
from studies.paper.plan import StudyPlan
from tests.helpers import ROOT

SMALL = ["--smoke", "--steps", "600"]


def simulate(out: Path, *options: str) -> int:
    return run_modern_experiments.main([*SMALL, "--out", str(out), "--jobs", "1", *options])


def runs_of(folder: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"*{suffix}"))}


def entries(folder: Path) -> object:
    return json.loads((folder / "manifest.json").read_bytes())["runs"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study in Parquet, made by one process."""
    folder = tmp_path_factory.mktemp("alone")
    assert simulate(folder, "--logs-format", "parquet") == 0
    return folder


def test_parquet_holds_the_runs_of_the_logs(alone: Path, tmp_path: Path) -> None:
    assert simulate(tmp_path) == 0
    logs, parts = load_study(tmp_path), load_study(alone)
    assert [run.name for run in parts.runs] == [spec.experiment_id for spec in StudyPlan.smoke(steps=600).specs()]
    by_name = {run.name: run for run in logs.runs}
    for run in parts.runs:
        log = by_name[run.name]
        assert run.config == log.config
        assert run.events == log.events
        assert run.observations.step.tolist() == log.observations.step.tolist()
        for name, column in log.observations.columns.items():
            assert run.observations[name].tobytes() == column.tobytes(), name


def test_parquet_gives_the_tables_of_the_logs(alone: Path, tmp_path: Path) -> None:
    assert simulate(tmp_path / "logs") == 0
    for name, folder in (("jsonl", tmp_path / "logs"), ("parquet", alone)):
        options = ["--bootstrap", "20", "--jobs", "1", "--tables", "1", "3", "--detectors", "r_metric", "loss_spike"]
        assert generate_paper_tables.main(["--logs", str(folder), "--out", str(tmp_path / name), *options]) == 0
    assert runs_of(tmp_path / "jsonl", ".csv") == runs_of(tmp_path / "parquet", ".csv")


def test_a_damaged_part_and_a_missing_one_are_made_anew(alone: Path, tmp_path: Path) -> None:
    assert simulate(tmp_path, "--logs-format", "parquet") == 0
    first, second, *_ = sorted(tmp_path.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-100])
    second.unlink()
    (tmp_path / ".run_x.parquet.1.part").touch()
    assert simulate(tmp_path, "--logs-format", "parquet", "--resume") == 0
    assert runs_of(tmp_path, ".parquet") == runs_of(alone, ".parquet")
    assert not list(tmp_path.glob(".*.part"))


def test_resume_without_the_last_manifest_examines_each_part(alone: Path, tmp_path: Path) -> None:
    assert simulate(tmp_path, "--logs-format", "parquet") == 0
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    manifest |= {"complete": False, "runs": dict.fromkeys(manifest["runs"])}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
    assert simulate(tmp_path, "--logs-format", "parquet", "--resume") == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")} == made
    assert entries(tmp_path) == entries(alone)


def test_a_folder_of_logs_is_not_resumed_as_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(tmp_path) == 0
    assert simulate(tmp_path, "--logs-format", "parquet", "--resume") == 2
    assert "another study" in capsys.readouterr().err


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_rest_is_made_later(alone: Path, tmp_path: Path) -> None:
    full = ["run_modern_experiments.py", *SMALL, "--jobs", "1", "--logs-format", "parquet", "--out", str(tmp_path)]
    largest = min(path.stat().st_size for path in alone.glob("*.parquet")) + 1
    small_files = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({largest}, {largest})); "
    small_files += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    run = subprocess.run(
        [sys.executable, "-c", small_files, *full], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert not list(tmp_path.glob(".*.part"))
    assert len(list(tmp_path.glob("*.parquet"))) < len(list(alone.glob("*.parquet")))
    assert simulate(tmp_path, "--logs-format", "parquet", "--resume") == 0
    assert runs_of(tmp_path, ".parquet") == runs_of(alone, ".parquet")


def wait_for(condition: object, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "scheduler"])
def test_a_study_on_dask_survives_kill_9(victim: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    study = ["--repetitions", "6", "--steps", "500", "--logs-format", "parquet"]
    assert run_modern_experiments.main([*study, "--out", str(tmp_path / "alone"), "--jobs", "1"]) == 0
    out, address = tmp_path / "cluster", tmp_path / "scheduler.json"

    def start(*command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    scheduler = ["-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file"]
    worker = ["-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    cluster = [start(*scheduler, str(address))]
    try:
        wait_for(address.exists)
        where = json.loads(address.read_bytes())["address"]
        cluster += [start(*worker, where) for _ in range(2)]
        command = ["run_modern_experiments.py", *study, "--out", str(out), "--engine", "dask", "--address", where]
        running = start(*command)
        wait_for(lambda: list(out.glob("*.parquet")))
        cluster[1 if victim == "worker" else 0].kill()
        _, errors = running.communicate(timeout=300)
        assert running.returncode == (0 if victim == "worker" else 2), errors
        if victim == "scheduler":
            (line,) = errors.splitlines()
            assert b"go on with --resume" in line
            assert run_modern_experiments.main([*study, "--out", str(out), "--jobs", "1", "--resume"]) == 0
    finally:
        for process in cluster:
            process.kill()
            process.communicate()
    assert runs_of(out, ".parquet") == runs_of(tmp_path / "alone", ".parquet")
    assert entries(out) == entries(tmp_path / "alone")
