"""Texts from files, folders and (in place of the hub) a local data set; and each way in which they can be of no use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.live import datasets as module
from rmetric.live.datasets import load_text_corpus
from tests.live.small_models import END, PROSE, VOCABULARY, WORDS, word_tokenizer

WORDS_A_LINE = len(WORDS) + 1


def write(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def write_records(path: Path, *records: object) -> str:
    return write(path, "\n".join(json.dumps(record) for record in records) + "\n\n")


def test_a_text_file_as_bytes(tmp_path: Path) -> None:
    corpus = load_text_corpus(write(tmp_path / "sea.txt", "é" + PROSE * 10), None, length=8)
    assert (corpus.name, corpus.vocabulary) == ("sea.txt", 256)
    everything = np.concatenate([corpus.train, corpus.held_out]).astype(np.uint8).tobytes()
    assert everything == ("é" + PROSE * 10 + "\n").encode()
    assert len(corpus.held_out) == int(0.05 * len(everything))


def test_a_text_file_as_tokens(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(eos_token=END)
    corpus = load_text_corpus(write(tmp_path / "sea.txt", PROSE * 40), tokenizer, length=8)
    everything = np.concatenate([corpus.train, corpus.held_out])
    assert corpus.vocabulary == VOCABULARY
    assert len(everything) == 40 * WORDS_A_LINE + 1
    assert everything[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(everything[:WORDS_A_LINE]) == PROSE.strip()
    assert corpus.batch(0, 0, 2, 8).shape == corpus.held_out_batch("validation", 2, 8).shape == (2, 8)


def test_a_long_text_is_read_in_pieces_and_only_as_far_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_CHARACTERS", len(PROSE))
    path = write(tmp_path / "sea.txt", PROSE * 100)
    whole = load_text_corpus(path, word_tokenizer(), length=8)
    assert len(whole.train) + len(whole.held_out) == 100 * WORDS_A_LINE
    monkeypatch.setattr(module, "MAX_TOKENS", 501)
    part = load_text_corpus(path, word_tokenizer(), length=8)
    assert len(part.train) + len(part.held_out) == 501
    assert np.array_equal(part.train, whole.train[: len(part.train)])


def test_records_join_their_texts_and_pass_over_empty_ones(tmp_path: Path) -> None:
    records = [{"text": PROSE.strip()}, {"text": ""}, {"text": None}, {"text": "  "}, {"text": "sea \ud800"}] * 20
    corpus = load_text_corpus(write_records(tmp_path / "sea.jsonl", *records), None, length=8)
    everything = np.concatenate([corpus.train, corpus.held_out]).astype(np.uint8).tobytes()
    assert everything == (PROSE + "sea ?\n").encode() * 20


def test_records_without_a_text(tmp_path: Path) -> None:
    path = write_records(tmp_path / "sea.jsonl", *[{"id": 1, "story": PROSE}] * 20)
    with pytest.raises(UserError, match=r"record 1 of sea\.jsonl has no field 'text'; its fields are id, story$"):
        load_text_corpus(path, None, length=8)


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "b.txt", "second " * 40)
    write_records(tmp_path / "mine" / "a.jsonl", {"text": "first " * 40})
    write(tmp_path / "mine" / "c.png", "not read")
    corpus = load_text_corpus(str(tmp_path / "mine"), None, length=8)
    assert corpus.name == "mine"
    assert np.concatenate([corpus.train, corpus.held_out]).astype(np.uint8).tobytes() == (
        b"first " * 40 + b"\n" + b"second " * 40 + b"\n"
    )


def test_a_folder_without_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no text \(\.txt, "):
        load_text_corpus(str(tmp_path), None, length=256)


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_an_empty_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"dataset sea\.txt is empty"):
        load_text_corpus(write(tmp_path / "sea.txt", text), None, length=256)


def test_a_text_too_short_for_one_sequence_says_how_long_it_must_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 201 tokens, .* give a text of 221 tokens or a smaller --length"):
        load_text_corpus(write(tmp_path / "sea.txt", "x" * 200), None, length=10)
    corpus = load_text_corpus(write(tmp_path / "sea.txt", "x" * 220), None, length=10)
    assert corpus.held_out_batch("judge", 2, 10).shape == (2, 10)


def test_what_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "sea.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"sea\.txt is not UTF-8 text"):
        load_text_corpus(str(tmp_path / "sea.txt"), None, length=256)
    with pytest.raises(UserError, match=r"sea\.png is no \.txt, "):
        load_text_corpus(write(tmp_path / "sea.png", "x"), None, length=256)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"text": "a"}\n{"text": \n', r"line 2 of sea\.jsonl is not JSON"),
        ('"a"\n', r"record 1 of sea\.jsonl is no object"),
        ('{"text": ["a"]}\n', r"field 'text' of record 1 of sea\.jsonl holds no text"),
        ('{"text": "a"}\n{"other": "a"}\n', r"record 2 of sea\.jsonl has no field 'text'; its fields are other"),
    ],
)
def test_records_of_no_use(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_text_corpus(write(tmp_path / "sea.jsonl", lines), None, length=256)


@pytest.mark.parametrize("name", ["nothing.txt", "nothing.jsonl", "./nothing", "a/b/c", "/nothing"])
def test_a_file_that_is_not_there_is_not_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "files_on_hub", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(UserError, match="does not exist"):
        load_text_corpus(name, None, length=256)


@pytest.fixture
def on_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a local data set that is found where the hub's would be."""
    datasets = pytest.importorskip("datasets", reason="needs the extra 'hub'")
    really = datasets.load_dataset
    monkeypatch.setattr(module, "files_on_hub", lambda name, kind: [])

    def make(**splits: list[dict[str, object]]) -> None:
        for split, records in splits.items():
            write_records(tmp_path / "sea" / f"{split}.jsonl", *records)

        def load(name: str, config: str | None, **how: object) -> object:
            assert name == "owner/sea"
            return really(str(tmp_path / "sea"), config, **how)

        monkeypatch.setattr(datasets, "load_dataset", load)

    return make


