"""TensorBoard event files, and folders of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.importers.base import register_importer
from rmetric.importers.names import TRAINING_WORDS, VALIDATION_WORDS
from rmetric.importers.rows import Row
from rmetric.importers.tables import imported, run_after_run
from rmetric.log_reader import NumberedEvent, OnDamage

PATTERNS = tuple("*/" * level + "*tfevents*" for level in range(4))
"""Of event files in a folder and in those at most three levels below."""
MAX_FILES = 1000
_OF_DAMAGE = ValueError, TypeError, KeyError, IndexError, OverflowError, RuntimeError
"""Errors that the reader of a damaged file raises, beside two of packages that need not be there."""
_SCALAR = 16
"""Largest number of bytes of a tensor that holds one number."""


@register_importer("tensorboard")
def read_tensorboard(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The scalars of an event file, or of each folder of event files as one run; the line is the number of the event.

    Folders ``train`` and ``validation`` side by side, as Keras writes them, are one run. Read with tensorboard's own
    reader; raises :class:`UserError` without it.
    """
    _ = _loader(path)
    if path.is_file():
        return imported(path, lambda report: _rows(path, report), mapping, on_damage)
    return _of_folder(path, mapping, on_damage)


def event_files(folder: Path) -> list[Path]:
    """Event files in a folder and in those below it, the first by name: one more than :data:`MAX_FILES` at most."""
    found = (file for pattern in PATTERNS for file in folder.glob(pattern) if file.is_file())
    return heapq.nsmallest(MAX_FILES + 1, found)


def _of_folder(folder: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    files: dict[Path, list[Path]] = {}
    found = event_files(folder)
    if len(found) > MAX_FILES:
        on_damage(1, f"there are more than {MAX_FILES:,} event files; the rest is left out")
    for file in found[:MAX_FILES]:
        parent = file.parent
        files.setdefault(parent.parent if _setting(parent) and parent != folder else parent, []).append(file)
    if not files:
        raise UserError(f"{folder} holds no event files; give a log or a folder of logs")
    yield from run_after_run(
        (_title(folder, place), imported(place, _reader_of(place, parts), mapping, on_damage))
        for place, parts in files.items()
    )


def _title(folder: Path, place: Path) -> str:
    return folder.name if place == folder or folder not in place.parents else place.relative_to(folder).as_posix()


def _reader_of(place: Path, parts: list[Path]) -> Callable[[OnDamage], Iterator[Row]]:
    """The rows of one run: its files one after the other, evaluations between."""
    groups: dict[str, list[Path]] = {}
    for file in parts:
        groups.setdefault(_setting(file.parent) if file.parent != place else "", []).append(file)

    def read(on_damage: OnDamage) -> Iterator[Row]:
        return heapq.merge(
            *(_prefixed(files, setting, on_damage) for setting, files in groups.items()),
            key=lambda row: row.values["step"],
        )

    return read


def _prefixed(files: list[Path], setting: str, on_damage: OnDamage) -> Iterator[Row]:
    for file in files:
        for row in _rows(file, on_damage):
            if setting:
                step = row.values.pop("step")
                row.values = {"step": step} | {f"{setting}/{tag}": value for tag, value in row.values.items()}
            yield row


def _setting(folder: Path) -> str:
    """``validation`` or ``train`` for a folder of that name."""
    name = folder.name.casefold()
    return "validation" if name in VALIDATION_WORDS else "train" if name in TRAINING_WORDS else ""


def _rows(file: Path, on_damage: OnDamage) -> Iterator[Row]:
    """Scalars of neighbouring events of one step."""
    number = 0
    row: Row | None = None
    try:
        for number, event in enumerate(_loader(file)(str(file)).Load(), start=1):
            scalars = {value.tag: scalar for value in event.summary.value if (scalar := _scalar(value)) is not None}
            if not scalars:
                continue
            if row is not None and row.values["step"] == event.step and not row.values.keys() & scalars.keys():
                row.values.update(scalars)
                continue
            if row is not None:
                yield row
            row = Row(number, {"step": event.step} | scalars)
    except Exception as error:
        if not isinstance(error, _OF_DAMAGE) and type(error).__name__ not in ("DecodeError", "DataLossError"):
            raise
        on_damage(number + 1, f"an event is damaged ({type(error).__name__}); what follows is left out")
    if row is not None:
        yield row


def _scalar(value: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    tensor = value.tensor
    if kind != "tensor" or tensor.ByteSize() > 4 * _SCALAR or any(side.size != 1 for side in tensor.tensor_shape.dim):
        return None
    from tensorboard.util import tensor_util

    array = tensor_util.make_ndarray(tensor)
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None


def _loader(path: Path) -> Any:
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        raise UserError(f"{path} is a TensorBoard log; to read it: pip install tensorboard") from None
    return EventFileLoader
