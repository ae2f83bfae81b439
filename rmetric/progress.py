"""Progress of long work: a bar on a terminal; a line every half minute in the log of a job, where nobody sees a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm

LINE_EVERY_S = 30.0


class _LinesOf:
    """A stream on which the state of a bar is a line, at most one in so many seconds.

    It has no encoding, so that tqdm writes ASCII. If it can no longer be written, as a pipe that nobody reads, the work
    goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._written_s = time.monotonic()

    def write(self, text: str) -> None:
        state = text.strip()  # without the returns by which a bar is drawn over
        if state and self._stream is not None and time.monotonic() - self._written_s >= LINE_EVERY_S:
            self._written_s = time.monotonic()
            try:
                self._stream.write(state + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None

    def flush(self) -> None:
        """Nothing waits."""


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """A :class:`tqdm.tqdm` on standard error; work that ends within half a minute writes nothing to a file or pipe."""
    stream: TextIO | None = sys.stderr
    if stream is None:  # as in a process without a console
        options["disable"] = True
    elif not getattr(stream, "isatty", bool)():
        options["file"] = _LinesOf(stream)
        options["miniters"] = 1  # tqdm's own guess waits for as many as came before, however slow they have become
    return tqdm(iterable, **options)
