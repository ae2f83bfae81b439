"""Keep the monitor's errors away from the training that it watches."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from rmetric.errors import on_one_line

LOGGER = logging.getLogger("rmetric")
Method = TypeVar("Method", bound=Callable[..., Any])


class Guarded(Protocol):
    """An object whose methods must not raise."""

    enabled: bool
    """False: its methods do nothing."""

    def disable(self, error: Exception) -> None:
        """End it because of an error."""

    def pass_by(self, error: Exception) -> None:
        """Tell that a call is passed by because of an error in what it was given."""


def never_raises(default: Any, *, ends: bool = True) -> Callable[[Method], Method]:
    """Decorate a method: an error in it disables its object and ``default`` is returned, as ever after.

    With ``ends=False`` the call alone is passed by: for a method that does no more than take what the user gives.
    """

    def guard(method: Method) -> Method:
        @functools.wraps(method)
        def guarded(self: Guarded, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return default
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
                if not ends:
                    self.pass_by(error)
                else:
                    self.disable(error)
                return default

        return cast(Method, guarded)

    return guard


class Closing(Protocol):
    """An object that can do without being called."""

    closed: bool
    """True: its methods do nothing."""

    @property
    def watched(self) -> str:
        """What it looks at, in words; a plural."""


def ends_alone(method: Method) -> Method:
    """Decorate a method that returns nothing: an error in it ends its object, with one warning, never the training."""

    @functools.wraps(method)
    def alone(self: Closing, *args: Any) -> None:
        if self.closed:
            return
        try:
            method(self, *args)
        except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
            LOGGER.warning("%s are no longer looked at: %s", self.watched, on_one_line(error))
            self.closed = True

    return cast(Method, alone)
