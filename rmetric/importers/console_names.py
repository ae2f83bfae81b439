"""What the names mean that a line of a console log states together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from rmetric.importers.base import CACHED, FieldMap
from rmetric.importers.console_counters import counters_among
from rmetric.importers.names import losses_of_data, meanings, names_counter

Pattern = tuple[str, ...]
"""Names that a line states together, in its order."""


class LineNames:
    """The meanings of names, remembered by pattern: a log repeats few of them."""

    def __init__(self, fields: FieldMap) -> None:
        self.fields = fields
        self.meant = lru_cache(CACHED)(partial(_meant, fields))
        """A pattern → our names that its names may stand for."""
        self.counters = lru_cache(CACHED)(partial(counters_among, fields))
        """A pattern → its names that count steps or batches."""

    def is_counter(self, name: str) -> bool:
        """Whether a name counts steps, batches or epochs."""
        return names_counter(name, self.fields)

    def counted_losses(self, names: Pattern) -> tuple[set[str], Pattern]:
        """The counters of a pattern, those of epochs among them, and its losses of the training."""
        losses = tuple(name for name in names if "training_loss" in self.meant((name,)))
        return set(filter(self.is_counter, names)), losses

    def doubtful(self, found: Mapping[str, Any]) -> list[str]:
        """Names of ours under which a number with a comma stands that may be a decimal one, or part two numbers."""
        return [name for name, value in found.items() if type(value) is str and meanings(name, self.fields)]


def _meant(fields: FieldMap, names: Pattern) -> frozenset[str]:
    """Our names that a pattern's may stand for; a number of its data (``train: 0.5``) may be a loss."""
    meant = {ours for name in names for ours, _ in meanings(name, fields) if ours != "step"}
    return frozenset(meant.union(losses_of_data(names, fields).values()))
