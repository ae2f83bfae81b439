"""Logs of forked runs, as the study on real training leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmetric.log_writer import encode_event

STEPS, ONSET = 40, 21


def write_log(folder: Path, name: str, *, seed: int = 1, fault: str = "NONE", **config: Any) -> Path:
    """A run of 40 steps; runs of one seed agree in the first 20."""
    shared, own = np.random.default_rng(seed), np.random.default_rng([seed, len(name)])
    disturbed = fault != "NONE" or config.get("disturbance")
    settings = {
        "backend": "torch",
        "model_type": "tiny-llama",
        "optimizer": "adamw",
        "seed": seed,
        "repetition": seed,
        "total_training_steps": STEPS,
        "log_every_n_steps": 1,
        "fault_injection": {"type": fault, "severity": "high", "trigger_step": ONSET, "params": {"factor": 15.0}},
        "disturbance": None,
        "twin": None,
        **config,
    }
    lines: list[dict[str, Any]] = [{"event": "EXPERIMENT_START", "config": settings, "note": "ärger"}]
    for step in range(1, STEPS + 1):
        rng = own if disturbed and step >= ONSET else shared
        if fault != "NONE" and step == ONSET:
            lines.append({"event": "FAULT_INJECTED", "step": step, "fault": fault})
            lines.append({"event": "CORRUPTION", "step": step, "modules": ["layers.0"], "share": 0.25})
        record: dict[str, Any] = {"event": "METRICS", "step": step, "training_loss": float(rng.normal(3.0, 0.1))}
        record |= {"grad_norm": float(rng.lognormal()), "update_rms": 1e-3, "step_time_s": float(rng.lognormal())}
        if step % 5 == 0:
            record["validation_loss"] = 2.5  # measured again and equal: new all the same
        if fault != "NONE" and step > ONSET + 10:
            record["grad_norm"] = float("inf")
        lines.append(record | {"r_metric": 0.5, "alerts": {}})
    lines.append({"event": "HELD_OUT", "step": STEPS, "steps": [5, 10], "held_out": [3.0, None], "twin": [3.0, 2.9]})
    if fault == "NONE":
        lines.append({"event": "EXPERIMENT_SUCCESS", "step": STEPS, "outcome": "clean"})
    else:
        lines.append({"event": "EXPERIMENT_FAILURE", "step": ONSET + 11, "reason": "NAN_LOSS"})
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(map(encode_event, lines)))
    return path


def write_study(folder: Path) -> Path:
    """Two seeds; of the first a twin, two forks, and a control run forked at its disturbance."""
    folder.mkdir(parents=True)
    write_log(folder, "a_fork", fault="LR_SPIKE", twin="m_twin")
    write_log(folder, "m_twin")
    write_log(folder, "z_late_fork", fault="DATA_CORRUPTION", twin="m_twin")
    write_log(folder, "z_mixed", disturbance={"type": "data_mix", "step": ONSET, "params": {}}, twin="m_twin")
    write_log(folder, "other_seed", seed=2, fault="LR_SPIKE")
    write_log(folder, "wrong_twin", seed=3, fault="LR_SPIKE", twin="m_twin")
    write_log(folder, "no_twin", seed=4, fault="LR_SPIKE", twin="gone")
    return folder
