"""Detectors of what the mechanism monitors measure, each against the past of its own run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, clipped, register_detector
from rmetric.measurements import Observation
from rmetric.records import Observations
from rmetric.robust.reference import RobustReference, logarithm

LEAST_ENTROPY = 1e-12
"""Smaller entropies count as this, 0 included: in single precision a spectrum's smaller shares are rounding."""


class Direction(Enum):
    """Direction in which a measurement moves when its mechanism fails."""

    UP = "up"
    DOWN = "down"
    EITHER = "either"
    """The source names the measurement and no direction."""


@dataclass(frozen=True)
class DeviationRule:
    """Comparison of one measurement with its own past."""

    alarming: Direction
    floor: float
    """Smallest scale of a deviation, in units of the measurement, or of its natural logarithm where that is taken."""
    logarithmic: bool = False
    """Take the natural logarithm first: for sizes, whose changes are ratios, and for entropies that collapse to nothing
    from far below 1."""
    least: float = 0.0
    """What a smaller value counts as in the logarithm. Where this is 0 a value of 0 is not judged: it is no size. An
    entropy of 0 is a whole collapse."""


@dataclass(kw_only=True)
class OwnPastDetector(StreamingDetector):
    """Largest robust deviation of some measurements from what they were before in this run.

    .. math:: z = \\pm (x - \\tilde{x}) / \\max(1.4826 \\, MAD, floor)

    with median and MAD of the last ``window`` measured values, the sign by the direction that is alarming (|z| where
    both are). A measurement is made every so many steps; a record in between has no score. A value enters limited to
    ``threshold`` scales from the median, so that a slow collapse does not become usual at once; one that is not finite
    scores ``+inf`` and does not enter.
    """

    watched: ClassVar[Mapping[str, DeviationRule]] = {}
    """Log name → rule; :attr:`reads` holds the names."""

    threshold: float = 3.0
    """Number of scales. Largest deviations of healthy tiny models, with other seeds than those of any table: 1 to 2.6;
    detectors whose measurements leap more have a higher threshold."""
    window: int = 64
    """Measured values that are remembered."""
    warm_up: int = 16
    """Measured values before the first score."""
    _past: dict[str, RobustReference] = field(init=False, repr=False)
    _cause: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        self._past = {
            name: RobustReference(window=self.window, warm_up=self.warm_up, floor=rule.floor, clip=self.threshold)
            for name, rule in self.watched.items()
        }

    @property
    def cause(self) -> str:
        return self._cause

    def update(self, observation: Observation) -> float:
        return self._next({name: observation[name] for name in self.watched})

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        scores = np.full(len(observations), np.nan)
        columns = {name: observations.columns[name] for name in self.watched if name in observations.columns}
        measured = np.zeros(len(observations), dtype=bool)
        for column in columns.values():
            measured |= ~np.isnan(column)
        for index in np.flatnonzero(measured).tolist():  # a record without any of them changes nothing
            scores[index] = self._next({name: float(column[index]) for name, column in columns.items()})
        return scores

    def _next(self, values: Mapping[str, float]) -> float:
        scores = {name: self._deviation(name, value) for name, value in values.items()}
        known = {name: score for name, score in scores.items() if not math.isnan(score)}
        self._cause = max(known, key=lambda name: known[name], default="")
        return known.get(self._cause, math.nan)

    def _deviation(self, name: str, value: float) -> float:
        """Deviation of the next value in the alarming direction; NaN if not measured, and during the warm-up."""
        if not math.isfinite(value):
            return value
        rule = self.watched[name]
        z = self._past[name].update(logarithm(max(value, rule.least)) if rule.logarithmic else clipped(value))
        if rule.alarming is Direction.EITHER:
            return abs(z)
        return z if rule.alarming is Direction.UP else -z


@register_detector("alignment")
@dataclass(kw_only=True)
class Alignment(OwnPastDetector):
    """Change of the cosine similarity of successive updates, or of a worker's gradient to that of the others.

    Steps that are too long undo one another; errors that are always the same add up; a worker that computes nonsense
    agrees with nobody.

    **Deviation:** the source names the cosine similarity and no direction, so both count; the rule is this project's
    choice.
    """

    title = "alignment"
    watched = {
        "update_alignment": DeviationRule(Direction.EITHER, floor=0.05),
        "gradient_alignment": DeviationRule(Direction.EITHER, floor=0.1),
    }
    reads = tuple(watched)
    source = "Kao, Observability and Fault Tolerance for LLM training (the signal)"

    threshold: float = 6.0
    """Largest deviations of healthy tiny models: 1.8 and 5.7."""


