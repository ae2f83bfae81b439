"""Benchmarks that start processes end with one line at Ctrl-C."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers import ended_by, ends_of_a_command


@pytest.mark.slow
@ends_of_a_command
@pytest.mark.parametrize(("script", "written_by_a_worker"), [("replay", "*/warm_up.jsonl"), ("mutate_logs", "*/*")])
def test_a_signal_ends_a_benchmark_with_one_line(
    script: str,
    written_by_a_worker: str,
    sent: signal.Signals,
    ended: tuple[int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert ended_by(sent, [f"benchmarks/{script}.py"], lambda: [*tmp_path.glob(written_by_a_worker)]) == ended
