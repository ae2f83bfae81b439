"""The studies of ranks, each on a sample: real processes that are slowed and killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from rmetric.monitor import TrainingMonitor
from rmetric.records import Observations, Run
from studies.ranks import kills, resumable
from studies.ranks.kills import campaign, cut_short, differences, inconsistencies
from studies.ranks.processes import run_processes
from studies.ranks.run import LOG, judged, table
from studies.ranks.training import Slowing
from tests.helpers import ROOT, hearing_ctrl_c
from tests.live.processes import needs_gloo


def _run(*named: tuple[int, int, str]) -> Run:
    events = [
        {"event": "HARDWARE_EVENT", "component": "slow worker", "step": step, "worker": worker, "phase": phase}
        for step, worker, phase in named
    ]
    return Run("run", {}, Observations.of([]), events)


def test_what_counts_as_named() -> None:
    found = judged(
        _run((40, 1, "input"), (62, 2, "forward"), (65, 2, "input")), Slowing("forward", "20 %", 2, onset=60)
    )
    assert (found["named"], found["after"], found["wrong_worker"], found["wrong_phase"]) == (True, 2, 1, 1)


def test_nothing_is_right_where_nothing_is_slowed() -> None:
    found = judged(_run((62, 2, "forward")), Slowing("", "", 0, onset=60))
    assert (found["named"], found["wrong_worker"]) == (False, 1)
    assert table(pd.DataFrame([found])).loc[0, "wrong worker"] == 1


def test_a_broken_or_missing_line_is_seen(tmp_path: Path) -> None:
    lines = [f'{{"event":"METRICS","step":{step}}}\n' for step in (1, 2, 4)]
    (tmp_path / "run.jsonl").write_text("".join(lines) + '{"event":"MET\n{"event":"MET')
    assert inconsistencies(tmp_path) == ["line 4 is broken", "the records are those of steps [1, 2, 4]"]
    assert cut_short(tmp_path)


class _Ended:
    """A process that has ended by itself."""

    def __init__(self, exitcode: int) -> None:
        self.exitcode = exitcode

    def join(self, timeout: float | None = None) -> None:
        """It has."""

    def is_alive(self) -> bool:
        return False


def test_a_rank_that_crashes_by_itself_is_no_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = kills.Outcome()
    monkeypatch.setattr(kills, "running", lambda *asked: nullcontext([_Ended(1), _Ended(resumable.PEER_LOST)]))
    with pytest.raises(RuntimeError, match=r"exit codes \[1, 3\], though rank 1 was not killed"):
        kills.attempt(tmp_path, 20, None, 1, outcome)
    assert not outcome.counts["kills"]
    killed = [_Ended(resumable.PEER_LOST), _Ended(-signal.SIGKILL)]
    monkeypatch.setattr(kills, "running", lambda *asked: nullcontext(killed))
    assert not kills.attempt(tmp_path, 20, 0.1, 1, outcome)
    assert outcome.counts["kills"] == 1


@needs_gloo
@pytest.mark.long
@pytest.mark.parametrize("study", ["run", "kills"])
def test_ctrl_c_ends_all_processes_with_one_line(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", f"studies.ranks.{study}"]
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with hearing_ctrl_c():
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **options)
    while not [*tmp_path.rglob(LOG)]:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    lines = process.communicate(timeout=60)[1].splitlines()
    told = [line for line in lines if not re.search(r"\d+/\d+ \[", line)]  # progress, on a slow machine
    assert (told, process.returncode) == (["interrupted"], 130)
    assert not [*tmp_path.glob("*/*")]


def _train_or_die(rank: int, folder: Path, steps: int, dies_at: int) -> None:
    """Train; the second worker dies once the gradients of a step are exchanged and its loss is not."""

    class Mortal(TrainingMonitor):
        def step(self, loss: Tensor | float, **options: Any) -> bool:
            if rank == 1 and self.step_number + 1 == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step(loss, **options)

    resumable.TrainingMonitor = Mortal  # type: ignore[misc]  # a process of its own
    resumable.train(rank, folder, steps, 0.0)


@needs_gloo
@pytest.mark.long
def test_a_step_in_which_a_peer_died_is_in_no_checkpoint(tmp_path: Path) -> None:
    never, saved = 0, resumable.SAVED_EVERY
    died = run_processes(_train_or_die, 2, tmp_path / "run", (tmp_path / "run", 3 * saved, 2 * saved))
    assert died == [resumable.PEER_LOST, -signal.SIGKILL]
    assert torch.load(tmp_path / "run" / resumable.CHECKPOINT, weights_only=True)["step"] == saved
    for folder in (tmp_path / "run", tmp_path / "reference"):
        assert run_processes(_train_or_die, 2, folder, (folder, 3 * saved, never)) == [0, 0]
    assert differences(tmp_path / "reference", tmp_path / "run") == []


@needs_gloo
@pytest.mark.long
def test_killed_and_resumed_runs_are_those_that_nobody_killed(tmp_path: Path) -> None:
    outcome = campaign(tmp_path, kills=2, steps=30, seed=0)
    assert outcome.counts["kills"] >= 2 and outcome.counts["runs compared"] >= 1
    assert outcome.wrong == []
