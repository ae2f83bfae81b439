"""The contract of an importer, and how other people's column names become ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.languages import in_english
from rmetric.log_lines import OnDamage
from rmetric.measurements import MAPPED, OWN_PREFIX
from rmetric.registry import Registry

Importer = Callable[[Path, Mapping[str, str], OnDamage], Iterator[NumberedEvent]]
"""``importer(path, mapping, on_damage)`` yields ``(line number, event)`` in the schema of :mod:`rmetric.log_writer`.

``mapping`` is our name → their name (see :func:`parse_mapping`). What cannot be used is reported to
``on_damage(line, message)`` and left out. A file that holds no log of this format raises :class:`UserError`. Memory is
bounded: an importer holds a line or an entry of the file, a JSON value of 64 MiB, or 500,000 rows that are to be put in
order, at most.
"""

IMPORTERS: Registry[Importer] = Registry("log format")
I = TypeVar("I", bound=Importer)  # noqa: E741 - the importer that is decorated

ALIASES: dict[str, tuple[str, ...]] = {
    "step": (
        "global_step",
        "train_step",
        "training_step",
        "iteration",
        "iter",
        "it",
        "steps",
        "num_updates",
        "train_global_step",
        "trainer_global_step",
        "current_steps",
    ),
    "training_loss": (
        "train_loss",
        "loss",
        "tr_loss",
        "lm_loss",
        "train_lm_loss",
        "loss_train",
        "total_loss",
        "mean_loss",
    ),
    "validation_loss": ("val_loss", "valid_loss", "eval_loss", "dev_loss", "loss_val", "loss_eval", "loss_valid"),
    "learning_rate": ("lr", "train_lr", "train_learning_rate", "last_lr", "l_r"),
    "grad_norm": (
        "gradient_norm",
        "gnorm",
        "total_grad_norm",
        "train_grad_norm",
        "gradnorm",
        "g_norm",
        "total_norm",
        "global_norm",
        "grdn",
    ),
    "sigma_sq": ("gradient_variance", "grad_norm_variance", "grad_norm_var"),
    "reward": ("episode_reward_mean", "episodic_return", "ep_rew_mean", "eprewmean", "mean_reward"),
    "step_time_s": ("updt_s",),
}
"""Our name → their usual names, most specific first. Compared after :func:`plain`. No unit is ever guessed: any other
step time says its unit (:mod:`rmetric.importers.step_times`)."""

LOG_CALLS, LAST_STEP = "_step", 60
"""Name under which W&B counts the calls of its ``log``, and its rank: a step only where a log has no other column of
steps (those that are recognised by a word have rank 50)."""
OWN_RANK = 55
"""What the names of this project's monitor add to their rank: the log's own come first, as a Trainer counts from 1."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=Loss)(?=[A-Z]\d?$)")
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
CACHED = 4096
"""Most names, patterns of names or texts that are remembered."""
MAX_DEPTH = 4
"""Objects within each other that are looked into."""
MOST_PLACES = 8
"""Objects of a list that are looked into: players or workers, and not the records of a log."""
HEAD_BYTES = 1 << 16
"""Begin of a file by which its format is judged."""
LOOKED_AT = 64
"""First lines in which a table, or one object a line, shows what it is."""


def register_importer(name: str) -> Callable[[I], I]:
    """Decorator: make an importer known by ``name`` to ``--format``."""

    def register(importer: I) -> I:
        IMPORTERS.add(name, importer)
        return importer

    return register


def plain(name: str) -> str:
    """A column name without case and punctuation, in English.

    >>> [plain(name) for name in ("Train/Loss", "_step", "eval.loss", "globalStep", "训练损失")]
    ['train_loss', 'step', 'eval_loss', 'global_step', 'train_loss']
    """
    return _PUNCTUATION.sub("_", in_english(_HUMP.sub("_", name).casefold())).strip("_")


