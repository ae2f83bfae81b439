"""Updates, or workers' gradients, that point another way than they did."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


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
    watched = {  # noqa: RUF012
        "update_alignment": Usual(Alarming.MOVES, floor=0.05),
        "gradient_alignment": Usual(Alarming.MOVES, floor=0.1),
    }
    reads = tuple(watched)
    source = "Kao, Observability and Fault Tolerance for LLM training (the signal)"

    threshold: float = 6.0
    """Of healthy tiny models the largest deviations lay between 1.8 and 5.7."""
