"""Functions compiled by Numba: when that pays, and how they are kept for the next process.

Importing this module does not import Numba.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

PAYS_FROM = 8192
"""Values from which on it is worth half a second to import Numba and what it has compiled."""
FEW = 32
"""Fewer at a time are judged sooner one by one: a single one of a log that is followed takes compiled code ten times as
long."""
_judged_without = 0
"""Values of this process that were judged without it."""


def pays(values: int) -> bool:
    """Whether to judge the next values by compiled code: a single short log does without, a folder of them does not.

    Of none: whether it has come to pay.

    >>> pays(10 * PAYS_FROM), pays(1), pays(0)
    (True, False, True)
    """
    global _judged_without
    if "numba" not in sys.modules:  # nobody has paid for it yet
        _judged_without += values
    return not 0 < values < FEW and ("numba" in sys.modules or _judged_without >= PAYS_FROM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C within compiled code be a KeyboardInterrupt: Numba makes a SystemError of it, or several in a row."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        raise (KeyboardInterrupt if cause is not None else error) from None


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, and keep the result for the next process.

    It is kept under a name that changes with any source of its folder and of this one: Numba freezes constants and
    functions of other modules, looks at the date of the function's own file alone, and would go on with those of an
    older version. The interpreter is let go meanwhile, so that other threads work.

    Loops are compiled sooner than NumPy's arithmetic of whole arrays, which brings its messages about shapes along; who
    replays a first log waits for it.
    """
    from numba import njit

    function.__qualname__ = f"{function.__name__}_{sources(Path(function.__code__.co_filename).parent):x}"
    return njit(cache=True, nogil=True, no_cfunc_wrapper=True)(function)  # type: ignore[no-any-return]


@cache
def sources(folder: Path) -> int:
    """A number that changes with any source of a folder, and of this one."""
    files = {*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")}
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(files)))
