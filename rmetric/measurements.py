"""The catalogue of measurements: each number that a METRICS record may hold, named and described once.

A measurement of the training step is a field of :class:`Observation`; its annotation says how the values of several
steps merge into one record, what it means, and its unit. A measurement inside the model is an entry of
:data:`MECHANISM`. The columns of :class:`~rmetric.records.Observations`, writer and reader of the log, the summaries of
the simulator, the Parquet schema and the help texts of Prometheus follow from these tables: a new measurement is an
entry here and the estimator that fills it.

One convention holds for every value in memory:

* ``NaN`` means *not measured*;
* ``+inf`` means *measured, and not finite* (NaN, +inf or -inf in the run).

A non-finite loss is therefore greater than every threshold; the trap that ``nan > threshold`` is silently false cannot
arise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Any, Literal, Self, get_type_hints

Merge = Literal["mean", "max", "min", "sum", "last", "latest", "mode"]
"""How several values become one. ``last``: the value at the record's step; ``latest``: the latest known one, with which
a reader fills the gaps of a log; ``mode``: the most frequent one."""
Value = float | None
LARGEST = 1e150
"""Squares of larger values, sums and products of them, overflow a double, for good: what enters those is clipped to ±
this, or left out."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Description of one measurement."""

    merge: Merge
    """Over the steps of a record; in :data:`MECHANISM` over layers, heads, experts or tensors."""
    meaning: str
    unit: str = ""
    """Empty: a plain number."""
    source: str = ""
    """Measurement of a step that is merged; empty: the one of the same name."""
    name: str = ""
    """Name in the log; the table that holds the measurement sets it."""

    @property
    def description(self) -> str:
        """Meaning and unit.

        >>> MEASUREMENTS["step_time_max_s"].description
        'time of the longest step, s'
        """
        return f"{self.meaning}, {self.unit}" if self.unit else self.meaning


@dataclass(slots=True)
class Observation:
    """One METRICS record as a detector sees it: a summary of the steps since the record before it.

    Every field but ``step`` may be left out (``None``: not measured). A NaN or an infinity that is passed in was
    measured and is held as ``+inf``; a field that was not measured is held as NaN.
    """

    step: int
    """Training step at which the record was written."""
    training_loss: Annotated[Value, Measurement("mean", "training loss", "nats")] = None
    validation_loss: Annotated[Value, Measurement("latest", "validation loss", "nats")] = None
    learning_rate: Annotated[Value, Measurement("last", "learning rate")] = None
    grad_norm: Annotated[Value, Measurement("max", "global gradient norm, before clipping")] = None
    update_rms: Annotated[Value, Measurement("max", "root mean square of the optimizer's update")] = None
    grad_agreement: Annotated[
        Value, Measurement("max", "cosine of the gradient and the mean direction of those before", "-1 to 1")
    ] = None
    step_time_s: Annotated[Value, Measurement("mean", "time of a step", "s")] = None
    step_time_max_s: Annotated[Value, Measurement("max", "time of the longest step", "s", source="step_time_s")] = None
    lambda_: Annotated[
        Value, Measurement("latest", "λ: hardware events among the last 50 over the time they span", "events/h")
    ] = None
    sigma_sq: Annotated[
        Value, Measurement("max", "σ²: variance of the gradient norms over workers or micro-batches", "norm²")
    ] = None
    delta_l: Annotated[Value, Measurement("latest", "ΔL: validation loss minus the mean of those before", "nats")] = (
        None
    )
    non_finite_count: Annotated[Value, Measurement("sum", "gradients (a live run: tensors) that were not finite")] = (
        None
    )
    settings_changed: Annotated[
        Value,
        Measurement("sum", "settings of the optimizer, modes of modules, lines of the loop, changed abruptly"),
    ] = None
    trained_parameters: Annotated[
        Value,
        Measurement("last", "most parameters (tensors) with a gradient since layers were frozen, where it changes"),
    ] = None
    planned_changes: Annotated[
        Value,
        Measurement("sum", "changes of the training that were announced as planned, in the records that have some"),
    ] = None
    uniform_gap: Annotated[
        Value, Measurement("mean", "training loss - ln(vocabulary): 0 if the model answers every token alike", "nats")
    ] = None
    attention_logit_max: Annotated[Value, Measurement("max", "largest attention logit")] = None
    hardware_events: Annotated[Value, Measurement("sum", "hardware events reported; slow steps are none")] = None
    event_worker: Annotated[
        Value, Measurement("mode", "number, from 0, of the worker that reported most of the hardware events")
    ] = None
    reward: Annotated[Value, Measurement("mean", "reward of an episode, of an agent that learns by it")] = None
    evaluated: bool = False
    """True if ``validation_loss`` is new in this record."""
    mechanism: Mapping[str, float] = field(default_factory=dict)
    """Some of :data:`MECHANISM`, by name; empty in the steps between their measurements."""

    def __post_init__(self) -> None:
        for name, value in zip(FIELDS, _values(self)):  # noqa: B905 - one object a record: strict costs a third more
            if value is None:
                setattr(self, name, math.nan)
            elif type(value) is not float or value - value != 0.0:  # NaN and infinity have no difference of 0
                setattr(self, name, in_convention(value))
        if self.mechanism:
            self.mechanism = {name: in_convention(value) for name, value in self.mechanism.items()}

    def __getitem__(self, name: str) -> float:
        """A measurement by its name in the log."""
        if name in MECHANISM:
            return self.mechanism.get(name, math.nan)
        return getattr(self, _FIELD_OF.get(name, name))

    def but_with(self, **values: Any) -> Self:
        """A copy with some other values, by field.

        Not with ``dataclasses.replace``: a NaN that is passed in was measured, so what was not would become infinite.

        >>> Observation(1, training_loss=2.0).but_with(step=3)["grad_norm"]
        nan
        """
        other = copy(self)
        for name, value in values.items():
            setattr(other, name, value)
        return other

    @property
    def announced(self) -> bool:
        """Whether a change of the training was announced in this record."""
        return self.planned_changes > 0.0  # type: ignore[operator]  # __post_init__ leaves no None


