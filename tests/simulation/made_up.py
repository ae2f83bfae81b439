"""Parameters of a simulator for tests: of the order of fitted ones, but fixed, so that no test depends on a fit."""

from __future__ import annotations

import json
from pathlib import Path

from rmetric.faults.processes import Response
from rmetric.simulation import SimulationParameters
from rmetric.simulation.healthy import HealthyParameters

_CONTENT = json.loads(Path(__file__).with_name("made_up.json").read_text(encoding="utf-8"))
_SHORTEST, _LONGEST = _CONTENT["healthy"].pop("mix_shift_steps")

MADE_UP = SimulationParameters(
    healthy=HealthyParameters(mix_shift_steps=(_SHORTEST, _LONGEST), **_CONTENT["healthy"]),
    responses={
        fault: {severity: Response(**values) for severity, values in found.items()}
        for fault, found in _CONTENT["responses"].items()
    },
)
