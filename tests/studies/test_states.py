"""The study of states: live trainings that end in each of them, and calibrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.states.fit import main as fit_states
from tests.states.common import names


@pytest.mark.long
def test_live_trainings_are_recognised_by_the_state_in_which_they_end() -> None:
    pytest.importorskip("torch")
    from studies.states.trainings import TRAININGS, train

    for title, (hook, expected) in TRAININGS.items():
        found = names(train(hook, seed=1))
        assert expected in found if expected else not found, (title, found)


REAL_RUNS = Path(__file__).resolve().parents[1] / "data" / "real_runs"


@pytest.mark.parametrize("options", [[], ["--judge"]])
def test_a_calibration_of_no_run_is_refused(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("studies.states.fit.DATA", tmp_path)
    (out := tmp_path / "states.json").write_text("earlier", encoding="utf-8")
    assert fit_states([*options, "--out", str(out), "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "no healthy run has a score; give data sets by --data" in error and error.count("\n") == 1
    assert out.read_text(encoding="utf-8") == "earlier"


@pytest.mark.parametrize(("name", "fitted"), [("real_runs", True), ("mine", False)])
def test_who_is_judged_by_runs_of_its_own_is_told(
    name: str, fitted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).symlink_to(REAL_RUNS)
    assert fit_states(["--judge", "--data", str(tmp_path / name), "--jobs", "1"]) == 0
    assert ("is fitted to real_runs: judged by themselves" in capsys.readouterr().out) == fitted
