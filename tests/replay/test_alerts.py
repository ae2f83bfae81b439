"""When the detectors alerted, and the episodes of the R-Metric."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmetric.episodes import episodes
from rmetric.replay import AlertEpisodes


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=60), st.integers(1, 9))
def test_alert_episodes_are_those_of_the_strict_protocol(rows: list[tuple[int, bool]], size: int) -> None:
    steps = np.cumsum([gap for gap, _ in rows])
    above = np.array([alert for _, alert in rows])
    merged = AlertEpisodes()
    for start in range(0, len(steps), size):
        merged.extend(steps[start : start + size], above[start : start + size])
    assert merged.begins == steps[episodes(steps, above)].tolist()
