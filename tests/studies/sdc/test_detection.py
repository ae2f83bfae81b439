"""Alarms beside a flip."""

from __future__ import annotations

import numpy as np

from studies.sdc.detection import first_seen


def test_an_alarm_that_the_twin_has_too_is_not_due_to_the_flip() -> None:
    own = {"a": np.array([20, 60, 63]), "b": np.array([58]), "c": np.array([75])}
    twin = {"a": np.array([60]), "b": np.array([], dtype=int), "c": np.array([], dtype=int)}
    assert first_seen(own, twin, 60) == {"a": 3, "b": None, "c": None}
