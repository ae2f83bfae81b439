"""Keep the monitor's errors away from the training that it watches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rmetric.errors import LOGGER, on_one_line

Method = TypeVar("Method", bound=Callable[..., Any])


def never_raises(default: Any, *, ends: bool = True) -> Callable[[Method], Method]:
    """Decorate a method: an error in it disables its object and ``default`` is returned, as ever after.

    The object has ``enabled``, ``disable(error)`` and ``pass_by(error)``: with ``ends=False`` the call alone is passed
    by, for a method that does no more than take what the user gives.
    """

    def guard(method: Method) -> Method:
        @functools.wraps(method)
        def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
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


def ends_alone(method: Method) -> Method:
    """Decorate a method that returns nothing: an error in it ends its object, with one warning, never the training.

    The object has ``closed``, which is true afterwards, and ``watched``: what it looks at, in words; a plural.
    """

    @functools.wraps(method)
    def alone(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.closed:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
            LOGGER.warning("%s are no longer looked at: %s", self.watched, on_one_line(error))
            self.closed = True

    return cast(Method, alone)
