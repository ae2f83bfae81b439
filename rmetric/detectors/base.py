"""The contract of a detector: records in, a score a record out; the higher, the more alarming."""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from inspect import get_annotations
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmetric.compiled import interruptible, pays
from rmetric.errors import UserError, did_you_mean, on_one_line
from rmetric.measurements import LARGEST, OBSERVABLE, Observation
from rmetric.records import Observations
from rmetric.registry import PluginError, Registry, load_entry_points

DETECTORS: Registry[type[Detector]] = Registry("detector")
ROBUST = "r_metric_robust"
"""The R-Metric of this project: its score is the rarity of what it saw, in decades."""
DEFAULT_DETECTORS = ("numerics", ROBUST)
"""Detectors that a healthy run of any kind hardly ever hears of: those of a monitor, and of a replay."""
STANDS_IN = {"delta_l": "validation_loss", "step_time_max_s": "step_time_s", "event_worker": "hardware_events"}
"""Measurement → one whose presence makes up for its absence: ΔL is worked out from validation losses, a record of one
step has no longer one, and without hardware events nobody reported any."""
NUMBERS = (Real, np.bool_)
"""What a score may be, beside an array or tensor of one number without a dimension. NumPy would take None for NaN, and
the text of a number for that number."""
D = TypeVar("D", bound="type[Detector]")


@dataclass(kw_only=True)
class Detector(ABC):
    """Scores each record of a run; a score above ``threshold`` is an alert.

    A score of NaN means that the detector cannot judge this record (what it reads was not measured, or it is still
    warming up); it never alerts. A measured but non-finite input must score ``+inf`` or the highest score there is.
    """

    name: ClassVar[str] = ""
    """Registered name."""
    title: ClassVar[str] = ""
    """Name in tables and figures."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Measurements it reads, by log name."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Those of them without which it cannot judge; none: any one of them is enough."""
    causal: ClassVar[bool] = True
    """Whether the score of a record depends on that record and earlier ones only."""
    online: ClassVar[bool] = False
    """Whether a run consults it at every record, so that its alerts stand in the log (a streaming, cheap one)."""
    source: ClassVar[str] = ""
    """Publication or tool that describes it."""
    group: ClassVar[str] = ""
    """Sorts it among the built-in detectors in place of its name, so that detectors of one kind stand together."""
    extra: ClassVar[str] = ""
    """Extra of this package that it needs. Studies score it only where it is asked for by name, and it is never the
    baseline of the headline: tables and figures are to be the same wherever they are made."""

    calibrated_on: ClassVar[str] = ""
    """``backend`` of the runs to whose fit half its threshold was fitted within the budget, by cross-fitting. On these
    it stands: to scores that were fitted to the same runs, another one would be fitted too low."""

    version: ClassVar[int] = 1
    """Raise it when the same records get other scores: kept scores are then computed anew (:mod:`rmetric.versions`)."""
    fitted_files: ClassVar[tuple[Path, ...]] = ()
    """Files that the scores depend on, such as fitted numbers; kept scores are valid for their content alone.

    Scores of a plug-in are kept only if it declares them: an empty tuple if it reads none.
    """

    threshold: float
    """An alert is due above it, in units of the score."""

    @abstractmethod
    def score_run(self, observations: Observations) -> NDArray[np.float64]:
        """Scores of a whole run from a fresh state, shape (n,). Leaves this detector as it is."""

    def missing(self, measured: Observations | Container[str]) -> tuple[str, ...]:
        """Measurements of :attr:`reads` that a run never measured, nor what stands in for them (:data:`STANDS_IN`).

        Parameters
        ----------
        measured
            The run's observations, or the log names of what it measured.
        """
        has = measured.has if isinstance(measured, Observations) else measured.__contains__
        return tuple(name for name in self.reads if not has(name) and not has(STANDS_IN.get(name, name)))

    def lack(self, measured: Observations | Container[str]) -> str:
        """One sentence on :meth:`missing` and what it means for the scores; empty if nothing is missing."""
        missing = self.missing(measured)
        if not missing:
            return ""
        left = [name for name in self.reads if name not in missing]
        judges = left and not set(missing) & set(self.needs)
        what = f"uses only {', '.join(left)}" if judges else "no score"
        return f"{what}; the log lacks {', '.join(missing)}"


@dataclass(kw_only=True)
class StreamingDetector(Detector):
    """A detector that scores record by record, so that it can watch a run in progress."""

    @property
    def cause(self) -> str:
        """Measurement that the latest score is mostly due to, for a message; empty where the detector does not say."""
        return ""

    @property
    def carried(self) -> int:
        """Records before the latest one whose values, those that are not finite too, may make its score what it is.

        0: the latest record makes it, or the detector does not say.
        """
        return 0

    @abstractmethod
    def update(self, observation: Observation) -> float:
        """Score of the next record."""

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        """Scores of the next ``n`` records, shape (n,); the same bits as ``n`` times :meth:`update`.

        Override where whole arrays are faster.
        """
        scores = [self.update(observation) for observation in observations]
        if not all(issubclass(kind, (float, np.floating)) for kind in {*map(type, scores)}):
            scores = [checked_score(self, *pair) for pair in zip(observations, scores, strict=True)]
        return np.array(scores, dtype=np.float64)

    def fresh(self) -> Self:
        """The same settings without any history."""
        return replace(self)

    def score_run(self, observations: Observations) -> NDArray[np.float64]:
        return self.fresh().extend(observations)


