"""Files: written so that each appears under its name whole or not at all, what is not replaced, checksums, UTF-16."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rmetric.errors import UserError

DEFAULT_LOGS = Path("logs_FULL_METRIC")
"""Folder of the logs of the simulated study, unless another is named."""


@contextmanager
def naming(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Let an error name this file where it names none: a failed write does not say where; the user needs to know.

    Parameters
    ----------
    path
        What the user has given.
    aside
        Beginning of the paths of ours that stand in for it: an error in one of them names ``path`` as well.
    """
    try:
        yield
    except OSError as error:
        unknown = error.filename is None or (aside is not None and str(error.filename).startswith(str(aside)))
        if unknown:
            error.filename = str(path)
            del error.filename2  # None would be told as a second name
        raise


@contextmanager
def written_aside(path: Path, *, synced: bool = True) -> Iterator[IO[bytes]]:
    """A file of any length that is written aside, then renamed. A link stays; a pipe or a device is written to.

    It is forced to the disk first where ``synced``, so that it survives a power cut.
    """
    if path.exists() and not path.is_file():  # there is nothing to replace
        with naming(path), open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with naming(path, aside):
            with open(aside, "wb") as file:
                yield file
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file of known content.

    It is not forced to the disk (0.5 ms a file): after a power cut, resuming a study compares every log with its
    checksum, parses those that have none yet, and makes the damaged ones anew.
    """
    with written_aside(path, synced=False) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file for people to read too, one value a line."""
    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")


def refuse_loss(file: Path, overwrite: bool, read: Sequence[str | Path] = ()) -> None:
    """Raise :class:`UserError` if a log is there that would be replaced: it may hold more than the one to be written.

    Parameters
    ----------
    read
        Files and folders that the logs are read from; what lies there is not replaced in any case.
    """
    if not file.exists():
        return
    if not file.is_file():
        raise UserError(f"{file} is no file that could be replaced; choose another --out")
    if any(place.exists() and (file.samefile(place) or file.parent.samefile(place)) for place in map(Path, read)):
        raise UserError(f"{file} is an input log and would be overwritten; choose another --out")
    if not overwrite:
        raise UserError(f"{file} is there already; choose another --out, or replace it with --overwrite")


def checksum(path: str | Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _AsUtf8:
    """What is read of a text in UTF-16, in UTF-8."""

    def __init__(self, file: IO[bytes]) -> None:
        self._text = io.TextIOWrapper(file, "utf-16", errors="replace", newline="\n")

    def read(self, size: int = -1) -> bytes:
        return self._text.read(size).encode()

    def readline(self, size: int = -1) -> bytes:
        return self._text.readline(size).encode()


def is_utf_16(path: str | Path) -> bool:
    """Whether a file begins as a text in UTF-16, as PowerShell writes it (``python train.py > log.txt``)."""
    with open(path, "rb") as file:
        return _is_utf_16(file)


def _is_utf_16(file: io.BufferedReader) -> bool:
    head = file.peek(256)[:256]
    return head.startswith(_UTF_16) and b"\0" in head


@contextmanager
def opened_as_utf8(path: str | Path) -> Iterator[IO[bytes] | _AsUtf8]:
    """A text to be read as bytes of UTF-8 without a byte-order mark: what begins as UTF-16 is recoded."""
    with open(path, "rb") as file:
        if _is_utf_16(file):
            yield _AsUtf8(file)
        else:
            if file.peek(3).startswith(codecs.BOM_UTF8):
                file.read(3)
            yield file
