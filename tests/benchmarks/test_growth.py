"""How the cost of a study grows: rows of other settings are kept apart, and a file that cannot be is told at once."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers import ROOT


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("growth")


def test_rows_of_other_settings_are_not_printed_and_stay_in_the_file(
    growth: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = {"runs": 90, "engine": "local", "jobs": 2, "part": "simulate", "cpu_s": 2.0, "peak_mib": 300.0, "bytes": 9}
    others = [{"engine": "dask"}, {"jobs": 1}, {"detectors": ["loss_spike"]}]
    rows = [ours, *({**ours, **other} for other in others)]
    (file := tmp_path / "rows.jsonl").write_text(before := "".join(f"{json.dumps(row)}\n" for row in rows))
    picture = tmp_path / "growth.png"
    assert growth.main(["--repetitions", "1", "--jobs", "2", "--rows", str(file), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(capsys.readouterr().out)["rows"] == [ours]
    assert file.read_text() == before


def test_a_file_that_cannot_be_is_told_before_anything_is_measured(
    growth: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nosuch" / "rows.jsonl"
    assert growth.main(["--repetitions", "1", "--rows", str(file)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert str(file) in line
