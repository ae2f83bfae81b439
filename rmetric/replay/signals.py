"""λ, σ² and ΔL out of a log: recomputed where it holds what they are made of, else as logged; and which it was."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.log_writer import to_log_precision
from rmetric.records import Event, fresh_evaluations, held
from rmetric.signals import HardwareFailureRate, ValidationDrift

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Logged = Mapping[str, Floats]
"""Every measurement and verdict by log name, each of shape (n,), as the log has it; NaN: it does not say."""
HardwareEvents = list[tuple[int, Event]]
"""Each with the index of the record that it stands before."""

NOT_IN_LOG = "not in the log"
"""What a signal rests on of which the log says nothing."""
SIGNALS = {"lambda": "λ", "sigma_sq": "σ²", "delta_l": "ΔL"}
"""Log name → the field's own letter."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """One signal in a chunk of ``n`` records; every array of shape (n,)."""

    values: Floats
    """The raw signal as the detectors see it. NaN: not measured, infinity: not finite."""
    known: Bools
    """True where the log has given a raw value by then, or what it is made of."""
    recomputed: Bools
    """True where ``values`` are recomputed."""
    logged_norm: Floats
    """The normalised value that the log states, where no raw one is known; NaN elsewhere."""

    @property
    def measured(self) -> Bools:
        """True where there is a raw value or, as logged, a normalised one."""
        return (self.known & ~np.isnan(self.values)) | ~np.isnan(self.logged_norm)


class Ever:
    """Running logical or: true from the first record in which something is the case.

    >>> ever = Ever()
    >>> ever.extend(np.array([False, True, False])).tolist(), ever.extend(np.array([False])).tolist()
    ([False, True, True], [True])
    """

    def __init__(self) -> None:
        self.so_far = False

    def extend(self, now: Bools) -> Bools:
        """Return it for each of the next ``n`` records, shape (n,)."""
        ever = np.logical_or.accumulate(now) | self.so_far
        self.so_far |= bool(now.any())
        return ever


class ValidationLosses:
    """The latest known validation loss at each record, and where it is new."""

    def __init__(self) -> None:
        self._raw = self._latest = math.nan

    def extend(self, raw: Floats) -> tuple[Floats, Bools]:
        """Losses with their gaps filled, and whether each is new; shape (n,), n at least 1."""
        evaluated, losses = fresh_evaluations(raw, self._raw), held(raw, self._latest)
        self._raw, self._latest = float(raw[-1]), float(losses[-1])
        return losses, evaluated


class _Signal(ABC):
    """Base of the three: raw values as logged, else normalised ones as logged."""

    name = recomputed_from = ""

    @abstractmethod
    def extend(self, events: HardwareEvents, logged: Logged, validation: Floats, evaluated: Bools) -> Recovered:
        """The signal in the next chunk, from what :meth:`SignalRecovery.extend` takes."""

    def __init__(self) -> None:
        self._ever_logged = Ever()
        self._ever_recomputed = Ever()
        self._any_norm = False

    def _known(self, logged: Logged, recomputed: Bools) -> Bools:
        return self._ever_logged.extend(~np.isnan(logged[self.name])) | recomputed

    def _norm(self, logged: Logged, known: Bools) -> Floats:
        stated = np.where(known, np.nan, logged[f"{self.name}_norm"])
        self._any_norm = self._any_norm or not np.isnan(stated).all()
        return np.where(np.isinf(stated), 1.0, stated)

    @property
    def rests_on(self) -> str:
        """Statement of what the normalised signal rests on."""
        if self._ever_recomputed.so_far:
            return self.recomputed_from
        if self._ever_logged.so_far:
            return "as logged"
        return "normalised value as logged" if self._any_norm else NOT_IN_LOG


class _Lambda(_Signal):
    """λ from the hardware events; as logged before the first of them."""

    name = "lambda"
    recomputed_from = "recomputed from HARDWARE_EVENT"

    def __init__(self) -> None:
        super().__init__()
        self._failure_rate = HardwareFailureRate()
        self._latest_logged = math.nan

    def extend(self, events: HardwareEvents, logged: Logged, validation: Floats, evaluated: Bools) -> Recovered:
        n = len(logged["lambda"])
        begins, rates = [0], [self._failure_rate.value]
        for index, event in events:
            self._failure_rate.update(event["time_s"])
            begins.append(index)
            rates.append(self._failure_rate.value)
        rate = np.repeat(to_log_precision(rates), np.diff([*begins, n]))
        happened = np.arange(n) >= begins[1] if events else np.zeros(n, dtype=bool)
        recomputed = self._ever_recomputed.extend(happened)
        self._ever_recomputed.so_far |= bool(events)  # those after the last record count from the next on
        as_logged = held(logged["lambda"], self._latest_logged)
        self._latest_logged = float(as_logged[-1]) if n else self._latest_logged
        known = self._known(logged, recomputed)
        values = np.where(recomputed, rate, np.where(known, as_logged, 0.0))
        return Recovered(values=values, known=known, recomputed=recomputed, logged_norm=self._norm(logged, known))


