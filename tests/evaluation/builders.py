"""Small runs and small logs, made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmetric.records import Observations, Run


def build_run(
    steps: Sequence[int],
    *,
    onset: int | None = None,
    failure: int | None = None,
    outcome: str | None = None,
    incomplete: bool = False,
    name: str = "run",
    fault: str = "LR_SPIKE",
    reason: str = "NAN_LOSS",
    columns: dict[str, Any] | None = None,
    **config: Any,
) -> Run:
    """A run with these record steps; a control if it has no onset."""
    events: list[dict[str, Any]] = []
    if onset is not None:
        events.append({"event": "FAULT_INJECTED", "step": onset})
    if not incomplete:
        if failure is not None:
            events.append({"event": "EXPERIMENT_FAILURE", "step": failure, "reason": reason})
        else:
            success = {"event": "EXPERIMENT_SUCCESS", "step": int(steps[-1])}
            events.append(success | ({"outcome": outcome} if outcome else {}))
    settings = {"fault_injection": {"type": "NONE" if onset is None else fault, "severity": "medium"}, **config}
    observations = Observations(np.asarray(steps, dtype=np.int64), columns or {})
    return Run(name, settings, observations, events)


def build_log(folder: Path, name: str, *, onset: int | None, failure: int | None, seed: int, **config: Any) -> Path:
    """A log of up to 60 records in steps of 10, whose loss and σ² jump at the onset."""
    rng = np.random.default_rng(seed)
    settings = {
        "experiment_id": name,
        "backend": "simulator",
        "model_type": "Llama-3-8B",
        "seed": seed,
        "total_training_steps": 600,
        "log_every_n_steps": 10,
        "step_time_s": 5.0,
        "num_workers": 8,
        "usd_per_accelerator_hour": 2.5,
        "fault_injection": {
            "type": "NONE" if onset is None else "LR_SPIKE",
            "severity": "-" if onset is None else "high",
            "trigger_step": onset,
            "params": {"factor": 25.0},
        },
        **config,
    }
    lines: list[dict[str, Any]] = [{"event": "EXPERIMENT_START", "config": settings}]
    for step in range(10, (failure or 600) + 1, 10):
        hurt = onset is not None and step >= onset
        if onset is not None and onset <= step < onset + 10:
            lines.append({"event": "FAULT_INJECTED", "step": onset})
        record = {"event": "METRICS", "step": step, "training_loss": 3.0 + float(rng.normal(0, 0.02)) + 2.0 * hurt}
        record |= {"grad_norm": 300.0 if hurt else 1.0, "sigma_sq": float(rng.uniform(0, 0.1)) + 5.0 * hurt}
        record |= {"lambda": 0.0, "delta_l": float(rng.normal(0, 0.01)) + hurt, "validation_loss": 3.0 + step / 1e4}
        lines.append(record)
    end = {"event": "EXPERIMENT_FAILURE", "step": failure, "reason": "DIVERGED"}
    lines.append(end if failure else {"event": "EXPERIMENT_SUCCESS", "step": 600})
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def build_logs(
    folder: Path, models: Sequence[str] = ("Llama-3-8B", "Mistral-7B"), *, seed: int = 0, **config: Any
) -> Path:
    """Twelve logs of two models: failed, recovered and control runs in both halves; seeds count from ``seed`` + 1."""
    folder.mkdir()
    for model in models:
        for repetition in (1, 2):
            for kind, onset, failure in (("failed", 305, 400), ("recovered", 255, None), ("control", None, None)):
                seed += 1
                name = f"run_{seed:03d}_{kind}"
                settings = {"model_type": model, "repetition": repetition, **config}
                build_log(folder, name, onset=onset, failure=failure, seed=seed, **settings)
    return folder
