"""A finding as a value."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

from rmetric.diagnosis.finding import Finding


def test_findings_are_equal_where_neither_knows_a_number() -> None:
    finding = Finding(
        name="SETTING_CHANGED", severity="note", step=1, until=1, sentence="", numbers={"before": math.nan},
        sure=math.nan, causes=(), advice="",
    )  # fmt: skip
    other = pickle.loads(pickle.dumps(finding))  # noqa: S301 - as another process sends it: NaN is another object
    assert other == finding
    for change in ({"sure": 0.5}, {"numbers": {"before": 0.0}}, {"numbers": {}}, {"step": 2}):
        assert replace(other, **change) != finding
