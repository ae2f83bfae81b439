"""Adapters at work: a process each, kept alive from log to log, ended when it hangs, started again when it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 120.0
"""Time limit of the first line: importing torch on a busy machine takes a while."""

Answer = dict[str, Any]


class Broken(Exception):  # noqa: N818 - what happened to the process, not a mistake of ours
    """The process hung or died; the message says which."""


class Worker:
    """One process that answers one task at a time."""

    def __init__(self, script: Path, python: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        with contextlib.ExitStack() as held:
            # what a process that is killed leaves behind goes with this folder
            folder = held.enter_context(tempfile.TemporaryDirectory())
            self._errors = held.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [python, str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**kept, "TMPDIR": folder, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            )
            self._held = held.pop_all()
        self.greeting = self._answer(START_TIMEOUT_S)

    def ask(self, task: dict[str, Any], timeout_s: float) -> Answer:
        """The answer to a task; raises :class:`Broken`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone; reading tells why
        return self._answer(timeout_s)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # what could not be written to it
            assert self._process.stdin is not None
            self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._held.close()

    def _answer(self, timeout_s: float) -> Answer:
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        watchdog = threading.Timer(timeout_s, end)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line.endswith(b"\n"):
            self._process.wait()
            words = f"no answer within {timeout_s:g} s" if late.is_set() else self._last_words()
            self.close()
            raise Broken(words)
        return json.loads(line)

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with status {self._process.returncode}" + (f": {lines[-1]}" if lines else "")


def greeting(script: Path, python: str) -> Answer:
    """Version of the tool in that interpreter, or ``{"missing": why}``."""
    try:
        worker = Worker(script, python)
    except (OSError, Broken) as error:
        return {"missing": str(error)}
    worker.close()
    return worker.greeting


def answers(
    script: Path,
    python: str,
    tasks: Sequence[dict[str, Any]],
    *,
    jobs: int,
    timeout_s: float,
    done: Callable[[], object],
) -> list[Answer]:
    """One answer a task, in order. A task at which the process hangs or dies is answered ``{"broken": why}``."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(tasks)):
        waiting.put(index)
    replies: list[Answer] = [{} for _ in tasks]

    def work() -> None:
        worker: Worker | None = None
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                worker = worker or Worker(script, python)
                replies[index] = worker.ask(tasks[index], timeout_s)
            except Broken as error:
                replies[index], worker = {"broken": str(error)}, None
            done()
        if worker is not None:
            worker.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, len(tasks)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies
