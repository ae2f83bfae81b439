"""What a replay found, and what follows from it."""

from __future__ import annotations

from rmetric.replay import Replay


def test_an_alert_after_the_failure_is_no_lead() -> None:
    replay = Replay(name="x", source="x", format="csv", failure_step=100, onset=50, alerts={"r_metric": 200})
    assert replay.lead_paper is None
    assert replay.usable is False
