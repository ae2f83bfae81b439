"""A command of the user, run for each message without a shell."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from rmetric.errors import UserError
from rmetric.watch.notify.outbox import Message, RefusedError

TIMEOUT_S = 60.0
VARIABLES = ("event", "text", "run", "log", "name", "severity", "step")
"""Parts of a message that the command finds in its environment, as ``RMETRIC_EVENT`` and so on."""


class Command:
    """Runs a command line. What comes from a log reaches it as environment variables and as JSON on its standard
    input, never as an argument, and no shell reads any of it.

    Parameters
    ----------
    line
        Program and arguments, with quotes as in a shell.

    Raises
    ------
    UserError
        If there is no such program.
    """

    def __init__(self, line: str, timeout_s: float = TIMEOUT_S) -> None:
        try:
            self._arguments = shlex.split(line)
        except ValueError as error:
            raise UserError(f"--exec: {error}; quote it as for a shell") from None
        if not self._arguments or shutil.which(self._arguments[0]) is None:
            raise UserError(f"--exec: there is no program {''.join(self._arguments[:1])!r}; give its path")
        self._timeout_s = timeout_s
        self.name = f"command {Path(self._arguments[0]).name}"

    def deliver(self, message: Message) -> None:
        """Run it once; it is not run again if it fails, since it may have done half its work."""
        environment = {f"RMETRIC_{name.upper()}": _plain(message.get(name)) for name in VARIABLES}
        process = subprocess.Popen(
            self._arguments, stdin=subprocess.PIPE, env=os.environ | environment, start_new_session=True
        )
        try:
            process.communicate(json.dumps(message, allow_nan=False).encode() + b"\n", timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise RefusedError(f"it took more than {self._timeout_s:g} s and was ended") from None
        if process.returncode:
            raise RefusedError(f"exit status {process.returncode}")


def _plain(value: object) -> str:
    """Text for an environment variable, which can hold no NUL."""
    return "" if value is None else str(value).replace("\0", "?")