@register_detector("attention_entropy")
@dataclass(kw_only=True)
class AttentionEntropy(OwnPastDetector):
    """Change of the logarithm of the mean entropy of the attention's rows, of the head in which it is smallest.

    **Deviation:** the source names the entropy of the attention matrix and no direction, so both count; the rule is
    this project's choice.
    """

    title = "attention entropy"
    watched = {"attention_entropy": DeviationRule(Direction.EITHER, floor=0.2, logarithmic=True, least=LEAST_ENTROPY)}
    version = 2
    reads = tuple(watched)
    source = "Kao, Observability and Fault Tolerance for LLM training (the signal)"

    threshold: float = 5.0
    """Largest deviations of healthy tiny models: 1.8 and 3.8."""


@register_detector("qk_entropy")
@dataclass(kw_only=True)
class QkEntropy(OwnPastDetector):
    """Fall of the logarithm of the spectral entropy of the update of W_QᵀW_K, of the head in which it is smallest.

    A healthy update is spread over many singular directions; errors that all point the same way pile up in a few. The
    effective rank is the exponential of the same sum, so it is not judged once more.

    **Deviation:** the source's rule for when a fall is an alarm is not known here; the deviation from the run's own
    past is this project's choice, as are its settings.
    """

    title = "QK update entropy"
    watched = {"qk_entropy": DeviationRule(Direction.DOWN, floor=0.2, logarithmic=True, least=LEAST_ENTROPY)}
    version = 2
    reads = tuple(watched)
    source = "Huang et al. 2026, arXiv 2606.28116 (low-precision attention)"


@register_detector("qk_spectral_norm")
@dataclass(kw_only=True)
class QkSpectralNorm(OwnPastDetector):
    """Rise of the logarithm of the spectral norm of the update of W_QᵀW_K, of the head in which it is largest.

    **Deviation:** the source watches the spectral norm of the weights, which grows as low-rank errors add up; that of
    the update is not diluted by the energy of the initialisation. The rule is this project's choice.
    """

    title = "QK update norm"
    watched = {"qk_spectral_norm": DeviationRule(Direction.UP, floor=0.1, logarithmic=True)}
    reads = tuple(watched)
    source = "Qiu, Yao 2025, arXiv 2510.04212; Huang et al. 2026, arXiv 2606.28116"


@register_detector("query_key_norms")
@dataclass(kw_only=True)
class QueryKeyNorms(OwnPastDetector):
    """Rise of the logarithm of the longest query or key vector.

    **Deviation:** the source names the vectors, and their normalisation as a remedy: hence the direction. The rule is
    this project's choice.
    """

    title = "query and key norms"
    watched = {
        "query_norm": DeviationRule(Direction.UP, floor=0.1, logarithmic=True),
        "key_norm": DeviationRule(Direction.UP, floor=0.1, logarithmic=True),
    }
    reads = tuple(watched)
    source = "Kao, Observability and Fault Tolerance for LLM training (the signal, and QK normalisation)"


@register_detector("router_collapse")
@dataclass(kw_only=True)
class RouterCollapse(OwnPastDetector):
    """Largest of five deviations, each in the direction of a collapse.

    The rows of a router's matrix become alike: their mean cosine similarity and the condition number of the centered
    matrix rise. Its decisions become certain: the entropy of a token's routing falls. Its tokens go to few experts: the
    load of the busiest rises, that of the idlest falls.

    **Deviation:** the load is not named by the source; it is what the operator of a mixture of experts looks at. The
    rule is this project's choice.
    """

    title = "router collapse"
    watched = {
        "router_similarity": DeviationRule(Direction.UP, floor=0.02),
        "router_conditioning": DeviationRule(Direction.UP, floor=0.1, logarithmic=True),
        "routing_entropy": DeviationRule(Direction.DOWN, floor=0.01),
        "expert_load_max": DeviationRule(Direction.UP, floor=0.05),
        "expert_load_min": DeviationRule(Direction.DOWN, floor=0.05),
    }
    reads = tuple(watched)
    source = "Huang et al. 2026, arXiv 2606.28116 (mixture-of-experts routers)"

    threshold: float = 6.0
    """Largest deviations of healthy tiny models in the first 150 steps: 4.2 and 4.4."""


@register_detector("update_max")
@dataclass(kw_only=True)
class UpdateMax(OwnPastDetector):
    """Rise of the logarithm of the largest entry of the optimizer's update.

    One bad entry hardly moves the root mean square of a million, which ``update_rms_threshold`` looks at; it is the
    maximum.

    **Deviation:** the source compares the RMS of an update with a dynamic threshold; the maximum, and the deviation
    from the run's own past, are this project's choice.
    """

    title = "largest update"
    watched = {"update_max": DeviationRule(Direction.UP, floor=0.1, logarithmic=True)}
    reads = tuple(watched)
    source = "Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726 (the size of an update)"
