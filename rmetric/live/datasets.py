"""Texts to train a real model on: a local file or folder, or a data set of the Hugging Face Hub, as tokens or bytes.

No token and no piece of a text ever reaches a log or a message; a corpus carries only the name of its source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rmetric.errors import UserError
from rmetric.live.corpus import BYTES, HELD_OUT_SHARE, Corpus, corpus_of
from rmetric.live.models.files import files_on_hub, hub_errors_in_one_line

MAX_TOKENS = 2_000_000
"""More than the paper's case study reads: 800 steps of 4 × 512 tokens."""
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
RECORD_SUFFIXES = (".jsonl", ".ndjson")
TEXT_FIELD = "text"
"""Field of a record that holds its text."""
FILE_CHARACTERS = 1 << 26
"""Most that is read of one text file."""
PIECE_CHARACTERS = 1 << 16
"""Longest piece of a text that is tokenised at once, so that reading can stop early."""
RETRIES = 3
"""Attempts at reading a stream of the hub; the library's own 20 keep a run waiting for minutes."""


def load_text_corpus(
    dataset: str,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    length: int,
) -> Corpus:
    """Read a text and cut it in two: the last 5 % are held out.

    Parameters
    ----------
    dataset
        A text file (:data:`TEXT_SUFFIXES`); a ``.jsonl`` file, whose records have a :data:`TEXT_FIELD`; a folder of
        these, read in the order of their names; or a data set of the hub, ``NAME[:CONFIG[:SPLIT]]``, streamed. Without
        a split, ``train`` or else the first.
    tokenizer
        None takes the UTF-8 bytes. Documents are joined by its end-of-text token, bytes by a line break.
    length
        Longest sequence that will be asked for; a text whose held-out part is not longer is refused.

    Raises
    ------
    UserError
        One line: not found, no network, nothing in it, too short, not UTF-8, no such field.
    """
    name, documents = _documents(dataset)
    tokens = _tokens(documents, tokenizer)
    if not len(tokens):
        raise UserError(f"dataset {name} is empty; give one with text in it")
    if int(len(tokens) * HELD_OUT_SHARE) <= length:
        enough = int((length + 1) / HELD_OUT_SHARE) + 1
        raise UserError(
            f"dataset {name} has {len(tokens):,} tokens, and the {HELD_OUT_SHARE:.0%} held out must be longer than a "
            f"sequence of {length}; give a text of {enough:,} tokens or a smaller --length"
        )
    return corpus_of(name, tokens, BYTES if tokenizer is None else len(tokenizer))


def tokenized(corpus: Corpus, tokenizer: PreTrainedTokenizerBase | None) -> Corpus:
    """A text of bytes in the tokens of a model: its beginning, its last 5 % held out; itself without a tokenizer."""
    if tokenizer is None:
        return corpus
    text = corpus.train.tobytes().decode("utf-8", "replace")
    return corpus_of(corpus.name, _tokens([text], tokenizer), len(tokenizer))


def _documents(dataset: str) -> tuple[str, Iterable[str]]:
    """The name of a data set for the log, and its documents."""
    path = Path(dataset).expanduser()
    if path.is_dir():
        return path.resolve().name, _of_folder(path)
    if path.is_file():
        return path.name, _of_file(path)
    local = path.suffix.casefold() in (*TEXT_SUFFIXES, *RECORD_SUFFIXES)
    if local or path.is_absolute() or dataset.startswith((".", "~")) or dataset.count("/") > 1:
        raise UserError(f"dataset {dataset} does not exist; give a file, a folder or a name of the Hugging Face Hub")
    return _of_hub(dataset)


def _of_folder(folder: Path) -> Iterator[str]:
    known = (*TEXT_SUFFIXES, *RECORD_SUFFIXES)
    files = sorted(path for path in folder.rglob("*") if path.suffix.casefold() in known and path.is_file())
    if not files:
        raise UserError(f"folder {folder} holds no text ({', '.join(known)}); give another")
    return chain.from_iterable(_of_file(path) for path in files)


def _of_file(path: Path) -> Iterator[str]:
    suffix = path.suffix.casefold()
    if suffix in RECORD_SUFFIXES:
        return _of_records(_lines_of_json(path), path.name)
    if suffix in TEXT_SUFFIXES:
        return iter([_text(path)])
    raise UserError(f"{path.name} is no {', '.join((*TEXT_SUFFIXES, *RECORD_SUFFIXES))} file; convert it to one")


