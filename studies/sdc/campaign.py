"""A campaign: many single flips of one healthy run, in one readable file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from rmetric.errors import UserError
from rmetric.files import write_atomically
from rmetric.live.corpus import standard_library
from rmetric.live.injection.bits import FORMATS, FloatFormat, float_format
from rmetric.live.models import tiny_model
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from rmetric.streams import stable_hash
from studies.sdc.plan import Injection, Settings, Stage
from studies.sdc.products import kernel_of, layer_of, products_of

AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def fresh_run(settings: Settings) -> LanguageModelRun:
    """Model, optimizer and text as planned, on the CPU."""
    model = tiny_model(settings.model, seed=settings.seed, context=max(settings.length, 64))
    model.set_attn_implementation("eager")  # a fused kernel hides its two products
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    config = LiveRunConfig(
        seed=settings.seed,
        rows=settings.rows,
        length=settings.length,
        workers=settings.workers,
        learning_rate=settings.learning_rate,
        autocast=AUTOCAST[settings.dtype],
    )
    return LanguageModelRun(model, optimizer, standard_library(), config)


@lru_cache(maxsize=1)
def shared_run(settings: Settings) -> LanguageModelRun:
    """One run a process, for snapshots to be loaded into; a single thread, so that sums come out the same in each."""
    torch.set_num_threads(1)
    return fresh_run(settings)


SCHEMA_VERSION = 1
ORDER: tuple[Stage, ...] = ("forward", "backward", "memory", "backward", "forward", "payload")
"""Stages of the injections that are drawn, again and again: a third in each pass, a sixth in memory, in the payload."""
ONSETS = (81, 101, 121, 141)
"""Steps of the injections: the learning rate is constant and the detectors have warmed up."""
TOP_CARDS = 4
"""Copies of the exponent's top bit in a deck of bits: nearly all that does harm is there."""
MANTISSA_STRIDE = 3
"""Every third bit of the mantissa is drawn, from the top down; of exponent and sign all."""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Injections to be done, replayable to the bit on the same machine with the same libraries and text."""

    settings: Settings
    injections: tuple[Injection, ...]

    def __post_init__(self) -> None:
        if not self.injections:
            raise UserError("a campaign needs at least one injection")

    @classmethod
    def drawn(
        cls,
        settings: Settings,
        *,
        seed: int = 0,
        injections: int = 240,
        onsets: Sequence[int] = ONSETS,
        stages: Sequence[Stage] = ORDER,
        bits: Sequence[int] = (),
    ) -> Self:
        """Injections drawn from a seed.

        Stages come in the fixed order :data:`ORDER`. Within a stage, kinds (what is hit and in which kernel), bits and
        onsets come from shuffled decks, so that each is drawn about equally often (the top bit of the exponent four
        times as often); tensor, worker and element are uniform over what there is. So the shares of a sensitivity map
        are those of its cells. Shares over *all* injections are those of this draw.
        """
        run = fresh_run(settings)
        sites = _sites(run)
        rng = np.random.default_rng((seed, stable_hash("sdc/campaign")))
        draw = _Draw(settings, sites, onsets, bits, rng)
        order = (stages[index % len(stages)] for index in range(injections))
        return cls(settings=settings, injections=tuple(map(draw.next, order)))

    @property
    def onsets(self) -> tuple[int, ...]:
        """The faulty steps, each once."""
        return tuple(sorted({injection.step for injection in self.injections}))

    @property
    def last_step(self) -> int:
        """Last step of the last window."""
        return self.onsets[-1] + self.settings.window - 1

    def save(self, path: str | Path) -> None:
        """One injection a line, so that a difference of two campaigns can be read."""
        lines = ",\n".join("    " + json.dumps(injection.fields(), ensure_ascii=False) for injection in self.injections)
        head = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self.settings)}, indent=2)[:-2]
        write_atomically(Path(path), f'{head},\n  "injections": [\n{lines}\n  ]\n}}\n'.encode())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A campaign from its file; raises :class:`UserError` for one that is damaged or of another version."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path} does not exist; give --campaign the file of a campaign") from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise UserError(f"{path} is no campaign: {error}") from None
        if not isinstance(content, dict) or content.pop("schema_version", None) != SCHEMA_VERSION:
            raise UserError(f"{path} is no campaign of schema version {SCHEMA_VERSION}; draw a new one")
        injections = content.pop("injections", None)
        if not isinstance(injections, list):
            raise UserError(f"{path} has no list of injections")
        return cls(
            settings=_made(Settings, content, path),
            injections=tuple(_made(Injection, item, path) for item in injections),
        )


def _made(kind: type[Any], content: Any, path: str | Path) -> Any:
    known = {item.name: item.type for item in fields(kind)}
    if not isinstance(content, dict):
        raise UserError(f"{path}: {content!r} is no injection")
    if unknown := {*content} - {*known}:
        raise UserError(f"{path}: an entry has fields that are not known: {', '.join(sorted(unknown))}")
    for name, value in content.items():
        expected = {"int": int, "int | None": int, "float": int | float}.get(str(known[name]), str)
        if isinstance(value, bool) or not isinstance(value, expected):
            raise UserError(f"{path}: {name} cannot be {value!r}")
    try:
        return kind(**content)
    except TypeError as error:
        raise UserError(f"{path}: {error}") from None


@dataclass(frozen=True)
class _Site:
    """Something that can be hit."""

    fields: dict[str, Any]
    """Fields of the injection."""
    elements: int
    dtype: torch.dtype


def _sites(run: LanguageModelRun) -> dict[Stage, dict[tuple[str, str], list[_Site]]]:
    """Stage → (target, kernel) → what can be hit."""
    found: dict[Stage, dict[tuple[str, str], list[_Site]]] = {}
    for entry, elements, dtype in (*_in_passes(run), *_outside_passes(run)):
        kinds = found.setdefault(entry["stage"], {})
        kinds.setdefault((entry["target"], entry["kernel"]), []).append(_Site(entry, elements, dtype))
    return found


def _in_passes(run: LanguageModelRun) -> Iterator[tuple[dict[str, Any], int, torch.dtype]]:
    names = ("stage", "target", "kernel", "tensor", "layer", "call")
    for product in products_of(run):
        if product.dtype in FORMATS:
            yield {name: getattr(product, name) for name in names}, product.elements, product.dtype


def _outside_passes(run: LanguageModelRun) -> Iterator[tuple[dict[str, Any], int, torch.dtype]]:
    for name, parameter in run.model.named_parameters():
        where = {"kernel": kernel_of(name), "tensor": name, "layer": layer_of(name)}
        if parameter.dtype in FORMATS and parameter.requires_grad:
            for target in ("weight", "gradient", "exp_avg", "exp_avg_sq"):
                yield {"stage": "memory", "target": target, **where}, parameter.numel(), parameter.dtype
            yield {"stage": "payload", "target": "payload", **where}, parameter.numel(), parameter.dtype


class _Draw:
    """Draws injections; each deck is shuffled anew when it is used up."""

    def __init__(
        self,
        settings: Settings,
        sites: dict[Stage, dict[tuple[str, str], list[_Site]]],
        onsets: Sequence[int],
        bits: Sequence[int],
        rng: np.random.Generator,
    ) -> None:
        self._settings, self._sites, self._onsets, self._bits, self._rng = settings, sites, onsets, bits, rng
        self._decks: dict[Any, list[Any]] = {}

    def next(self, stage: Stage) -> Injection:
        kinds = self._sites[stage]
        sites = kinds[self._card(("kind", stage), list(kinds))]
        site = sites[int(self._rng.integers(len(sites)))]
        return Injection(
            step=self._card(("onset", stage), list(self._onsets)),
            worker=None if stage == "memory" else int(self._rng.integers(self._settings.workers)),
            element=int(self._rng.integers(site.elements)),
            bit=self._card(("bit", stage, site.dtype), self._deck_of_bits(site.dtype)),
            **site.fields,
        )

    def _deck_of_bits(self, dtype: torch.dtype) -> list[int]:
        layout = float_format(dtype)
        if wrong := [bit for bit in self._bits if bit >= layout.bits]:
            raise UserError(f"{layout.name} numbers have no bit {wrong[0]}; choose 0 to {layout.bits - 1}")
        return list(self._bits) or drawn_bits(layout)

    def _card(self, deck: Any, cards: list[Any]) -> Any:
        if not self._decks.get(deck):
            self._decks[deck] = [cards[index] for index in self._rng.permutation(len(cards))]
        return self._decks[deck].pop()


def drawn_bits(layout: FloatFormat) -> list[int]:
    """A deck of bits: the sign, all of the exponent (the top four times), every third of the mantissa from the top.

    >>> drawn_bits(FORMATS[torch.bfloat16])
    [0, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 14, 14, 14]
    """
    lowest = (layout.mantissa - 1) % MANTISSA_STRIDE
    once = (*range(lowest, layout.mantissa, MANTISSA_STRIDE), *range(layout.mantissa, layout.bits))
    return [*once, *[layout.bits - 2] * (TOP_CARDS - 1)]
