"""What the hub can answer, and not answer, each in one line and at once; asked of a server on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from rmetric.errors import UserError
from rmetric.live.models import files as hub
from rmetric.live.models.files import files_on_hub, model_folder, refuse_pickled_weights
from tests.live.small_hub import BROKEN, GATED, NOT_FOUND, Answer, answering, with_files

Connect = Callable[[str], None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connect:
    """Point the library at an address, with an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return lambda address: monkeypatch.setattr(constants, "ENDPOINT", address)


@pytest.fixture
def nobody(connect: Connect) -> None:
    """No one listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        connect(f"http://127.0.0.1:{free.getsockname()[1]}")


@pytest.fixture
def mute(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Someone listens and never answers."""
    monkeypatch.setattr(hub, "REACH_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect(f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


def test_the_files_of_a_model(connect: Connect) -> None:
    with answering(with_files("a/b", "config.json", "model.safetensors")) as address:
        connect(address)
        assert files_on_hub("a/b", "model") == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (NOT_FOUND, "model", "model a/b was not found on the Hugging Face Hub .*--model random:NAME"),
        (NOT_FOUND, "dataset", "dataset a/b was not found on the Hugging Face Hub .*check the name$"),
        (GATED, "model", "model a/b is gated: ask for access at https://huggingface.co/a/b, then log in"),
        (GATED, "dataset", "ask for access at https://huggingface.co/datasets/a/b"),
        (BROKEN, "dataset", "cannot be reached .*give a local .txt or .jsonl file"),
    ],
)
def test_what_the_hub_refuses_is_one_line(connect: Connect, answer: Answer, kind: Any, said: str) -> None:
    with answering(answer) as address:
        connect(address)
        with pytest.raises(UserError, match=said) as refused:
            files_on_hub("a/b", kind)
    assert "\n" not in str(refused.value)


def test_a_name_that_no_repository_can_have() -> None:
    with pytest.raises(UserError, match="not found"):
        files_on_hub("a b", "model")


@pytest.mark.parametrize("network", ["nobody", "mute"])
def test_without_a_network_the_local_cache_has_the_word(network: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(network)
    with pytest.raises(UserError, match="a/b is neither a local folder nor in the local cache, and the Hugging Face"):
        model_folder("a/b")


@pytest.mark.usefixtures("nobody")
def test_without_a_network_a_cached_model_is_found(tmp_path: Path) -> None:
    repository = tmp_path / "cache" / "models--a--b"
    snapshot = repository / "snapshots" / ("1" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("1" * 40)
    assert model_folder("a/b") == snapshot


def test_who_may_not_download_asks_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "files_on_hub", lambda *_: pytest.fail("asked"))
    with pytest.raises(UserError, match="downloading is switched off"):
        model_folder("a/b")


def test_a_download_fetches_no_pickle_and_no_code(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **how: asked.update(how) or str(tmp_path))
    with answering(with_files("a/b", "model.safetensors", "pytorch_model.bin", "modeling_a.py")) as address:
        connect(address)
        assert model_folder("a/b") == tmp_path
    fetched = huggingface_hub.utils.filter_repo_objects(
        ["model.safetensors", "tokenizer.json", "pytorch_model.bin", "modeling_a.py", "onnx/model.safetensors"], **asked
    )
    assert list(fetched) == ["model.safetensors", "tokenizer.json"]


def test_a_model_with_pickles_only_is_refused_before_anything_is_fetched(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("fetched"))
    with answering(with_files("a/b", "config.json", "pytorch_model.bin")) as address:
        connect(address)
        with pytest.raises(UserError, match="only pickled weights, which can run code"):
            model_folder("a/b")


def test_a_model_as_gguf_or_without_weights_is_refused() -> None:
    with pytest.raises(UserError, match=r"give the path of that \.gguf file"):
        refuse_pickled_weights("a/b", ["a.Q4_0.gguf", "config.json"])
    with pytest.raises(UserError, match="has no weights"):
        refuse_pickled_weights("a/b", ["config.json"])
    refuse_pickled_weights("a/b", ["model.safetensors", "pytorch_model.bin"])
