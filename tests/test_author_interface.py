"""The author's analysis scripts can read this project's logs: scripts of the same interface run on them, F1 agrees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import load_study
from rmetric.log_reader import read_log
from rmetric.simulation import RunSpec, run_batch
from tests.author_interface import replay, tables
from tests.helpers import ROOT

SAMPLE = ROOT / "logs_FULL_METRIC" / "sample"
THEIR_FIELDS = {
    "step", "event", "training_loss", "validation_loss", "learning_rate", "active_workers", "force_gqa_mismatch",
    "force_rms_norm_error", "is_nan", "is_crashed", "r_metric", "lambda_norm", "sigma_sq_norm", "delta_l_norm",
    "alerts",
}  # fmt: skip
"""Fields of every record in the author's published logs."""


@pytest.fixture(scope="module")
def their_cadence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of short runs with a record every 100 steps, as the author's have."""
    folder = tmp_path_factory.mktemp("cadence_100")
    faults = ("LR_SPIKE", "NODE_FAILURE", "GRADIENT_EXPLOSION", "NONE")
    options = {"severity": "high", "seed": 1, "steps": 2000, "log_every": 100}
    for model in ("llama-3-8b", "mistral-7b", "gpt-4-moe"):
        for log in run_batch([RunSpec(architecture=model, fault=name, **options) for name in faults]):
            (folder / f"{log.name}.jsonl").write_bytes(log.content)
    return folder


@pytest.mark.slow
def test_f1_by_their_script_is_that_of_the_paper_s_protocol(their_cadence: Path) -> None:
    for folder in (SAMPLE, their_cadence):
        found = tables.main(folder)
        ours = Evaluator.of(load_study(folder, jobs=1), ["r_metric"], jobs=1, draws=20).summary("r_metric", "paper")
        assert found["detectors"]["R-Metric"] == pytest.approx(ours["f1"].value)
        assert 0 < found["detectors"]["R-Metric"] < 1
        assert {*found["models"]} == {"Llama-3-8B", "Mistral-7B", "GPT-4-MoE"}
        assert "NONE" in found["faults"]


@pytest.mark.parametrize("folder", [SAMPLE, None], ids=["sample", "their cadence"])
def test_every_log_is_replayed_by_their_script(folder: Path | None, their_cadence: Path, tmp_path: Path) -> None:
    logs = sorted((folder or their_cadence).glob("*.jsonl"))[::4]
    for log in logs:
        found = replay.main(log, tmp_path / "picture.png")
        run = read_log(log)
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
        assert found["experiment"] == run.config["experiment_id"]
        assert found["first_alert"] == run.alerts.get("r_metric")
        terminal = run.terminal
        assert terminal is not None
        assert found["failed"] == (terminal["step"] if terminal["event"] == "EXPERIMENT_FAILURE" else None)


def test_every_record_has_their_fields_or_says_which_is_not_finite(their_cadence: Path) -> None:
    for log in their_cadence.glob("*.jsonl"):
        for line in log.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["event"] == "METRICS":
                assert THEIR_FIELDS - {*record} <= {*record.get("non_finite", ())}, line


@pytest.mark.slow
def test_their_own_logs_are_read_by_the_same_scripts(authors_logs: list[Path], tmp_path: Path) -> None:
    """The scripts know the author's format, and not only what this project makes of it."""
    for log in authors_logs:
        assert replay.main(log, tmp_path / "picture.png")["first_alert"] is not None