def _text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(FILE_CHARACTERS)
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not UTF-8 text; convert it") from None


def _lines_of_json(path: Path) -> Iterator[Any]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError:  # not JSON, or not UTF-8
                raise UserError(f"line {number} of {path.name} is not JSON; repair or remove it") from None


def _of_records(records: Iterable[Any], name: str) -> Iterator[str]:
    """The texts of records; an empty one is passed over."""
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping):
            raise UserError(f"record {number} of {name} is no object with fields; give one text a record")
        if TEXT_FIELD not in record:
            raise UserError(
                f"record {number} of {name} has no field {TEXT_FIELD!r}; its fields are {', '.join(map(str, record))}"
            )
        text = record[TEXT_FIELD]
        if text is None or text == "":
            continue
        if not isinstance(text, str):
            raise UserError(f"field {TEXT_FIELD!r} of record {number} of {name} holds no text; put the text there")
        yield text


def _of_hub(dataset: str) -> tuple[str, Iterator[str]]:
    name, _, rest = dataset.partition(":")
    config, _, split = rest.partition(":")
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError:
        raise UserError(
            "data sets of the Hugging Face Hub need the package datasets: pip install 'rmetric[hub]'"
        ) from None
    files_on_hub(name, "dataset")  # answers at once where opening the stream would retry for half a minute
    with hub_errors_in_one_line(name, "dataset"):
        try:
            stream = datasets.load_dataset(name, config or None, split=split or None, streaming=True)
        except (ValueError, datasets.exceptions.DatasetsError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UserError(f"dataset {dataset}: {reason} (give NAME:CONFIG:SPLIT)") from error
    if isinstance(stream, Mapping):
        split = "train" if "train" in stream else next(iter(stream))
        stream = stream[split]
    full_name = ":".join(part for part in (name, config, split) if part)
    return full_name, _of_records(_streamed(stream, name), full_name)


def _streamed(stream: Iterable[Any], name: str) -> Iterator[Any]:
    with hub_errors_in_one_line(name, "dataset"), _few_retries():
        yield from stream


@contextmanager
def _few_retries() -> Iterator[None]:
    from datasets import config

    settings = {"STREAMING_READ_MAX_RETRIES": RETRIES, "STREAMING_OPEN_MAX_RETRIES": RETRIES}
    before = {key: getattr(config, key) for key in settings if hasattr(config, key)}
    try:
        for key in before:
            setattr(config, key, settings[key])
        yield
    finally:
        for key, value in before.items():
            setattr(config, key, value)


def _tokens(documents: Iterable[str], tokenizer: PreTrainedTokenizerBase | None) -> NDArray[np.integer]:
    """Tokens of the documents, joined, at most :data:`MAX_TOKENS`; UTF-8 bytes without a tokenizer."""
    pieces, count = [], 0
    for document in documents:
        for piece in _encoded(document, tokenizer):
            pieces.append(piece)
            count += len(piece)
            if count >= MAX_TOKENS:
                return np.concatenate(pieces)[:MAX_TOKENS]
    return np.concatenate(pieces) if count else np.empty(0, dtype=np.uint8)


def _encoded(document: str, tokenizer: PreTrainedTokenizerBase | None) -> Iterator[NDArray[np.integer]]:
    """One document in pieces, then what ends it. Nothing for a document of white space."""
    if not document.strip():
        return
    for start in range(0, len(document), PIECE_CHARACTERS):
        text = document[start : start + PIECE_CHARACTERS].encode("utf-8", "replace")  # JSON can hold lone surrogates
        if tokenizer is None:
            yield np.frombuffer(text, dtype=np.uint8)
        else:
            ids = tokenizer(text.decode("utf-8"), add_special_tokens=False, verbose=False)["input_ids"]
            yield np.asarray(ids, dtype=np.int32)
    if tokenizer is None:
        yield np.frombuffer(b"\n", dtype=np.uint8)
    elif tokenizer.eos_token_id is not None:
        yield np.asarray([tokenizer.eos_token_id], dtype=np.int32)
