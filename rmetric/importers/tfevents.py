"""TensorBoard event files, and folders of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import register_importer
from rmetric.importers.names import TEST_WORDS, TRAINING_WORDS, VALIDATION_WORDS
from rmetric.importers.series import Point, imported_series
from rmetric.importers.tables import run_after_run
from rmetric.log_lines import OnDamage, passed_over

EVENT_FILE, RUN_DEPTH = "tfevents", 3
"""Part of the name of every event file, and levels below a folder in which those of its runs lie."""
PATTERNS = tuple("*/" * level + f"*{EVENT_FILE}*" for level in range(RUN_DEPTH + 1))
MAX_FILES = 1000
_OF_DAMAGE = ValueError, TypeError, KeyError, IndexError, OverflowError, RuntimeError
"""Errors that the reader of a damaged file raises, beside two of packages that need not be there."""
_DATA = {"train": TRAINING_WORDS, "validation": VALIDATION_WORDS, "test": TEST_WORDS}
_RESULT = "hparam/"
"""Begin of the tags under which ``add_hparams`` writes what a run has come to."""
_SCALAR = 16
"""Largest number of bytes of a tensor that holds one number."""


@register_importer("tensorboard")
def read_tensorboard(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The scalars of an event file, or of each folder of event files as one run; the line is the number of the event.

    Folders ``train``, ``validation`` and ``test`` side by side, as Keras writes them, are one run, and so are
    ``Loss_train`` and ``Loss_val``, as PyTorch's ``add_scalars`` writes them. Read with tensorboard's own reader;
    raises :class:`UserError` without it.
    """
    _ = _loader(path)
    if path.is_file():
        return imported_series(path, partial(_points, [(path, "")]), mapping, on_damage, path.stem)
    return _of_folder(path, mapping, on_damage)


def event_files(folder: Path) -> list[Path]:
    """Event files in a folder and in those below it, the first by name: one more than :data:`MAX_FILES` at most."""
    found = (file for pattern in PATTERNS for file in folder.glob(pattern) if file.is_file())
    return heapq.nsmallest(MAX_FILES + 1, found)


def _of_folder(folder: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    found = event_files(folder)
    if not found:
        raise UserError(f"{folder} holds no event files; give a log or a folder of logs")
    if len(found) > MAX_FILES:
        on_damage(1, f"there are more than {MAX_FILES:,} event files; the rest is left out")
    runs = ((_title(folder, place), place, parts) for place, parts in _runs(folder, found[:MAX_FILES]).items())
    yield from run_after_run(
        (title, imported_series(place, partial(_points, parts), mapping, on_damage, title))
        for title, place, parts in runs
    )


def _title(folder: Path, place: Path) -> str:
    return folder.name if place == folder or folder not in place.parents else place.relative_to(folder).as_posix()


_Parts = list[tuple[Path, str]]
"""Event files of a run, each with the data of which its folder holds the numbers."""


def _runs(folder: Path, files: Iterable[Path]) -> dict[Path, _Parts]:
    """The files of each run, by its folder."""
    of_data = _folders_of_data({file.parent: file for file in files if file.parent != folder})
    runs: dict[Path, _Parts] = {}
    for file in files:
        place, data = of_data.get(file.parent, (file.parent, ""))
        runs.setdefault(place, []).append((file, data))
    return runs


def _folders_of_data(files: Mapping[Path, Path]) -> dict[Path, tuple[Path, str]]:
    """Folders that are named after the data of which they hold the numbers → the folder of their run, and the data.

    Test data are such only beside others, and names with more than the data only where they differ in that:
    ``Loss_train``, ``Loss_val``.

    Parameters
    ----------
    files
        Folder → a file in it.
    """
    beside: dict[Path, list[Path]] = {}
    for folder in files:
        beside.setdefault(folder.parent, []).append(folder)
    found = {}
    for parent, all_beside in beside.items():
        for rest, data in of_one_run(folder.name for folder in all_beside).items():
            folders = {parent / name: known for name, known in data.items()}
            is_of_parent = rest and any(_is_of_add_scalars(files[folder]) for folder in folders)
            place = parent if is_of_parent else parent / rest
            found.update({folder: (place, known) for folder, known in folders.items()})
    return found


def of_one_run(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Folders side by side that hold the numbers of one run: what else they are called → name → its data.

    >>> of_one_run(["train", "validation", "loss_train", "loss_val", "a_train"])
    {'': {'train': 'train', 'validation': 'validation'}, 'loss': {'loss_train': 'train', 'loss_val': 'validation'}}
    """
    alike: dict[str, dict[str, str]] = {}
    for name in names:
        rest, data = _of_data(name)
        if data:
            alike.setdefault(rest, {})[name] = data

    def are_one(rest: str, known: set[str]) -> bool:
        return len(known) > 1 and "train" in known if rest else known != {"test"}

    return {rest: folders for rest, folders in alike.items() if are_one(rest, {*folders.values()})}


def _of_data(name: str) -> tuple[str, str]:
    """The name of a folder without the word for its data, and these data, if it has one such word.

    >>> [_of_data(name) for name in ("train", "Loss_val", "losses_test_loss", "a", "train_test")]
    [('', 'train'), ('Loss', 'validation'), ('losses_loss', 'test'), ('a', ''), ('train_test', '')]
    """
    words = name.split("_")
    known = [(word, data) for word in words for data, names in _DATA.items() if word.casefold() in names]
    if len(known) != 1:
        return name, ""
    ((word, data),) = known
    return "_".join(other for other in words if other != word), data


def _is_of_add_scalars(file: Path) -> bool:
    """Whether the folder of a file is named after a tag in it, as PyTorch's ``add_scalars`` does."""
    _, _, tag, _ = next(_scalars(file, passed_over), (0, None, "/", 0.0))
    return file.parent.name.startswith(f"{tag.replace('/', '_')}_")


def _points(parts: _Parts, on_damage: OnDamage) -> Iterator[Point]:
    """The scalars of a run, file after file in the order in which these were begun, which their names tell."""
    places = count()
    for file, data in sorted(parts, key=lambda part: part[0].name):
        for number, event, tag, value in _scalars(file, on_damage):
            name = f"{data}/{tag}" if data else tag
            yield Point(name, number, next(places), event.wall_time, event.step, value)


def _scalars(file: Path, on_damage: OnDamage) -> Iterator[tuple[int, Any, str, float]]:
    """Number of the event, event, tag and value of each scalar but the results beside hyperparameters."""
    number = 0
    try:
        for number, event in enumerate(_loader(file)(str(file)).Load(), start=1):
            for value in event.summary.value:
                scalar = None if value.tag.startswith(_RESULT) else _scalar(value)
                if scalar is not None:
                    yield number, event, value.tag, scalar
    except Exception as error:
        if not isinstance(error, _OF_DAMAGE) and type(error).__name__ not in ("DecodeError", "DataLossError"):
            raise
        on_damage(number + 1, f"an event is damaged ({type(error).__name__}); what follows is left out")


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
