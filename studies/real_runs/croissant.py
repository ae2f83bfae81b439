"""Croissant metadata and checksums of the published data sets, made from the files and from their data card.

python -m studies.real_runs.croissant              # writes data/croissant.json and data/SHA256SUMS

Croissant (https://docs.mlcommons.org/croissant) is the format in which data loaders and search engines read what a data
set holds. Columns are described in the card alone, in its section "Columns".
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import mlcroissant as mlc
import pyarrow as pa
from pyarrow.parquet import read_schema

from rmetric.cli import Parser, script
from rmetric.dataset.layout import FORMAT, SCHEMA
from rmetric.errors import UserError
from rmetric.files import checksum, write_atomically
from studies import DATA

CARD, METADATA, CHECKSUMS = "README.md", "croissant.json", "SHA256SUMS"
RECORD_SET = "steps"
PUBLISHED = datetime(2026, 11, 26)
"""Day on which the newest set was recorded."""
ENCODINGS = {".parquet": "application/x-parquet", ".csv": "text/csv"}
TYPES = {pa.string(): mlc.DataType.TEXT, pa.int64(): mlc.DataType.INTEGER, pa.float32(): mlc.DataType.FLOAT}
CITATION = (
    "@misc{rmetric, author={The rmetric authors}, year={2026}, "
    "title={Real training failures, step by step: 720 runs and their fault-free twins}}"
)


def meanings(card: str) -> dict[str, str]:
    """Meaning and unit of each column, by its name, from the table of a data card.

    Raises
    ------
    UserError
        If the card does not describe a column of the layout.
    """
    section = card.partition("\n## Columns\n")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for names, meaning, unit in re.findall(r"^\| (`.+?) \| (.*?) \| (.*?) ?\|$", section, re.M):
        text = f"{meaning} ({unit})" if unit else meaning
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), text)
    for name in SCHEMA.names:
        if name not in found:
            raise UserError(f"the data card does not describe the column {name}; add it to its section Columns")
    return found


def metadata(folder: Path) -> dict[str, Any]:
    """Croissant metadata of the data sets in a folder that holds a data card."""
    described = meanings((folder / CARD).read_text(encoding="utf-8"))
    files = [_file(path) for path in data_files(folder)]
    parquet = mlc.FileSet(
        id="sets", name="sets", description="all data sets, in one layout", includes=["*.parquet"],
        encoding_formats=[ENCODINGS[".parquet"]],
    )  # fmt: skip
    return mlc.Metadata(
        name="real_training_failures",
        description="Training runs step by step, healthy and failing, with the truth of each run in every row: which "
        "fault, when it began, when the run failed, judged against a fault-free twin.",
        version=f"{FORMAT.decode()}.0.0",
        date_published=PUBLISHED,
        license=["MIT", "Apache-2.0"],
        cite_as=CITATION,
        creators=[mlc.Organization(name="The rmetric authors")],
        data_biases=["tiny models on one machine; times to failure at scale are others"],
        personal_sensitive_information=["none"],
        distribution=[*files, parquet],
        record_sets=[
            mlc.RecordSet(
                id=RECORD_SET, name=RECORD_SET, description="one row a step", fields=_fields(folder, described)
            )
        ],
    ).to_json()


def data_files(folder: Path) -> list[Path]:
    """Data sets and their indexes, by name."""
    return sorted([*folder.glob("*.parquet"), *folder.glob("*_index.csv")])


def _file(path: Path) -> mlc.FileObject:
    return mlc.FileObject(
        id=path.name, name=path.name, content_url=path.name, encoding_formats=[ENCODINGS[path.suffix]],
        content_size=f"{path.stat().st_size} B", sha256=checksum(path),
    )  # fmt: skip


def _fields(folder: Path, described: Mapping[str, str]) -> list[mlc.Field]:
    """Columns that every set has: a record of a set without one could not be read through this description."""
    named = [set(read_schema(path).names) for path in folder.glob("*.parquet")]
    return [
        mlc.Field(
            id=f"{RECORD_SET}/{column.name}", name=column.name, description=described[column.name],
            data_types=[TYPES[column.type]],
            source=mlc.Source(file_set="sets", extract=mlc.Extract(column=column.name)),
        )
        for column in SCHEMA
        if all(column.name in names for names in named)
    ]  # fmt: skip


def write(folder: Path) -> None:
    """Write both files beside the data sets; the same sets give the same bytes."""
    text = json.dumps(metadata(folder), ensure_ascii=False, indent=1, default=datetime.isoformat)
    write_atomically(folder / METADATA, f"{text}\n".encode())
    sums = "".join(f"{checksum(path)}  {path.name}\n" for path in data_files(folder))
    write_atomically(folder / CHECKSUMS, sums.encode())


def parser() -> Parser:
    p = Parser("Describe the data sets of a folder: Croissant metadata, and checksums for sha256sum --check.")
    p.add_argument("folder", nargs="?", type=Path, default=DATA, metavar="FOLDER", help="with a data card")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    folder = parser().parse_args(argv).folder
    write(folder)
    print(f"{len(data_files(folder))} files described in {folder / METADATA} and {folder / CHECKSUMS}")


if __name__ == "__main__":
    sys.exit(main())
