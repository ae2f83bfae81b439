from __future__ import annotations

from rmetric.faults import SEVERITIES, make_fault
from tests.faults.common import disturbed, pair


def test_the_layers_lose_what_they_had_learned_at_once_and_win_most_of_it_back() -> None:
    for severity in SEVERITIES:
        runs = pair("GQA_MISMATCH", severity, runs=16, architecture="llama-3-8b")
        assert runs.median_excess(401, 405) > 0.02
        assert runs.median_excess(1101, 1200) < 0.5 * runs.median_excess(401, 405)


def test_more_layers_lose_more() -> None:
    lost = [pair("GQA_MISMATCH", severity, runs=16).median_excess(401, 405) for severity in SEVERITIES]
    assert lost == sorted(lost)


def test_gradients_are_larger_at_the_onset() -> None:
    assert (disturbed(make_fault("GQA_MISMATCH", "high")).gradient_factor[:, 200] > 1.0).all()
