"""When a broken invariant is news."""

from __future__ import annotations

import pytest

from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants import FACTS, LoopInvariants
from rmetric.monitor.loop_invariants.base import BROKEN, HELD
from tests.monitor.loop_invariants.common import told_of


def broken_after(held: int, breaks: int) -> list[SettingChange]:
    return told_of({"weights_changed": value} for value in [0.0] * held + [1.0] * breaks)


def test_news_needs_to_have_held_for_long_and_to_be_broken_twice() -> None:
    assert broken_after(HELD, BROKEN) == [FACTS["weights_changed"]]
    assert broken_after(HELD - 1, 100) == []
    assert broken_after(HELD, BROKEN - 1) == []


def test_what_has_been_seen_once_is_known() -> None:
    values = ([0.0] * HELD + [1.0] * BROKEN) * 5
    assert len(told_of({"batch_repeated": value} for value in values)) == 1


@pytest.mark.parametrize(("name", "news"), [("weights_changed", 1), ("gradients_kept", 1), ("batch_repeated", 0)])
def test_a_batch_that_came_twice_by_chance_may_do_so_again(name: str, news: int) -> None:
    values = [0.0] * HELD + [1.0] + [0.0] * HELD + [1.0] * BROKEN
    assert len(told_of({name: value} for value in values)) == news


def test_what_was_not_looked_at_neither_holds_nor_breaks() -> None:
    invariants = LoopInvariants()
    found = [invariants.update({"gradients_kept": 0.0}) for _ in range(HELD)]
    found += [invariants.update({}), invariants.update({"gradients_kept": 1.0}), invariants.update({})]
    found.append(invariants.update({"gradients_kept": 1.0}))
    assert [bool(changes) for changes in found] == [False] * (HELD + 3) + [True]
