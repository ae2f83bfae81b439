"""How much the R-Metric's weights matter: with signals left out, and carried over from one architecture to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import PROTOCOLS, Protocol
from rmetric.evaluation.scores import Score
from rmetric.evaluation.weights import Fitted
from rmetric.metric import RMetric
from rmetric.signals import Weights


@dataclass(frozen=True)
class Variant:
    """The R-Metric with certain weights under one protocol."""

    name: str
    weights: Weights
    protocol: Protocol
    threshold: float
    """Of highest F1 on the fit half; NaN if no run of it failed."""
    published: Score
    """F1 of all runs at the paper's threshold."""
    refitted: Score
    """F1 of the score half at :attr:`threshold`."""

    @classmethod
    def of(cls, ev: Evaluator, name: str, weights: Weights, protocol: Protocol) -> Variant:
        """The scores of these weights on a study."""
        threshold = ev.refitted_threshold(weights, protocol)
        published = ev.score_of("f1", ev.counts_with(weights, RMetric.paper().threshold, protocol))
        if np.isnan(threshold):
            return cls(name, weights, protocol, threshold, published, Score.undefined("no run of the fit half failed"))
        refitted = ev.score_of("f1", ev.counts_with(weights, threshold, protocol), ev.halves.score)
        return cls(name, weights, protocol, threshold, published, refitted)


def ablation(ev: Evaluator) -> list[Variant]:
    """The R-Metric with signals left out, the weights that remain scaled so that they sum to the paper's 1.25."""
    paper = Weights()
    total = sum(paper)
    variants = {
        "paper's weights": paper,
        "without λ": _scaled(paper._replace(lambda_=0.0), total),
        "without σ²": _scaled(paper._replace(sigma_sq=0.0), total),
        "without ΔL": _scaled(paper._replace(delta_l=0.0), total),
        "equal weights": Weights(total / 3.0, total / 3.0, total / 3.0),
    }
    found = []
    for protocol in PROTOCOLS:
        fitted = ev.fit(np.ones(len(ev.timeline), bool), protocol)
        known = {**variants, "fitted weights": fitted.weights} if fitted is not None else variants
        found += [Variant.of(ev, name, weights, protocol) for name, weights in known.items()]
    return found


@dataclass(frozen=True)
class Transfer:
    """Weights and threshold fitted on one architecture, scored on another one's score half under one protocol."""

    source: str
    target: str
    protocol: Protocol
    fitted: Fitted | None
    """Those of the source; ``None`` if no run failed in its fit half, or in the target's."""
    transferred: Score
    """F1 with the source's weights and threshold."""
    native: Score
    """F1 with those that were fitted on the target's own fit half."""
    paper: Score
    """F1 with the paper's."""
    loss_pct: Score
    """How much lower ``transferred`` is than ``native``, in per cent, paired interval."""
    against_paper_pct: Score
    """How much higher ``transferred`` is than ``paper``, in per cent, paired interval."""

    @classmethod
    def of(
        cls, ev: Evaluator, source: str, target: str, protocol: Protocol, mine: Fitted | None, own: Fitted | None
    ) -> Transfer:
        """The scores of one pair of architectures, given what was fitted on either."""
        runs_R = ev.runs_where(model_type=target) & ev.halves.score
        published = ev.counts_with(Weights(), RMetric.paper().threshold, protocol)
        paper = ev.score_of("f1", published, runs_R)
        if mine is None or own is None:
            nothing = Score.undefined("no run failed in the fit half of the source or of the target")
            return cls(source, target, protocol, None, nothing, nothing, paper, nothing, nothing)
        moved = ev.counts_with(mine.weights, mine.threshold, protocol)
        native = ev.counts_with(own.weights, own.threshold, protocol)
        gain = ev.compare("f1", moved, native, runs_R, relative=True)
        return cls(
            source,
            target,
            protocol,
            mine,
            transferred=ev.score_of("f1", moved, runs_R),
            native=ev.score_of("f1", native, runs_R),
            paper=paper,
            loss_pct=Score(0.0 - gain.value, 0.0 - gain.high, 0.0 - gain.low, gain.reason),
            against_paper_pct=ev.compare("f1", moved, published, runs_R, relative=True),
        )


def transfers(ev: Evaluator) -> list[Transfer]:
    """Every pair of architectures under both protocols."""
    architectures = sorted({run.model_type for run in ev.study.runs})
    found = []
    for protocol in PROTOCOLS:
        fits = {name: ev.fit(ev.runs_where(model_type=name), protocol) for name in architectures}
        found += [
            Transfer.of(ev, source, target, protocol, fits[source], fits[target])
            for source in architectures
            for target in architectures
        ]
    return found


def _scaled(weights: Weights, total: float) -> Weights:
    factor = total / sum(weights)
    return Weights(*(weight * factor for weight in weights))
