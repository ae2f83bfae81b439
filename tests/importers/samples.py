"""The sample logs of the benchmarks, for tests."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.helpers import ROOT

BENCHMARKS = ROOT / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """A script of the benchmarks, which import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)


SAMPLES = {sample.name: sample for sample in benchmark("sample_logs").SAMPLES}


def written(name: str, folder: Path) -> Path:
    """A sample, written into a folder."""
    sample: Any = SAMPLES[name]
    path = folder / sample.file
    sample.write(path)
    return path