def reader(names: Iterable[str]) -> Callable[[Observation], tuple[float, ...]]:
    """Reads several measurements of a step at once, two at least, by their names in the log.

    >>> reader(("grad_norm", "lambda"))(Observation(1, grad_norm=2.0))
    (2.0, nan)
    """
    return attrgetter(*(_FIELD_OF[name] for name in names))


def in_convention(value: float | None) -> float:
    """One value in the in-memory convention.

    >>> [in_convention(value) for value in (None, 2.5, float("nan"), float("-inf"))]
    [nan, 2.5, inf, inf]
    """
    if value is None:
        return math.nan
    return float(value) if math.isfinite(value) else math.inf


def _table(described: Mapping[str, Measurement]) -> dict[str, Measurement]:
    return {name: replace(measurement, name=name) for name, measurement in described.items()}


_DECLARED: dict[str, Measurement] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Observation, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
FIELDS = tuple(_DECLARED)
"""Fields of :class:`Observation` that are measured: the names of the log, but ``lambda_`` for ``lambda``."""

_values = attrgetter(*FIELDS)

MEASUREMENTS = _table({name.rstrip("_"): measurement for name, measurement in _DECLARED.items()})
"""Measurements of a METRICS record that detectors may see, by their names in the log and in its order."""
_FIELD_OF = dict(zip(MEASUREMENTS, FIELDS, strict=True))

MECHANISM = _table(
    {
        "qk_entropy": Measurement("min", "spectral entropy of a head's update of W_QᵀW_K over the last stride"),
        "qk_effective_rank": Measurement("min", "effective rank of that update"),
        "qk_spectral_norm": Measurement("max", "spectral norm of that update"),
        "router_similarity": Measurement("max", "mean pairwise cosine of the rows of a router's matrix"),
        "router_conditioning": Measurement("max", "condition number of a router's matrix minus its mean row"),
        "routing_entropy": Measurement("min", "mean over tokens of the entropy of a router's choice"),
        "expert_load_max": Measurement("max", "share of the busiest expert"),
        "expert_load_min": Measurement("min", "share of the idlest expert"),
        "attention_entropy": Measurement("min", "mean entropy of a head's attention rows"),
        "update_max": Measurement("max", "largest change of a parameter in the optimizer's last step"),
        "update_alignment": Measurement("last", "cosine of the change over the last stride and the one before it"),
        "gradient_alignment": Measurement("min", "cosine of a micro-batch's gradient and the mean of the others"),
        "query_norm": Measurement("max", "norm of a query as it meets the keys"),
        "key_norm": Measurement("max", "norm of a key as it meets the queries"),
    }
)
"""Measurements of the mechanism monitors of a live run, every so many steps; detectors may see them as well. In the log
they stand together under ``mechanism``, so that reading a log without them costs nothing more. Of several layers,
heads, experts or tensors each is the worst one."""

OBSERVABLE = {**MEASUREMENTS, **MECHANISM}
"""Measurements that detectors may see."""

VERDICTS = _table(
    {
        "lambda_norm": Measurement("last", "λ, min-max normalised over the last records", "0 to 1"),
        "sigma_sq_norm": Measurement("last", "σ², min-max normalised over the last records", "0 to 1"),
        "delta_l_norm": Measurement("last", "ΔL, min-max normalised over the last records", "0 to 1"),
        "r_metric": Measurement("last", "R, the weighted sum of the three normalised signals", "0 to 1.25"),
    }
)
"""Values of the run's own R-Metric. Kept for comparison; no detector reads them."""
LOSSES = ("training_loss", "validation_loss")
"""Measurements that a training logs by itself, whatever the framework."""
MACHINE_MEASUREMENTS = ("hardware_events", "lambda", "step_time_s", "step_time_max_s")
"""Measurements of the machine rather than of the model; no two runs of a training share them."""
OWN_PREFIX = "rmetric/"
"""Of the names that this project's monitor gives to the trackers of others."""
OWN_STEP = f"{OWN_PREFIX}step"
"""The monitor's step, which others may count from elsewhere."""
MAPPED = ("step", *MEASUREMENTS, *VERDICTS)
"""Fields of a record that a column of somebody else's log can be."""