def test_a_data_set_of_the_hub(on_hub: Callable[..., None]) -> None:
    on_hub(train=[{"text": PROSE.strip()}] * 20, test=[{"text": "rope " * 200}])
    corpus = load_text_corpus("owner/sea", None, length=8)
    assert corpus.name == "owner/sea:train"
    assert corpus.train.astype(np.uint8).tobytes().startswith(PROSE.encode())
    other = load_text_corpus("owner/sea:default:test", None, length=8)
    assert other.name == "owner/sea:default:test"
    assert other.train.astype(np.uint8).tobytes().startswith(b"rope rope")


def test_a_data_set_of_the_hub_without_what_is_asked(on_hub: Callable[..., None]) -> None:
    on_hub(test=[{"words": PROSE}])
    with pytest.raises(UserError, match="record 1 of owner/sea:test has no field 'text'; its fields are words"):
        load_text_corpus("owner/sea", None, length=256)
    with pytest.raises(UserError, match=r"owner/sea::train: Bad split: train.*test.* \(give NAME:CONFIG:SPLIT\)"):
        load_text_corpus("owner/sea::train", None, length=256)
    with pytest.raises(UserError, match=r"owner/sea:french: BuilderConfig 'french' not found"):
        load_text_corpus("owner/sea:french", None, length=256)


def test_a_stream_that_breaks_off_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'hub'")
    retries = []

    def breaking() -> object:
        retries.append(datasets.config.STREAMING_READ_MAX_RETRIES)
        yield {"text": PROSE}
        raise ConnectionError("Server Disconnected")

    before = datasets.config.STREAMING_READ_MAX_RETRIES
    monkeypatch.setattr(module, "files_on_hub", lambda name, kind: [])
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: breaking())
    with pytest.raises(UserError, match=r"owner/sea could not be fetched: .* \(ConnectionError\)"):
        load_text_corpus("owner/sea::train", None, length=256)
    assert retries == [module.RETRIES]
    assert before == datasets.config.STREAMING_READ_MAX_RETRIES


def test_a_data_set_of_the_hub_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"need the package datasets: pip install 'rmetric\[hub\]'"):
        load_text_corpus("owner/sea", None, length=256)
