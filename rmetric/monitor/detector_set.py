"""The detectors of a live run: score each observation, raise an alert where an episode begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmetric.detectors import DETECTORS, RMetricDetector, StreamingDetector, checked_score, make_detector
from rmetric.episodes import EpisodesByCause
from rmetric.errors import UserError
from rmetric.measurements import Observation
from rmetric.metric import RValue
from rmetric.monitor.alerts import Alert, Cause, Explanation, GradientOutliers, alert_message, explanation_of
from rmetric.monitor.changes import FACTOR, SettingChange
from rmetric.monitor.step_numbers import StepNumbers
from rmetric.state import usable

SMOOTHING = 0.1
"""Weight of a new gradient norm in its running mean: a memory of about 20 steps."""


@dataclass(frozen=True)
class Detections:
    r: RValue
    """R-Metric in the paper's setting, whether or not it may raise an alert."""
    exceeded: tuple[str, ...]
    """Detectors whose score lies above their threshold."""
    alerts: tuple[Alert, ...]
    """Alert episodes that begin here, apart for each detector and each cause."""
    first_alerts: Mapping[str, int]

    @property
    def news(self) -> tuple[Alert, ...]:
        """Alerts that people are told of: one a cause."""
        return tuple(alert for alert in self.alerts if not alert.repeats)


