"""Benchmarks that need psutil, which no extra of a user brings, say so in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import ROOT

WITHOUT = (
    "import runpy, sys; sys.modules['psutil'] = None; sys.path.insert(0, 'benchmarks'); runpy.run_path(sys.argv[1])"
)


@pytest.mark.parametrize("script", ["study", "growth", "watch"])
def test_what_to_install_is_told_in_one_line(script: str) -> None:
    command = [sys.executable, "-c", WITHOUT, f"benchmarks/{script}.py"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = "error: this benchmark needs psutil, which is missing: pip install psutil\n"
    assert (ended.returncode, ended.stderr) == (2, said)
