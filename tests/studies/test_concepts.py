"""The picture of docs/concepts.md shows what its text says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmetric.dataset.read import read_stored
from rmetric.detectors import ROBUST, make_detector
from studies import concepts
from tests.helpers import ROOT


@pytest.mark.slow
def test_the_run_is_warned_of_long_before_it_fails() -> None:
    stored = concepts.failing_run(read_stored(ROOT / "data" / "real_runs.parquet"))
    observations, detector = stored.run().observations, make_detector(ROBUST)
    alerts = observations.step[detector.score_run(observations) > detector.threshold]
    assert stored.labels["onset"] <= alerts[0] < stored.labels["onset"] + 10
    assert stored.labels["failure_step"] - alerts[0] > 200
    assert json.loads(stored.labels["parameters"])["token_share"] == 0.1


@pytest.mark.slow
def test_it_is_drawn(tmp_path: Path) -> None:
    out = tmp_path / "twin.png"
    assert concepts.main(["--data", str(ROOT / "data" / "real_runs.parquet"), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
