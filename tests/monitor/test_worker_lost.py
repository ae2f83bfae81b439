"""The last words of a program: told where a peer died, and given back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from rmetric.monitor.worker_lost import LastWords, WorkerLost


class Listener:
    def __init__(self) -> None:
        self.heard: list[BaseException] = []

    def tell(self, error: BaseException) -> None:
        self.heard.append(error)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """What Python's own hook, or the user's, is told."""
    found: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: found.append(error))
    yield found


def end_with(error: BaseException) -> None:
    sys.excepthook(type(error), error, None)


def test_only_the_death_of_a_peer_is_told_and_the_report_comes_in_any_case(reports: list[BaseException]) -> None:
    listener = Listener()
    words = LastWords(listener.tell)
    lost, other = WorkerLost(1), ValueError("as ever")
    end_with(lost)
    end_with(other)
    words.close()
    end_with(lost)
    assert listener.heard == [lost]
    assert reports == [lost, other, lost]


def test_what_was_put_over_it_stays_and_a_listener_that_is_gone_is_not_told(reports: list[BaseException]) -> None:
    listener = Listener()
    words, before = LastWords(listener.tell), sys.excepthook
    later: list[BaseException] = []

    def over(kind: type[BaseException], error: BaseException, trace: object) -> None:
        later.append(error)
        before(kind, error, None)

    sys.excepthook = over
    words.close()
    assert sys.excepthook is over
    heard = listener.heard
    del listener
    end_with(WorkerLost(1))
    assert (len(later), len(reports), heard) == (1, 1, [])
