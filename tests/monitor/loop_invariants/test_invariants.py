"""What an agent makes itself, and losses that say nothing of targets: no news."""

from __future__ import annotations

import math

import pytest

from rmetric.monitor.loop_invariants import LoopInvariants
from rmetric.state import restore, state_of
from tests.monitor.loop_invariants.common import told_of


@pytest.mark.parametrize(("reward", "news"), [(math.nan, 1), (0.5, 0)])
def test_what_an_agent_makes_of_its_inputs_and_loss_is_no_news(reward: float, news: int) -> None:
    told, again = LoopInvariants(), LoopInvariants()
    usual = {"examples_repeated": 0.0, "input_scale": 1.0, "training_loss": 2.0, "batch_key": math.nan}
    later = {"examples_repeated": 1.0, "input_scale": 9.0, "training_loss": 0.001}
    assert not told.update({**usual, "reward": reward})
    assert not any(told.update(usual) for _ in range(40))
    restore(again, state_of(told))
    found = [change for invariants in (told, again) for _ in range(4) for change in invariants.update(later)]
    assert len(found) == 6 * news


@pytest.mark.parametrize(("loss", "told"), [(0.5, 1), (-0.5, 0)])
def test_a_loss_below_zero_is_no_cross_entropy_and_says_nothing_of_targets(loss: float, told: int) -> None:
    steps = [{"targets_alike": float(step >= 40), "training_loss": loss} for step in range(60)]
    assert len(told_of(steps)) == told
