"""Tell the other ranks where this one is, and hear where they are, past the collectives that may hang."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from rmetric.monitor.processes import Processes
from rmetric.monitor.ranks.hang import Beat

SERIAL = itertools.count()
"""Number of the next monitor; the same in every process that makes the same ones."""
STORE_TIMEOUT_S = 10.0


class Heartbeats:
    """Exchanges beats through the key-value store of the process group, in a thread of its own.

    The thread may be stuck in the store when the process that keeps it is; what was heard before stays readable.

    ``own`` makes the beat of this rank.
    """

    def __init__(self, processes: Processes, own: Callable[[int], Beat], interval_s: float) -> None:
        self._rank, self._own, self._interval_s = processes.rank, own, interval_s
        self._key = f"rmetric/beats/{next(SERIAL)}"
        self._others = [rank for rank in range(processes.count) if rank != processes.rank]
        self._heard: dict[int, tuple[Beat, float]] = {}
        self._reached_s = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self._others:
            self._thread = threading.Thread(target=self._run, name="rmetric-heartbeats", daemon=True)
            self._thread.start()

    def heard(self) -> tuple[dict[int, Beat], dict[int, float]]:
        """Latest beat of every other rank that was ever heard, and for how many seconds it was none.

        While the store does not answer, nobody's silence counts.
        """
        until, heard = self._reached_s, dict(self._heard)
        return {rank: beat for rank, (beat, _) in heard.items()}, {rank: until - at for rank, (_, at) in heard.items()}

    @property
    def unreachable_s(self) -> float:
        """Seconds since the store last answered; 0 where there is nobody to exchange with."""
        return time.monotonic() - self._reached_s if self._others else 0.0

    @property
    def keeper(self) -> int | None:
        """Rank of the process that keeps the store; ``None``: a launcher does, or a file."""
        by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return None if by_launcher else 0

    def close(self) -> None:
        """Say good-bye; waits for a stuck store no longer than half a second."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(0.5)

    def _run(self) -> None:
        try:
            store: Any = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]
            store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
            for count in itertools.count(1):
                self._exchange(store, count)
                if self._stop.wait(self._interval_s):
                    self._exchange(store, count + 1)
                    return
        except Exception:  # noqa: BLE001 - the store went with the process that kept it: silence is all there is
            return

    def _exchange(self, store: Any, count: int) -> None:
        store.set(f"{self._key}/{self._rank}", json.dumps(asdict(self._own(count))))
        known = [rank for rank in self._others if rank in self._heard or store.check([f"{self._key}/{rank}"])]
        answers: Any = store.multi_get([f"{self._key}/{rank}" for rank in known]) if known else []
        now = time.monotonic()
        self._reached_s = now
        for rank, answer in zip(known, answers, strict=True):
            beat = Beat(**json.loads(answer))
            if rank not in self._heard or self._heard[rank][0].count != beat.count:
                self._heard[rank] = (beat, now)
