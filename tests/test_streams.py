from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from rmetric.streams import RunStreams, stable_hash

DRAWS = ("random", "normal", "exponential")


def test_a_hash_is_the_same_in_every_process() -> None:
    program = "from rmetric.streams import stable_hash; print(stable_hash('minibatch'))"
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed},
        )
        assert int(done.stdout) == stable_hash("minibatch") == 197591401406172


def test_a_hash_fits_a_json_number_exactly() -> None:
    hashes = [stable_hash(f"name {number}") for number in range(2000)]
    assert len(set(hashes)) == 2000
    assert max(hashes) < 2**48
    assert all(int(float(value)) == value for value in hashes)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_run_draws_the_same_whatever_its_neighbours(draw: str) -> None:
    alone = getattr(RunStreams((7,), 50), draw)("noise")[0]
    for seeds, row in (((7, 1, 2), 0), ((3, 7), 1), ((7, 7), 1)):
        assert np.array_equal(getattr(RunStreams(seeds, 50), draw)("noise")[row], alone)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_stream_does_not_depend_on_what_was_drawn_before(draw: str) -> None:
    streams = RunStreams((7,), 50)
    first = getattr(streams, draw)("noise")
    streams.normal("other")
    assert np.array_equal(getattr(streams, draw)("noise"), first)


def test_seeds_names_and_scopes_tell_streams_apart() -> None:
    streams = RunStreams((1, 2), 1000)
    drawn = [
        *streams.normal("a"),
        *streams.normal("b"),
        *streams.within("fault").normal("a"),
        *streams.within("x").normal("a"),
    ]
    correlation = np.corrcoef(drawn)[np.triu_indices(len(drawn), k=1)]
    assert np.abs(correlation).max() < 4.0 / np.sqrt(1000)


def test_scopes_nest() -> None:
    streams = RunStreams((1,), 5).within("a").within("b")
    assert np.array_equal(streams.random("c"), RunStreams((1,), 5).random("a/b/c"))


def test_some_of_the_runs_keep_their_streams() -> None:
    streams = RunStreams((1, 2, 3, 4), 5).within("x")
    assert np.array_equal(streams.of_runs(slice(1, 3)).normal("n"), streams.normal("n")[1:3])


def test_shapes_are_runs_first() -> None:
    streams = RunStreams((1, 2, 3), 7)
    assert streams.random("a").shape == (3, 7)
    assert streams.random("a", size=()).shape == (3,)
    assert streams.exponential("a", size=(2, 5)).shape == (3, 2, 5)


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [("random", stats.uniform()), ("normal", stats.norm()), ("exponential", stats.expon())],
)
def test_draws_have_the_distribution_they_are_named_after(draw: str, distribution: object) -> None:
    drawn = getattr(RunStreams(tuple(range(20)), 500), draw)("noise").ravel()
    assert stats.kstest(drawn, distribution.cdf).pvalue > 1e-3  # type: ignore[attr-defined]
