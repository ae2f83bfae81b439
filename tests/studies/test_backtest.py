"""The comparison of two makings of the study finds what changed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.backtest import main


def _tree(folder: Path, log: str = "{}", table: str = "detector,f1\nzclip,0.50\n") -> str:
    (folder / "logs_FULL_METRIC").mkdir(parents=True)
    (folder / "results" / "tables").mkdir(parents=True)
    (folder / "logs_FULL_METRIC" / "run_001_a.jsonl").write_text(log)
    (folder / "results" / "tables" / "table_1.csv").write_text(table)
    return str(folder)


def test_other_captions_columns_and_order_are_no_difference(tmp_path: Path) -> None:
    old = _tree(tmp_path / "old", table='detector,f1\nzclip,0.50\nolmo,"1,234 [0.2, 3e-05]"\n')
    new = _tree(tmp_path / "new", table='study,name,score\nreal,olmo,"1,234 [0.20, 0.00003]"\nreal,zclip,0.5\n')
    assert main([old, new]) == 0


def test_a_changed_log_and_a_changed_number_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = _tree(tmp_path / "old")
    new = _tree(tmp_path / "new", log="{ }", table="detector,f1\nzclip,0.51\n")
    assert main([old, new]) == 1
    said = capsys.readouterr().out
    assert "1 differ or are missing run_001_a.jsonl" in said and "table_1.csv: 1 missing (0.5 × 1)" in said


def test_a_tree_without_results_is_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([_tree(tmp_path / "old"), str(tmp_path)]) == 2
    assert "run make reproduce there" in capsys.readouterr().err
