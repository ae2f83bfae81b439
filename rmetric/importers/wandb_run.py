"""Offline runs of Weights & Biases: ``run-<id>.wandb``."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import flattened, register_importer
from rmetric.importers.json_document import json_value
from rmetric.importers.rows import Row
from rmetric.importers.tables import imported, run_after_run
from rmetric.log_lines import OnDamage

MAGIC = b":W&B"
_HEADER_BYTES, _BLOCK = 7, 1 << 15
_CHUNK = struct.Struct("<IHB")
"""Checksum, length and kind of a piece of a record."""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
MAX_RECORD_BYTES = 1 << 24
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


@register_importer("wandb")
def read_wandb(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The history of a run, or of each run in a folder; the line is the number of the record.

    Records are decoded with wandb's own message definitions; raises :class:`UserError` without wandb.
    """
    _ = _record_type(path)
    if path.is_file():
        return imported(path, lambda report: _rows(path, report), mapping, on_damage)
    return _of_folder(path, mapping, on_damage)


def wandb_files(folder: Path) -> list[Path]:
    """Offline runs in a folder, in the folders below, or in its ``wandb``."""
    found = sorted({*folder.glob("*.wandb"), *folder.glob("*/*.wandb"), *folder.glob("wandb/*/*.wandb")})
    return list({file.resolve(): file for file in reversed(found)}.values())[::-1]  # latest-run is a link


def _of_folder(folder: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    files = wandb_files(folder)
    return run_after_run((file.stem, imported(file, partial(_rows, file), mapping, on_damage)) for file in files)


def _rows(path: Path, on_damage: OnDamage) -> Iterator[Row]:
    record_type = _record_type(path)
    for number, content in _records(path, on_damage):
        record = record_type()
        try:
            record.ParseFromString(content)
            values = {".".join(item.nested_key) or item.key: _value(item.value_json) for item in record.history.item}
        except Exception as error:
            if not isinstance(error, ValueError | RecursionError) and type(error).__name__ != "DecodeError":
                raise
            on_damage(number, "a record is damaged; skipped")
            continue
        if values:
            values.setdefault("_step", record.history.step.num)
            yield Row(number, flattened(values))


def _value(text: str) -> Any:
    """A JSON value; NaN and infinities, as Python writes them or as a text, are numbers."""
    value = json_value(text)
    return float(value) if value in _NOT_FINITE else value


def _records(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """Contents of the records, put together from the pieces of 32 KiB blocks; those of a log in LevelDB's format."""
    with open(path, "rb") as file:
        if not file.read(_HEADER_BYTES).startswith(MAGIC):
            raise UserError(f"{path} is not an offline run of W&B")
        parts: list[bytes] = []
        number, used = 0, _HEADER_BYTES
        while True:
            left = _BLOCK - used % _BLOCK
            if left < _CHUNK.size:
                used += len(file.read(left))
                left = _BLOCK
            head = file.read(_CHUNK.size)
            if len(head) < _CHUNK.size:
                return
            _, length, kind = _CHUNK.unpack(head)
            content = file.read(length)
            used += _CHUNK.size + len(content)
            if len(content) < length or not FULL <= kind <= LAST or length > left - _CHUNK.size:
                on_damage(number + 1, "a record is cut off or damaged; what follows is left out")
                return
            if kind in (FULL, FIRST):
                parts = []
            parts.append(content)
            if sum(map(len, parts)) > MAX_RECORD_BYTES:
                on_damage(number + 1, f"a record is longer than {MAX_RECORD_BYTES:,} bytes; skipped")
                parts = []
            elif kind in (FULL, LAST):
                number += 1
                yield number, b"".join(parts)


def _record_type(path: Path) -> Any:
    try:
        from wandb.proto import wandb_internal_pb2 as messages
    except ImportError:
        raise UserError(f"{path} is a run of W&B; to read it: pip install wandb") from None
    return messages.Record  # type: ignore[attr-defined]
