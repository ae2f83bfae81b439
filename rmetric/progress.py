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

    It has no encoding, so that tqdm writes ASCII.
    """

    def __init__(self, stream: TextIO, every_s: float) -> None:
        self._stream = stream
        self._every_s = every_s
        self._written_s = time.monotonic()

    def write(self, text: str) -> None:
        state = text.strip()  # without the returns by which a bar is drawn over
        if state and time.monotonic() - self._written_s >= self._every_s:
            self._stream.write(state + "\n")
            self._written_s = time.monotonic()

    def flush(self) -> None:
        self._stream.flush()


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """A :class:`tqdm.tqdm` on standard error; work that ends within half a minute writes nothing to a file or pipe.

    Parameters
    ----------
    iterable, options
        As :class:`tqdm.tqdm` takes them.
    """
    if not sys.stderr.isatty():
        options["file"] = _LinesOf(sys.stderr, LINE_EVERY_S)
        options["miniters"] = 1  # tqdm's own guess waits for as many as came before, however slow they have become
    return tqdm(iterable, **options)
