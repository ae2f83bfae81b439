"""Parameters of the simulator, read from one versioned file that says of each number where it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.faults import FAULTS, SEVERITIES
from rmetric.faults.processes import FACTORS, SHAPES, Response
from rmetric.simulation.healthy import HealthyParameters

VERSION = 3
SHIPPED = Path(__file__).with_name("parameters.json")
"""Parameters that come with this package."""
Responses = Mapping[str, Mapping[str, Response]]
"""Fault → severity → response."""
SIGNED = ("worker_tail", "mix_shift_size", "mix_shift_held_out")
"""Parameters that may be below 0."""
SHARES = (
    "warm_up_share",
    "final_learning_rate_rel",
    "benign_spike_held_out",
    "straggler_probability",
    "non_finite_gradient_share",
    "collapse_share",
    "non_finite_share",
)
"""Parameters in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class SimulationParameters:
    """Numbers of the simulator that are fitted or assumed."""

    healthy: HealthyParameters
    responses: Responses

    @classmethod
    @cache
    def shipped(cls) -> SimulationParameters:
        """Parameters that come with this package."""
        parameters = cls.of(SHIPPED.read_text(encoding="utf-8"))
        if unknown := {*parameters.responses} - {*FAULTS}:
            raise ValueError(f"{SHIPPED.name} has responses of unknown faults: {', '.join(sorted(unknown))}")
        return parameters

    @classmethod
    def read(cls, path: Path) -> SimulationParameters:
        """Read a file that ``python -m studies.calibration.calibrate`` wrote; raises :class:`UserError` for another."""
        try:
            return cls.of(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} holds no parameters of the simulator ({error}); calibrate anew") from error

    @classmethod
    def of(cls, text: str) -> SimulationParameters:
        """Parameters from the JSON text of such a file.

        Raises
        ------
        ValueError
            For another version, a parameter that is missing or unknown, or a value out of its range.
        """
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}, not {VERSION}")
        healthy = _values(content["healthy"], HealthyParameters)
        low, high = healthy["mix_shift_steps"]
        if not 0 < low < high:
            raise ValueError(f"mix_shift_steps is {low} to {high}")
        return cls(
            healthy=HealthyParameters(**{**healthy, "mix_shift_steps": (int(low), int(high))}),
            responses={
                fault: {severity: _response(found[severity]) for severity in SEVERITIES}
                for fault, found in content["responses"].items()
            },
        )


def _response(found: Mapping[str, Any]) -> Response:
    return Response(**_values(found["fields"], Response))


def _values(found: Mapping[str, Mapping[str, Any]], kind: type) -> dict[str, Any]:
    known = [item.name for item in fields(kind)]
    if odd := {*found} ^ {*known}:
        raise ValueError(f"missing or unknown: {', '.join(sorted(odd))}")
    values = {name: found[name]["value"] for name in known}
    for name, value in values.items():
        for number in value if isinstance(value, list) else (value,):
            _check(name, number)
    return values


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, which is not a finite number")
    if value < 0.0 and name not in SIGNED:
        raise ValueError(f"{name} is {value}, below 0")
    if value <= 0.0 and (name in (*FACTORS, *SHAPES) or name.endswith("correlation_steps")):
        raise ValueError(f"{name} is {value}, not above 0")
    if value > 1.0 and name in SHARES:
        raise ValueError(f"{name} is {value}, above 1")
