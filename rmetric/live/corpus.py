"""Text to train on. By default one that every machine has: the source of the Python standard library, as bytes."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.streams import stable_hash

BYTES = 256
"""Vocabulary of a text of bytes."""
HELD_OUT_SHARE = 0.05
NO_TEXT = ("test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "lib2to3", "pydoc_data")
"""Folders of the standard library that are left out: tests are no prose, and not every machine has them."""


@dataclass(frozen=True)
class Corpus:
    """Tokens to train on, and tokens that no step ever trains on."""

    name: str
    """Name of the text, as it stands in the log. The tokens themselves never reach a log."""
    train: NDArray[np.integer]
    """Token ids, shape (n,), each in [0, vocabulary)."""
    held_out: NDArray[np.integer]
    """Token ids, shape (m,): the end of the text."""
    vocabulary: int

    def __post_init__(self) -> None:
        if not len(self.train) or not len(self.held_out):
            raise UserError(f"{self.name} is an empty text; give one with at least a few thousand characters")

    def batch(self, seed: int, step: int, rows: int, length: int) -> NDArray[np.int64]:
        """The batch of a step, shape (rows, length): a function of its arguments alone.

        Forked runs therefore share every batch, and a resumed run goes on where it was.
        """
        key = np.random.SeedSequence((seed, stable_hash("batch"), step))
        return _rows(self.train, np.random.Generator(np.random.PCG64(key)), rows, length, self.name)

    def held_out_batch(self, purpose: str, rows: int, length: int) -> NDArray[np.int64]:
        """The fixed batch of a purpose: ``validation``, which the run sees, or ``judge``, for the truth."""
        key = np.random.SeedSequence(stable_hash(f"held out/{purpose}"))
        return _rows(self.held_out, np.random.Generator(np.random.PCG64(key)), rows, length, self.name)


def _rows(
    tokens: NDArray[np.integer], rng: np.random.Generator, rows: int, length: int, name: str
) -> NDArray[np.int64]:
    if len(tokens) <= length:
        raise UserError(
            f"{name} has a part of {len(tokens)} tokens, too short for a sequence of {length}; "
            "give a longer text or a smaller --length"
        )
    starts = rng.integers(0, len(tokens) - length, size=rows)
    return tokens[starts[:, None] + np.arange(length)].astype(np.int64)


def corpus_of(name: str, tokens: NDArray[np.integer], vocabulary: int) -> Corpus:
    """A text split in two: its last 5 % are held out."""
    cut = len(tokens) - int(len(tokens) * HELD_OUT_SHARE)
    return Corpus(name, tokens[:cut], tokens[cut:], vocabulary)


@cache
def standard_library() -> Corpus:
    """The standard library's own source, in the order of the file names, as bytes.

    About 12 MB. It differs between Python versions, and so do the losses; the name says which version it is.
    """
    text = b"\n".join(path.read_bytes() for path in sorted(_sources(sysconfig.get_path("stdlib"))))
    name = f"source of the standard library of Python {platform.python_version()}"
    return corpus_of(name, np.frombuffer(text, dtype=np.uint8), BYTES)


def _sources(root: str) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in NO_TEXT]  # not even looked into: installed packages are many
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


@cache
def documentation() -> Corpus:
    """Prose for a changed mix of data: the help texts of Python's language reference, as bytes. About 0.7 MB."""
    path = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError("this Python comes without pydoc_data/topics.py; install its whole standard library") from error
    name = f"help texts of Python {platform.python_version()}"
    return corpus_of(name, np.frombuffer(text, dtype=np.uint8), BYTES)
