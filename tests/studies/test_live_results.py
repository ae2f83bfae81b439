"""What the live side left, and what the ledger makes of it: nothing there, damaged, or as the scripts write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import load_study
from studies.live_results import LiveResults
from studies.paper.claims import Claim, ledger
from tests.evaluation.builders import build_logs

SUMMARY: dict[str, Any] = {
    "plan": {"steps": 600, "rows": 16, "learning_rate": 0.001, "length": 64, "eval_every": 20},
    "description": {"model": "tiny-llama", "device": "cpu"},
    "runs": [
        {"fault": "LR_SPIKE", "onset": 299, "parameters": {"factor": 15.0, "duration_steps": 20}},
        {"fault": "NONE", "onset": None, "parameters": {}},
    ],
    "detectors": {
        "r_metric": {"paper": {"f1": 0.8}, "strict": {"f1": None, "undefined": {"f1": "no run failed"}}},
    },
}
BENCHMARK = {"machine": "Linux x86_64, CPU", "sizes": [{"size": "7M", "micro_batches": 4, "overhead_pct": 0.412}]}
REAL, OVERHEAD = "F1 in real runs", "overhead (% of training time)"


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    study = load_study(build_logs(tmp_path_factory.mktemp("study") / "logs"), jobs=1)
    return Evaluator.of(study, ["r_metric"], jobs=1, draws=20)


def written(folder: Path, summary: bytes, benchmark: bytes) -> LiveResults:
    for name, content in (("case_study/summary.json", summary), ("benchmarks/monitor.json", benchmark)):
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(content)
    return LiveResults.read(folder)


def claims(evaluator: Evaluator, live: LiveResults | None) -> dict[str, Claim]:
    return {claim.claim: claim for claim in ledger(evaluator, live)}


def test_nothing_was_made_yet(tmp_path: Path, evaluator: Evaluator) -> None:
    assert LiveResults.read(tmp_path) == LiveResults()
    for live in (None, LiveResults.read(tmp_path)):
        found = claims(evaluator, live)
        for name in (REAL, "case study: steps", "case study: LR_SPIKE factor, at step, for steps"):
            assert (
                isinstance(found[name].ours, Score) and "run python run_case_study.py first" in found[name].ours.reason
            )
            makes_or_reads = "python run_case_study.py" if name == REAL else "results/case_study/summary.json"
            assert makes_or_reads in found[name].command
        assert "benchmarks/monitor.py" in found[OVERHEAD].ours.reason  # type: ignore[union-attr]


def test_the_ledger_takes_the_case_study_as_it_was_run(tmp_path: Path, evaluator: Evaluator) -> None:
    found = claims(evaluator, written(tmp_path, json.dumps(SUMMARY).encode(), json.dumps(BENCHMARK).encode()))
    assert found[REAL].ours_paper == Score(0.8)
    strict = found[REAL].ours_strict
    assert isinstance(strict, Score) and not strict.defined and strict.reason == "no run failed"
    assert "tiny-llama on cpu, 2 runs" in found[REAL].remark and "T4" in found[REAL].remark
    theirs = {
        "case study: steps": 600,
        "case study: batch": 16,
        "case study: learning rate": 0.001,
        "case study: sequence length": 64,
        "case study: steps between evaluations": 20,
        "case study: LR_SPIKE factor, at step, for steps": "15, 299, 20",
        "case study: validation losses in the mean of ΔL": 100,
    }
    assert {name: found[name].ours for name in theirs} == theirs
    assert "Qwen-2.5 3B" in found["case study: steps"].remark
    assert found[OVERHEAD].ours == "0.41 (7M, 4 parts a batch)"
    assert "Linux" in found[OVERHEAD].remark


def test_a_study_without_a_spike_says_so(tmp_path: Path, evaluator: Evaluator) -> None:
    summary = {**SUMMARY, "runs": SUMMARY["runs"][1:]}
    found = claims(evaluator, written(tmp_path, json.dumps(summary).encode(), b"{}"))
    ours = found["case study: LR_SPIKE factor, at step, for steps"].ours
    assert isinstance(ours, Score) and ours.reason == "the case study had no LR_SPIKE"


@pytest.mark.parametrize(
    "damage", [b"", b"[1, 2]", b'{"plan": 3, "runs": 4, "detectors": [], "sizes": {}}', b"\xff\xfe{"]
)
def test_damaged_files_count_as_none(damage: bytes, tmp_path: Path, evaluator: Evaluator) -> None:
    live = written(tmp_path, damage, damage)
    assert not live.score("r_metric", "paper", "f1").defined
    found = claims(evaluator, live)
    assert isinstance(found["case study: steps"].ours, Score) and not found["case study: steps"].ours.defined
    assert isinstance(found[OVERHEAD].ours, Score) and not found[OVERHEAD].ours.defined
