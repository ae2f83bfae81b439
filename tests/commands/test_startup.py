"""Help comes at once: nothing heavy is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["diagnose", "--help"], ["compare", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from rmetric.commands import main\n"
        f"status = main({words!r})\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'pyarrow', 'matplotlib', 'torch'} & {*sys.modules}\n"
        "sys.exit(f'{status}, imported {heavy}' if status or heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
