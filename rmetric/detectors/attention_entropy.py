"""Attention that becomes much sharper, or much more even, than it was."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


@register_detector("attention_entropy")
@dataclass(kw_only=True)
class AttentionEntropy(OwnPastDetector):
    """Change of the logarithm of the mean entropy of the attention's rows, of the head in which it is smallest.

    **Deviation:** the source names the entropy of the attention matrix and no direction, so both count; the rule is
    this project's choice.
    """

    title = "attention entropy"
    watched = {"attention_entropy": Usual(Alarming.MOVES, floor=0.2, logarithmic=True)}  # noqa: RUF012
    reads = tuple(watched)
    source = "Kao, Observability and Fault Tolerance for LLM training (the signal)"

    threshold: float = 5.0
    """Of healthy tiny models the largest deviations lay between 1.8 and 3.8."""
