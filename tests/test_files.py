from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmetric.files import write_atomically


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"old")
    write_atomically(path, b"new content")
    assert path.read_bytes() == b"new content"
    assert _names(tmp_path) == ["a.jsonl"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe.csv", tmp_path / "link.csv"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, link):
            write_atomically(path, b"content")
            assert os.read(reader, 100) == b"content"
            assert path.is_fifo()
    finally:
        os.close(reader)
    assert _names(tmp_path) == ["link.csv", "pipe.csv"]


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "folder" / "file.csv")
    for content in (b"one", b"two"):
        write_atomically(tmp_path / "link.csv", content)
        assert (tmp_path / "folder" / "file.csv").read_bytes() == content
    assert (tmp_path / "link.csv").is_symlink()
    assert _names(tmp_path / "folder") == ["file.csv"]


def test_a_failed_write_leaves_nothing_behind_and_says_where(tmp_path: Path) -> None:
    target = tmp_path / "folder.jsonl"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(OSError) as caught:
        write_atomically(target, b"content")
    assert caught.value.filename == str(target)
    assert str(caught.value).endswith(f": {str(target)!r}")
    assert _names(tmp_path) == ["folder.jsonl"]


def test_a_file_that_cannot_be_begun_is_named_as_the_user_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    (tmp_path / f".{path.name}.{os.getpid()}.part").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_atomically(path, b"content")
    assert caught.value.filename == str(path)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: object, target: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "a.jsonl"
    path.write_bytes(b"old")
    monkeypatch.setattr("rmetric.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["a.jsonl"]
