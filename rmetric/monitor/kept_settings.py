"""Settings that a run is meant to keep: the optimizer's, and the modes of the model's modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rmetric.advice import MODES
from rmetric.monitor.changes import FACTOR, SettingChange, Value
from rmetric.monitor.parameters import ModelParameters

Settings = list[tuple[str, Value]]
"""By name, in their order."""
KEPT, KNOWN = 8, 16
"""Measurements in which a setting must have been the same before another value of it is news, and former values that
are remembered."""
PLAIN = frozenset({bool, int, float, str})
"""Types of settings."""
SCHEDULED = frozenset({"params", "lr", "initial_lr"})
"""What is meant to change, and what is no setting."""


class KeptSettings:
    """Tells which settings have changed abruptly: those that a wrong line of a script, or a resumed run, leaves wrong.

    Watched are all settings of the optimizer but its learning rate (numbers, switches and words, in all groups of
    parameters), and how many modules are in evaluation mode while they train. A change is abrupt if the setting was the
    same in eight measurements, and is now another by a factor of three (a switch, a word or a number of modules:
    another at all). What moves gradually is a schedule; a value that the run has had for as long before is none of its
    news, so that what alternates is told of once, and so is that it is back. Groups of parameters that come later are
    settings of their own. Where layers are frozen or unfrozen, after as many measurements in which none was, others are
    put into evaluation mode on purpose.

    **Source:** training silently goes wrong by such settings: TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module, parameters: ModelParameters) -> None:
        self._optimizer, self._model, self._parameters = optimizer, model, parameters
        self._modules = list(model.modules())
        self._version = parameters.version
        self._latest: list[Any] = []
        self._measurements = 0
        self._required: int | None = None
        self._frozen_in = -KEPT
        self._kept: dict[str, _Kept] = {}
        self.taken_back: list[SettingChange] = []
        """Settings that are, since the latest measurement, again what they were before a change that was told of."""

    def measure(self) -> list[SettingChange]:
        """Abrupt changes since the call before, one a setting: a change of several groups is that of the first."""
        self._measurements += 1
        frozen_anew = self._are_frozen_anew()
        self.taken_back = []
        if self._version != self._parameters.version:
            self._version, self._modules = self._parameters.version, list(self._model.modules())
        evaluating = sum([not module.training for module in self._modules])
        now = [evaluating, *map(_values, self._optimizer.param_groups)]
        if now == self._latest:  # as good as always
            return []
        self._latest = now
        # Another number of modules is news, how far or not.
        named: list[Settings] = [[(MODES, str(evaluating))], *map(_named, self._optimizer.param_groups)]
        changes: dict[str, SettingChange] = {}
        back: dict[str, SettingChange] = {}
        for number, group in enumerate(named):
            for name, value in group:
                kept = self._kept.setdefault(f"{number}/{name}", _Kept(value, self._measurements))
                before = kept.value
                if before == value:
                    continue
                if kept.change(value, self._measurements, meant=frozen_anew and name == MODES):
                    changes.setdefault(name, SettingChange(name, before, value))
                elif kept.is_back():
                    back.setdefault(name, SettingChange(name, before, value))
        self.taken_back = [*back.values()]
        return [*changes.values()]

    def _are_frozen_anew(self) -> bool:
        """Whether layers are frozen or unfrozen; not where that is done all the time, as two networks in turn do it."""
        before, self._required = self._required, sum(self._parameters.requiring)
        if before in (None, self._required):
            return False
        last, self._frozen_in = self._frozen_in, self._measurements
        return self._measurements - last >= KEPT

    def state_dict(self) -> dict[str, Any]:
        """What is known of each setting, so that a resumed run is told of those that it was started with otherwise."""
        return {
            "measurements": self._measurements,
            "required": self._required,
            "frozen_in": self._frozen_in,
            "kept": {name: (kept.value, kept.since, list(kept.known), kept.told) for name, kept in self._kept.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._measurements, self._latest = state["measurements"], []
        self._required, self._frozen_in = state["required"], state["frozen_in"]
        self._kept = {name: _Kept(*kept) for name, kept in state["kept"].items()}


class _Kept:
    """The value of a setting, since which measurement it is so, and the values that the run has had for long."""

    def __init__(self, value: Value, since: int, known: list[Value] | None = None, told: Value | None = None) -> None:
        self.value, self.since = value, since
        self.told = told
        """The value before a change that was told of, as long as it is not this again; ``None``: none was."""
        self.known: list[Value] = list(known or ())

    def change(self, value: Value, now: int, *, meant: bool) -> bool:
        """Take in another value; whether it is news. One that is meant is none."""
        before, long = self.value, now - self.since >= KEPT
        self.value, self.since = value, now
        if long and before not in self.known:
            self.known = [*self.known[1 - KNOWN :], before]
        news = long and not meant and value not in self.known and _is_abrupt(before, value)
        if news and self.told is None:
            self.told = before
        return news

    def is_back(self) -> bool:
        """Whether the value is that of before a change that was told of; it is asked for once."""
        back = self.told is not None and self.value == self.told
        if back:
            self.told = None
        return back


def _values(group: Mapping[str, Any]) -> list[Any]:
    """What is watched of a group of parameters, as it is: to compare it costs little."""
    return [tuple(value) if type(value) is list else value for _, value in _settings(group)]


def _settings(group: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in group.items() if name not in SCHEDULED and _is_plain(value)]


def _is_plain(value: Any) -> bool:
    """Whether this is a setting, or several. A tensor is none: to read it would wait for the device."""
    kind = type(value)
    return kind in PLAIN or ((kind is tuple or kind is list) and all(type(part) in PLAIN for part in value))


def _named(group: Mapping[str, Any]) -> Settings:
    """Settings of a group of parameters by name.

    >>> _named({"params": [], "lr": 0.1, "betas": (0.9, 0.99), "eps": torch.ones(2), "maximize": False})
    [('betas[0]', 0.9), ('betas[1]', 0.99), ('maximize', 'False')]
    """
    found: Settings = []
    for name, value in _settings(group):
        if isinstance(value, tuple | list):
            found += [(f"{name}[{place}]", _logged(part)) for place, part in enumerate(value)]
        else:
            found.append((name, _logged(value)))
    return found


def _logged(value: float | str) -> Value:
    """A setting as it stands in the log: a number, or a word (a switch too)."""
    return str(value) if isinstance(value, bool | str) else float(value)


def _is_abrupt(before: Value, now: Value) -> bool:
    """Whether a change of a setting is one at once and not a step of a schedule.

    >>> _is_abrupt(0.1, 0.2), _is_abrupt(0.01, 10.0), _is_abrupt(0.9, 0.99), _is_abrupt(0.0, 0.1)
    (False, True, True, True)
    """
    if isinstance(before, str) or isinstance(now, str):
        return before != now
    return _are_far(before, now) or (0.0 < before < 1.0 and 0.0 < now < 1.0 and _are_far(1.0 - before, 1.0 - now))


def _are_far(a: float, b: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)) or a * b <= 0.0:
        return a != b
    return not 1.0 / FACTOR < b / a < FACTOR
