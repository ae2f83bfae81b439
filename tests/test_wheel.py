"""The built wheel in a user's project: it holds the library alone, works without the repository, and is typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import rmetric
from tests.helpers import ROOT

pytestmark = pytest.mark.long

STRICT = """\
# mypy: disallow-untyped-calls, disallow-untyped-defs, disallow-incomplete-defs, disallow-untyped-decorators
# mypy: disallow-subclassing-any, disallow-any-generics, warn-return-any, warn-unused-ignores, strict-equality
"""
"""What ``--strict`` asks of a file. As an option it would hold for all of torch too, and what ``make check`` has
already found out about torch could not be used."""
USER_PROJECT = f"""\
{STRICT}
import torch

import rmetric


@rmetric.register_detector("loss_above_ten")
class LossAboveTen(rmetric.StreamingDetector):
    def update(self, observation: rmetric.Observation) -> float:
        return observation["training_loss"] - 10.0


def on_alert(alert: rmetric.Alert) -> None:
    print(alert.step, alert.message)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    monitor = rmetric.TrainingMonitor(model, optimizer, log="run.jsonl", on_alert=on_alert)
    monitor.step(model(torch.ones(1)).sum())
    monitor.validation(1.0)
    monitor.close()


run: rmetric.Run = rmetric.read_run("run.jsonl")
robust = rmetric.RMetric.robust()
"""
MISUSE = "import rmetric\n\nrmetric.RMetric.paper().update('one', 2.0, 3.0)\nrmetric.TrainingMonitor(1, 2)\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive, that from a copy, so that nothing is left in the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    for name in ("rmetric", "studies"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _run(["-m", "build", "--no-isolation", "--outdir", str(folder), str(source)])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with an environment of its own: the wheel, and the libraries of this environment."""
    folder = tmp_path_factory.mktemp("project")
    _run(["-m", "venv", "--without-pip", str(folder / "venv")])
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # A line in a .pth file adds a folder without the .pth files in it, so that the editable install is not seen.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    found = _run(["-c", "import rmetric; print(rmetric.__file__)"], python=python, cwd=folder)
    assert Path(found.strip()).is_relative_to(site)
    return folder


def _run(arguments: list[str], python: Path | str = sys.executable, cwd: Path | None = None) -> str:
    done = subprocess.run([str(python), *arguments], cwd=cwd, capture_output=True, text=True, check=False, env=_clean())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MYPY"))}


def test_the_wheel_holds_the_library_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"rmetric"}
    assert {"rmetric/py.typed", "rmetric/__init__.pyi", "rmetric/robust/settings.json"} <= {*names}


def test_it_works_without_the_repository(project: Path) -> None:
    said = _run([str(ROOT / ".ci" / "smoke.py")], python=project / "venv" / "bin" / "python", cwd=project)
    assert f"rmetric {rmetric.__version__} works" in said


def test_the_command_comes_with_it(wheel: Path, project: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (announced,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "rmetric = rmetric.commands:main" in archive.read(announced).decode()
    log = ROOT / "tests" / "data" / "real_runs" / "real_seed0_00_none_twin.jsonl"
    said = _run(["-m", "rmetric", "diagnose", str(log)], python=project / "venv" / "bin" / "python", cwd=project)
    assert "healthy" in said


def test_public_names_check_under_mypy_strict(project: Path) -> None:
    (project / "mine.py").write_text(USER_PROJECT)
    said = _mypy(project, "mine.py")
    assert "Success" in said, said


def test_misuse_of_public_names_is_found_by_mypy(project: Path) -> None:
    (project / "wrong.py").write_text(MISUSE)
    said = _mypy(project, "wrong.py")
    assert "wrong.py:3" in said and "wrong.py:4" in said, said


def _mypy(project: Path, file: str) -> str:
    python, cache = project / "venv" / "bin" / "python", project / "cache"
    if not cache.exists() and (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", cache)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    command += ["--python-executable", str(python), file]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=_clean()).stdout
