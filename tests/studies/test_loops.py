"""Training loops of others: that each one runs under its monitor, and that a recording can be resumed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from rmetric.log_reader import read_log
from studies.loops.record import AGENTS, PROGRAMS, is_finished, main, names_in, record

SHORT = ("freeze_tail", "gp_evidence", "kfold_logreg", "grid_ddqn", "reach_sac")
NAMES = names_in(PROGRAMS)


def each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name in SHORT else pytest.mark.long) for name in names]


@pytest.mark.parametrize("file", [folder / f"{name}.py" for folder in (PROGRAMS, AGENTS) for name in names_in(folder)])
def test_a_program_says_what_it_is_and_has_a_train(file: Path) -> None:
    module = ast.parse(file.read_text(encoding="utf-8"))
    said = ast.get_docstring(module)
    assert said and said.endswith(".") and len(said.splitlines()) <= 3
    (train,) = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "train")
    assert ast.unparse(train.args) == "steps: int, seed: int, **watch: Any"


@pytest.mark.parametrize("name", each(NAMES))
def test_a_program_runs_and_its_logs_hold_finite_losses(name: str, tmp_path: Path) -> None:
    record(PROGRAMS, name, 0, 8, tmp_path)
    logs = sorted(tmp_path.iterdir())
    assert tmp_path / f"{name}_seed0.jsonl" in logs
    assert all(is_finished(log) for log in logs)
    runs = [read_log(log) for log in logs]
    assert {run.config["model_type"] for run in runs} == {name}
    losses = np.concatenate([run.observations["training_loss"] for run in runs])
    assert len(losses) == (5 if name == "kfold_logreg" else 8)
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("name", each(names_in(AGENTS)))
def test_each_log_of_an_agent_has_its_losses_and_rewards(name: str, tmp_path: Path) -> None:
    steps = 102  # the first episode of the pendulums that counts ends at 101
    record(AGENTS, name, 0, steps, tmp_path)
    runs = [read_log(log) for log in tmp_path.iterdir()]
    assert len(runs) == (2 if name == "reach_sac" else 1)
    for run in runs:
        assert run.terminal == {"event": "EXPERIMENT_SUCCESS", "step": steps}
        assert np.isfinite(run.observations["training_loss"]).all()
        assert np.isfinite(run.observations["reward"]).any()


@pytest.mark.slow
def test_a_resumed_recording_keeps_what_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        record(PROGRAMS, "kfold_logreg", seed, 10, tmp_path)
    first, second = (tmp_path / f"kfold_logreg_seed{seed}.jsonl" for seed in (0, 1))
    kept, whole = first.read_bytes(), second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    command = ["--out", str(tmp_path), "--only", "kfold_logreg", "--steps", "10", "--jobs", "1"]
    assert main(command) == 2
    assert "already holds logs" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert "2 runs (1 made now, 1 found finished)" in capsys.readouterr().out
    assert first.read_bytes() == kept
    assert is_finished(second)
    assert main([*command, "--steps", "20", "--resume"]) == 2
    assert "is of --steps 10, not 20" in capsys.readouterr().err
    assert first.read_bytes() == kept


@pytest.mark.parametrize(
    ("last", "finished"),
    [
        ('{"event":"EXPERIMENT_SUCCESS","step":8}\n', True),
        ('{"event":"EXPERIMENT_FAILURE","step":8,"reason":"NAN_LOSS"}\n', True),
        ('{"event":"METRICS","step":8}\n', False),
        ('{"event":"EXPERIMENT_SUC', False),
        ("", False),
    ],
)
def test_a_training_that_failed_is_as_finished_as_one_that_did_not(last: str, finished: bool, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    assert not is_finished(log)
    log.write_text('{"event":"EXPERIMENT_START","config":{}}\n' + last)
    assert is_finished(log) is finished


def test_an_unknown_program_is_answered_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "new"), "--only", "kfold_logreg", "kfold"]) == 2
    error = capsys.readouterr().err
    assert "'kfold'" in error and all(name in error for name in NAMES)
    assert not (tmp_path / "new").exists()
