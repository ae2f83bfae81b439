"""Updates that are left out: which, and how many at most."""

from __future__ import annotations

from rmetric.monitor.repair import SkipUpdate
from tests.monitor.repair.common import Toy, poisoned


def test_skipping_is_bounded_in_a_row_and_in_all() -> None:
    toy = poisoned(Toy(), *range(30, 40), factor=0.0)
    with toy.watch(policy=SkipUpdate(max_in_a_row=2)) as monitor:
        assert [step for step, made in enumerate(toy.train(33, monitor), 1) if not made] == [30, 31]
    toy = poisoned(Toy(), 30, 32, 34, 36, factor=0.0)
    with toy.watch(policy=SkipUpdate(max_interventions=3)) as monitor:
        assert [step for step, made in enumerate(toy.train(36, monitor), 1) if not made] == [30, 32, 34]


def test_an_unusual_step_is_skipped_only_where_asked() -> None:
    for certain, expected in ((True, []), (False, [30])):
        toy = poisoned(Toy(), 30)
        with toy.watch(policy=SkipUpdate(certain=certain)) as monitor:
            assert [step for step, made in enumerate(toy.train(31, monitor), 1) if not made] == expected
