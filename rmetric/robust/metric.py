"""The robust R-Metric: three kinds of evidence in one unit, of which the strongest counts; and its fitted settings."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.measurements import Observation, reader
from rmetric.records import Observations
from rmetric.robust.context import Context, LearningCurve, NewLows, Rewards, bounded
from rmetric.robust.gradients import GradientEvidence
from rmetric.robust.hardware import HardwareEvidence
from rmetric.robust.loss import LossEvidence
from rmetric.robust.reference import LEVEL_RECORDS, WARM_UP, WINDOW
from rmetric.robust.surprise import OwnBar, Tail

VERSION = 3
"""Version of the file of settings."""
SHIPPED = Path(__file__).with_name("settings.json")
"""Settings that come with this package."""
COMPONENTS = (HardwareEvidence, GradientEvidence, LossEvidence)
"""Evidence of λ, σ² and ΔL."""
NAMES = tuple(component.statistics for component in COMPONENTS)
"""Statistics of each component."""
STATISTICS = tuple(itertools.chain(*NAMES))
"""All statistics, in the order of :class:`Statistics`."""
DRIFTS = frozenset(
    ("grad_norm.level", "grad_agreement.held", "training_loss.level", "training_loss.lost", "training_loss.diverged")
)
"""Statistics of the loss and of what comes by degrees: no evidence while the rewards of an agent hold. Jumps of a
gradient, an update or a setting are, whatever it gains."""
_DRIFT_COLUMNS = np.flatnonzero([name in DRIFTS for name in STATISTICS])
READS = tuple(dict.fromkeys(name for component in COMPONENTS for name in component.reads))
"""Measurements that the metric sees."""
_read = reader(READS)


class RobustSettings(NamedTuple):
    """Everything learned from healthy and failing runs. Immutable and plain: a checkpoint holds a copy."""

    version: int
    threshold: float
    """An alert is due above it."""
    budget_per_step: float
    """False alarms per healthy record that the threshold keeps in each source that it was fitted to."""
    tails: dict[str, Tail]
    """Statistic → its tail in healthy runs. One that is absent counts only where it is infinite."""

    @classmethod
    def shipped(cls) -> RobustSettings:
        """Settings that come with this package."""
        return _shipped()

    @classmethod
    def read(cls, path: Path) -> RobustSettings:
        """Settings from a file that ``python -m studies.robust.fit`` wrote; raises :class:`UserError` for another."""
        try:
            return cls.of(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} holds no settings of the robust R-Metric ({error}); fit them again") from error

    @classmethod
    def of(cls, text: str) -> RobustSettings:
        """Settings from the JSON text of such a file."""
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}, not {VERSION}")
        return cls(
            version=VERSION,
            threshold=float(content["threshold"]),
            budget_per_step=float(content["budget_per_step"]),
            tails={
                name: Tail(tuple(map(float, tail["bars"])), tuple(map(float, tail["surprises"])))
                for name, tail in content["tails"].items()
            },
        )


@cache
def _shipped() -> RobustSettings:
    return RobustSettings.of(SHIPPED.read_text(encoding="utf-8"))


def tails_of_components(tails: Mapping[str, Tail]) -> list[list[Tail]]:
    """Tails of each component's statistics, in their order; one that is absent surprises by infinity alone."""
    return [[tails.get(name, Tail((), ())) for name in names] for names in NAMES]


