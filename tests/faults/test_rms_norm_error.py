from __future__ import annotations

from rmetric.faults import SEVERITIES, make_fault
from tests.faults.common import disturbed, pair


def test_the_loss_jumps_at_once_and_the_more_the_larger_the_scale() -> None:
    jumps = [pair("RMS_NORM_ERROR", severity, runs=16).median_excess(400, 402) for severity in SEVERITIES]
    assert jumps == sorted(jumps)
    assert jumps[0] > 0.02


def test_a_small_error_heals_and_a_large_one_does_not() -> None:
    small, large = (pair("RMS_NORM_ERROR", severity, runs=16) for severity in ("low", "high"))
    assert small.median_excess(1101, 1200) < 0.03
    assert large.median_excess(1101, 1200) > 0.05


def test_a_scale_of_one_is_no_error() -> None:
    state = disturbed(make_fault("RMS_NORM_ERROR", scale=1.0))
    assert not state.jump.any()
    assert not state.floor.any()
