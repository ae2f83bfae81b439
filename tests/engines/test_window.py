"""Work handed out ahead: in order, in bounded number, for as many processes as there are by then."""

from __future__ import annotations

from collections.abc import Iterator

from rmetric.engines.window import AHEAD, in_order


def test_processes_that_come_later_are_given_work() -> None:
    processes, handed_out = 0, 0

    def items() -> Iterator[int]:
        nonlocal handed_out
        for handed_out in range(100):
            yield handed_out

    results = in_order(lambda item: item, lambda ticket: ticket, items(), lambda: processes)
    assert next(results) == 0
    assert handed_out == AHEAD, "nobody is there yet, but who comes finds work"
    processes = 8
    assert next(results) == 1
    assert handed_out == 8 * AHEAD + 1
    assert [*results] == [*range(2, 100)]
