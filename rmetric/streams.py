"""Random numbers for many runs at once, one independent stream for each run and each named process.

A stream is keyed by (seed of the run, name of the process) and by nothing else: not by the order of creation, not by
the neighbours in the batch. Adding a process or a fault therefore changes no existing run, and a run and its fault-free
twin, which have the same seed, share all their noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.typing import NDArray


def stable_hash(text: str) -> int:
    """48-bit hash of a text, the same in every process and on every machine (fits a JSON number exactly).

    >>> stable_hash("minibatch")
    197591401406172
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def _words(number: int) -> bytes:
    """A number as NumPy's SeedSequence takes it apart, which needs four times as long for it."""
    return number.to_bytes(4 * max(1, -(-number.bit_length() // 32)), "little")


@dataclass(frozen=True)
class RunStreams:
    """The streams of a batch of runs.

    Parameters
    ----------
    seeds
        One seed a run; row ``i`` of every result is drawn from the streams of ``seeds[i]``.
    steps
        Number of training steps: the default length of a draw.
    scope
        Prefix of the stream names, so that two faults may use the same word for two things.
    """

    seeds: tuple[int, ...]
    steps: int
    scope: str = ""

    def within(self, scope: str) -> RunStreams:
        """The same runs, with names under ``scope``."""
        return RunStreams(self.seeds, self.steps, f"{self.scope}{scope}/")

    def of_runs(self, rows: slice) -> RunStreams:
        """The streams of some of the runs."""
        return RunStreams(self.seeds[rows], self.steps, self.scope)

    def generators(self, name: str) -> list[Generator]:
        """One generator a run, at the start of the stream ``name``."""
        key = _words(stable_hash(self.scope + name))
        entropy = (np.frombuffer(_words(seed) + key, "<u4") for seed in self.seeds)
        return [Generator(PCG64(SeedSequence(words))) for words in entropy]

    def _draw(self, name: str, size: Sequence[int] | None, method: str) -> NDArray[np.float64]:
        shape = (self.steps,) if size is None else tuple(size)
        draws = np.empty((len(self.seeds), *shape))
        for row, generator in enumerate(self.generators(name)):
            getattr(generator, method)(out=draws[row, ...])
        return draws

    def random(self, name: str, size: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Uniform in [0, 1), shape (runs, steps) or (runs, *size)."""
        return self._draw(name, size, "random")

    def normal(self, name: str, size: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Standard normal, shape (runs, steps) or (runs, *size)."""
        return self._draw(name, size, "standard_normal")

    def exponential(self, name: str, size: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Exponential with mean 1, shape (runs, steps) or (runs, *size)."""
        return self._draw(name, size, "standard_exponential")
