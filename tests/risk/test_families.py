"""Families: every fault has one, and only one."""

from collections import Counter

import pytest

from rmetric.faults import FAULTS
from rmetric.risk.scorers import BENIGN, FAMILIES, UNKNOWN, disturbance_step, family_of
from tests.evaluation.builders import build_run


def test_every_registered_fault_has_exactly_one_family() -> None:
    count = Counter(fault for faults in FAMILIES.values() for fault in faults)
    assert set(count) == {name for name, _ in FAULTS.items()}
    assert set(count.values()) == {1}
    assert all(family_of(fault) in FAMILIES for fault in count)


def test_a_control_run_is_benign_and_a_stranger_unknown() -> None:
    assert family_of("NONE") == BENIGN
    assert family_of("NIC_FLAP") == UNKNOWN


@pytest.mark.parametrize(
    ("disturbance", "expected"), [(None, None), ({"type": "bad_batch", "step": 40}, 40), ("damaged", None), ({}, None)]
)
def test_the_step_of_a_disturbance(disturbance: object, expected: int | None) -> None:
    assert disturbance_step(build_run([1, 2], disturbance=disturbance)) == expected
