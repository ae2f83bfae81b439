"""Results of live runs: summaries of case study and corruption campaign, and the monitor's benchmark, if they exist."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmetric.evaluation.protocols import Protocol
from rmetric.evaluation.scores import Score

CASE_STUDY = "python run_case_study.py"
BENCHMARK = "python benchmarks/monitor.py --out results/benchmarks/monitor.json"
FIRST = f"needs live runs: run {CASE_STUDY} first"


@dataclass(frozen=True)
class LiveResults:
    """JSON files that other scripts wrote; a part that is missing or damaged is empty, and its values undefined."""

    case_study: Mapping[str, Any] = field(default_factory=dict)
    """``case_study/summary.json``."""
    overhead: Mapping[str, Any] = field(default_factory=dict)
    """``benchmarks/monitor.json``."""
    corruption: Mapping[str, Any] = field(default_factory=dict)
    """``case_study/sdc/summary.json``."""

    @classmethod
    def read(cls, folder: str | Path) -> LiveResults:
        """Read a folder of results, such as ``results/``."""
        parts = ("case_study/summary.json", "benchmarks/monitor.json", "case_study/sdc/summary.json")
        return cls(*(_read(Path(folder, part)) for part in parts))

    def score(self, detector: str, protocol: Protocol, name: str) -> Score:
        """A score of a detector in the case study, such as ``f1``."""
        found = _inside(self.case_study, "detectors", detector, protocol)
        if not found:
            return Score.undefined(FIRST)
        value = found.get(name)
        if isinstance(value, int | float):
            return Score(float(value))
        return Score.undefined(str(_inside(found, "undefined").get(name) or f"the summary has no {name}"))

    def planned(self, key: str) -> Score | int | float | str:
        """A value of the case study's plan, such as ``steps``."""
        value = _inside(self.case_study, "plan").get(key)
        return value if isinstance(value, int | float | str) else Score.undefined(FIRST)

    def injected(self, fault: str) -> Mapping[str, Any]:
        """The first run of a fault: its ``parameters``, its ``onset``, …; empty without one."""
        return next((run for run in _listed(self.case_study, "runs") if run.get("fault") == fault), {})

    @property
    def made_on(self) -> str:
        """Model, runs, device of the case study, in words; empty if it was not made."""
        if not self.case_study:
            return ""
        described, count = _inside(self.case_study, "description"), len(_listed(self.case_study, "runs"))
        return f"{described.get('model', '?')} on {described.get('device', '?')}, {count} runs forked from one"

    @property
    def overhead_pct(self) -> Score | str:
        """Share of a step that the monitor takes, per cent: of each size of model and number of micro-batches."""
        parts = [
            f"{item['overhead_pct']:.2g} ({item.get('size', '?')}, {item.get('micro_batches', '?')} parts a batch)"
            for item in _listed(self.overhead, "sizes")
            if isinstance(item.get("overhead_pct"), int | float)
        ]
        return "; ".join(parts) or Score.undefined(f"run {BENCHMARK} first")


def _inside(whole: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping below these keys; empty if there is none."""
    found: Any = whole
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _listed(whole: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of the list below a key; none if there is no list."""
    found = whole.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):  # not made yet, or damaged: to be made (again)
        return {}
    return found if isinstance(found, dict) else {}
