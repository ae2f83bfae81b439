"""The file of a risk model: readable JSON, the same bytes for the same model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rmetric.errors import UserError
from rmetric.plain_numbers import rounded
from rmetric.risk.features import FEATURES
from rmetric.risk.parameters import Calibrated, Choice, RiskParameters
from rmetric.risk.scorers import scorer_of

VERSION = 2
DIGITS = 9
"""Significant ones of each number in the file."""


def to_json(parameters: RiskParameters) -> str:
    """The file's text: one line a row of numbers."""
    content = {
        "version": VERSION,
        "what": "P(failure within k steps), P(heals by itself), fault family of a training run; see docs/risk.md",
        "provenance": parameters.provenance,
        "base_rates": parameters.base_rates,
        "features": FEATURES,
        "horizons_steps": parameters.horizons,
        "hazards": [_plain(hazard) for hazard in parameters.hazards],
        "heals": _plain(parameters.heals),
        "families": {
            "names": parameters.families.names,
            "bar": parameters.families.bar,
            "temperature": parameters.families.temperature,
            **parameters.families.scorer.plain(),
        },
    }
    text = json.dumps(rounded(content, DIGITS), indent=1, ensure_ascii=False, allow_nan=False)
    # Lists without lists in them, and short nested ones (the nodes of a tree), each on a line of their own.
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\s+", " ", found.group()), text)
    return re.sub(r"(?<=,)\s+(?=\[ |-?\d)", " ", text) + "\n"


def _plain(calibrated: Calibrated) -> dict[str, Any]:
    return {"slope": calibrated.slope, "offset": calibrated.offset, **calibrated.scorer.plain()}


def read_parameters(text: str, name: str) -> RiskParameters:
    """What is fitted, from the text of a file of this name; raises :class:`UserError` for any other text."""
    again = "make it anew: python -m studies.risk.fit --from LOGS --out FILE"
    try:
        content = json.loads(text)
        version, features = content["version"], tuple(content["features"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{name} is not a risk model; {again}") from None
    if version != VERSION or features != FEATURES:
        raise UserError(f"{name} is a risk model of another version of this package; {again}")
    try:
        families = content["families"]
        return RiskParameters(
            horizons=tuple(int(steps) for steps in content["horizons_steps"]),
            hazards=tuple(_calibrated(item) for item in content["hazards"]),
            heals=_calibrated(content["heals"]),
            families=Choice(
                tuple(families["names"]), scorer_of(families), float(families["temperature"]), float(families["bar"])
            ),
            base_rates=dict(content["base_rates"]),
            provenance=dict(content["provenance"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise UserError(f"{name} is a damaged risk model; {again}") from None


def _calibrated(plain: Mapping[str, Any]) -> Calibrated:
    return Calibrated(scorer_of(plain), float(plain["slope"]), float(plain["offset"]))
