"""Query or key vectors that grow."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


@register_detector("query_key_norms")
@dataclass(kw_only=True)
class QueryKeyNorms(OwnPastDetector):
    """Rise of the logarithm of the longest query or key vector.

    **Deviation:** the source names the vectors, and their normalisation as a remedy: hence the direction. The rule is
    this project's choice.
    """

    title = "query and key norms"
    watched = {  # noqa: RUF012
        "query_norm": Usual(Alarming.RISES, floor=0.1, logarithmic=True),
        "key_norm": Usual(Alarming.RISES, floor=0.1, logarithmic=True),
    }
    reads = tuple(watched)
    source = "Kao, Observability and Fault Tolerance for LLM training (the signal, and QK normalisation)"
