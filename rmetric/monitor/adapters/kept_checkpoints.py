"""Checkpoints that a framework writes, kept for a policy that goes back to them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rmetric.monitor.adapters.hooks import log_errors
from rmetric.monitor.repair.go_back import GoBack
from rmetric.monitor.repair.policy import Policy

FOLDER = "rmetric_kept"


class KeptCheckpoints:
    """Offers a framework's checkpoints to ``GoBack(every=0)``, and keeps them from being rotated away.

    The framework may delete its checkpoint when it likes: hard links to its files (copies where the file system has
    none) lie in ``rmetric_kept`` beside it until the policy does not need them any more.

    Nothing is kept if no policy is a ``GoBack(every=0)`` without a ``load``. ``load`` puts the training back into a
    checkpoint, a file or a folder, and is called in every process; the one that ``writes`` makes and deletes the links.
    """

    def __init__(self, policies: Iterable[Policy], load: Callable[[Path], object], *, writes: bool) -> None:
        self._served = [item for item in policies if isinstance(item, GoBack) and not item.every and item.load is None]
        self._writes = writes
        self._offered: Counter[str] = Counter()
        for item in self._served:
            item.load, item.discard = load, self._discard

    def offer(self, checkpoint: Path) -> None:
        """Keep a checkpoint that was just written; call it in every process.

        One of a name that comes again, such as ``last.ckpt``, is kept beside those before.
        """
        number = self._offered[checkpoint.name]
        self._offered[checkpoint.name] += 1
        kept = checkpoint.parent / FOLDER / (f"{checkpoint.name}.{number}" if number else checkpoint.name)
        if self._served and self._writes:
            with log_errors("keeping a checkpoint"):
                self._discard(kept)
                _link(checkpoint, kept)
        for policy in self._served:
            policy.offer(kept)

    def _discard(self, kept: Path) -> None:
        if not self._writes:
            return
        if kept.is_dir():
            shutil.rmtree(kept, ignore_errors=True)
        else:
            kept.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link_file)
    else:
        _link_file(source, target)


def _link_file(source: Any, target: Any) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def load_optimizer_state(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Load what an optimizer had saved of each parameter; the settings of its groups stay, the learning rate's too."""
    optimizer.load_state_dict({"state": saved["state"], "param_groups": optimizer.state_dict()["param_groups"]})
