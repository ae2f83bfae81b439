"""A made-up study with two kinds of fault, each seen by a component of its own, on two architectures."""

from __future__ import annotations

from pathlib import Path

from rmetric.evaluation.studies import Study
from rmetric.records import Observations, Run
from tests.robust.runs import ONSET, disturbed, healthy

GRADIENTS, LOSS = "GRADIENT_EXPLOSION", "DATA_CORRUPTION"
ARCHITECTURES = ("tiny-llama", "tiny-moe")
LATER = slice(ONSET, None)


def made_run(seed: int, fault: str, observations: Observations, **config: object) -> Run:
    """A run that fails 20 steps after its onset if it has a fault."""
    injection = {"type": fault, "severity": "high", "trigger_step": ONSET + 1}
    settings = {"seed": seed, "log_every_n_steps": 1, "total_training_steps": 500, "fault_injection": injection}
    events = [{"event": "EXPERIMENT_SUCCESS", "step": 500, "outcome": "clean"}]
    if fault != "NONE":
        failure = {"event": "EXPERIMENT_FAILURE", "step": ONSET + 20, "reason": "DIVERGED"}
        events = [{"event": "FAULT_INJECTED", "step": ONSET + 1}, failure]
    return Run(f"run_{seed}", {**settings, **config}, observations, events)


def made_study(backend: str = "torch") -> Study:
    """Twelve runs: each kind of fault and a control run, of each architecture and in each half."""
    runs: list[Run] = []
    for model in ARCHITECTURES:
        for repetition in (1, 2):
            for fault in (GRADIENTS, LOSS, "NONE"):
                seed = 1 + len(runs)
                observations = {
                    GRADIENTS: lambda seed=seed: disturbed({"grad_norm": (LATER, 40.0)}, seed=seed),
                    LOSS: lambda seed=seed: disturbed({"training_loss": (LATER, 9.0)}, seed=seed),
                    "NONE": lambda seed=seed: healthy(seed=seed),
                }[fault]()
                config = {"backend": backend, "model_type": model, "repetition": repetition}
                runs.append(made_run(seed, fault, observations, **config))
    return Study(Path(backend), runs, checksums=[run.name for run in runs])
