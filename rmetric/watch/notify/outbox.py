"""A bounded queue with one thread that delivers, tries again, and is never waited for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential,
    wait_random,
)

CAPACITY = 100
"""Messages that wait; when there are more, the oldest is given up."""
ATTEMPTS = 6
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
GRACE_S = 5.0
"""Seconds that the end of a watch waits for messages that are under way."""

Message = Mapping[str, Any]


class TryAgainError(Exception):
    """Delivery failed for now; the text says why, without addresses."""


class RefusedError(Exception):
    """Delivery failed for good; the text says why, without addresses."""


class Channel(Protocol):
    """A way to tell somebody."""

    name: str
    """For people; holds no address."""

    def deliver(self, message: Message) -> None:
        """Deliver one message; raises :class:`TryAgainError` or :class:`RefusedError`."""


class Outbox:
    """Delivers messages through one channel in the background.

    Parameters
    ----------
    channel
        Where to.
    complain
        Receives one line for each message that was given up.
    attempts, first_wait_s
        Attempts for a message, and seconds before the second; each further wait is twice as long, up to a minute.
    """

    def __init__(
        self, channel: Channel, complain: Callable[[str], None], *, attempts: int = ATTEMPTS,
        first_wait_s: float = FIRST_WAIT_S, capacity: int = CAPACITY,
    ) -> None:  # fmt: skip
        self.channel = channel
        self.delivered = 0
        """Messages that arrived."""
        self._taken = self._lost = 0
        self._complain = complain
        self._closing = threading.Event()
        self._waiting: queue.Queue[Message | None] = queue.Queue(capacity + 1)
        self._capacity = capacity
        self._retrying = Retrying(
            stop=stop_after_attempt(attempts) | stop_when_event_set(self._closing),
            wait=wait_exponential(first_wait_s, max=LONGEST_WAIT_S) + wait_random(0.0, first_wait_s / 2),
            retry=retry_if_exception_type(TryAgainError),
            sleep=sleep_using_event(self._closing),
        )
        self._thread = threading.Thread(target=self._work, name=channel.name, daemon=True)
        self._thread.start()

    @property
    def given_up(self) -> int:
        """Messages that did not arrive; from the end on those that still waited, or were under way, among them."""
        return self._taken - self.delivered if self._closing.is_set() else self._lost

    def put(self, message: Message) -> None:
        """Hand over a message; returns at once."""
        self._taken += 1
        while self._waiting.qsize() >= self._capacity:
            self._drop_oldest()
        self._waiting.put_nowait(message)

    def _drop_oldest(self) -> None:
        try:
            self._waiting.get_nowait()
        except queue.Empty:
            return
        self._lost += 1
        if self._lost == 1:
            self._complain(f"{self.channel.name}: too many messages wait; the oldest are given up")

    def end(self) -> None:
        """Take no further message."""
        self._waiting.put_nowait(None)

    def wait(self, seconds: float) -> None:
        """Wait for what is under way."""
        self._thread.join(seconds)

    def leave(self) -> None:
        """Leave what is still under way: a message that waits to be tried again is tried once."""
        self._closing.set()  # whatever the thread says of itself: Python 3.11 takes one for ended whose join breaks off

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None:
            if self._closing.is_set():
                return
            try:
                self._retrying(self.channel.deliver, message)
                self.delivered += 1
            except RetryError as error:
                self._give_up(f"{error.last_attempt.exception()}, {error.last_attempt.attempt_number} attempts")
            except RefusedError as error:
                self._give_up(str(error))
            except Exception as error:  # noqa: BLE001 - a message must not end the thread, and its text may hold an address
                self._give_up(type(error).__name__)

    def _give_up(self, why: str) -> None:
        self._lost += 1
        if not self._closing.is_set():
            self._complain(f"{self.channel.name}: a message was not delivered ({why})")


def close_all(outboxes: Sequence[Outbox], grace_s: float = GRACE_S) -> None:
    """Give what is under way in any of them a few seconds, the same for all; then, or at Ctrl-C, leave it."""
    until = time.monotonic() + grace_s
    for outbox in outboxes:
        outbox.end()
    try:
        for outbox in outboxes:
            outbox.wait(max(0.0, until - time.monotonic()))
    finally:
        for outbox in outboxes:
            outbox.leave()
