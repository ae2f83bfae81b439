"""The risk model: how likely a run fails within k steps, heals by itself, and what is wrong with it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.files import write_atomically
from rmetric.measurements import Observation
from rmetric.records import NO_FAULT, Observations
from rmetric.risk.features import WARM_UP, FeatureStream, features_of
from rmetric.risk.model_file import read_parameters, to_json
from rmetric.risk.parameters import BENIGN, UNKNOWN, Floats, RiskParameters

SHIPPED = "model.json"

FAMILIES: dict[str, tuple[str, ...]] = {
    # The step is too long; everything else is in order: go back and lower the rate.
    "learning rate": ("LR_SPIKE", "LARGE_LR"),
    # The gradients are too long, at a learning rate that is as planned: skip steps, clip, look at the loss scaling.
    "gradients": ("GRADIENT_EXPLOSION",),
    # The text is at fault, not the machine: skip the batches and look at the loader.
    "data": ("DATA_CORRUPTION",),
    # Arithmetic that is wrong now and then: find and drain the device.
    "silent corruption": ("SILENT_DATA_CORRUPTION",),
    # The model computes another function than the one it was trained as: a wrong checkpoint, kernel or setting.
    "attention or norm": ("GQA_MISMATCH", "RMS_NORM_ERROR", "LOW_PRECISION_ATTENTION"),
    # The same in the parts that only a mixture of experts has.
    "experts": ("EXPERT_FAILURE", "ROUTER_IMBALANCE"),
    # Loss and gradients are healthy until a worker is gone: checkpoint and replace it.
    "node": ("NODE_FAILURE",),
    # Every step waits for the slowest link: look at the network.
    "network": ("NETWORK_DEGRADATION",),
    # A changed data mix, a learning-rate restart, one bad batch, a stray correctable event, or nothing at all.
    BENIGN: (),
}
"""Family → its faults, in the order of tables and figures."""

_FAMILY_OF = {fault: family for family, faults in FAMILIES.items() for fault in faults}


def family_of(fault: str) -> str:
    """Family of a fault by its registered name; ``unknown`` for one that has none (a plug-in's, a combination's).

    >>> family_of("LARGE_LR"), family_of("NONE"), family_of("LR_SPIKE+NODE_FAILURE")
    ('learning rate', 'benign', 'unknown')
    """
    return BENIGN if fault == NO_FAULT else _FAMILY_OF.get(fault, UNKNOWN)


@dataclass(frozen=True)
class Assessment:
    """Answers about one record."""

    step: int
    risk: dict[int, float]
    """k → P(the run fails within k steps by what has already gone wrong); it rises with k. 1 in a record whose training
    loss is not finite: that is a failure."""
    heals: float
    """P(the run does not fail after all); 0 in such a record. Fitted to the records that follow an alert: ask it there.
    """
    family: str
    """The likeliest fault family, or ``unknown``. Fitted to the records that follow an alert, too."""
    families: dict[str, float]
    """Family → probability; they sum to 1."""


@dataclass(frozen=True)
class Assessments:
    """Answers about n records."""

    horizons: tuple[int, ...]
    names: tuple[str, ...]
    """Names of the families."""
    risk: Floats
    """Shape (n, horizons)."""
    heals: Floats
    """Shape (n,)."""
    families: Floats
    """Shape (n, families)."""
    family: NDArray[np.str_]
    """Shape (n,)."""


class RiskModel:
    """Calibrated answers about a run, from its observations alone.

    The failure is modelled in discrete time. With h_j = P(failure in (k_{j−1}, k_j] steps | none before) from the
    features of a record,

    .. math:: P(failure within k_j) = 1 - \\prod_{i \\le j} (1 - h_i),

    so a longer horizon never has the lower risk, and a run whose end is too near for one horizon still counts for
    shorter ones.

    The risk is that of what has already happened. Before the onset of a fault nobody can know of it, so a healthy
    record counts as one that does not lead to failure.

    Parameters
    ----------
    parameters
        From :meth:`load`, :meth:`shipped` or :mod:`studies.risk.fit`.
    """

    def __init__(self, parameters: RiskParameters) -> None:
        self.parameters = parameters
        self._stream = FeatureStream()
        self._first_steps: list[int] = []
        """As many as tell the interval between records."""

    @classmethod
    def shipped(cls) -> Self:
        """The model of this package; its ``provenance`` says what it was fitted to."""
        return cls(read_parameters(files("rmetric.risk").joinpath(SHIPPED).read_text(encoding="utf-8"), SHIPPED))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A model from a file that ``python -m studies.risk.fit`` wrote; raises :class:`UserError` for any other."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise UserError(
                f"{path} cannot be read as text; give a file that python -m studies.risk.fit wrote"
            ) from None
        return cls(read_parameters(text, str(path)))

    @property
    def horizons(self) -> tuple[int, ...]:
        """The k of the answers, steps."""
        return self.parameters.horizons

    @property
    def steps_a_record(self) -> frozenset[int]:
        """Intervals between the records that the model was fitted to, steps: it counts records, and knows no other."""
        return frozenset(self.parameters.provenance["steps_a_record"])

    def fresh(self) -> Self:
        """The same model without any history."""
        return type(self)(self.parameters)

    def update(self, observation: Observation) -> Assessment:
        """Answers about a run after its next record; warns, once, as :meth:`risk` does."""
        if len(self._first_steps) < WARM_UP:
            self._first_steps.append(observation.step)
            if len(self._first_steps) == WARM_UP:
                self._check_interval(self._first_steps)
        many = self.assess_features(self._stream.update(observation)[None, :])
        risk, failed = many.risk[0], _has_failed(observation["training_loss"])
        return Assessment(
            step=observation.step,
            risk=dict(zip(self.horizons, np.where(failed, 1.0, risk).tolist(), strict=True)),
            heals=0.0 if failed else float(many.heals[0]),
            family=str(many.family[0]),
            families=dict(zip(many.names, many.families[0].tolist(), strict=True)),
        )

    def risk(self, observations: Observations) -> Floats:
        """P(failure within k steps) after each record of a run, the bits of :meth:`update`; shape (n, horizons).

        Warns of a run whose records lie other numbers of steps apart than those that the model was fitted to: what it
        says of k steps is then about k records.
        """
        self._check_interval(observations.step)
        failed_N1 = _has_failed(observations["training_loss"])[:, None]
        return np.where(failed_N1, 1.0, self.risk_of_features(features_of(observations)))

    def _check_interval(self, steps: Sequence[int] | NDArray[np.int64]) -> None:
        interval = steps_a_record(steps)
        if interval and interval not in self.steps_a_record:
            known = "/".join(map(str, sorted(self.steps_a_record)))
            warnings.warn(
                f"a record every {interval} steps is out of the range of the risk model, which was fitted to one every "
                f"{known}: its horizons are then records, and it is not calibrated",
                stacklevel=3,
            )

    def assess_features(self, features_NF: Floats) -> Assessments:
        """Answers for records whose features are known."""
        families = self.parameters.families
        probability_NM = families.probability(features_NF)
        return Assessments(
            horizons=self.horizons,
            names=families.names,
            risk=self.risk_of_features(features_NF),
            heals=self.parameters.heals.probability(features_NF),
            families=probability_NM,
            family=families.name(probability_NM),
        )

    def risk_of_features(self, features_NF: Floats) -> Floats:
        """P(failure within k steps) for records whose features are known, shape (n, horizons)."""
        hazards_NK = np.stack([hazard.probability(features_NF) for hazard in self.parameters.hazards], axis=1)
        return cumulative(hazards_NK)

    def save(self, path: str | Path) -> None:
        """Write the model as readable JSON; the same model gives the same bytes."""
        write_atomically(Path(path), to_json(self.parameters).encode())


def steps_a_record(steps: Sequence[int] | NDArray[np.int64]) -> int:
    """Steps between two records of a run, mostly; 0 for a run that has no two.

    >>> steps_a_record([10, 20, 30, 31]), steps_a_record([7])
    (10, 0)
    """
    return int(np.median(np.diff(steps))) if len(steps) > 1 else 0


def _has_failed(training_loss: Any) -> Any:
    """Whether a run has failed, as the fit has it: its loss is not finite."""
    return np.isinf(training_loss)


def cumulative(hazards_NK: Floats) -> Floats:
    """P(failure by the end of each interval) from the probability in each, given none before; shape (n, horizons).

    >>> cumulative(np.array([[0.5, 0.5, 0.0]])).tolist()
    [[0.5, 0.75, 0.75]]
    """
    return np.asarray(1.0 - np.cumprod(1.0 - hazards_NK, axis=1), dtype=np.float64)
