"""Rows that say in a column of which data their numbers are: ``split``, ``phase``, ``mode``."""

from __future__ import annotations

from typing import Any

from rmetric.importers.base import plain
from rmetric.importers.names import TEST_WORDS, TRAINING_WORDS, VALIDATION_WORDS, measures_loss

_USUAL = ("split", "phase", "mode", "stage", "subset", "partition")
SPLIT_NAMES = frozenset(_USUAL) | {name.capitalize() for name in _USUAL}
_SAID = VALIDATION_WORDS | TEST_WORDS | TRAINING_WORDS


def with_split(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a row, its losses named after the split where that is validation or test; empty if it has none then.

    >>> with_split({"epoch": 1, "phase": "val", "loss": 2.0})
    {'epoch': 1, 'phase': 'val', 'val loss': 2.0}
    >>> with_split({"step": 1, "split": "train", "loss": 2.0})
    {'step': 1, 'split': 'train', 'loss': 2.0}
    >>> with_split({"epoch": 1, "iter": 125, "mode": "val", "lr": 0.1, "accuracy": 0.5})
    {}
    """
    column = next(iter(SPLIT_NAMES.intersection(values)), None)
    split = values[column] if column is not None else None
    if not isinstance(split, str) or not {plain(split)} & (VALIDATION_WORDS | TEST_WORDS):
        return values
    if not any(map(measures_loss, values)):
        return {}
    return {f"{split} {name}" if _is_bare_loss(name) else name: value for name, value in values.items()}


def _is_bare_loss(name: str) -> bool:
    words = {*plain(name).split("_")}
    return "loss" in words and not words & _SAID
