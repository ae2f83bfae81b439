"""The committed sample is made anew and compared byte for byte: a change of the simulation cannot go unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmetric.simulation import run_batch
from studies.paper.plan import StudyPlan
from tests.helpers import ROOT

SAMPLE = ROOT / "logs_FULL_METRIC" / "sample"
LOGS = sorted(SAMPLE.glob("*.jsonl"))


def test_the_sample_is_small_and_covers_the_study() -> None:
    assert 10 <= len(LOGS) <= 14
    assert sum(path.stat().st_size for path in LOGS) <= 3e6
    for part in ("llama-3-8b", "mistral-7b", "gpt-4-moe", "_none_"):
        assert any(part in path.name for path in LOGS)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_sample_comes_out_the_same(path: Path) -> None:
    spec = {spec.experiment_id: spec for spec in StudyPlan().specs()}[path.stem]
    (log,) = run_batch([spec])
    assert log.content == path.read_bytes(), "the simulation changed; if that is meant: make sample"
