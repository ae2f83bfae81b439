"""Registry of plain names, shared by faults, detectors, architectures and importers; plug-ins and entry points."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Self, TypeVar

from rmetric.errors import UserError

T = TypeVar("T")
_PLUGIN_MODULE = "rmetric_plugin_"
_VALID_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class PluginError(UserError):
    """A mistake in a plug-in that shows in what it gives back; :func:`plugin_errors` adds the run."""

    @classmethod
    def of(cls, kind: type, message: str) -> Self:
        """The error of a class, after the file that it stands in."""
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__
        return cls(f"plugin {file}: {message}")


class Registry(Generic[T]):
    """Names in the order of registration or of :meth:`sort`; a duplicate raises, an unknown one is told the nearest.

    >>> fruit = Registry[int]("fruit")
    >>> _ = fruit.add("apple", 1)
    >>> fruit["aple"]
    Traceback (most recent call last):
    rmetric.errors.UserError: unknown fruit 'aple'; did you mean 'apple'? (known: apple)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> T:
        """Register ``item``; raises ``ValueError`` when the name is taken or cannot stand in a file name.

        ``TypeError`` for a class without a method that its kind must have.
        """
        if name in self._items:
            raise ValueError(f"{self.kind} {name!r} is already registered, by {self._items[name]!r}")
        if not _VALID_NAME.fullmatch(name):
            raise ValueError(f"{self.kind} name {name!r} must consist of letters, digits, '_', '-' and '.'")
        missing = sorted(getattr(item, "__abstractmethods__", ()))
        if missing:
            raise TypeError(f"{self.kind} {name!r} lacks {', '.join(missing)}")
        self._items[name] = item
        return item

    def __getitem__(self, name: str) -> T:
        return self.named(name)

    def named(self, name: str, told: Callable[[T], bool] = lambda item: True) -> T:
        """The item of a name; an unknown name is told the ``told`` ones, those that are spelt like it first."""
        if name in self._items:
            return self._items[name]
        folded = {known.casefold(): known for known, item in self._items.items() if told(item)}
        near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = dict.fromkeys([*near, *folded.values()])
        raise UserError(f"unknown {self.kind} {name!r}{hint} (known: {', '.join(known)})")

    def check(self, names: Iterable[str]) -> None:
        """Raise :class:`UserError` for the first name that is not known: before anything else is done with them."""
        for name in names:
            self.named(name)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Names and things, in their order."""
        return iter(tuple(self._items.items()))

    def __len__(self) -> int:
        return len(self._items)

    def sort(self, key: Callable[[str, T], str]) -> None:
        """Order the names by a key of name and thing; equal keys keep the order of registration."""
        self._items = dict(sorted(self._items.items(), key=lambda item: key(*item)))

    def discard(self, name: str) -> None:
        """Forget a name; for tests and interactive work."""
        self._items.pop(name, None)


def load_plugins(paths: Iterable[str | Path]) -> None:
    for path in paths:
        load_plugin(path)


def load_plugin(path: str | Path) -> None:
    """Run a user's own Python file, whose decorators register its faults or detectors.

    Loading the same file twice is a no-op, so that a worker process and its parent may both ask for it. Its folder is
    the last of ``sys.path`` from then on, so that it can import what lies beside it at any time, and hides nothing.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise UserError(
            f"plugin {path} is not a file; give the path of a Python file that registers a fault or detector"
        )
    module_name = _PLUGIN_MODULE + re.sub(r"\W", "_", str(file))
    if module_name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"plugin {path} is not a Python file; its name must end in .py")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise UserError(f"plugin {path} could not be loaded: {type(error).__name__}: {error}") from error


@contextmanager
def plugin_errors(run: str) -> Iterator[None]:
    """Raise an error that comes out of a plug-in's code as a :class:`UserError` that names its place and the run.

    So is ``sys.exit``, which would end the program as if all were well. What has nothing to do with a plug-in, and
    a :class:`UserError` of the plug-in, are raised as they are.
    """
    try:
        yield
    except PluginError as error:
        raise UserError(f"{error} (run {run})") from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        through = [
            (frame.f_code, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if str(frame.f_globals.get("__name__")).startswith(_PLUGIN_MODULE)
        ]
        if not through:
            raise
        code, line = through[-1]
        raise UserError(
            f"plugin {code.co_filename}, line {line}: {code.co_qualname} fails in run {run}: "
            f"{type(error).__name__}: {error}"
        ) from error


def load_entry_points(group: str) -> None:
    """Import what installed packages announce under ``group`` (``rmetric.faults`` or ``rmetric.detectors``)."""
    from importlib.metadata import entry_points  # 0.02 s, after what runs beside it has been started

    for entry_point in entry_points(group=group):
        entry_point.load()
