"""A share of the training tokens is garbage."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal, get_args

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import Batch, LiveRun

What = Literal["tokens", "labels"]
IGNORED_LABEL = -100
"""Label of a position that does not count (padding), as torch and transformers have it."""


@register_fault("DATA_CORRUPTION")
@dataclass(frozen=True, kw_only=True)
class DataCorruption(Fault):
    """A share of the tokens in every batch is not the right one from the onset on.

    The training loss rises at once; the model's own distribution flattens slowly, so the held-out loss follows.

    In a live run a share of the positions of every batch, other ones in every step, change places among each other, so
    that each gets what stood at another one and the frequencies of the tokens stay as they were.
    """

    source = "shares 2 / 5 / 10 %: Fatima 2025; slow rise: real sample runs with 10 % corrupted labels"
    severities = {"low": {"token_share": 0.02}, "medium": {}, "high": {"token_share": 0.10}}
    at_least = {"token_share": 0.0}
    at_most = {"token_share": 1.0}
    one_of = {"what": get_args(What)}

    token_share: float = 0.05
    """Share of corrupted tokens, in [0, 1]."""
    what: What = "tokens"
    """Live runs: ``tokens``: the text itself is garbled, or ``labels``: only what is to be predicted."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        respond(state, active, rng, effect_of(self, state))

    def dose(self, architecture: Architecture) -> float:
        return self.token_share

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.live.run import Batch

        steps = count(1)

        def corrupt(batch: Batch) -> Batch:
            positions, counted = self._positions(training, batch)
            if next(steps) == 1:
                place = {"what": self.what, "tokens": len(positions), "of": counted}
                training.observer.note("CORRUPTION", step=training.step, fault=self.name, **place)
            ids = _shuffled(batch.input_ids, positions) if self.what == "tokens" else batch.input_ids
            return Batch(ids, _shuffled(batch.labels, positions))

        return training.at("batch", corrupt)

    def _positions(self, training: LiveRun, batch: Batch) -> tuple[Tensor, int]:
        """Positions to be corrupted in this step's batch, and the number of those that they are drawn from."""
        import torch

        counted = torch.nonzero(batch.labels.flatten() != IGNORED_LABEL).flatten()
        share = round(self.token_share * len(counted))
        size = min(max(share, 2), len(counted)) if self.token_share else 0  # one alone has none to change places with
        chosen = training.rng(f"{self.name}/positions").choice(len(counted), size=size, replace=False)
        return counted[torch.from_numpy(chosen).to(counted.device)], len(counted)


def _shuffled(values: Tensor, positions: Tensor) -> Tensor:
    """The same values, those at some positions of the flattened tensor moved on by one: none stays where it was."""
    flat = values.flatten().clone()
    flat[positions] = flat[positions.roll(1)]
    return flat.view_as(values)
