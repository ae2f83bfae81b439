"""What counts as a raised learning rate."""

import math

from rmetric.robust.context import Schedule


def raised(rates: list[float], window: int = 96) -> list[bool]:
    schedule = Schedule(window)
    return [schedule.raised(rate) for rate in rates]


def test_a_schedule_that_falls_is_never_raised() -> None:
    assert not any(raised([1e-3 * 0.99**step for step in range(300)]))


def test_a_restart_is_raised_for_half_a_window_at_least() -> None:
    factors = [3.0 - 2.0 * step / 60 for step in range(60)]
    found = raised([1.0] * 200 + factors + [1.0] * 50)
    assert not any(found[:200])
    assert all(found[200:245])  # then most of the window is the restart
    assert not any(found[260:])


def test_a_rate_that_stays_high_is_the_usual_one_after_half_a_window() -> None:
    found = raised([1.0] * 200 + [3.0] * 100)
    assert all(found[200:248])
    assert not any(found[249:])


def test_a_rate_that_is_not_known_leaves_no_trace() -> None:
    assert raised([1.0, math.nan, math.inf, 2.0]) == [False, False, False, True]
