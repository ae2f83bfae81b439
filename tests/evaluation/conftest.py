"""Small runs and small logs as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmetric.records import Run
from tests.evaluation.builders import build_logs, build_run


@pytest.fixture
def make_run() -> Callable[..., Run]:
    return build_run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return build_logs(tmp_path / "logs")
