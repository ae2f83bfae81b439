"""The report of going back."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.rollback.report import main


def test_a_folder_without_results_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "holds no results; make them with python -m studies.rollback.run" in error and error.count("\n") == 1
