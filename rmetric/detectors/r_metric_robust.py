"""The robust R-Metric as a detector."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation
from rmetric.robust.metric import READS, RobustRMetric, RobustRValue
from rmetric.robust.reference import WARM_UP, WINDOW
from rmetric.robust.settings import RobustSettings


def _threshold() -> float:
    return RobustSettings.shipped().threshold


@register_detector("r_metric_robust")
@dataclass(kw_only=True)
class RobustRMetricDetector(StreamingDetector):
    """R-Metric with robust, calibrated evidence (:class:`rmetric.robust.metric.RobustRMetric`): the score is R.

    Its unit is decades of rarity: evidence of 2, before the weight of its component, is as rare in healthy runs
    as one false alarm in 10,000 steps. A value that is not finite scores infinity.
    """

    title = "R-Metric (robust)"
    reads = READS
    calibrated_on = "torch"
    source = "components: Fatima 2025; estimators and settings: this project, fitted on the fit half of its real study"

    threshold: float = field(default_factory=_threshold)
    window: int = WINDOW
    """Records whose errors make a scale."""
    warm_up: int = WARM_UP
    """Records before the first judgement of a signal against its own past."""
    _metric: RobustRMetric = field(init=False, repr=False)
    _cause: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        self._metric = RobustRMetric(window=self.window, warm_up=self.warm_up)

    def update(self, observation: Observation) -> float:
        return self.update_explained(observation).r

    def update_explained(self, observation: Observation) -> RobustRValue:
        """As :meth:`update`, with the evidence of each component and the cause."""
        value = self._metric.update(observation)
        self._cause = value.cause
        return value

    @property
    def cause(self) -> str:
        return self._cause
