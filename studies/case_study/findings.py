"""Verdicts of every detector on every run of a case study, under both protocols, as objects and as frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS, RMetricDetector, first_alert
from rmetric.detectors.drift import with_drift
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import ABSORBED, HEALTHY, PROTOCOLS, WARNING, Protocol
from rmetric.evaluation.scores import Score
from rmetric.evaluation.scoring import by_run
from rmetric.evaluation.studies import Study
from rmetric.evaluation.truth import Truth
from rmetric.faults import NO_FAULT
from rmetric.log_reader import read_log
from rmetric.log_writer import alerts_so_far
from rmetric.measurements import MEASUREMENTS
from rmetric.metric import RValue
from rmetric.records import Run

if TYPE_CHECKING:
    from studies.case_study.run import CaseStudy


CONTROL = "control"
SILENT = "the detector gave no score in these runs: they are too short for its warm-up, or lack what it reads"
"""Why nothing is said of a detector that could not judge: it was not quiet."""


@dataclass(frozen=True)
class Finding:
    """Verdict of one detector on one run, under one protocol."""

    run: str
    detector: str
    protocol: Protocol
    verdict: str
    """``warned``, ``missed``; of a run that did not fail ``false alarm``, ``absorbed`` (an episode while a fault was on
    that healed) or ``quiet``; ``left out``: the run is in no score; ``judged nothing``: the detector gave no score
    in any run."""
    step: Score
    """Step of the alert that the verdict rests on."""
    lead: Score
    """Steps from the warning to the failure."""
    false_alarms: Score
    """Runs (paper: 0 or 1) or episodes in the distinct healthy steps that this run carries (strict)."""
    absorbed: int
    """Episodes during a fault from which the run recovered (strict)."""
    healthy_steps: int
    """Distinct healthy steps that are counted in this run (strict)."""


class CaseResults:
    """A case study with its logs read and scored by every registered detector."""

    def __init__(self, study: CaseStudy, evaluator: Evaluator) -> None:
        self.study, self.evaluator = study, evaluator
        self.runs: Sequence[Run] = evaluator.study.runs
        self.truths: list[Truth] = evaluator.study.truths

    @classmethod
    def of(cls, study: CaseStudy, *, plugins: Sequence[str | Path] = ()) -> CaseResults:
        """Read the logs and score them; ``plugins`` are the files that register some of the detectors."""
        runs = [read_log(path) for path in study.logs]
        for run in runs:
            run.observations = with_drift(run.observations)
        folder = study.logs[0].parent if study.logs else Path()
        return cls(study, Evaluator.of(Study(folder, runs), among=[*DETECTORS], jobs=1, plugins=plugins))

    @cached_property
    def titles(self) -> list[str]:
        """One a run: the fault, as short as can be understood."""
        return [run_title(spelling) for spelling in self.study.plan.faults]

    @cached_property
    def control(self) -> int | None:
        """Index of the first run without a fault."""
        return next((index for index, run in enumerate(self.runs) if run.is_control), None)

    @cached_property
    def carrier(self) -> int | None:
        """Index of the run in which the healthy steps that all runs share are counted (strict)."""
        steps = self.evaluator.timeline.healthy_steps
        return int(steps.argmax()) if len(steps) and steps.any() else None

    @cached_property
    def r_metric(self) -> list[RValue]:
        """R and the normalised signals of each run, recomputed in the paper's setting."""
        return [RMetricDetector().extend_explained(run.observations) for run in self.runs]

    @cached_property
    def scores(self) -> dict[str, list[NDArray[np.float64]]]:
        """Detector → one array of scores a run."""
        return {name: by_run(self.evaluator.study, self.evaluator.scores[name]) for name in self.evaluator.detectors}

    def first_alert(self, index: int, detector: str) -> int | None:
        """Step of the first alert anywhere in a run, up to its failure: what the paper counts."""
        steps, failure = self.runs[index].observations.step, self.truths[index].failure_step
        until = steps <= (np.inf if failure is None else failure)
        threshold = self.evaluator.detectors[detector].threshold
        return first_alert(steps[until], self.scores[detector][index][until], threshold)

    def episodes(self, index: int, detector: str, zone: int) -> list[int]:
        """Steps at which alert episodes of a run begin: in its ``HEALTHY``, ``WARNING`` or ``ABSORBED`` part."""
        starts = self.evaluator.starts(detector)
        begun = starts.at(self.evaluator.detectors[detector].threshold) & (starts.run == index) & (starts.zone == zone)
        return starts.step[begun].tolist()

    def earliest_warning(self, index: int) -> tuple[list[str], int | None]:
        """The causal detectors that warned a run first (strict), and the step; none and ``None`` if nobody did."""
        warned = {
            name: steps[0]
            for name, detector in self.evaluator.detectors.items()
            if detector.causal and (steps := self.episodes(index, name, WARNING))
        }
        step = min(warned.values(), default=None)
        return [name for name, at in warned.items() if at == step], step

    def finding(self, index: int, detector: str, protocol: Protocol) -> Finding:
        """One cell of the comparison."""
        found = self._paper(index, detector) if protocol == "paper" else self._strict(index, detector)
        if detector not in self.evaluator.silent or found.verdict == "left out":
            return found
        nothing = Score.undefined(SILENT)
        return replace(found, verdict="judged nothing", step=nothing, lead=nothing, false_alarms=nothing)

    @cached_property
    def findings(self) -> list[Finding]:
        """All of them: runs, detectors, protocols."""
        return [
            self.finding(index, detector, protocol)
            for index in range(len(self.runs))
            for detector in self.evaluator.detectors
            for protocol in PROTOCOLS
        ]

    def _paper(self, index: int, detector: str) -> Finding:
        counts = self.evaluator.counts(detector, "paper")
        alert = self.first_alert(index, detector)
        warned, false = bool(counts.tp[index]), bool(counts.fp[index])
        if not counts.counted[index]:
            verdict = "left out"
        elif self.truths[index].kind == "failed":
            verdict = "warned" if warned else "missed"
        else:
            verdict = "false alarm" if false else "quiet"
        return Finding(
            self.runs[index].name,
            detector,
            "paper",
            verdict,
            _step(alert, "no alert"),
            self._lead(index, verdict, float(counts.lead[index])),
            Score(float(false)) if counts.counted[index] else self._left_out(index),
            0,
            0,
        )

    def _strict(self, index: int, detector: str) -> Finding:
        counts = self.evaluator.counts(detector, "strict")
        warnings, healed, false = (self.episodes(index, detector, zone) for zone in (WARNING, ABSORBED, HEALTHY))
        if not counts.counted[index]:
            verdict, steps = "left out", []
        elif self.truths[index].kind == "failed":
            verdict, steps = ("warned" if warnings else "missed"), warnings
        elif healed:
            verdict, steps = "absorbed", healed
        else:
            verdict, steps = ("false alarm" if false else "quiet"), false
        return Finding(
            self.runs[index].name,
            detector,
            "strict",
            verdict,
            _step(steps[0] if steps else None, "no alert episode began where it counts"),
            self._lead(index, verdict, float(counts.lead[index])),
            self._false_alarms(index, int(counts.fp[index])),
            int(counts.absorbed[index]),
            int(counts.healthy_steps[index]),
        )

    def _lead(self, index: int, verdict: str, lead: float) -> Score:
        if verdict == "left out":
            return self._left_out(index)
        if verdict == "warned":
            return Score(lead)
        return Score.undefined("not warned" if verdict == "missed" else "the run did not fail")

    def _false_alarms(self, index: int, episodes: int) -> Score:
        if self.carrier == index:
            return Score(float(episodes))
        if not self.truths[index].counted:
            return self._left_out(index)
        where = "none" if self.carrier is None else self.titles[self.carrier]
        return Score.undefined(f"healthy steps that the runs share are counted once, in {where}")

    def _left_out(self, index: int) -> Score:
        return Score.undefined(f"{self.truths[index].kind} runs are in no score")