class _AsLogged(_Signal):
    """A signal as logged: σ² always, since no log holds the gradient norms of the workers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def extend(self, events: HardwareEvents, logged: Logged, validation: Floats, evaluated: Bools) -> Recovered:
        values = logged[self.name]
        never = np.zeros(len(values), dtype=bool)
        known = self._known(logged, never)
        return Recovered(values=values, known=known, recomputed=never, logged_norm=self._norm(logged, known))


class _DeltaL(_Signal):
    """ΔL from the validation losses; as logged before the first of them."""

    name = "delta_l"
    recomputed_from = "not known after a single evaluation"

    def __init__(self) -> None:
        super().__init__()
        self._drift = ValidationDrift()
        self._latest = self._latest_logged = math.nan
        self._evaluations = 0
        self._is_rounded = True

    def extend(self, events: HardwareEvents, logged: Logged, validation: Floats, evaluated: Bools) -> Recovered:
        as_logged = held(logged["delta_l"], self._latest_logged)
        # Two evaluations can have the same loss, to the digits of the log; a new logged ΔL tells them apart.
        changed = ~np.isnan(as_logged) & (as_logged != np.append(self._latest_logged, as_logged[:-1]))
        drift = np.full(len(validation), np.nan)
        at = np.flatnonzero(evaluated | (changed & ~np.isnan(validation)))
        if len(at):
            drift[at] = self._drifts(validation[at])
        drift = held(drift, self._latest)
        self._latest, self._latest_logged = float(drift[-1]), float(as_logged[-1])
        recomputed = self._ever_recomputed.extend(evaluated)
        known = self._known(logged, recomputed)
        values = np.where(recomputed, drift, as_logged)
        return Recovered(values=values, known=known, recomputed=recomputed, logged_norm=self._norm(logged, known))

    def _drifts(self, losses: Floats) -> Floats:
        """ΔL of the next evaluations, shape (k,), k at least 1."""
        self._evaluations += len(losses)
        if self._evaluations > 1:
            self.recomputed_from = "recomputed from validation_loss"
        drifts = self._drift.extend(losses)
        # A log that holds 7 digits was written by one that rounded ΔL to as many before it used it.
        rounded = np.logical_and.accumulate((to_log_precision(losses) == losses) & self._is_rounded)
        self._is_rounded = bool(rounded[-1])
        return np.where(rounded, to_log_precision(drifts), drifts)


class SignalRecovery:
    """The three signals of one log, chunk after chunk; the size of a chunk changes no number.

    In the log of a live run they are as logged. What it made them of is not all in its log: λ also counts from the
    begin of the run, ΔL rests on a smoothed training loss until there are validation losses (SIGNAL_SOURCE says so).
    A normalised value without a raw one is none there: the run wrote 0 for what it did not measure.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._signals: list[_Signal] = [_Lambda(), _AsLogged("sigma_sq"), _DeltaL()]
        if live:
            self._signals = [_AsLogged(name) for name in SIGNALS]

    def extend(
        self, events: HardwareEvents, logged: Logged, validation: Floats, evaluated: Bools
    ) -> dict[str, Recovered]:
        """The signals of the next chunk by log name, in the order of :data:`SIGNALS`.

        Parameters
        ----------
        logged
            Of n records, n at least 1.
        validation, evaluated
            From :class:`ValidationLosses`, shape (n,).
        """
        if self._live:
            logged = {**logged, **{f"{name}_norm": np.full(len(validation), np.nan) for name in SIGNALS}}
        return {signal.name: signal.extend(events, logged, validation, evaluated) for signal in self._signals}

    def extend_without_records(self, events: HardwareEvents) -> None:
        """Note hardware events that fill a chunk of their own; only λ is made of them."""
        nothing = np.empty(0)
        self._signals[0].extend(events, {"lambda": nothing, "lambda_norm": nothing}, nothing, nothing > 0)

    @property
    def rests_on(self) -> dict[str, str]:
        """Log name of a signal → what its normalised value rests on, in words."""
        return {signal.name: signal.rests_on for signal in self._signals}
