"""The programs in examples/ run as their first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmetric import read_run
from tests.helpers import ROOT


@pytest.mark.slow
def test_a_training_with_jax_is_watched(tmp_path: Path) -> None:
    pytest.importorskip("optax", reason="needs JAX and Optax")
    command = [sys.executable, str(ROOT / "examples" / "train_jax.py"), "run.jsonl"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    run = read_run(tmp_path / "run.jsonl")
    assert "in order" in ran.stderr
    assert (run.config["backend"], len(run.observations)) == ("reported", 200)
    assert run.observations["training_loss"][-1] < 0.1 * run.observations["training_loss"][0]
