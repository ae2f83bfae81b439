"""Losses of which nothing is left to learn, or that fall at once."""

from __future__ import annotations

import pytest

from rmetric.advice import LOSS
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants.base import HELD
from rmetric.monitor.loop_invariants.loss import NOTHING_TO_LEARN
from tests.monitor.loop_invariants.common import told_of


@pytest.mark.parametrize(
    ("losses", "norms", "news"),
    [
        ([0.0] * 8, [0.0] * 8, [NOTHING_TO_LEARN]),  # every target is masked
        ([0.0] * 3, [0.0] * 3, []),
        ([0.0] * 8, [0.1] * 8, []),  # GRPO: the loss is 0, its gradient is not
        ([2.0] * 8, [0.0] * 8, []),  # the robust R-Metric's
        ([0.0, 0.1, *[0.0] * 8], [0.0, 0.1, *[0.0] * 8], []),  # a hinge loss that comes to its end
    ],
)
def test_nothing_to_learn_any_more_is_told_of(
    losses: list[float], norms: list[float], news: list[SettingChange]
) -> None:
    pairs = [*[(1.0, 1.0)] * HELD, *zip(losses, norms, strict=True)]
    assert told_of({"training_loss": loss, "grad_norm": norm} for loss, norm in pairs) == news


@pytest.mark.parametrize(
    ("losses", "news"),
    [
        (
            [1e-3] * 8,
            [SettingChange(LOSS, "at least 0.02", 1e-3)],
        ),  # (mean of the errors)² in place of the mean of errors²
        ([1e-3] * 2 + [0.02] * 40 + [1e-3] * 8, []),  # low before, by chance
        ([1e-2] * 8, []),
        ([0.02 * 0.9**step for step in range(99)], []),
        ([0.0] * 8, []),  # a hinge loss
        ([1e-3, 0.0, *[1e-3] * 7], [SettingChange(LOSS, "at least 0.02", 1e-3)]),  # a batch without a target
        ([-0.5] * 8, [SettingChange(LOSS, "at least 0.02", -0.5)]),  # a term has lost its sign
        ([0.008] * 8, [SettingChange(LOSS, "at least 0.02", 8e-3)]),  # a mean over what is masked, too
        ([0.02, 0.06] * 16 + [0.008, -0.01] * 8, []),  # a noisy one, of a critic
        ([0.02, 0.06] * 16 + [1e-3] * 8, [SettingChange(LOSS, "at least 0.02", 1e-3)]),
        ([0.02 - 1e-3 * step for step in range(99)], []),  # a log-likelihood
        ([-0.01] * 2 + [0.02] * 40 + [-0.01] * 8, []),  # low before, by chance
    ],
)
def test_a_loss_that_falls_far_at_once_is_told_of(losses: list[float], news: list[SettingChange]) -> None:
    assert told_of({"training_loss": loss} for loss in [0.03, *[0.02] * HELD, *losses]) == news


@pytest.mark.parametrize(("rate", "news"), [(0.1, 1), (0.09, 1), (0.05, 0)])
def test_a_loss_that_falls_with_the_learning_rate_is_no_news(rate: float, news: int) -> None:
    rates = [0.1] * HELD + [rate] * 8
    steps = [{"training_loss": 0.02 if place < HELD else 1e-3, "learning_rate": now} for place, now in enumerate(rates)]
    assert len(told_of(steps)) == news


def test_the_first_losses_of_a_fast_learner_are_no_fall() -> None:
    losses = [5.0, 2.0, 0.8, *[0.4] * 40, *[0.01] * 3]
    assert [change.setting for change in told_of({"training_loss": loss} for loss in losses)] == [LOSS]