class DetectorSet:
    """Scores each observation with every detector.

    Raises :class:`UserError` for a detector that cannot watch a run.
    """

    def __init__(self, detectors: Sequence[str | StreamingDetector], vocabulary: int | None) -> None:
        self.detectors = {detector.name: detector for detector in map(_streaming, detectors)}
        reference = self.detectors.get(RMetricDetector.name)
        self._reference = reference if isinstance(reference, RMetricDetector) else RMetricDetector()
        self._vocabulary = vocabulary
        self._episodes = {name: EpisodesByCause() for name in self.detectors}
        self._told, self._broken_ago = _Told(), dict.fromkeys(self.detectors, math.inf)
        self.first_alerts: dict[str, int] = {}
        """Detector → step of its first alert."""
        self.baseline = GradientNormBaseline()

    @property
    def thresholds(self) -> dict[str, float]:
        return {name: detector.threshold for name, detector in self.detectors.items()}

    def usable(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state of such detectors in which each that cannot go on from its own has that of one that begins; warns."""
        own = {
            name: usable(f"the detector {name}", detector, state["detectors"][name])
            for name, detector in self.detectors.items()
        }
        name = RMetricDetector.name
        watches = self._reference is self.detectors.get(name)
        reference = own[name] if watches else usable(f"the detector {name}", self._reference, state["_reference"])
        return {**state, "detectors": own, "_reference": reference}

    def update(
        self,
        observation: Observation,
        numbers: StepNumbers,
        worst: Mapping[str, str] | None = None,
        changes: Sequence[SettingChange] = (),
    ) -> Detections:
        """Score the next observation; ``worst``: measurement → where its worst value is; ``changes``: of settings."""
        r = self._reference.update_explained(observation)
        scores = {
            name: float(r.r)
            if detector is self._reference
            else checked_score(detector, observation, detector.update(observation))
            for name, detector in self.detectors.items()
        }
        above = [name for name, score in scores.items() if score > self.detectors[name].threshold]
        outliers = self.baseline.outliers(numbers) if above else GradientOutliers()
        self.baseline.update(numbers)
        finite = math.isfinite(numbers.scalars.get("input_scale", 0.0))
        moved = numbers.scalars.get("weights_changed", 0.0) > 0.0
        exceeded = {
            name: explanation_of(
                self.detectors[name],
                observation,
                outliers,
                self._vocabulary,
                changes,
                finite_inputs=finite,
                moved_elsewhere=moved,
            )
            for name in above
        }
        self._count_broken(exceeded)
        news = {name: explanation for name, explanation in exceeded.items() if not self._carried(name, explanation)}
        self._told.update(observation.step, news)
        alerts = []
        for name, apart in self._episodes.items():
            if apart.begin(observation.step, [news[name].cause] if name in news else [], scores[name]):
                alerts.append(self._alert(name, observation, scores[name], exceeded[name], worst or {}))
                self.first_alerts.setdefault(name, observation.step)
        return Detections(r, tuple(exceeded), tuple(alerts), self.first_alerts)

    def _count_broken(self, exceeded: Mapping[str, Explanation]) -> None:
        """Count the records since each detector found something that is not finite."""
        broken = {name for name, explanation in exceeded.items() if explanation.cause == "not_finite"}
        self._broken_ago = {name: 0 if name in broken else ago + 1 for name, ago in self._broken_ago.items()}

    def _carried(self, name: str, explanation: Explanation) -> bool:
        """Whether a detector is above its threshold for what was not finite, and told of, a few records ago."""
        return explanation.cause == "off_course" and self._broken_ago[name] <= self.detectors[name].carried

    def _alert(
        self, name: str, observation: Observation, score: float, explanation: Explanation, worst: Mapping[str, str]
    ) -> Alert:
        detector = self.detectors[name]
        teller = self._told.teller(name, explanation.cause)
        return Alert(
            step=observation.step,
            detector=name,
            score=score,
            threshold=detector.threshold,
            message=alert_message(detector, observation, score, explanation, worst.get(detector.cause, "")),
            cause=explanation.cause,
            repeats="" if teller == name else teller,
        )


class _Told:
    """Remembers of each cause which detector told people of its latest episode."""

    def __init__(self) -> None:
        self._episodes = EpisodesByCause()
        self._teller: dict[str, str] = {}

    def update(self, step: int, exceeded: Mapping[str, Explanation]) -> None:
        """Take in the next record: detectors above their threshold, and what each has found."""
        for cause in self._episodes.begin(step, {explanation.cause for explanation in exceeded.values()}):
            self._teller.pop(cause, None)

    def teller(self, name: str, cause: Cause) -> str:
        """The detector whose alert tells people of a cause: ``name``, if none has since its episode began."""
        return self._teller.setdefault(cause, name)


def _streaming(detector: str | StreamingDetector) -> StreamingDetector:
    made = make_detector(detector) if isinstance(detector, str) else detector
    if not isinstance(made, StreamingDetector):
        able = [name for name, kind in DETECTORS.items() if issubclass(kind, StreamingDetector)]
        raise UserError(f"{made.name} cannot watch a run while it goes on; choose of {', '.join(able)}")
    return made


class GradientNormBaseline:
    """Each parameter's gradient norm until now, to name the one that stands out in a step, and to miss what is cut off.

    Known are its latest norm and an exponentially weighted mean; a step without a gradient, or with zeros, counts for
    neither.
    """

    def __init__(self) -> None:
        self._means, self._latest = np.empty(0), np.empty(0)

    def outliers(self, numbers: StepNumbers) -> GradientOutliers:
        norms = numbers.norms
        if not len(norms):
            return GradientOutliers()
        self._make_room(numbers)
        finite, means = np.isfinite(norms), self._means[numbers.gradients]
        growth = np.divide(norms, means, out=np.zeros(len(norms)), where=finite & (means > 0))
        worst = int(growth.argmax())
        largest = numbers.names[numbers.gradients[worst]] if growth[worst] > 0 else ""
        return GradientOutliers(tuple(numbers.named(~finite)), len(norms), largest, float(growth[worst]))

    def cut_off(self, numbers: StepNumbers, requiring: Sequence[bool] | None) -> list[str]:
        """Names of parameters that get no gradient now, and had one as long as usual when they last had any.

        Not those that are frozen, or gone, by what each of them requires (``None``: not known). What fades, as a term
        does whose weight is annealed to 0, is a third of its recent mean or less when it ends.
        None where nothing has one: such a step was not measured.
        """
        if not len(numbers.norms):
            return []
        self._make_room(numbers)
        arrives = np.zeros(len(self._means), dtype=bool)
        arrives[numbers.gradients] = numbers.norms != 0.0
        missing = ~arrives & (self._latest * FACTOR > self._means)
        found = np.flatnonzero(missing).tolist()
        return [numbers.names[index] for index in found if requiring is None or requiring[index]]

    def update(self, numbers: StepNumbers) -> None:
        """Take in the gradients of a step, those that are finite and not 0."""
        self._make_room(numbers)
        counts = np.isfinite(numbers.norms) & (numbers.norms > 0.0)
        at, norms = np.array(numbers.gradients, dtype=int)[counts], numbers.norms[counts]
        means = self._means[at]
        self._means[at] = np.where(np.isnan(means), norms, means + SMOOTHING * (norms - means))
        self._latest[at] = norms

    def _make_room(self, numbers: StepNumbers) -> None:
        """NaN for each parameter that is new."""
        size = max(numbers.gradients, default=-1) + 1
        if size > len(self._latest):
            self._means, self._latest = (
                np.append(known, np.full(size - len(known), np.nan)) for known in (self._means, self._latest)
            )
