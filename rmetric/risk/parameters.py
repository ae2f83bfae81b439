"""What is fitted of a risk model, and the probabilities that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.risk.scorers import Linear, Trees

Floats = NDArray[np.float64]
BENIGN, UNKNOWN = "benign", "unknown"
"""``benign``: nothing is broken; ``unknown``: the signals fit no family well enough. The second is an answer only."""


@dataclass(frozen=True)
class Calibrated:
    """A yes-or-no question: a scorer with one margin, and the line that makes its margin a log-odds that keeps.

    .. math:: P = 1 / (1 + e^{-(a m + b)})

    **Source:** Platt 1999, on margins of runs that the scorer had not seen.
    """

    scorer: Linear | Trees
    slope: float
    offset: float

    def probability(self, features_NF: Floats) -> Floats:
        """Shape (n,), in (0, 1)."""
        return sigmoid(self.slope * self.scorer.margins(features_NF)[:, 0] + self.offset)


@dataclass(frozen=True)
class Choice:
    """One of several families: softmax of margins, sharpened or softened by a temperature.

    **Source:** Guo, Pleiss, Sun, Weinberger 2017 (temperature), on margins of runs that the scorer had not seen.
    """

    names: tuple[str, ...]
    scorer: Linear | Trees
    temperature: float
    bar: float
    """Below this probability the likeliest family is not named: the answer is ``unknown``."""

    def probability(self, features_NF: Floats) -> Floats:
        """Shape (n, families); rows sum to 1."""
        return softmax(self.scorer.margins(features_NF) / self.temperature)

    def name(self, probability_NM: Floats) -> NDArray[np.str_]:
        """The likeliest family of each row, or ``unknown``, shape (n,)."""
        best = probability_NM.argmax(axis=1)
        top = probability_NM[np.arange(len(best)), best]
        return np.where(top >= self.bar, np.array(self.names)[best], UNKNOWN)


@dataclass(frozen=True)
class RiskParameters:
    """Everything that is fitted."""

    horizons: tuple[int, ...]
    """Steps, rising."""
    hazards: tuple[Calibrated, ...]
    """One a horizon: P(failure by then, given none by the horizon before it)."""
    heals: Calibrated
    families: Choice
    base_rates: Mapping[str, float]
    """Rates in the fit half, without looking at any signal: ``"10"``, …, ``"10 after onset"``, …,
    ``"heals, 5 steps after the alert, faulty runs"``, …."""
    provenance: Mapping[str, Any] = field(repr=False)


def sigmoid(log_odds: Floats) -> Floats:
    """Probability of a log-odds; exact at both ends.

    >>> sigmoid(np.array([0.0, -1000.0])).tolist()
    [0.5, 0.0]
    """
    size = np.exp(-np.abs(log_odds))
    return np.where(log_odds >= 0, 1.0 / (1.0 + size), size / (1.0 + size))


def softmax(margins_NM: Floats) -> Floats:
    """Probabilities of margins; rows sum to 1."""
    sizes = np.exp(margins_NM - margins_NM.max(axis=1, keepdims=True))
    return sizes / np.cumsum(sizes, axis=1)[:, -1:]
