"""Tell of a hang on every rank, while the thread that trains cannot."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from rmetric.log_writer import encode_event
from rmetric.records import Event

LOGGER = logging.getLogger("rmetric")


def hang_file(log: str | os.PathLike[str]) -> Path:
    """File in which the ranks that do not write the log tell of hangs: the first one may be the one that hangs.

    >>> hang_file("run.jsonl").name
    'run.hangs.jsonl'
    """
    path = Path(log)
    return path.with_name(f"{path.stem}.hangs{path.suffix}")


def beside_the_log(log: str | os.PathLike[str] | None) -> Callable[[Event], None]:
    """Tell of an event through ``logging`` and in the :func:`hang_file` of a log, each line written whole at once."""

    path = None if log is None else hang_file(log).absolute()  # the program may go to another folder

    def tell(event: Event) -> None:
        if "message" in event:
            LOGGER.warning("R-Metric: %s", event["message"])
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, encode_event(event))
            finally:
                os.close(descriptor)

    return tell
