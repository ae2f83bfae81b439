"""What bugs of the data need to know of a batch: any dataclass with tensors, examples first."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from rmetric.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from rmetric.faults.bugs.base import Bug

IGNORED_LABELS = -1
"""Labels up to this one do not count (padding)."""


def tensors_of(batch: Any, bug: Bug) -> dict[str, Tensor]:
    """Fields of a batch that hold an example a row, by name; raises :class:`UserError` for a batch without any."""
    from torch import Tensor

    held = {item.name: getattr(batch, item.name) for item in fields(batch)} if is_dataclass(batch) else {}
    tensors = {name: value for name, value in held.items() if isinstance(value, Tensor) and value.ndim}
    rows = min(map(len, tensors.values()), default=0)
    if not tensors or any(len(value) != rows for value in tensors.values()):
        raise UserError(f"{bug.name} needs batches of examples: a dataclass whose tensors have an example a row")
    return tensors


def targets_of(batch: Any, bug: Bug) -> Tensor:
    """The field ``labels`` of a batch, of whatever type; raises :class:`UserError` where there is none."""
    return _field(batch, bug, "labels", "", lambda _: True)


def labels_of(batch: Any, bug: Bug) -> Tensor:
    """The field ``labels`` of a batch, whole numbers; raises :class:`UserError` where there is none."""
    return _field(batch, bug, "labels", " that holds whole numbers", lambda values: not values.is_floating_point())


def inputs_of(batch: Any, bug: Bug) -> Tensor:
    """The field ``inputs`` of a batch, floating-point numbers; raises :class:`UserError` where there is none."""
    return _field(batch, bug, "inputs", " that holds floating-point numbers", lambda values: values.is_floating_point())


def _field(batch: Any, bug: Bug, name: str, what: str, fits: Callable[[Tensor], bool]) -> Tensor:
    values = tensors_of(batch, bug).get(name)
    if values is None or not fits(values):
        raise UserError(f"{bug.name} needs batches with a field {name}{what}")
    return values


def in_each_field(batch: Any, bug: Bug, change: Callable[[Tensor], Tensor]) -> Any:
    """The batch with every field of examples changed in the same way."""
    return replace(batch, **{name: change(value) for name, value in tensors_of(batch, bug).items()})


def joined(batches: Sequence[Any], bug: Bug) -> Any:
    """One batch with the examples of several."""
    from torch import cat

    columns = [tensors_of(batch, bug) for batch in batches]
    return replace(batches[0], **{name: cat([column[name] for column in columns]) for name in columns[0]})