def by_component(statistics: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Columns of statistics, shape (n, statistics), of each component."""
    return np.split(statistics, np.cumsum([*map(len, NAMES)])[:-1], axis=1)


class RobustRValue(NamedTuple):
    """R of one record, what it is made of, and what contributed most."""

    r: float
    """The strongest evidence, at least 0; infinite for what no healthy step has; NaN if nothing was measured."""
    lambda_evidence: float
    sigma_sq_evidence: float
    delta_l_evidence: float
    """Evidence of each component: the surprise of its strongest statistic, less what the run has shown before."""
    statistic: str
    """The strongest statistic, or the measurement that is not finite; empty if there is none. Where the model is above
    the threshold, too, it is the model's: what the machine does lasts for long, and hides nothing."""

    @property
    def cause(self) -> str:
        """Measurement of the strongest statistic; empty if there is none."""
        return self.statistic.partition(".")[0]

    @property
    def carried(self) -> int:
        """Records before this one, of which one that was not finite may still count: in a mean of eight it does."""
        return LEVEL_RECORDS - 1 if self.statistic.endswith(".level") else 0


class Statistics:
    """Everything that is computed of a run before anything fitted comes in; streams."""

    def __init__(self, *, window: int = WINDOW, warm_up: int = WARM_UP) -> None:
        self._window, self._warm_up = window, warm_up
        self._context = Context()
        self._rewards = Rewards()
        self._hardware = HardwareEvidence(window, warm_up)
        self._gradients: GradientEvidence
        self._start()

    def _start(self, after: int = 0) -> None:
        """Begin with no past, but for what does not depend on what a record stands for: events of the hardware, and
        whether gradients and updates were ever 0."""
        self._hardware.forget_times()
        self._curve, self._lows = LearningCurve(window=self._window, warm_up=self._warm_up), NewLows()
        zeros = self._gradients.zeros if after else None
        self._gradients = GradientEvidence(self._window, self._warm_up, after, zeros)
        self._loss = LossEvidence(self._window, after)

    def update(self, observation: Observation) -> tuple[tuple[float, ...], ...]:
        """One tuple a component, NaN where a statistic cannot be judged."""
        if self._context.changes(observation):
            self._start(observation.step - 1)
        loss = bounded(observation["training_loss"])
        of_loss = self._loss.update(observation, self._curve.update(observation.step, loss))
        of_gradients = self._gradients.update(observation, self._curve.excess, new_lows=self._lows.update(loss))
        found = self._hardware.update(observation), of_gradients, of_loss
        if not self._rewards.hold(observation["reward"]):
            return found
        return tuple(  # value == value: not NaN, without a call
            tuple(0.0 if name in DRIFTS and value == value else value for name, value in zip(*pair, strict=True))
            for pair in zip(NAMES, found, strict=True)
        )

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        """Statistics of the next records, shape (n, statistics); the same bits as ``n`` times :meth:`update`."""
        from rmetric.robust import columns  # compiled: half a second to import, and a monitor does not need it

        incidents = columns.incidents(self._hardware.incidents, observations)
        found = [np.empty((0, len(STATISTICS) - 1))]
        for part, anew in columns.alike(self._context, observations):
            if anew:
                self._start(int(part.step[0]) - 1)
            parts = self._hardware, self._curve, self._lows, self._gradients, self._loss
            found.append(np.column_stack(columns.training(*parts, part)))
        statistics = np.column_stack([incidents, np.concatenate(found)])
        if self._rewards.told or observations.has("reward"):
            hold = np.array([self._rewards.hold(reward) for reward in observations["reward"].tolist()], dtype=bool)
            drifts = statistics[:, _DRIFT_COLUMNS]
            statistics[:, _DRIFT_COLUMNS] = np.where(hold[:, None] & ~np.isnan(drifts), 0.0, drifts)
        return statistics

    @classmethod
    def of(cls, observations: Observations) -> NDArray[np.float64]:
        """Statistics of a whole run from a fresh state, shape (n, statistics)."""
        return cls().extend(observations)


class RobustRMetric:
    """R = max(e_λ, e_σ², e_ΔL), each e the evidence of the strongest statistic of its kind.

    .. math::
        R = \\max_c (\\max_{j \\in c} s_j - b_c), \\qquad s_j = -\\log_{10} (f_j(x_j) / 0.01)

    with f_j(x) the false alarms a healthy record that a bar at x on statistic j alone gives in the source of healthy
    runs that gives most of them, so that all evidence is in one unit, and b_c what the run itself has shown of c before
    and survived (:class:`~rmetric.robust.surprise.OwnBar`).

    **Source:** the three components are those of M. Fatima 2025.

    **Deviation:** the paper normalises each signal over its own extremes, so that every run reaches the top of every
    scale, and adds them up by weights; here the run's median and MAD make the scale, healthy runs of others say what is
    rare, and what is in one unit needs no weights.

    Parameters
    ----------
    settings
        Tails and threshold; those that are shipped if left out.
    window, warm_up
        Records whose errors make a scale, and that must be there before the first score.

    Examples
    --------
    >>> metric = RobustRMetric()
    >>> metric.update(Observation(1, training_loss=2.0, grad_norm=1.0)).r
    0.0
    >>> metric.update(Observation(2, training_loss=2.0, grad_norm=math.inf)).cause
    'grad_norm'
    """

    def __init__(self, settings: RobustSettings | None = None, *, window: int = WINDOW, warm_up: int = WARM_UP) -> None:
        self._settings = settings or RobustSettings.shipped()
        self._window, self._warm_up = window, warm_up
        self._statistics = Statistics(window=window, warm_up=warm_up)
        self._judges = [(tails, OwnBar()) for tails in tails_of_components(self._settings.tails)]

    @property
    def threshold(self) -> float:
        """An alert is due when R exceeds it."""
        return self._settings.threshold

    def fresh(self) -> RobustRMetric:
        """The same settings without any history."""
        return RobustRMetric(self._settings, window=self._window, warm_up=self._warm_up)

    def update(self, observation: Observation) -> RobustRValue:
        """R of the next record."""
        evidence: list[float] = []
        statistic, told, most = "", 0.0, self._settings.threshold  # what the machine counts at most against the model
        for names, (tails, bar), values in zip(NAMES, self._judges, self._statistics.update(observation), strict=True):
            surprises = [*map(Tail.surprise, tails, values)]
            strongest = max(surprises)
            found = bar.update(strongest)
            if found > told:
                told, statistic = min(found, most), names[surprises.index(strongest)]
            evidence.append(found)
            most = math.inf
        r = max(evidence)
        read = _read(observation)
        if math.inf in read:
            r, statistic = math.inf, statistic if r == math.inf else READS[read.index(math.inf)]
        elif all(map(math.isnan, read)):
            r = math.nan
        return RobustRValue(r, evidence[0], evidence[1], evidence[2], statistic)

    def r_of(self, observations: Observations) -> NDArray[np.float64]:
        """R of each of the next ``n`` records; the same bits as ``n`` times :meth:`update`."""
        from rmetric.robust import columns

        parts = by_component(self._statistics.extend(observations))
        evidence = [columns.evidence(*judge, part) for judge, part in zip(self._judges, parts, strict=True)]
        read = np.array([observations[name] for name in READS])
        r = np.where(np.isinf(read).any(axis=0), math.inf, np.max(evidence, axis=0))
        return np.where(np.isnan(read).all(axis=0), math.nan, r)

    def extend(self, observations: Observations) -> list[RobustRValue]:
        """R of the next ``n`` records; the same bits as ``n`` times :meth:`update`."""
        return [self.update(observation) for observation in observations]
