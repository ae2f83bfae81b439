"""Case studies as the live side hands them over, made of logs that are there already, or of a few lines by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmetric.log_reader import read_log
from rmetric.log_writer import encode_event
from studies.case_study.findings import CaseResults

STEPS, ONSET = 200, 101


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the reports read of a plan."""

    model: str = "tiny-llama"
    faults: tuple[str, ...] = ()
    steps: int = STEPS
    seed: int = 0
    plugins: tuple[str, ...] = ()
    batch_rows: int = 16
    sequence_length: int = 64
    peak_learning_rate: float = 1e-3
    first_disturbed: int = ONSET
    eval_every: int = 20


@dataclass(frozen=True)
class Study:
    """What the reports read of a case study."""

    plan: Plan
    logs: tuple[Path, ...]
    judged_steps: list[int]
    held_out: dict[str, list[float]]
    twin_matches_control: bool | None = True
    description: dict[str, Any] = field(
        default_factory=lambda: {
            "model": "tiny-llama",
            "parameters": 131_264,
            "dataset": "source of the standard library of Python 3.11.9",
            "python": "3.11.9",
            "device": "cpu",
            "seconds": 12.5,
            "steps": 1000,
        }
    )


def of_real_runs(logs: Sequence[Path], numbers: Sequence[int]) -> CaseResults:
    """Of the committed real runs: number 0 is the control, whose validation losses stand for the twin's."""
    chosen = [logs[number] for number in numbers]
    runs = [read_log(log) for log in [logs[0], *chosen]]
    judged = list(range(0, 600, 20))
    held_out = {}
    for name, run in zip(["twin", *(log.stem for log in chosen)], runs, strict=True):
        known = dict(zip(run.observations.step.tolist(), run.observations["validation_loss"].tolist(), strict=True))
        held_out[name] = [known.get(step, math.nan) for step in judged]
        held_out[name][0] = 5.6
    spellings = [f"{run.fault}:{','.join(f'{k}={v}' for k, v in params(run).items())}" for run in runs[1:]]
    faults = tuple(text.rstrip(":") for text in spellings)
    return CaseResults.of(Study(Plan(faults=faults, steps=600), tuple(chosen), judged, held_out))  # type: ignore[arg-type]


def params(run: Any) -> dict[str, Any]:
    return run.config["fault_injection"]["params"]


def write_log(
    folder: Path,
    number: int,
    fault: str,
    *,
    failure: int | None = None,
    reason: str = "DIVERGED",
    outcome: str = "recovered",
    grad_norm: Sequence[float] = (),
    cleared: int | None = None,
) -> Path:
    """A run of :data:`STEPS` steps that is healthy up to :data:`ONSET`; ``grad_norm`` from there on."""
    control = fault == "NONE"
    injection = {"type": fault, "trigger_step": None if control else ONSET, "params": {}}
    config = {
        "experiment_id": f"run_{number:02}", "backend": "torch", "model_type": "tiny-llama", "seed": 0,
        "total_training_steps": STEPS, "log_every_n_steps": 1, "eval_every_n_steps": 20, "fault_injection": injection,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    noise = 1.0 + 0.02 * rng.standard_normal((2, STEPS))
    events: list[dict[str, Any]] = [{"event": "EXPERIMENT_START", "config": config}]
    last = STEPS if reason == "DIVERGED" or failure is None else failure
    for step in range(1, last + 1):
        if step == ONSET and not control:
            events.append({"event": "FAULT_INJECTED", "step": ONSET, "fault": fault})
        if step == cleared:
            events.append({"event": "FAULT_CLEARED", "step": step})
        broken = failure is not None and step >= failure
        loss = 5.0 / (1.0 + step / 60.0) * noise[0, step - 1] + (3.0 if broken else 0.0)
        if broken and step == last < STEPS:
            loss = math.nan
        norm = float(noise[1, step - 1])
        if 0 <= step - ONSET < len(grad_norm):
            norm = grad_norm[step - ONSET]
        events.append(
            {
                "event": "METRICS", "step": step, "training_loss": loss,
                "validation_loss": 5.0 / (1.0 + (step // 20) / 3.0), "grad_norm": norm, "sigma_sq": 0.01 * norm,
                "lambda": 0.0, "learning_rate": 1e-3, "non_finite_count": float(not math.isfinite(norm)),
            }
        )  # fmt: skip
    if failure is None:
        events.append({"event": "EXPERIMENT_SUCCESS", "step": STEPS, "outcome": "clean" if control else outcome})
    else:
        events.append({"event": "EXPERIMENT_FAILURE", "step": failure, "reason": reason})
    path = folder / f"run_{number:02}.jsonl"
    path.write_bytes(b"".join(map(encode_event, events)))
    return path


def by_hand(folder: Path, *, runs: Sequence[dict[str, Any]], twin_matches_control: bool | None = True) -> CaseResults:
    """A study of runs by hand; each is what :func:`write_log` takes."""
    logs = tuple(write_log(folder, number, **run) for number, run in enumerate(runs))
    judged = list(range(5, STEPS + 1, 5))
    twin = [5.0 / (1.0 + step / 60.0) for step in judged]
    held_out = {"twin": twin}
    for log, run in zip(logs, runs, strict=True):
        failure = run.get("failure") or STEPS + 1
        held_out[log.stem] = [loss + (3.0 if step >= failure else 0.0) for step, loss in zip(judged, twin, strict=True)]
    plan = Plan(faults=tuple(run["fault"] for run in runs))
    return CaseResults.of(Study(plan, logs, judged, held_out, twin_matches_control))  # type: ignore[arg-type]