@lru_cache(CACHED)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a column name, as :func:`plain` has them.

    >>> words_of("Train/Loss")
    ('train', 'loss')
    """
    return tuple(plain(name).split("_"))


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Our name → their name, out of ``our_name=their_name`` texts, each of which may hold several with commas between.

    Raises :class:`UserError` for a name that is not ours (with the nearest one), given twice, or empty.

    >>> parse_mapping(["training_loss=loss,step=n", "validation_loss=held out"])
    {'training_loss': 'loss', 'step': 'n', 'validation_loss': 'held out'}
    """
    ours: Registry[str] = Registry("field of the log")
    for name in MAPPED:
        ours.add(name, name)
    mapping: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        if not part:
            continue
        our_name, equals, their_name = (piece.strip() for piece in part.partition("="))
        if not equals or not their_name:
            raise UserError(f"--map {part!r} must read our_name=their_name, such as training_loss=loss")
        if ours[our_name] in mapping:
            raise UserError(f"--map gives {our_name!r} twice; give it once")
        mapping[our_name] = their_name
    return mapping


class FieldMap:
    """Map of their names to ours: the explicit mapping first, then the aliases.

    Parameters
    ----------
    mapping
        Our name → their name. An explicitly mapped name of ours has no aliases, an explicitly used name of theirs is an
        alias of nothing.

    Examples
    --------
    >>> [FieldMap({}).targets(name) for name in ("step", "Loss", "accuracy")]
    [(('step', 0),), (('training_loss', 2),), ()]
    """

    def __init__(self, mapping: Mapping[str, str]) -> None:
        self.explicit, self.taken = frozenset(mapping), frozenset(mapping.values())
        """Names of ours, and of theirs, that the mapping fixes."""
        self._targets: dict[str, tuple[tuple[str, int], ...]] = {}
        for our_name, their_name in mapping.items():
            self._targets[their_name] = (*self._targets.get(their_name, ()), (our_name, -1))
        if "step" not in mapping:
            self._targets.setdefault(LOG_CALLS, (("step", LAST_STEP),))
        self._aliases: dict[str, tuple[str, int]] = {}
        for our_name in MAPPED:
            if our_name not in mapping:
                for rank, alias in enumerate((our_name, *ALIASES.get(our_name, ()))):
                    self._aliases[plain(alias)] = (our_name, rank)

    def targets(self, their_name: str) -> tuple[tuple[str, int], ...]:
        """Our names that it stands for, each with its rank (the lowest wins in a record)."""
        found = self._targets.get(their_name)
        if found is None:
            name = their_name.removeprefix(OWN_PREFIX)
            alias = self._aliases.get(plain(name))
            behind = 0 if name == their_name else OWN_RANK
            found = () if alias is None else ((alias[0], alias[1] + behind),)
            if len(self._targets) < CACHED:
                self._targets[their_name] = found
        return found


UNMAPPED = FieldMap({})
"""The aliases alone."""


_NESTS = frozenset((dict, list))
"""Kinds of values that hold others."""


def flattened(record: Mapping[str, Any], *, lists: bool = False) -> dict[str, Any]:
    """Nested objects as dotted names, with ``lists`` also those in short lists, by their places.

    >>> flattened({"step": 1, "train": {"loss": 2.5}})
    {'step': 1, 'train.loss': 2.5}
    >>> flattened({"step": 1, "agents": [{"loss": 2.5}, {"loss": 2.4}]}, lists=True)
    {'step': 1, 'agents.0.loss': 2.5, 'agents.1.loss': 2.4}
    """
    if _NESTS.isdisjoint(map(type, record.values())):
        return dict(record)
    flat: dict[str, Any] = {}

    def add(values: Mapping[str, Any], prefix: str, depth: int) -> None:
        for key, value in values.items():
            inner = _by_place(value) if lists and isinstance(value, list) else value
            if isinstance(inner, dict) and depth < MAX_DEPTH:
                add(inner, f"{prefix}{key}.", depth + 1)
            else:
                flat[prefix + key] = value

    add(record, "", 0)
    return flat


def _by_place(values: list[Any]) -> dict[str, Any] | None:
    """The objects of a short list by their places; ``None`` for any other list."""
    are_objects = 0 < len(values) <= MOST_PLACES and all(isinstance(value, dict) for value in values)
    return {str(place): value for place, value in enumerate(values)} if are_objects else None
