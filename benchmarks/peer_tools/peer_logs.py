"""Runs that are judged, as the tools may see them: the log that a trainer writes, nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from rmetric.evaluation.truth import Truth
from rmetric.records import Observations, Run

FIELDS = {
    "loss": "training_loss",
    "eval_loss": "validation_loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "step_time": "step_time_s",
}
"""Field of the trainer's log → measurement. Every name is one that losslint and trainproof look for."""


def trainer_log(observations: Observations) -> list[str]:
    """One JSON line a record: the step and what was measured at it.

    No fault, no label, no event, no file name, and no line knows of a later one. What was not measured is left out, and
    ``eval_loss`` stands where it is new; a measurement that is not finite is the word NaN, as trainers write it.
    """
    columns = {field: observations[name].tolist() for field, name in FIELDS.items()}
    lines = []
    for index, (step, evaluated) in enumerate(zip(observations.step.tolist(), observations.evaluated, strict=True)):
        record = {"step": step}
        for field, column in columns.items():
            value = column[index]
            if not math.isnan(value) and (evaluated or field != "eval_loss"):
                record[field] = value if math.isfinite(value) else math.nan
        lines.append(json.dumps(record) + "\n")
    return lines


def records_to_failure(run: Run, truth: Truth) -> int:
    """Number of records up to the failure, the one at that step included; all of them if the run did not fail."""
    if truth.failure_step is None:
        return len(run.observations)
    return max(int(np.searchsorted(run.observations.step, truth.failure_step, side="right")), 1)


def sampled(runs: Sequence[Run], truths: Sequence[Truth], limit: int | None, seed: int) -> list[int]:
    """Indices of ``limit`` runs (all if ``None``) with the mixture of the whole: outcomes, faults, models, severities.

    The runs are ordered by these four, at random among equals, and every (runs / limit)-th is taken from a random
    start: a systematic sample, stratified by its order.
    """
    rng = np.random.default_rng(seed)
    luck = rng.random(len(runs)).tolist()
    order = sorted(
        range(len(runs)),
        key=lambda i: (truths[i].kind, runs[i].fault, runs[i].model_type, runs[i].severity, luck[i]),
    )
    if limit is None or limit >= len(runs):
        return sorted(order)
    at = (np.arange(limit) + rng.random()) * (len(runs) / limit)
    return sorted(order[int(position)] for position in at)
