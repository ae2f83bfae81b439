"""A router whose experts become alike, or that sends its tokens to a few of them."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


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
    watched = {  # noqa: RUF012
        "router_similarity": Usual(Alarming.RISES, floor=0.02),
        "router_conditioning": Usual(Alarming.RISES, floor=0.1, logarithmic=True),
        "routing_entropy": Usual(Alarming.FALLS, floor=0.01),
        "expert_load_max": Usual(Alarming.RISES, floor=0.05),
        "expert_load_min": Usual(Alarming.FALLS, floor=0.05),
    }
    reads = tuple(watched)
    source = "Huang et al. 2026, arXiv 2606.28116 (mixture-of-experts routers)"

    threshold: float = 6.0
    """Of healthy tiny models the largest deviations in the first 150 steps were 4.2 and 4.4."""
