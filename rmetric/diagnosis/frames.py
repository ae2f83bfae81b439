"""Data frames as rows of a log: pandas, and Polars without depending on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from rmetric.errors import UserError
from rmetric.importers import Row, Rows
from rmetric.importers.base import UNMAPPED
from rmetric.log_lines import OnDamage
from rmetric.measurements import in_convention

Columns = dict[str, list[Any]]
DENSE = 20
"""Rows with a number before the first NaN by which a column is one that is measured in every row of its kind."""


def is_frame(subject: object) -> bool:
    """True for a data frame of pandas or of Polars."""
    return hasattr(subject, "columns") and (hasattr(subject, "iloc") or hasattr(subject, "to_dict"))


def rows_of_frame(frame: Any) -> tuple[Rows, list[str]]:
    """The rows of a data frame, and notes on what was taken for what.

    A gap is *not measured*; a NaN is *not finite* where the frame tells the two apart (Polars), or where the column had
    a number in every row of its kind before (pandas).
    """
    notes: list[str] = []
    columns = _columns(frame, notes)

    def rows(_: OnDamage) -> Iterator[Row]:
        for number, values in enumerate(zip(*columns.values(), strict=True)):
            yield Row(number, dict(zip(columns, values, strict=True)))

    return rows, notes


def _columns(frame: Any, notes: list[str]) -> Columns:
    """Name → values; ``None`` for a gap, infinity for what is not finite."""
    if hasattr(frame, "iloc"):
        named = frame.reset_index() if frame.index.name else frame
        if not named.columns.is_unique:
            raise UserError("two columns of the data frame have the same name; rename one")
        missing = named.isna()
        return {str(name): _without_gaps(str(name), named[name], missing, notes) for name in named.columns}
    return {str(name): [_number(value) for value in values] for name, values in frame.to_dict(as_series=False).items()}


def _number(value: Any) -> Any:
    """A value, out of the array or tensor of one element that it may be."""
    if hasattr(value, "item") and getattr(value, "size", 1) != 0:
        with suppress(ValueError, RuntimeError, TypeError):
            value = value.item()
    return in_convention(value) if isinstance(value, float) else value


def _without_gaps(name: str, column: Any, missing: Any, notes: list[str]) -> list[Any]:
    """Values of a column of pandas, which writes the same for a gap and for NaN.

    A row that says something which the latest one with a number in this column did not is another kind of row, such as
    an evaluation, and says nothing by a gap.
    """
    gaps = missing[column.name].to_numpy()
    values = [None if gap else _number(value) for value, gap in zip(column.tolist(), gaps.tolist(), strict=True)]
    if not (gaps.any() and column.dtype.kind == "f" and _is_measured(name)):
        return values
    latest = np.maximum.accumulate(np.where(gaps, 0, np.arange(len(gaps))))
    said = ~missing.to_numpy()
    not_finite = gaps & ~(said & ~said[latest]).any(axis=1)
    first = int(not_finite.argmax()) if not_finite.any() else len(gaps)
    dense = np.count_nonzero(~gaps[:first]) >= DENSE
    if not_finite.any() and dense:
        notes.append(f"column {name!r} has no number in row {first:,}, as in rows alike before: taken as not finite")
        return [math.inf if is_nan else value for value, is_nan in zip(values, not_finite.tolist(), strict=True)]
    return values


def _is_measured(name: str) -> bool:
    return any(ours in ("training_loss", "grad_norm") for ours, _ in UNMAPPED.targets(name))
