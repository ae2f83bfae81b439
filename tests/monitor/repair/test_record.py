"""What people are told of a repair."""

from __future__ import annotations

from typing import Any

import pytest

from rmetric.monitor.repair import Policy, RepairRecord
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision
from tests.monitor.repair.common import Toy


@pytest.mark.parametrize(
    ("processes", "workers", "device"),
    [
        (1, (1,), "this device"),  # micro-batch 1
        (3, (1,), "worker 1's device"),
        (3, (0, 2), "worker 0's device and worker 2's device"),
        (3, (), "some worker's device"),
    ],
)
def test_the_advice_is_about_the_device_that_was_wrong(processes: int, workers: tuple[int, ...], device: str) -> None:
    repair = RepairRecord(
        step=5, policy="P", verdict="transient", loss_before=1.0, loss_after=1.0, workers=workers, processes=processes
    )
    assert f"look at the memory errors (ECC, Xid) of {device}, and" in repair.message
    assert "processes" not in repair.event()


@pytest.mark.parametrize(
    ("verdict", "details", "done"),
    [
        ("rolled {back}", {}, "rolled {back}"),
        ("clipped", {"where": "there", "step": "third"}, "the gradient was clipped"),
        (
            "transient",
            {"where": "there"},
            "the step was computed again and came out different in w; the update is made",
        ),
        ("went_back", {}, "went_back"),
    ],
)
def test_a_policy_of_ones_own_may_say_and_add_what_it_likes(verdict: str, details: dict[str, Any], done: str) -> None:
    class Mine(Policy):
        def inspect(self, context: StepContext) -> bool:
            return context.step in (2, 3)

        def before_update(self, context: StepContext) -> Decision:
            context.report(self, verdict, differing=["w"] if verdict == "transient" else [], details=details)
            return Decision.PASS

    toy = Toy()
    with toy.watch(policy=Mine()) as monitor:
        assert toy.train(4, monitor) == [True] * 4
        first, second = monitor.repairs
    assert first.message.startswith(f"Step 2: Mine: {done}")
    assert second.message.startswith(f"Step 3: Mine: {done}")
