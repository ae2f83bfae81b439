"""The run that Figure 2 shows, its fault-free twin, and what the R-Metric made of both.

The typical one. Of the failed runs whose loss shows the failure (it diverged or became non-finite; a lost worker is
seen in no panel), whose onset is known and lies before the failure, and whose log has the most signals, it is the
one whose time from onset to failure is nearest to the median of theirs, the first by name at a tie. It is chosen by how
it failed, never by what a detector made of it. ``run`` names another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import RMetricDetector, first_alert
from rmetric.errors import UserError, did_you_mean
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import WARNING, Timeline, group_key
from rmetric.evaluation.truth import Truth
from rmetric.log_lines import strict
from rmetric.log_reader import assemble, chunks
from rmetric.metric import RValue
from rmetric.records import DIVERGED, NAN_LOSS, Run
from rmetric.reporting import style
from rmetric.simulation import RunSpec, run_batch


@dataclass(frozen=True)
class Watched:
    """A run and what the R-Metric made of it, recomputed from the log."""

    run: Run
    value: RValue
    threshold: float

    @classmethod
    def of(cls, run: Run) -> Watched:
        """A run, scored with the paper's setting."""
        detector = RMetricDetector()
        return cls(run, detector.fresh().extend_explained(run.observations), detector.threshold)

    @property
    def step(self) -> NDArray[np.int64]:
        return self.run.observations.step

    @property
    def r(self) -> NDArray[np.float64]:
        return np.asarray(self.value.r)

    @cached_property
    def first_alert(self) -> int | None:
        """Step of the first alert as the paper counts it: anywhere in the log up to the failure."""
        return first_alert(self.step, self.r, self.threshold)

    @cached_property
    def first_warning(self) -> int | None:
        """Begin of the first episode between onset and failure (strict)."""
        starts = Timeline.of([self.run]).starts(self.r)
        begun = starts.at(self.threshold) & (starts.zone == WARNING)
        return int(starts.step[begun][0]) if begun.any() else None


def choose(ev: Evaluator, name: str = "") -> tuple[Run, Truth, str] | None:
    """The run to show, its truth, and how it was chosen; ``None`` if no run fits and none was asked for.

    Raises
    ------
    UserError
        If no run has that name, or its log holds no record.
    """
    runs, truths = ev.study.runs, ev.study.truths
    if name:
        names, wanted = [run.name for run in runs], name.removesuffix(".jsonl")
        if wanted not in names:
            hint = did_you_mean(wanted, names, cutoff=0.3)
            raise UserError(f"no log is named {name}{hint or f'; --run takes one such as {names[0]}'}")
        index = names.index(wanted)
        if not len(runs[index].observations):
            raise UserError(f"the log {name} holds no record; choose another --run")
        return runs[index], truths[index], "It was chosen by name."
    fitting = [  # numbers and not runs: those of a large study do not fit into memory
        (sum(run.observations.has(name) for name, *_ in style.SIGNALS), truth.incubation, run.name, index)
        for index, (run, truth) in enumerate(zip(runs, truths, strict=True))
        if truth.kind == "failed"
        and truth.reason in (NAN_LOSS, DIVERGED)
        and len(run.observations)
        and truth.incubation
    ]
    if not fitting:
        return None
    most = max(signals for signals, *_ in fitting)
    best = [item[1:] for item in fitting if item[0] == most]
    median = float(np.median([incubation for incubation, *_ in best]))
    *_, index = min(best, key=lambda item: (abs(item[0] - median), item[1]))
    steps = f"{median:,.0f} step{'' if round(median) == 1 else 's'}"
    why = (
        f"Of the {len(best)} runs that failed by their loss, it is the one whose time from onset to failure is "
        f"nearest to their median ({steps})."
    )
    return runs[index], truths[index], why


def twin_of(run: Run, others: Sequence[Run]) -> tuple[Run | None, str]:
    """The fault-free run of the same backend, model and seed, and where it comes from.

    It is looked for among the logs; that of a simulated run is simulated anew if it is not there, and taken only if it
    agrees with the log in every record before the onset.
    """
    if run.is_control:
        return None, "It is a control run; it has no twin."
    key = group_key(run)
    for other in others:
        if key is not None and other.is_control and group_key(other) == key and other is not run:
            return other, "The twin is the control run of the same backend, model and seed."
    if run.config.get("backend") != "simulator":
        return None, "Its twin is not among the logs."
    twin = _simulated_twin(run)
    if twin is None:
        return None, "Its twin could not be simulated anew: the log comes from another version of the simulator."
    return (
        twin,
        "The twin was simulated anew from the log's seed; it agrees with the log in every record before the onset.",
    )


def _simulated_twin(run: Run) -> Run | None:
    try:
        spec = RunSpec(
            architecture=run.config["architecture"],
            seed=run.config["seed"],
            steps=run.config["total_training_steps"],
            log_every=run.config["log_every_n_steps"],
            eval_every=run.config["eval_every_n_steps"],
        )
        content = run_batch([spec])[0].content
    except (KeyError, TypeError, ValueError):  # UserError is a ValueError: the log asks for what we do not have
        return None
    lines = enumerate(map(json.loads, content.splitlines()), start=1)
    twin = assemble(f"twin of {run.name}", chunks(lines, strict(f"twin of {run.name}")))
    mine, theirs = run.observations, twin.observations
    count = len(mine) if run.onset is None else int((mine.step < run.onset).sum())
    same = np.array_equal(mine.step[:count], theirs.step[:count]) and all(
        np.array_equal(mine[name][:count], theirs[name][:count], equal_nan=True)
        for name in ("training_loss", "validation_loss", "sigma_sq", "lambda")
    )
    return twin if same else None


def has(ev: Evaluator, name: str) -> bool:
    """Whether the study has a run of that name."""
    return any(run.name == name.removesuffix(".jsonl") for run in ev.study.runs)
