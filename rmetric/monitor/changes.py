"""An abrupt change of what a run is meant to keep: a setting, or what holds in every step of its loop."""

from __future__ import annotations

from typing import NamedTuple

Value = float | str
FACTOR = 3.0
"""Smallest change of a number that is abrupt: of itself, or of its distance to 1 (the memory of a momentum)."""


class SettingChange(NamedTuple):
    """An abrupt change of a setting."""

    setting: str
    before: Value
    now: Value
