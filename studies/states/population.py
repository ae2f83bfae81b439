"""Healthy runs, and their scores by state: each run looked at ten times while it goes on, as a user would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from rmetric.evaluation.studies import in_parallel, load_study
from rmetric.records import Observations, Run
from rmetric.states import FIRST_LOOK, evidence_of

NOT_HEALTHY = Path(__file__).with_name("not_healthy.csv")
"""Strangers' runs that are in a state by eye: ``state, run, reason``. They are left out of that state's population."""
LOOKS = 10
"""How often a run is looked at: after each tenth of its records."""
Looks = Callable[[int], Iterable[int]]
"""Records of a whole run → of how many it has at each look."""
NEW_DATA_ONLY = {"criteo", "language model", "tiny-", "real_runs"}
"""Kinds and sources (their beginnings) that see no example twice, and so cannot overfit: AlgoPerf's Criteo takes less
than an epoch, speedruns and the project's own runs draw fresh text. The others may overfit for all we know."""


@dataclass(frozen=True)
class Healthy:
    """A healthy run, and the source of its log."""

    source: str
    run: Run

    def counts_for(self, state: str) -> bool:
        """True if it belongs to the population of a state."""
        if state not in ("OVERFITS", "WORSE_VALIDATION"):
            return True
        return any(name.startswith(kind) for kind in NEW_DATA_ONLY for name in (self.source, self.run.model_type))


def controls(data_sets: Iterable[Path]) -> Iterator[Healthy]:
    """Runs without a fault of data sets (or folders of logs) of this project; benign disturbances count as health."""
    for place in data_sets:
        yield from (Healthy(place.stem, run) for run in load_study(place).runs if run.is_control)


def strangers(folder: Path) -> Iterator[Healthy]:
    """Runs of strangers."""
    from studies.abroad.strangers import read_strangers, source_of

    yield from (Healthy(source_of(run), run) for run in read_strangers(folder))


def tenths(records: int) -> Iterable[int]:
    """After each tenth, as the population is looked at."""
    return (records * look // LOOKS for look in range(1, LOOKS + 1))


def as_a_monitor(records: int) -> Iterable[int]:
    """As a monitor of a run that lasts long enough: after 512 records, after twice as many, and so on; at the end."""
    doublings = (FIRST_LOOK << number for number in itertools.count())
    return [*itertools.takewhile(lambda look: look < records, doublings), records]


def population_scores(runs: Sequence[Healthy], jobs: int | None = None, looks: Looks = tenths) -> pd.DataFrame:
    """Highest score of each run in each state that can be judged: ``source, kind, run, state, score``.

    Runs that are not of a state's population are left out of it.
    """
    known = pd.read_csv(NOT_HEALTHY)
    left_out = {*zip(known["state"], known["run"], strict=True)}
    rows = []
    observed = [healthy.run.observations for healthy in runs]
    judged = in_parallel(partial(highest_scores, looks=looks), observed, jobs, "states", "run")
    for healthy, scores in zip(runs, judged, strict=True):
        for state, score in scores.items():
            if healthy.counts_for(state) and (state, healthy.run.name) not in left_out:
                rows.append((healthy.source, healthy.run.model_type, healthy.run.name, state, score))
    return pd.DataFrame(rows, columns=["source", "kind", "run", "state", "score"])


def highest_scores(observations: Observations, looks: Looks = tenths) -> dict[str, float]:
    """State → highest score over the looks at a run."""
    highest: dict[str, float] = {}
    for records in looks(len(observations)):
        for state, evidence in evidence_of(observations.rows(slice(0, records))).items():
            highest[state] = max(evidence.score, highest.get(state, evidence.score))
    return highest
