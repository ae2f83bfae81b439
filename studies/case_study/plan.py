"""Plan of a case study: all that its runs depend on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rmetric.errors import UserError
from rmetric.faults import NO_FAULT, file_name_part
from rmetric.streams import stable_hash

DEFAULT_FAULTS = (
    "LR_SPIKE",
    "SILENT_DATA_CORRUPTION:target=weight,bit=30,persistence=transient",
    "SILENT_DATA_CORRUPTION:target=gradient,bit=30,persistence=recurring",
    "DATA_CORRUPTION:what=labels,token_share=0.5",
    "GRADIENT_EXPLOSION",
    NO_FAULT,
)
"""Faults as they are written on the command line; ``NONE`` is the control."""
LORA: dict[str, Literal["auto"] | bool] = {"auto": "auto", "on": True, "off": False}


@dataclass(frozen=True, kw_only=True)
class CaseStudyPlan:
    """All that the runs depend on, but for the versions of Python and of the libraries."""

    model: str = "tiny-llama"
    """A tiny model, or one for :func:`rmetric.live.models.pretrained.load_pretrained`."""
    dataset: str = ""
    """Name for :func:`rmetric.live.datasets.load_text_corpus`; empty: the source of the standard library."""
    faults: tuple[str, ...] = DEFAULT_FAULTS
    steps: int = 600
    """The horizon."""
    onset: int | None = None
    """First disturbed step; ``None``: drawn from the seed, uniform over the middle half of the run."""
    seed: int = 0
    """Seed of the weights of a tiny model, of the batches, of the faults' own draws and of the onset."""
    rows: int | None = None
    """Sequences a step; ``None``: 16, or 4 for a model that is not tiny."""
    length: int | None = None
    """Tokens a sequence; ``None``: 64, or 256 for a model that is not tiny."""
    workers: int = 4
    """Equal parts of a batch whose gradient norms make σ²."""
    learning_rate: float | None = None
    """``None``: 1e-3, or the paper's 5e-5 for a model that is not tiny."""
    eval_every: int = 20
    """Steps between validation losses, which detectors see."""
    judge_every: int = 5
    """Steps between the held-out losses that decide, against the twin, whether a run failed; no detector sees them."""
    device: str = "auto"
    lora: str = "auto"
    """``auto``, ``on`` or ``off``: train low-rank adapters instead of all weights."""
    plugins: tuple[str, ...] = ()
    """Python files that register faults."""

    def __post_init__(self) -> None:
        if self.lora not in LORA:
            raise UserError(f"--lora is {', '.join(LORA)}, not {self.lora!r}")
        if not 2 <= self.first_disturbed <= self.steps:
            raise UserError(f"the fault's step {self.first_disturbed} does not lie in a run of {self.steps} steps")
        if self.batch_rows % self.workers:
            raise UserError(
                f"a batch of {self.batch_rows} cannot be shared by {self.workers} workers; choose a multiple"
            )

    @property
    def tiny(self) -> bool:
        """True if the model is one of the tiny ones, or meant to be."""
        return self.model.startswith("tiny-")

    @property
    def model_name(self) -> str:
        """Name of the model for logs and results; a folder or file without the path to it."""
        return Path(self.model).name if Path(self.model).exists() else self.model

    @property
    def batch_rows(self) -> int:
        """Sequences a step."""
        return self.rows or (16 if self.tiny else 4)

    @property
    def sequence_length(self) -> int:
        """Tokens a sequence."""
        return self.length or (64 if self.tiny else 256)

    @property
    def peak_learning_rate(self) -> float:
        """After the warm-up."""
        return self.learning_rate or (1e-3 if self.tiny else 5e-5)

    @property
    def first_disturbed(self) -> int:
        """The onset."""
        if self.onset is not None:
            return self.onset
        low, high = self.steps // 4 + 1, max(self.steps * 3 // 4, self.steps // 4 + 1)
        return int(np.random.default_rng((self.seed, stable_hash("onset"))).integers(low, high, endpoint=True))

    def run_names(self) -> list[str]:
        """Name of each fault's run: what its log is called."""
        return [f"run_{number:02}_{file_name_part(_short(fault))}" for number, fault in enumerate(self.faults)]


def _short(fault: str) -> str:
    """A fault's spelling without the parameters' names: ``LR_SPIKE:factor=30`` becomes ``LR_SPIKE_30``."""
    name, _, settings = fault.partition(":")
    return "_".join(
        [name.replace("@", "_"), *(setting.partition("=")[2] for setting in settings.split(",") if settings)]
    )
