"""Step times: which names say how long one step takes, and in what unit."""

from __future__ import annotations

import re
from functools import lru_cache

from rmetric.importers.base import plain

_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "microseconds"), 1e-6),
}
"""Unit → seconds."""
_OF_ONE_STEP = frozenset({"step", "iter", "iteration", "it", "update", "batch"})
_TIME_WORDS = frozenset({"time", "timing", "dt", "elapsed", "duration", "took", "cost"})
_BESIDE = _OF_ONE_STEP | _TIME_WORDS | {"per", "train", "training"}
"""Words of which the name of a step time consists, but for its unit. One with another word is the time of something
else: of the data, of an epoch, of all so far, or a mean."""
_APART = re.compile(rf"\s({'|'.join(_UNITS)})(?=\s*(?:[|,;()\]]|$)|\s\s)", re.IGNORECASE)


_PER_STEP = re.compile(rf"\s(?:{'|'.join(_UNITS)})/(?:{'|'.join(_OF_ONE_STEP)})\b", re.IGNORECASE)


def without_a_name(unit: str, text: str, end: int) -> str:
    """The name of a value that has none in a text, if it has a unit that says that it is the time of a step.

    >>> without_a_name("ms", "| 8060.78ms |", 11), without_a_name("", "(22.7 sec/step)", 5)
    ('time', 'sec/step')
    >>> without_a_name("s", "3s/step", 2)
    ''
    """
    if per_step := _PER_STEP.match(text, end):
        return per_step[0].strip()
    return "time" if unit == "ms" and not text.startswith("/", end) else ""


def with_unit(name: str, unit: str, text: str, end: int) -> str:
    """The name of a value in a text, with the unit that follows the value where it takes time.

    >>> with_unit("dt", "ms", "dt: 31.5ms", 10), with_unit("iter time", "", "iter time: 31.5 ms |", 15)
    ('dt ms', 'iter time ms')
    """
    if not _takes_time(name):
        return name
    if not unit and (apart := _APART.match(text, end)):
        unit = apart[1]
    return f"{name} {unit}" if unit.casefold() in _UNITS else name


@lru_cache(4096)
def _takes_time(name: str) -> bool:
    words = {*plain(name).split("_")}
    return not words.isdisjoint(_TIME_WORDS) and words <= _BESIDE


@lru_cache(4096)
def seconds_in(name: str) -> float | None:
    """Seconds in the unit of a step time, by its name; ``None`` if that is not the time of a step, or has no unit.

    A rate (``it/s``) is none, and a mere ``time`` in seconds is as often that of an epoch, or of all so far.

    >>> [seconds_in(name) for name in ("ms/batch", "elapsed time per iteration (ms)", "step_time_s", "time ms")]
    [0.001, 0.001, 1.0, 0.001]
    >>> [seconds_in(name) for name in ("steps_per_second", "it/s", "time s", "train_time ms", "data_time_ms", "dt")]
    [None, None, None, None, None, None]
    """
    words = plain(name).split("_")
    units = [place for place, word in enumerate(words) if word in _UNITS]
    if len(units) != 1:
        return None
    unit, before, after = _UNITS[words[units[0]]], words[: units[0]], words[units[0] + 1 :]
    if not _BESIDE.issuperset(before + after) or before[-1:] == ["per"]:
        return None
    is_time = not _TIME_WORDS.isdisjoint(words)
    if _OF_ONE_STEP.isdisjoint(words):
        is_of_a_step = "dt" in words or (is_time and unit < 1.0 and "train" not in words)
    else:
        is_of_a_step = is_time or not _OF_ONE_STEP.isdisjoint(after) or name.casefold().endswith("step_s")
    return unit if is_of_a_step else None