def _step(step: int | None, otherwise: str) -> Score:
    return Score.undefined(otherwise) if step is None else Score(float(step))


def run_title(spelling: str) -> str:
    """A fault as it is written on the command line, shortened for tables and panels.

    >>> run_title("SILENT_DATA_CORRUPTION:target=weight,bit=30,persistence=transient")
    'SILENT_DATA_CORRUPTION weight bit=30 transient'
    >>> run_title("LR_SPIKE@high"), run_title("NONE")
    ('LR_SPIKE high', 'control')
    """
    if spelling == NO_FAULT:
        return CONTROL
    name, _, settings = spelling.partition(":")
    words = [name.replace("@", " ")]
    for setting in filter(None, settings.split(",")):
        _, _, value = setting.partition("=")
        words.append(value.strip() if value.strip().isalpha() else setting.strip())
    return " ".join(words)


def metrics_frame(results: CaseResults) -> pd.DataFrame:
    """One row a record: ``run, step, since_onset``, all measurements, the normalised signals, R, ``alerts``.

    ``alerts`` lists the detectors that have alerted so far in the run with the step of their first alert, such as
    ``r_metric@21 numerics@281``. ``since_onset`` is empty for a run without a fault.
    """
    return pd.concat([_run_frame(results, index) for index in range(len(results.runs))], ignore_index=True)


def held_out_frame(results: CaseResults) -> pd.DataFrame:
    """One row a judged step: ``step, twin`` and one column a run; held-out loss in nats, empty after a run's end."""
    study = results.study
    names = ["twin", *(run.name for run in results.runs)]
    return pd.DataFrame({"step": study.judged_steps, **{name: study.held_out[name] for name in names}})


def to_csv(frame: pd.DataFrame) -> bytes:
    """Write a frame as CSV at full precision: an empty cell was *not measured*, ``inf`` was *not finite*."""
    return frame.to_csv(index=False, lineterminator="\n", na_rep="").encode()


def _run_frame(results: CaseResults, index: int) -> pd.DataFrame:
    run, truth, value = results.runs[index], results.truths[index], results.r_metric[index]
    observations = run.observations
    since = np.full(len(observations), np.nan) if truth.onset is None else observations.step - truth.onset
    return pd.DataFrame(
        {
            "run": run.name,
            "step": observations.step,
            "since_onset": pd.array(since, dtype="Int64"),
            **{name: observations[name] for name in MEASUREMENTS},
            **value.by_log_name(),
            "alerts": _alerts_so_far(results, index),
        }
    )


def _alerts_so_far(results: CaseResults, index: int) -> list[str]:
    """Verdicts at each record; causal detectors only, since no record can know what one makes of the whole run."""
    detectors = results.evaluator.detectors
    first = {
        name: step
        for name, detector in detectors.items()
        if detector.causal and (step := results.first_alert(index, name)) is not None
    }
    known = alerts_so_far(results.runs[index].observations.step, first)
    return [" ".join(f"{name}@{step}" for name, step in alerts.items()) for alerts in known]
