"""The format of a log, told by its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rmetric.errors import UserError
from rmetric.files import opened_as_utf8
from rmetric.importers.bare_numbers import are_bare_numbers, are_places, nameless_cells
from rmetric.importers.base import HEAD_BYTES, IMPORTERS, LOOKED_AT, FieldMap, flattened
from rmetric.importers.console import is_console, what_repeats
from rmetric.importers.csv_table import DELIMITERS, delimiter_of, row_values, without_preamble
from rmetric.importers.dvclive import metric_tables
from rmetric.importers.json_document import document_in, holds_table, json_value
from rmetric.importers.line_wording import MAX_NAME, value_last
from rmetric.importers.megatron_reference import holds_curves
from rmetric.importers.mlflow import SQLITE, run_files
from rmetric.importers.names import meanings, measures_loss
from rmetric.importers.notebook import is_notebook
from rmetric.importers.pairs import pairs
from rmetric.importers.rows import LONGEST_SHOWN, NO_COLUMN, as_number
from rmetric.importers.tfevents import event_files
from rmetric.importers.wandb_run import MAGIC, wandb_files

AUTO = "auto"
UNPACK = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ\0": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}
"""First bytes of a compressed file → the command that unpacks it."""
_UNWRITTEN = re.compile(r"\0{16,}")
"""What a file system leaves of a block that was not written when the machine went down."""
_ENDS_IN_NUMBER = re.compile(r"(^|[\s:=])[-+]?\d[\d.]*\S*$")
_LIST_OF_OBJECTS = re.compile(r"\s*\[\s*(\{|\]\s*$|$)")
MOST_SHOWN = 20
"""Cells of a first line that a message shows."""
_OF_FOLDERS: dict[str, Callable[[Path], list[Path]]] = {
    "tensorboard": event_files,
    "wandb": wandb_files,
    "mlflow": run_files,
    "dvclive": lambda folder: [*metric_tables(folder).values()],
}
"""Format of a folder that is a log as a whole → its files."""
_EVENTS = ("EXPERIMENT_", "METRICS", "FAULT_", "HARDWARE_EVENT", "ALERT")


def refuse_pipe(path: Path) -> None:
    """Raise :class:`UserError` for what can be read only once: a log is read from its begin more than once."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is a pipe or a device; save it to a file first")


def format_of(path: Path, given: str, mapping: Mapping[str, str] | None) -> str:
    """Name of the importer that reads ``path``: the format that is given, or for ``auto`` what the content tells."""
    return detect_format(path, mapping) if given == AUTO else given


def detect_format(path: Path, mapping: Mapping[str, str] | None = None) -> str:
    """Name of the importer that reads ``path``, judged by its first 64 KiB; an empty file goes by its ending.

    Raises :class:`UserError` if the content is of no known format.
    """
    if path.is_dir():
        return folder_format(path) or "rmetric"
    refuse_pipe(path)
    with opened_as_utf8(path) as file:
        head = file.read(HEAD_BYTES)
    if unpack := next((command for signature, command in UNPACK.items() if head.startswith(signature)), ""):
        raise UserError(f"{path} is compressed; unpack it first ({unpack} {path})")
    if binary := _binary_format(head):
        return binary
    text = head.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return {".csv": "csv", ".tsv": "csv", ".json": "trainer_state"}.get(path.suffix.casefold(), "rmetric")
    if is_notebook(head):
        return "console"
    objects = _objects(lines)
    if objects:
        return _format_of_objects(path, mapping, objects, len(lines))
    return _format_of_text(path, mapping, text, lines) or _refuse(path, mapping, text, lines)


def _binary_format(head: bytes) -> str:
    """Format of a file whose first bytes tell it; empty if they do not."""
    if head.startswith(MAGIC):
        return "wandb"
    if head.startswith(SQLITE):
        return "mlflow"
    return "tensorboard" if _is_event_file(head) else ""


def _format_of_objects(
    path: Path, mapping: Mapping[str, str] | None, objects: Sequence[dict[str, object]], lines: int
) -> str:
    """Format of a file with JSON objects in its first lines."""
    if any("log_history" in record for record in objects):
        return "trainer_state"
    if any(str(record.get("event", "")).startswith(_EVENTS) for record in objects):
        return "rmetric"
    has_a_loss = any(measures_loss(name) for record in objects for name in flattened(record, lists=True))
    if not has_a_loss and not mapping and is_console(path):
        return "console"  # of a container, each line in an object
    if holds_curves(objects[0]):
        return "megatron_reference"
    return "json" if lines == 1 and holds_table(objects[0]) else "jsonl"


