"""A sample of the campaign of benchmarks/mutate_logs.py: no damage of any format crashes, hangs or fills the memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmetric.importers import IMPORTERS, runs_of
from tests.importers.samples import SAMPLES, benchmark, written


@pytest.mark.slow
def test_mutated_logs_of_all_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark("mutate_logs").main(["--mutations", "210", "--first", "1000000"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mutations"] == 210
    assert found["read"] > 100 and found["refused"] > 10
    assert found["peak_memory_mib"] < 1024


def test_the_samples_have_all_formats() -> None:
    assert {sample.format for sample in SAMPLES.values()} == {name for name, _ in IMPORTERS.items()} - {"rmetric"}


@pytest.mark.parametrize("length", [1, 7, 100, 1000])
@pytest.mark.parametrize("name", ["event_file", "wandb"])
def test_a_binary_log_that_was_cut_is_read_up_to_there(name: str, length: int, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    path.write_bytes(path.read_bytes()[:-length])
    (logged,) = runs_of(path)
    assert 10 < len(logged.run.observations) <= 40


def test_a_counter_beyond_all_doubles_is_no_step(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"step": {step}, "epoch": {10**400}, "loss": 2.5}}\n' for step in (1, 2, 10**400, 4)))
    (logged,) = runs_of(path)
    assert logged.run.observations.step.tolist() == [1, 2, 4]
