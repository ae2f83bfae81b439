"""Work handed out ahead: in order, in bounded number, for as many processes as there are by then."""

from __future__ import annotations

from rmetric.engines.window import AHEAD, in_order


def test_processes_that_come_later_are_given_work() -> None:
    processes, handed_out = 0, []

    def submit(item: int) -> int:
        handed_out.append(item)
        return item

    results = in_order(submit, int, range(100), lambda: processes)
    assert next(results) == 0
    assert len(handed_out) == AHEAD + 1, "nobody is there yet, but who comes finds work"
    processes = 8
    assert next(results) == 1
    assert len(handed_out) == 8 * AHEAD + 2
    assert [*results] == [*range(2, 100)]
