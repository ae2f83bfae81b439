"""Plan of the zoo: kinds of training, each with a healthy twin a seed, and its forks: disturbed, or with a bug."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

import numpy as np

import studies.zoo.kinds  # noqa: F401 - registers them
from rmetric.errors import UserError
from rmetric.faults import NO_FAULT, Fault, file_name_part, parse_fault
from rmetric.streams import stable_hash
from studies.zoo.disturbances import DISTURBANCES
from studies.zoo.training import KINDS, KindRun

RECORDING_VERSION = 6
"""Raise it when the same plan trains, measures or logs otherwise (:mod:`rmetric.versions`)."""
SEVERITY = "medium"
"""Of every bug: it is there, or it is not."""


@dataclass(frozen=True, kw_only=True)
class ZooSpec:
    """One run of the zoo. Runs of one kind and seed share their healthy steps."""

    kind: str
    seed: int
    """Seed of the weights, the batches and what befalls the run."""
    fault: str = NO_FAULT
    """As :func:`rmetric.faults.parse_fault` reads it."""
    disturbance: str | None = None
    """One of :data:`DISTURBANCES`."""
    onset: int | None = None
    """First disturbed step, of a bug or of a disturbance; ``None``: the healthy twin."""

    @property
    def experiment_id(self) -> str:
        """Name of the run, and of its log without the ending."""
        what = self.disturbance or ("healthy" if self.fault == NO_FAULT else file_name_part(self.fault))
        return f"run_{self.kind}_{what}_seed{self.seed}"

    @property
    def twin(self) -> str | None:
        """Name of the healthy twin; ``None``: this is it."""
        return None if self.onset is None else ZooSpec(kind=self.kind, seed=self.seed).experiment_id

    @property
    def repetition(self) -> int:
        """Number, from 1, by whose parity halves of the zoo are told."""
        return self.seed + 1

    def make_fault(self) -> Fault | None:
        """The bug; ``None`` for a control run."""
        return None if self.fault == NO_FAULT else parse_fault(self.fault, SEVERITY)


@dataclass(frozen=True, kw_only=True)
class ZooPlan:
    """Plan of a recording. What a run does depends on its kind and seed and on the settings; more kinds, seeds or bugs
    add runs to a folder and change none."""

    kinds: tuple[str, ...] = field(default=(), metadata={"adds_runs": True})
    """Names in :data:`KINDS`; empty: all of ``zoo``."""
    zoo: str = field(default="zoo", metadata={"adds_runs": True})
    """Published set whose kinds are recorded where ``kinds`` names none."""
    seeds: tuple[int, ...] = field(default=(0, 1, 2), metadata={"adds_runs": True})
    bugs: tuple[str, ...] = field(default=(), metadata={"adds_runs": True})
    """Faults as they are spelled: each is brought upon the first kinds that can have it, in place of disturbances."""
    kinds_a_bug: int = field(default=8, metadata={"adds_runs": True})
    """Largest number of kinds that get a bug."""
    steps: int = 1400
    """The horizon."""
    disturbed: int = 2
    """Disturbed forks of each twin; none of one of several processes, or in a plan with bugs."""
    earliest: float = 3 / 14
    latest: float = 9 / 14
    """Shares of the steps between which the forks begin."""
    eval_every: int = 25
    """Steps between validation losses, which detectors see."""
    judge_every: int = 5
    """Steps between the held-out losses by which a run is judged against its twin; no detector sees them."""

    def __post_init__(self) -> None:
        for name in self.chosen_kinds:
            KINDS[name]
        if self.steps * self.earliest < 2 or not self.earliest < self.latest < 1:
            raise UserError(f"runs of {self.steps} steps are too short to be forked; give --steps 28 or more")

    @classmethod
    def with_bugs(cls, bugs: str = "bugs", **changes: object) -> ZooPlan:
        """Plan of a set of bugs: each of them on eight of :data:`BUGGED_KINDS`, with a horizon of 1,000 steps."""
        from rmetric.faults.bugs import SETS_OF_BUGS

        settings = {"kinds": BUGGED_KINDS, "bugs": SETS_OF_BUGS[bugs], "seeds": (0,), "steps": 1000, "earliest": 0.3,
                    "latest": 0.8}  # fmt: skip
        return cls(**{**settings, **changes})  # type: ignore[arg-type]

    def specs(self) -> list[ZooSpec]:
        """All runs in order: seed, kind, the twin first."""
        bugs = self._bugs_of_kinds()
        return [
            spec
            for seed in self.seeds
            for kind in self.chosen_kinds
            if bugs[kind] or not self.bugs
            for forks in [self._bugged(kind, seed, bugs[kind]) if self.bugs else self._disturbed(kind, seed)]
            for spec in (ZooSpec(kind=kind, seed=seed), *forks)
        ]

    @property
    def chosen_kinds(self) -> tuple[str, ...]:
        """Kinds that are recorded."""
        return self.kinds or kinds_of(self.zoo)

    def _bugs_of_kinds(self) -> dict[str, list[str]]:
        """Kind → bugs that it gets."""
        found: dict[str, list[str]] = {kind: [] for kind in self.chosen_kinds}
        last = round(self.latest * self.steps)  # late in a schedule least can be done to it
        for bug in self.bugs:
            able = (kind for kind in found if can_have(kind, bug, self.steps, last))
            for kind in islice(able, self.kinds_a_bug):
                found[kind].append(bug)
        return found

    def _bugged(self, kind: str, seed: int, bugs: Sequence[str]) -> list[ZooSpec]:
        return [ZooSpec(kind=kind, seed=seed, fault=bug, onset=self._onset(kind, seed, bug)) for bug in bugs]

    def _disturbed(self, kind: str, seed: int) -> list[ZooSpec]:
        if KINDS[kind].processes > 1:
            return []
        fitting = fitting_disturbances(kind)
        chosen = _rng(kind, seed, "disturbances").choice(fitting, size=self.disturbed, replace=False).tolist()
        return [ZooSpec(kind=kind, seed=seed, disturbance=name, onset=self._onset(kind, seed, name)) for name in chosen]

    def _onset(self, kind: str, seed: int, what: str) -> int:
        first, last = round(self.earliest * self.steps), round(self.latest * self.steps)
        return int(_rng(kind, seed, f"onset/{what}").integers(first, last, endpoint=True))


BUGGED_KINDS = (
    "cnn_sgd", "gpt_dropout", "lstm_sgd", "word_tied", "resnet_label_smoothing", "image_denoising", "mlp_lion",
    "spectrogram_cnn", "vit_mixup", "cnn_bf16", "molecules_pooled", "cnn_restarts", "cnn_batch_ramp", "simclr",
    "bert_masked", "gcn_communities", "gru_reverse", "length_ramp", "unet_segmentation",
)  # fmt: skip
"""Kinds that get bugs, in the order in which they are asked; all have a held-out loss that a bug can be told by."""


def kinds_of(zoo: str) -> tuple[str, ...]:
    """Names of the kinds whose runs are published in a set; ``UserError`` if there are none."""
    found = tuple(name for name, kind in KINDS.items() if kind.zoo == zoo)
    if not found:
        known = dict.fromkeys(kind.zoo for _, kind in KINDS.items())
        raise UserError(f"no kind of training belongs to the set {zoo!r}; choose among {', '.join(known)}")
    return found


def groups_of(specs: Sequence[ZooSpec]) -> list[list[ZooSpec]]:
    """Runs by the healthy steps that they share."""
    groups: dict[tuple[str, int], list[ZooSpec]] = defaultdict(list)
    for spec in specs:
        groups[spec.kind, spec.seed].append(spec)
    return list(groups.values())


@cache
def fitting_disturbances(kind: str) -> tuple[str, ...]:
    """Names of the disturbances that a kind can have."""
    run = KindRun(KINDS[kind](), 0, 4)
    run.step = 1
    batch = run.batch()
    return tuple(name for name, item in DISTURBANCES.items() if item.fits(batch))


@cache
def can_have(kind: str, bug: str, steps: int, onset: int) -> bool:
    """Whether a bug can be brought upon a kind in a run of so many steps: tried out, on some steps before and after."""
    run = KindRun(KINDS[kind](), 0, steps)
    run.train_step()
    run.train_step()
    run.step = onset - 1
    try:
        with parse_fault(bug, SEVERITY).inject(run):
            run.train_step()
            run.train_step()
    except UserError:
        return False
    return True


def _rng(kind: str, seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng((seed, stable_hash(f"zoo/{kind}/{name}")))