@dataclass(kw_only=True)
class CompiledDetector(StreamingDetector):
    """A streaming detector that also scores whole columns by compiled code, for long logs and for many runs."""

    @abstractmethod
    def columns(self, observations: Observations) -> NDArray[np.float64]:
        """Scores of the next ``n`` records, shape (n,); the same bits as ``n`` times :meth:`update`."""

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        if not pays(len(observations)):
            return super().extend(observations)
        with interruptible():
            return self.columns(observations)

    def score_run(self, observations: Observations) -> NDArray[np.float64]:
        with interruptible():
            return self.fresh().columns(observations)


@dataclass(kw_only=True)
class OneMeasurementDetector(StreamingDetector):
    """A streaming detector that reads one measurement, the first of :attr:`reads`, and nothing else of a record."""

    @abstractmethod
    def _next(self, value: float) -> float:
        """Score of the next value: NaN if it was not measured, infinity if it was not finite."""

    def update(self, observation: Observation) -> float:
        return self._next(observation[self.reads[0]])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return np.fromiter(map(self._next, observations[self.reads[0]].tolist()), np.float64, len(observations))


def register_detector(name: str, *, needs: str = "") -> Callable[[D], D]:
    """Class decorator: register a detector under ``name``, for scripts, tables and figures.

    With ``needs``, the detector is registered only where that package is installed. Raises ``ValueError`` for a name
    that is already taken, for an unknown measurement, and for fitted files that are no tuple of paths.
    """

    def register(detector: D) -> D:
        for measurement in detector.reads:
            if measurement not in OBSERVABLE:
                hint = did_you_mean(measurement, OBSERVABLE)
                raise ValueError(f"detector {name!r} reads {measurement!r}, which is not a measurement{hint}")
        if not isinstance(files := detector.fitted_files, tuple) or not all(isinstance(file, Path) for file in files):
            raise ValueError(f"detector {name!r} has fitted_files {files!r}; a tuple of paths is due")
        detector.name = name
        detector.title = detector.title or name.replace("_", " ")
        if not needs or find_spec(needs):
            DETECTORS.add(name, detector)
        return detector

    return register


def make_detector(name: str, **settings: Any) -> Detector:
    """A registered detector with its published settings, but for those given.

    Raises :class:`UserError` for an unknown name, and :class:`~rmetric.registry.PluginError` for a class that cannot be
    made of its fields or would leave out what it sets, and for a threshold that is no number or NaN, which no score
    exceeds: it would pass for a detector that never gives a false alarm.
    """
    kind = DETECTORS[name]
    due = "give every field a type and a default, and write @dataclass(kw_only=True) under @register_detector"
    try:
        detector: Detector = replace(kind(**settings))  # each run and process gets one made of the fields
    except TypeError as error:
        why = on_one_line(error)
        raise PluginError.of(kind, f"detector {name} cannot be made of its fields alone ({why}): {due}") from error
    if ignored := _ignored(detector):
        raise PluginError.of(kind, f"detector {name} is made without the {', '.join(ignored)} of its class: {due}")
    if not isinstance(detector.threshold, NUMBERS) or math.isnan(detector.threshold):
        due = "where a float or int is due, and not NaN, above which no score is"
        raise PluginError.of(kind, f"detector {name} has a threshold of {detector.threshold!r} {due}")
    return detector


def _ignored(detector: Detector) -> list[str]:
    """Fields whose value in the body of the class is not that of the object: the constructor does not know the body."""
    body, known = vars(type(detector)), vars(detector)
    annotated = get_annotations(type(detector)) if "__dataclass_fields__" in body else ()
    set_in_body = [item.name for item in fields(detector) if item.name in body and item.name not in annotated]
    return [name for name in set_in_body if name in known and not np.array_equal(known[name], body[name])]


def default_detectors() -> dict[str, StreamingDetector]:
    """Name → fresh detector, for :data:`DEFAULT_DETECTORS`."""
    return {name: make_detector(name) for name in DEFAULT_DETECTORS}  # type: ignore[misc]


def detectors_everywhere() -> list[str]:
    """Names of those that need no extra of this package: what a study scores unless it is told otherwise."""
    return [name for name, detector in DETECTORS.items() if not detector.extra]


def online_detectors() -> dict[str, StreamingDetector]:
    """Name → fresh detector, for those that a run consults at every record and whose alerts stand in the log."""
    return {name: make_detector(name) for name, kind in DETECTORS.items() if kind.online}  # type: ignore[misc]


def checked_score(detector: Detector, observation: Observation, score: Any) -> float:
    """The score of a record; raises :class:`~rmetric.registry.PluginError` if it is no number that a float can be."""
    if isinstance(score, NUMBERS) or (hasattr(score, "__float__") and getattr(score, "ndim", 1) == 0):
        with suppress(OverflowError):  # of a whole number or a fraction
            return float(score)
    raise PluginError.of(
        type(detector),
        f"detector {detector.name} gives {reprlib.repr(score)} for the record at step {observation.step} where a "
        "number is due (NaN where it cannot judge)",
    )


def clipped(value: float, limit: float = LARGEST) -> float:
    """The value, no further from 0 than ``limit``; NaN stays NaN."""
    return value if -limit <= value <= limit or math.isnan(value) else math.copysign(limit, value)


def first_alert(steps: NDArray[np.int64], scores: NDArray[np.float64], threshold: float) -> int | None:
    """Step of the first score above ``threshold``, or ``None``."""
    above = np.flatnonzero(scores > threshold)
    return int(steps[above[0]]) if len(above) else None


def load_detector_entry_points() -> None:
    """Register the detectors of installed packages (entry-point group ``rmetric.detectors``)."""
    try:
        load_entry_points("rmetric.detectors")
    except ImportError as error:
        raise UserError(f"an installed package announces a detector that cannot be imported: {error}") from error
