"""The alert episodes of a replay, chunk by chunk, and what follows from them."""

from __future__ import annotations

import numpy as np

from rmetric.replay import AlertEpisodes, Replay


def test_the_warning_is_the_first_episode_from_the_fault_on_even_if_the_fault_is_told_of_late() -> None:
    steps, merged = np.arange(10, 400, 10), AlertEpisodes()
    above = np.isin(steps, (10, 20, 100, 110, 250))
    for first, onset in ((0, None), (13, 90), (26, 90)):
        part = slice(first, first + 13)
        merged.extend(steps[part], above[part], onset)
    assert (merged.count, merged.begins) == (3, [10, 100, 250])
    assert merged.warning == 100


def test_an_alert_after_the_failure_is_no_lead() -> None:
    replay = Replay(name="x", source="x", format="csv", failure_step=100, onset=50, alerts={"r_metric": 200})
    assert replay.lead_paper is None
    assert replay.usable is False
