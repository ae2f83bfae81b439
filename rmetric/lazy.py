"""Names of a package that are imported on first use: a part that needs a library does not make the others need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of(package: str, home_of: Mapping[str, str]) -> Callable[[str], Any]:
    """What a package calls ``__getattr__``.

    Parameters
    ----------
    package
        Its name, for the error.
    home_of
        Name → module that has it.

    >>> get = names_of("numbers", {"sqrt": "math"})
    >>> get("sqrt")(9.0)
    3.0
    """

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return get
