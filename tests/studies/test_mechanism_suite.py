"""``run_case_study.py --suite mechanism`` from the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from run_case_study import main
from tests.helpers import ROOT


def test_a_suite_has_options_of_its_own_and_its_help_needs_no_torch() -> None:
    probe = (
        "import sys, run_case_study as s; assert s.main(['--suite', 'mechanism', '--help']) == 0; "
        "sys.exit('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "--stride" in ended.stdout and "--fault-step" not in ended.stdout


def test_the_default_suite_tells_of_the_others(capsys: pytest.CaptureFixture) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "--fault-step" in said and "mechanism" in said and "--stride" not in said


def test_help_tells_the_plan_s_own_defaults() -> None:
    pytest.importorskip("torch", reason="the plan stands beside the training")
    from studies.mechanism.cli import CPU_STEPS, parser
    from studies.mechanism.plan import MechanismPlan

    helps = {action.dest: str(action.help) for action in parser()._actions}
    default, smoke = MechanismPlan(), MechanismPlan.smoke()
    assert default.steps == CPU_STEPS
    assert f"(default: {default.seed})" in helps["seed"]
    for name in ("steps", "seeds", "stride"):
        assert f"(default: {getattr(default, name)}; " in helps[name]
        assert f"--smoke: {getattr(smoke, name)})" in helps[name]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--suite", "mechanisms"], "invalid choice"),
        (["--suite", "mechanism", "--faults", "LR_SPIKE"], "unrecognized"),
        (["--suite", "mechanism", "--steps", "60", "--stride", "10"], "too few"),
        (["--suite=mechanism", "--seeds", "1"], "not in the range"),
    ],
)
def test_bad_input_is_one_line(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("torch", reason="real training needs torch")
    assert main([*options, *(["--out", str(tmp_path)] if "mechanisms" not in options else [])]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and said in line


def test_what_was_trained_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("torch", reason="real training needs torch")
    log = tmp_path / "logs" / "run_000_tiny-llama_8rows_none_rep1.jsonl"
    log.parent.mkdir()
    log.write_text("trained")
    (log.parent / "manifest.json").write_text('{"study": {}, "runs": {}}')
    asked = ["--suite", "mechanism", "--smoke", "--device", "cpu", "--out", str(tmp_path)]
    assert main(asked) == 2
    assert "--resume goes on with it, --overwrite replaces it" in capsys.readouterr().err
    assert main([*asked, "--resume"]) == 2
    assert "holds another study" in capsys.readouterr().err
    assert log.read_text() == "trained"


@pytest.mark.long
def test_a_tiny_study_from_training_to_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("torch", reason="real training needs torch")
    from studies.mechanism.plan import Group, MechanismPlan

    small = (Group("tiny-llama", 4, ("LARGE_LR:factor=30",)),)
    smoke = MechanismPlan.smoke
    monkeypatch.setattr(
        MechanismPlan, "smoke", lambda **changes: smoke(groups=small, length=16, workers=2, eval_every=12, **changes)
    )
    asked = ["--suite", "mechanism", "--smoke", "--steps", "48", "--stride", "1", "--jobs", "1", "--device", "cpu"]
    assert main([*asked, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "training 4 runs" in said and "False alarms" in said
    assert {"signature.md", "signature_map.png", "signals_large_lr.pdf"} <= {path.name for path in tmp_path.iterdir()}
    assert len(list((tmp_path / "logs").glob("run_*.jsonl"))) == 4
