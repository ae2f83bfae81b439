"""Rows that say in a column of which data their numbers are: ``split``, ``phase``, ``mode``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rmetric.importers.base import plain
from rmetric.importers.names import TEST_WORDS, TRAINING_WORDS, VALIDATION_WORDS, measures_loss

_USUAL = ("split", "phase", "mode", "stage", "subset", "partition", "type", "kind", "event", "tag", "msg", "message")
SPLIT_NAMES = frozenset(_USUAL) | {name.capitalize() for name in _USUAL}
LONGEST, MOST_WORDS = 40, 3
"""Letters that are looked at, and words, of a text that names a split."""
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
    if SPLIT_NAMES.isdisjoint(values):
        return values
    said = (values[column] for column in values if column in SPLIT_NAMES)
    split = next((text for text in said if isinstance(text, str) and _is_held_out(text)), None)
    if split is None:
        return values
    if not any(map(measures_loss, values)):
        return {}
    return {f"{split} {name}" if _is_bare_loss(name) else name: value for name, value in values.items()}


@lru_cache(4096)
def _is_held_out(text: str) -> bool:
    """Whether a text such as ``val`` or ``eval_end`` names other data than those of the training."""
    words = {*plain(text[:LONGEST]).split("_")}
    return len(words) <= MOST_WORDS and bool(words & (VALIDATION_WORDS | TEST_WORDS)) and not words & TRAINING_WORDS


def _is_bare_loss(name: str) -> bool:
    words = {*plain(name).split("_")}
    return "loss" in words and not words & _SAID