def _format_of_text(path: Path, mapping: Mapping[str, str] | None, text: str, lines: Sequence[str]) -> str:
    """Format of a file without a JSON object in a line of its own; empty if it is of none."""
    is_json = text.lstrip().startswith("{")
    if '"log_history"' in text or _LIST_OF_OBJECTS.match(text):
        return "trainer_state"
    if is_json and holds_table(document_in(path)):
        return "json"
    if are_bare_numbers(path, lines, mapping):
        return "numbers"
    header, first_row = [*(text for _, text, _ in without_preamble((0, line, True) for line in lines)), "", ""][:2]
    is_header = not header.lstrip().startswith("{") and _is_header(header, first_row, FieldMap(mapping or {}))
    if is_header and _has_rows(header, lines):
        return "csv"
    if _is_text(text) and is_console(path, mapping):
        return "console"
    if is_header:
        return "csv"
    if path.suffix.casefold() == ".jsonl" or is_json:
        return "rmetric" if '"event"' in text else "jsonl"
    return "numbers" if are_places(mapping) and nameless_cells(lines) else ""


def _refuse(path: Path, mapping: Mapping[str, str] | None, text: str, lines: Sequence[str]) -> NoReturn:
    if cells := nameless_cells(lines):
        columns = f"{len(cells)} columns of numbers" if len(cells) > 1 else "numbers"
        first = ", ".join(f"{place}: {cell[:LONGEST_SHOWN]}" for place, cell in enumerate(cells[:MOST_SHOWN], 1))
        raise UserError(
            f"{path} has {columns} without names; put a line with their names before them, such as step,loss, or name "
            f"them by their places with --map, such as training_loss=NUMBER (in the first line {first})"
        )
    columns = f", or {NO_COLUMN} {' or '.join(map(repr, mapping.values()))} in it" if mapping else ""
    known = ", ".join(sorted(IMPORTERS))
    seen = what_repeats(path) if _is_text(text) else ""
    seen = f" ({seen})" if seen else ""
    raise UserError(
        f"{path} is not a log in a known format{columns}{seen}; name the column of its loss with "
        f"--map training_loss=COLUMN, or its format with --format ({known})"
    )


def _is_text(text: str) -> bool:
    return "\0" not in _UNWRITTEN.sub("", text)


def _is_event_file(head: bytes) -> bool:
    """Whether a file begins with a record of TensorBoard: its length, a checksum, and an event with a version."""
    return b"brain.Event:" in head[:64] and int.from_bytes(head[:8], "little") < HEAD_BYTES


def folder_format(folder: Path) -> str:
    """Format of a folder that is a log as a whole; empty if it is none."""
    return next((name for name, files_in in _OF_FOLDERS.items() if files_in(folder)), "")


def files_of_folder(folder: Path) -> list[Path]:
    """The files of a folder that is a log as a whole; none if it is no log."""
    return next((files for files_in in _OF_FOLDERS.values() if (files := files_in(folder))), [])


def _objects(lines: Sequence[str]) -> list[dict[str, object]]:
    """The objects in the first lines that are one each; of a document with a record in each line, only the last is."""
    begun = [line for line in lines[:LOOKED_AT] if line.lstrip().startswith("{")]
    found = []
    for line in begun:
        try:
            value = json_value(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value:
            found.append(value)
    return found if 2 * len(found) >= len(begun) else []


def _is_header(header: str, first_row: str, fields: FieldMap) -> bool:
    """Whether a line names columns; one that states a value (``step 1: loss 4.4 (80 ms, 9 tok/s)``) does not."""
    delimiter = delimiter_of(header)
    names = [name.strip().strip('"') for name in header.split(delimiter)]
    cells = row_values(first_row, delimiter)
    row = [*zip(names, cells, strict=True)] if cells is not None and len(cells) == len(names) else []
    states_value = any(_ENDS_IN_NUMBER.search(name) for name in names) or value_last(header) is not header
    if states_value and not _are_names_and_numbers(row):  # mAP_0.5:0.95 is a name
        return False
    has_pairs = any(meanings(name, fields) for name in pairs(header))
    if has_pairs and (not row or any(isinstance(value, str) for name, value in row if meanings(name, fields))):
        return False  # without text below, the number in the name of ours is its unit, as in [1/s]
    is_table = any(delimiter in header for delimiter in DELIMITERS) or as_number(first_row) is not None
    return is_table and any(meanings(name, fields) for name in names if len(name) <= MAX_NAME)


def _has_rows(header: str, lines: Sequence[str]) -> bool:
    """Whether one of the first lines has as many cells, and a number: below a sentence with commas none has."""
    delimiter = delimiter_of(header)
    rows = [row_values(line, delimiter) for line in lines[:LOOKED_AT]]
    alike = (row for row in rows if row is not None and len(row) > header.count(delimiter))
    return any(isinstance(value, int | float) for row in alike for value in row)


def _are_names_and_numbers(row: Sequence[tuple[str, Any]]) -> bool:
    return len(row) > 1 and all(
        as_number(name) is None and (value is None or isinstance(value, int | float)) for name, value in row
    )
