"""Progress of long work: a bar on a terminal; a line every half minute in the log of a job, where nobody sees a bar."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm

LINE_EVERY_S = 30.0


class _LinesOf:
    """A stream on which each state of a bar is a line of its own; it has no encoding, so that tqdm writes ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if state := text.strip():  # without the returns by which a bar is drawn over
            self._stream.write(state + "\n")

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
        options |= {
            "file": _LinesOf(sys.stderr),
            "delay": LINE_EVERY_S,
            "mininterval": LINE_EVERY_S,
            "miniters": 1,  # tqdm's own guess waits for as many as came before, however slow they have become
        }
    return tqdm(iterable, **options)
