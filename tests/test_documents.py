"""What the documents say is run: the finding on power laws, the README's example of a fault, and its commands."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rmetric.detectors import DETECTORS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_IN_THE_HEADLINE = {
    "isolation_forest", "isolation_forest_causal", "ecod", "lstm_forecaster", "half_space_trees",
}  # fmt: skip
"""Slow detectors, none of which is the best baseline."""


def test_the_findings_hold() -> None:
    failures, tried = doctest.testfile(str(ROOT / "docs" / "FINDINGS.md"), module_relative=False)
    assert tried >= 7
    assert failures == 0


def commands(section: str) -> list[str]:
    """Commands of the fenced blocks under a heading of the README, without their comments."""
    text = README.split(f"## {section}\n")[1].split("\n## ")[0]
    blocks = [block for language, block in re.findall(r"```(\w*)\n(.*?)```", text, re.S) if not language]
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    assert program == "python", command
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the README's commands can be typed: scripts and sample, results apart."""
    for name in ["rmetric", "logs_FULL_METRIC/sample", *(path.name for path in ROOT.glob("*.py"))]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_the_readme_s_fault_runs_through_the_whole_pipeline(checkout: Path) -> None:
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "register_fault" in block]
    (checkout / "nic_flap.py").write_text(example, encoding="utf-8")
    typed = commands("Add a fault")
    assert len(typed) == 5
    for command in typed:
        if command.startswith("python run_case_study.py"):
            pytest.importorskip("torch", reason="needs the extra 'live'")
        if command.startswith("python run_modern_experiments.py"):
            command += " --repetitions 2 --steps 1000"
        ended = run(command, checkout)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    table = (checkout / "results/tables_nic_flap/table_2_scenario_matrix.md").read_text(encoding="utf-8")
    assert re.search(r"NIC_FLAP +\| high +\| +2 \|", table)


def test_the_readme_s_replay_commands(checkout: Path) -> None:
    sample = next((ROOT / "logs_FULL_METRIC" / "sample").glob("*.jsonl"))
    (checkout / "my_run.jsonl").write_bytes(sample.read_bytes())
    (checkout / "output_dir").mkdir()
    state = '{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": NaN}, {"step": 2, "eval_loss": 2.5}]}'
    (checkout / "output_dir" / "trainer_state.json").write_text(state)
    (checkout / "metrics.csv").write_text("iteration,loss\n1,2.0\n2,1.9\n3,1.8\n")
    typed = commands("Replay your own log")
    assert len(typed) == 3
    for command in typed:
        ended = run(command, checkout)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"


def test_the_authors_steps_work_in_order(checkout: Path) -> None:
    typed = [command for command in commands("Three commands") if command.startswith("python ")]
    assert [command.split()[1] for command in typed] == [
        "run_modern_experiments.py",
        "generate_paper_tables.py",
        "generate_all_figures.py",
        "run_case_study.py",
        "replay_and_analyze_logs.py",
    ]
    small = {"run_modern_experiments.py": " --smoke --steps 1500", "replay_and_analyze_logs.py": " --no-plot"}
    small["run_case_study.py"] = " --steps 60 --batch 4 --length 16 --faults LR_SPIKE NONE"
    for command in typed:
        ended = run(command + small.get(command.split()[1], ""), checkout)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    assert len(list((checkout / "logs_FULL_METRIC").glob("run_*.jsonl"))) == 36
    assert len(list((checkout / "results" / "figures").glob("*.png"))) >= 5
    assert len(list((checkout / "results" / "replay").glob("*.summary.json"))) == 36


def test_make_knows_the_readme_s_targets() -> None:
    targets = [command.split()[1] for command in commands("Three commands") if command.startswith("make ")]
    assert targets == ["reproduce", "case-study", "test"]
    for target in [*targets, "smoke", "check"]:
        assert subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True).returncode == 0


def test_the_readme_s_headline_is_what_the_full_study_gives(tmp_path: Path) -> None:
    """The 720 runs, the real ones beside them as in ``make reproduce``, and the detectors that are quick to score."""
    detectors = [name for name in DETECTORS if name not in NOT_IN_THE_HEADLINE]
    logs, out = tmp_path / "logs", tmp_path / "tables"
    made = run(f"python run_modern_experiments.py --out {logs}", ROOT)
    assert made.returncode == 0, made.stderr
    data_set = "data/real_runs.parquet" if (ROOT / "data" / "real_runs.parquet").is_file() else ""
    options = f"--logs {logs} {data_set} --out {out} --tables headline --detectors {' '.join(detectors)}"
    tabulated = run(f"python generate_paper_tables.py {options}", ROOT)
    assert tabulated.returncode == 0, tabulated.stderr
    headline = (out / "headline.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- headline.*?-->\n(.*?)\n<!-- /headline -->", README, re.S)
    assert shown in headline
    for said in ("254 failing runs", "F1 0.524", "F1 of 0.973", "0.986 [0.968, 1.000]"):
        assert said in README
    assert "254 failed, 318 recovered, 144 clean" in headline
