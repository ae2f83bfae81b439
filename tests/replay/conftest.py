"""What the tests of the replay share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.logs import written_run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log as a run of this project writes it."""
    return written_run(tmp_path / "run.jsonl")
