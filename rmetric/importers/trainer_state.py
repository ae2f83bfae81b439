"""``trainer_state.json`` of the Hugging Face Trainer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.files import is_utf_16
from rmetric.importers.base import flattened, register_importer
from rmetric.importers.rows import Row
from rmetric.importers.tables import imported
from rmetric.log_lines import NOT_UTF_8, OnDamage, passed_over

STATE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
"""Name of the folder of a checkpoint, with its step."""
BLOCK_CHARACTERS = 1 << 16
MAX_ENTRY_CHARACTERS = 1 << 20
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_OVERLAP = 256
_BLANKS = re.compile(r"[\s,]*")


@register_importer("trainer_state")
def read_trainer_state(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The entries of ``log_history``; a training and an evaluation entry of one step make one record.

    A bare list of such entries is read as well. The closing entry of a training (``train_runtime``, with the mean loss
    of the whole run) is no observation and is left out. With several evaluation sets, name one:
    ``--map validation_loss=eval_wiki_loss``. The file is read in blocks, so that memory is bounded, and entries before
    a cut are used. Raises :class:`UserError` if there is no ``log_history``.
    """
    return imported(
        path, lambda report: (Row(line, flattened(entry)) for line, entry in _entries(path, report)), mapping, on_damage
    )


def is_of_checkpoint(file: Path) -> bool:
    """Whether a file is the state in a checkpoint: those side by side hold the same history, up to their steps."""
    return file.name == STATE and CHECKPOINT.fullmatch(file.parent.name) is not None


def latest_state(states: Sequence[Path]) -> Path:
    """The state, among those of checkpoints side by side, that has all of the latest attempt.

    It is the one that changed last, whatever the number: an earlier attempt may have gone further. Where the times are
    those of a copy, one of a higher number whose history goes on from it is later.
    """
    if len(states) == 1:
        return states[0]
    stamps = {state: _stamp(state) for state in states}
    newest = max(states, key=lambda state: (stamps[state][0], _step(state)))
    beyond = sorted((state for state in states if _step(state) > _step(newest)), key=_step, reverse=True)
    return next((one for one in beyond if _goes_on_from(one, newest, stamps[one], stamps[newest])), newest)


def _step(state: Path) -> int:
    return int(state.parent.name.rpartition("-")[2])


def _stamp(state: Path) -> tuple[int, int]:
    """Time of the latest change and size; zeros if the file has just been removed."""
    try:
        found = state.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=256)
def _goes_on_from(later: Path, earlier: Path, *_: tuple[int, int]) -> bool:
    """Whether a history begins with all of another; further arguments tell when to read them again."""
    try:
        theirs = (repr(entry) for _, entry in _entries(later, passed_over))
        return all(repr(entry) == next(theirs, "") for _, entry in _entries(earlier, passed_over))
    except (UserError, OSError):
        return False


def _entries(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, dict[str, Any]]]:
    encoding = "utf-16" if is_utf_16(path) else "utf-8-sig"
    with open(path, encoding=encoding, errors="replace", newline="") as file:
        text = _Window(file)
        if not text.to_history():
            if text.empty:
                return
            raise UserError(
                f"{path} holds no log_history list; a trainer_state.json of the Hugging Face Trainer is due"
            )
        while True:
            head = text.next_character()
            if head == "":
                on_damage(text.line, "cut off: the list log_history has no end")
                return
            if head == "]":
                return
            line = text.line
            try:
                entry, source = text.next_value()
            except (ValueError, RecursionError):
                on_damage(line, "an entry is cut off or not JSON; skipped")
                text.skip_to_object()
                continue
            if "\ufffd" in source:
                on_damage(line, NOT_UTF_8)
            if isinstance(entry, dict):
                yield line, entry
            else:
                on_damage(line, f"an entry must be a JSON object, not {type(entry).__name__}; skipped")


class _Window:
    """A sliding window over a text of any length that knows its line number."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._text = ""
        self._decoder = json.JSONDecoder()
        self.line = 1
        self.empty = True

    def _more(self) -> bool:
        block = self._file.read(BLOCK_CHARACTERS)
        self._text += block
        self.empty = self.empty and not block.strip()
        return bool(block)

    def _drop(self, characters: int) -> None:
        self.line += self._text.count("\n", 0, characters)
        self._text = self._text[characters:]

    def to_history(self) -> bool:
        """Go to the first entry; false if there is no list of entries."""
        while self._more():
            self._drop(_BLANKS.match(self._text).end())  # type: ignore[union-attr]
            if self._text.startswith("["):
                self._drop(1)
                return True
            if found := _HISTORY.search(self._text):
                self._drop(found.end())
                return True
            if len(self._text) > _OVERLAP:
                # A brace keeps what follows from being taken for the start of a bare list.
                keep = self._text[-_OVERLAP:]
                self._drop(len(self._text) - _OVERLAP)
                self._text = keep if keep[0] not in "[ ,\t\r\n" else "{" + keep
        return False

    def next_character(self) -> str:
        """The character next after blanks and commas; empty at the end of the file."""
        while True:
            self._drop(_BLANKS.match(self._text).end())  # type: ignore[union-attr]
            if self._text:
                return self._text[0]
            if not self._more():
                return ""

    def next_value(self) -> tuple[Any, str]:
        """The JSON value that stands next, and its source; raises ``ValueError`` if there is none."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text)
            except json.JSONDecodeError as error:
                open_ended = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - 16
                if not open_ended or len(self._text) > MAX_ENTRY_CHARACTERS or not self._more():
                    raise
                continue
            source = self._text[:end]
            self._drop(end)
            return value, source

    def skip_to_object(self) -> None:
        """Go to the next opening brace, past the one that stands here."""
        self._drop(1)
        while (found := self._text.find("{")) < 0:
            self._drop(len(self._text))
            if not self._more():
                return
        self._drop(found)
