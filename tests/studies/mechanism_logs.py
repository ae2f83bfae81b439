"""Logs of a mechanism study, written by hand: the loss leaves its twin and a monitor fires exactly where it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmetric.evaluation.studies import Study, load_study
from rmetric.log_writer import encode_event

STEPS, ONSET, STRIDE = 400, 200, 5
LEAVES, FALLS = 280, 240
"""Steps at which the loss of a strong fault leaves the twin's, and at which its QK entropy falls."""


def write_study(folder: Path, seeds: int = 3) -> Study:
    """A group of one model: twins, a fault that breaks the run and one that does not, each with every seed."""
    for repetition in range(1, seeds + 1):
        twin = _write(folder, "twin", repetition, fault="NONE", severity="none", strong=False)
        _write(folder, "strong", repetition, fault="LARGE_LR", severity="×30", strong=True, twin=twin)
        _write(folder, "weak", repetition, fault="LARGE_LR", severity="×2", strong=False, twin=twin)
    return load_study(folder, 1)


def _write(
    folder: Path, kind: str, repetition: int, *, fault: str, severity: str, strong: bool, twin: str | None = None
) -> str:
    name = f"run_{kind}_{repetition}"
    rng = np.random.default_rng(repetition)
    config = {
        "backend": "torch",
        "model_type": "tiny-llama",
        "seed": repetition,
        "repetition": repetition,
        "batch_size": 16,
        "total_training_steps": STEPS,
        "log_every_n_steps": 1,
        "twin": twin,
        "fault_injection": {"type": fault, "severity": severity, "trigger_step": ONSET if twin else None, "params": {}},
    }
    lines: list[dict[str, Any]] = [{"event": "EXPERIMENT_START", "config": config}]
    for step in range(1, STEPS + 1):
        if step == ONSET and twin:
            lines.append({"event": "FAULT_INJECTED", "step": step, "fault": fault})
        late = 8 * (repetition - 1)
        loss = 2.0 + 0.01 * rng.standard_normal() + (1.0 if strong and step >= LEAVES + late else 0.0)
        record: dict[str, Any] = {"event": "METRICS", "step": step, "training_loss": loss, "grad_norm": 1.0}
        if step % STRIDE == 0:
            collapsed = strong and step >= FALLS
            noise = 0.03 * rng.standard_normal()
            record["mechanism"] = {"qk_entropy": 0.05 if collapsed else 0.6 + noise, "update_max": 1e-3}
        lines.append(record)
    leaves = LEAVES + 8 * (repetition - 1)
    lines.append(
        {"event": "EXPERIMENT_FAILURE", "step": leaves, "reason": "DIVERGED"}
        if strong
        else {"event": "EXPERIMENT_SUCCESS", "step": STEPS, "outcome": "recovered" if twin else "clean"}
    )
    (folder / f"{name}.jsonl").write_bytes(b"".join(map(encode_event, lines)))
    return name
