"""Examples of CONTRIBUTING.md work as they stand, and so do the examples for clusters."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import rmetric
from rmetric.importers import IMPORTERS
from tests.helpers import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
NODE = '#!/bin/sh\nexec "$@"\n'
"""In place of SLURM's ``srun``, on the one node that there is."""


def example(marker: str, text: str = CONTRIBUTING) -> str:
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if marker in block]
    return found


def test_the_importer_reads_a_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("it=10 loss=2.5 lr=0.1\nstarting evaluation\nit=20 loss=nan lr=0.1\n")
    exec(example("register_importer"), {})
    try:
        observations = rmetric.read_run(log, format="key_value").observations
    finally:
        IMPORTERS.discard("key_value")
    assert observations.step.tolist() == [10, 20]
    assert observations.columns["training_loss"].tolist() == [2.5, float("inf")]


@pytest.mark.slow
def test_the_examples_of_a_fault_and_a_detector_keep_the_contract(tmp_path: Path) -> None:
    for folder in ("rmetric", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package, name in (("faults", "NIC_FLAP"), ("detectors", "loss_above_lowest")):
        folder = tmp_path / "rmetric" / package
        (folder / f"{name.lower()}.py").write_text(example(f'("{name}")', EXTENDING), encoding="utf-8")
        with (folder / "__init__.py").open("a", encoding="utf-8") as listed:
            listed.write(f"from rmetric.{package} import {name.lower()}\n")
    contracts = ["tests/faults/test_contract.py", "tests/detectors/test_contract.py"]
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *contracts]
    done = subprocess.run(
        [*command, "-k", "NIC_FLAP or loss_above_lowest"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert all(re.search(rf"{contract}::.*PASSED", done.stdout) for contract in contracts), done.stdout


@pytest.mark.long
def test_the_kind_of_training_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'live'")
    shutil.copytree(ROOT / "studies", tmp_path / "studies", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "rmetric").symlink_to(ROOT / "rmetric")
    (tmp_path / "studies" / "zoo" / "kinds" / "blobs.py").write_text(example("register_kind"), encoding="utf-8")
    command = "studies.zoo.record --out logs --kinds blobs --seeds 0 --steps 28 --jobs 1"
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs = [rmetric.read_run(log) for log in (tmp_path / "logs").glob("*.jsonl")]
    assert len(runs) == 3  # the twin, and two forks with a disturbance
    assert {len(run.observations) for run in runs} == {28}


@pytest.mark.long
def test_two_processes_train_under_torchrun_as_a_slurm_job_starts_them(tmp_path: Path) -> None:
    """The job's own script with real processes over Gloo; only the two commands of SLURM are replaced."""
    dist = pytest.importorskip("torch.distributed", reason="needs the extra 'live'")
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("needs Gloo")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {
        "srun": NODE,
        "scontrol": "#!/bin/sh\necho localhost\n",
        "torchrun": f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n',
        "rmetric": f'#!/bin/sh\nexec {sys.executable} -m rmetric "$@"\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    job = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "localhost", "PORT": str(_free_port())}
    own = {"EXAMPLES": str(ROOT / "examples"), "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "train.sbatch")],
        cwd=tmp_path, env={**os.environ, **job, **own, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "healthy, 200 records" in done.stdout
    run = rmetric.read_run(tmp_path / "run_7.jsonl")
    assert (run.observations.columns["sigma_sq"][1:] > 0).all()  # over two workers with other data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
