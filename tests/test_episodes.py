"""Alert episodes: the rule, and that all ways of asking it agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmetric.episodes import REARM_STEPS, EpisodesByCause, Rearm, begins, episodes, quiet_records
from rmetric.state import restore, state_of

VALUES = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0, np.inf, np.nan])
GAPS = st.one_of(st.sampled_from([1, 10, 40, 49, 50, 51, 60]), st.integers(1, 60))


@given(st.lists(st.tuples(GAPS, VALUES), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 100))
def test_all_ways_of_asking_agree(records: list[tuple[int, float]], size: int, start: int) -> None:
    steps = start + np.cumsum([gap for gap, _ in records])
    scores = np.array([score for _, score in records])
    at, largest = begins(scores, quiet_records(steps))
    for threshold in (-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0):
        alerts = scores > threshold
        expected = _by_definition(steps.tolist(), alerts.tolist())
        assert episodes(steps, alerts).tolist() == expected
        one, several = Rearm(), Rearm()
        assert [index for index, step in enumerate(steps.tolist()) if one.begins(step, bool(alerts[index]))] == expected
        portions = range(0, len(steps), size)
        found = [
            first + several.extend(steps[first : first + size], alerts[first : first + size]) for first in portions
        ]
        assert np.concatenate(found).tolist() == expected
        assert at[(largest <= threshold) & (threshold < scores[at])].tolist() == expected


@given(st.lists(st.tuples(GAPS, st.sets(st.sampled_from(["machine", "off_course"]))), min_size=1, max_size=60))
def test_each_cause_has_episodes_of_its_own(records: list[tuple[int, set[str]]]) -> None:
    steps = np.cumsum([gap for gap, _ in records]).tolist()
    apart = EpisodesByCause()
    begun = [apart.begin(step, causes) for step, (_, causes) in zip(steps, records, strict=True)]
    for cause in ("machine", "off_course"):
        alerts = [cause in causes for _, causes in records]
        assert [index for index, causes in enumerate(begun) if cause in causes] == _by_definition(steps, alerts)


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ({1: 3.0, 10: 4.0, 11: 7.0, 12: 15.0}, [1, 11]),  # once, however high it still rises
        ({1: 3.0, 10: 7.0, 20: 9.0, 30: 19.0}, [1, 10, 30]),
        ({1: 3.0, 2: 7.0, 3: 9.0}, [1]),  # it goes on
        ({1: 3.0, 8: 9.0}, [1]),  # seven quiet steps
        ({1: 5.0, 2: 3.0, 12: 9.0}, [1]),
        ({1: 3.0, 20: math.inf, 40: math.inf}, [1, 20]),
        ({1: 3.0, 20: 9.0, 80: 3.0, 100: 7.0}, [1, 20, 80, 100]),  # of the next episode nothing is known
    ],
)
def test_what_is_twice_as_bad_after_quiet_steps_is_told_again(scores: dict[int, float], told: list[int]) -> None:
    apart, goes_on = EpisodesByCause(), EpisodesByCause()
    begun = []
    for step in range(1, 101):
        restore(goes_on, state_of(apart))
        begins = apart.begin(step, ["off_course"] if step in scores else [], scores.get(step, 0.0))
        assert goes_on.begin(step, ["off_course"] if step in scores else [], scores.get(step, 0.0)) == begins
        begun += [step] if begins else []
    assert begun == told


def test_a_state_without_scores_tells_nothing_again_in_its_episode() -> None:
    apart, before = EpisodesByCause(), EpisodesByCause()
    before.begin(1, ["off_course"])
    restore(apart, {name: item for name, item in state_of(before).items() if name != "_scores"})
    assert not apart.begin(20, ["off_course"], 9.0)


def _by_definition(steps: list[int], alerts: list[bool]) -> list[int]:
    """The quiet records since the alert before cover 50 steps, or there is none."""
    at = [index for index, alert in enumerate(alerts) if alert]
    before = dict(zip(at[1:], at, strict=False))
    return [i for i in at if i not in before or steps[i - 1] - steps[before[i]] >= REARM_STEPS]


@pytest.mark.parametrize(
    ("cadence", "first", "merged", "separate"),
    [
        (1, 100, 150, 151),  # quiet 101 … 149 are 49 steps, 101 … 150 are 50
        (10, 100, 150, 160),
        (25, 100, 150, 175),
        (100, 100, 200, 300),  # one quiet record of 100 steps
    ],
)
def test_rearming_at_exactly_fifty_quiet_steps(cadence: int, first: int, merged: int, separate: int) -> None:
    steps = np.arange(0, 1001, cadence)
    assert len(episodes(steps, np.isin(steps, (first, merged)))) == 1
    assert len(episodes(steps, np.isin(steps, (first, separate)))) == 2


def test_a_gap_in_the_log_is_not_quiet() -> None:
    steps = np.array([10, 20, 200, 210])
    assert len(episodes(steps, np.array([False, True, True, False]))) == 1
