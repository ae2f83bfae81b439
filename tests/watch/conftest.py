"""The command in a process of its own, forked from one that has imported it, and a server that can fail and hang."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import rmetric.commands.watch  # noqa: F401 - the process that others are forked from has imported it
from rmetric.commands import main
from rmetric.engines.processes import ready_for

PATIENCE_S = 60.0
"""After this a test has failed; none takes nearly as long."""


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


class Watch:
    """``rmetric watch`` with what it prints."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        context = ready_for(_command)
        output, printed = context.Pipe(duplex=False)
        words = ["watch", *arguments, "--interval", "0.05"]
        self._process = context.Process(target=_command, args=(words, os.environ | environment, printed))
        self._process.start()
        printed.close()
        self._printed = os.fdopen(os.dup(output.fileno()), encoding="utf-8")
        output.close()
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for("watching")

    def _read(self) -> None:
        for line in self._printed:
            self._lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, times: int = 1) -> None:
        eventually(lambda: self.output.count(text) >= times or not self._process.is_alive(), repr(text))
        assert self.output.count(text) >= times, self.output

    def interrupt(self, by: int = signal.SIGINT) -> None:
        """Ctrl-C or another signal."""
        if self._process.is_alive():
            assert self._process.pid is not None
            os.kill(self._process.pid, by)

    def end(self, by: int = signal.SIGINT) -> int:
        """Ctrl-C or another signal, then :meth:`ended`."""
        self.interrupt(by)
        return self.ended()

    def ended(self) -> int:
        """Exit status; everything that it printed is in :attr:`output`."""
        self._process.join(PATIENCE_S)
        self._reader.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._reader.join()
        self._printed.close()


def _command(words: list[str], environment: dict[str, str], printed: Connection) -> None:
    """What ``python -m rmetric`` does, from a new process on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(printed.fileno(), stream.fileno())
    printed.close()
    sys.exit(main(words))


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    begun: list[Watch] = []

    def begin(*arguments: str, **environment: str) -> Watch:
        begun.append(Watch(*arguments, **environment))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


class Server:
    """Answers POST with a list of statuses, the last one for ever; 0: no answer at all."""

    def __init__(self, *statuses: int) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.released = threading.Event()
        outer, left = self, list(statuses)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                status = left.pop(0) if len(left) > 1 else left[0]
                if not status:
                    outer.released.wait(PATIENCE_S)
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def begin(*statuses: int) -> Server:
        servers.append(Server(*statuses))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def losses(first: int, last: int, loss: str = "") -> str:
    """Lines of a log of a run that learns, one a step; ``loss``: its value if it does not."""
    return "".join(
        f'{{"step": {step}, "loss": {loss or 2.0 + 2.0 * 0.98**step + 0.01 * ((step * 7919) % 13 - 6) / 6:}}}\n'
        for step in range(first, last)
    )


def append(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)
