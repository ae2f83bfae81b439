"""A finding as text."""

from __future__ import annotations

import math

import pytest

from rmetric.diagnosis.finding import Finding
from rmetric.diagnosis.text import sureness


@pytest.mark.parametrize(
    ("sure", "said"),
    [
        (1.0, "no healthy step that was measured shows this"),
        (0.99954, "0.046 % of healthy runs show as much"),
        (0.0, "100 % of healthy runs show as much"),
        (math.nan, "how rare this is in healthy runs is not known"),
    ],
)
def test_how_sure_a_finding_is_is_said_in_plain_numbers(sure: float, said: str) -> None:
    finding = Finding(
        name="LOSS_RISE", severity="note", step=1, until=1, sentence="", numbers={}, sure=sure, causes=(), advice=""
    )
    assert sureness(finding) == said
