"""Reference curves of Megatron-LM's tests: ``{"lm loss": {"start_step": 1, "step_interval": 5, "values": {…}}}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import register_importer
from rmetric.importers.json_document import StepValue, document_in, joined
from rmetric.importers.rows import Row, as_number
from rmetric.importers.tables import imported
from rmetric.log_lines import OnDamage


@register_importer("megatron_reference")
def read_megatron_reference(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """One curve a metric, steps as keys; older files list the values.

    ``"nan"`` as a text means that the value was not recorded.
    """
    return imported(path, lambda report: _rows(path), mapping, on_damage)


def holds_curves(value: Any) -> bool:
    """Whether a JSON value is such a file."""
    return isinstance(value, dict) and any(
        isinstance(curve, dict) and "values" in curve and "start_step" in curve for curve in value.values()
    )


def _rows(path: Path) -> Iterator[Row]:
    curves = document_in(path)
    if not holds_curves(curves):
        raise UserError(f"{path} holds no reference curves of Megatron-LM, or is cut off; check the file")
    points = (point for name, curve in curves.items() if isinstance(curve, dict) for point in _points(name, curve))
    return (Row(1, record) for record in joined(point for point in points if isinstance(point[2], int | float)))


def _points(name: str, curve: Mapping[str, Any]) -> Iterator[StepValue]:
    values = curve.get("values")
    if isinstance(values, dict):
        yield from ((name, as_number(step), value) for step, value in values.items())
    elif isinstance(values, list):
        first, spacing = as_number(curve.get("start_step")), as_number(curve.get("step_interval"))
        if first is not None and spacing is not None:
            yield from ((name, first + index * spacing, value) for index, value in enumerate(values))
