"""Ablation: what is left out is not looked at, in the fit and in the scores."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.robust.metric import STATISTICS
from studies.robust.ablation import Scored, rows
from studies.robust.fit import Source
from tests.robust.runs import ONSET, disturbed, healthy
from tests.robust.studies import GRADIENTS, made_run


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    loud = disturbed({"grad_norm": (slice(ONSET, None), 40.0)}, seed=1)
    ours = [made_run(1, GRADIENTS, loud), *(made_run(seed, "NONE", healthy(seed=seed)) for seed in range(2, 6))]
    theirs = [made_run(seed, "NONE", healthy(seed=seed)) for seed in range(6, 10)]
    return [Source.of("ours", ours, jobs=1), Source.of("theirs", theirs, jobs=1)]


def test_a_row_for_each_statistic_that_was_judged_and_for_each_source(sources: list[Source]) -> None:
    found = list(rows(sources, Scored(sources[0], {"bugs": sources[0], "theirs": sources[1]})))
    judged = [name for j, name in enumerate(STATISTICS) if np.isfinite(sources[0].statistics[:, j]).any()]
    assert [row["left_out"] for row in found] == ["nothing", *judged, "source ours", "source theirs"]
    assert found[0]["f1"] == 1.0 and found[0]["bugs"] == 1.0 and found[0]["theirs"] == 0.0


@pytest.mark.slow
def test_what_is_left_out_is_not_looked_at(sources: list[Source]) -> None:
    place = STATISTICS.index("grad_norm.level")
    spoilt = [Source(one.name, one.timeline, one.statistics.copy(), one.folds) for one in sources]
    rng = np.random.default_rng(0)
    for source in spoilt:
        source.statistics[:, place] = np.exp(9.0 * rng.normal(size=len(source.statistics)))
    one, other = (
        {str(row["left_out"]): row for row in rows(each, Scored(each[0], {"bugs": each[0], "theirs": each[1]}))}
        for each in (sources, spoilt)
    )
    assert one["grad_norm.level"] == other["grad_norm.level"]
    assert one["nothing"] != other["nothing"]
