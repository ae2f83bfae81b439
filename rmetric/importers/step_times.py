"""Step times: which names say how long one step takes, and in what unit."""

from __future__ import annotations

import re
from functools import lru_cache

from rmetric.importers.base import CACHED, words_of

_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "microseconds"), 1e-6),
}
"""Unit → seconds."""
_OF_ONE_STEP = frozenset({"step", "iter", "iteration", "it", "update", "batch"})
_TIME_WORDS = frozenset({"time", "timing", "dt", "elapsed", "duration", "took", "cost"})
_BESIDE = _OF_ONE_STEP | _TIME_WORDS | {"per", "in", "train", "training"}
"""Words of which the name of a step time consists, but for its unit. One with another word is the time of something
else: of the data, of an epoch, of all so far, or a mean."""
_APART = re.compile(rf"\s({'|'.join(_UNITS)})(?=\s*(?:[|,;()\]]|$)|\s\s|\s[A-Za-z]\w*[:=])", re.IGNORECASE)
_STEPS = r"(?:it|iter|iteration|step|update)s?|batch(?:es)?"
_A_SECOND = r"s(?:ec(?:ond)?s?)?\b"
_UNIT_BEHIND = re.compile(
    rf"\s(?:(?:{'|'.join(_UNITS)})/(?:{'|'.join(_OF_ONE_STEP)})\b|(?:{_STEPS})/{_A_SECOND})", re.IGNORECASE
)
_RATE = re.compile(rf"(?:(?:global|interval)[\s/._]?)*(?:{_STEPS})(?:/|[\s_]per[\s_]){_A_SECOND}", re.IGNORECASE)
"""The name of a rate of steps; ``train_steps_per_second`` is the mean of a whole run."""


def without_a_name(unit: str, text: str, end: int) -> str:
    """The name of a value that has none in a text, if it has a unit that says that it is the time or the rate of steps.

    A unit right behind its value is that of a progress bar, which shows a mean of the epoch so far, or a smoothed one.

    >>> without_a_name("ms", "| 8060.78ms |", 11), without_a_name("", "(22.7 sec/step)", 5)
    ('time', 'sec/step')
    >>> without_a_name("", "at 1.5 it/s", 6), without_a_name("s", "3s/step", 2), without_a_name("it", "9it/s", 3)
    ('it/s', '', '')
    """
    if behind := _UNIT_BEHIND.match(text, end):
        return behind[0].strip()
    return "time" if unit == "ms" and not text.startswith("/", end) else ""


def with_unit(name: str, unit: str, text: str, end: int) -> str:
    """The name of a value in a text, with the unit that follows the value where it takes time.

    >>> with_unit("dt", "ms", "dt: 31.5ms", 10), with_unit("iter time", "", "iter time: 31.5 ms |", 15)
    ('dt ms', 'iter time ms')
    >>> with_unit("batch_cost", "", "batch_cost: 0.65 sec reader_cost: 0.08 sec", 16)
    'batch_cost sec'
    """
    if not _takes_time(name):
        return name
    if not unit and (apart := _APART.match(text, end)):
        unit = apart[1]
    return f"{name} {unit}" if unit.casefold() in _UNITS else name


@lru_cache(CACHED)
def _takes_time(name: str) -> bool:
    words = {*words_of(name)}
    return not words.isdisjoint(_TIME_WORDS) and words <= _BESIDE


@lru_cache(CACHED)
def seconds_in(name: str) -> float | None:
    """Seconds in the unit of a step time, by its name; ``None`` if that is not the time of a step, or has no unit.

    A mere ``time`` in seconds is as often that of an epoch, or of all so far.

    >>> [seconds_in(name) for name in ("ms/batch", "elapsed time per iteration (ms)", "step_time_s", "time ms")]
    [0.001, 0.001, 1.0, 0.001]
    >>> [seconds_in(name) for name in ("it/s", "time s", "train_time ms", "data_time_ms", "dt")]
    [None, None, None, None, None]
    """
    words, unit, after = _parsed(name)
    if unit is None:
        return None
    is_time = not _TIME_WORDS.isdisjoint(words)
    if _OF_ONE_STEP.isdisjoint(words):
        is_of_a_step = "dt" in words or (is_time and unit < 1.0 and "train" not in words)
    else:
        is_of_a_step = is_time or not _OF_ONE_STEP.isdisjoint(after) or name.casefold().endswith("step_s")
    return unit if is_of_a_step else None


@lru_cache(CACHED)
def takes_seconds(name: str) -> bool:
    """Whether a name is that of a mere time in seconds: of a step, if each step is reported.

    >>> [takes_seconds(name) for name in ("seconds", "time s", "train_time s", "time", "hours")]
    [True, True, False, False, False]
    """
    words, unit, _ = _parsed(name)
    return unit == 1.0 and _TIME_WORDS.issuperset(set(words) - _UNITS.keys()) and seconds_in(name) is None


def _parsed(name: str) -> tuple[tuple[str, ...], float | None, tuple[str, ...]]:
    """Words of a name, the unit of time among them, if all others fit beside it, and the words behind the unit."""
    words = words_of(name)
    units = [place for place, word in enumerate(words) if word in _UNITS]
    if len(units) != 1:
        return words, None, ()
    before, after = words[: units[0]], words[units[0] + 1 :]
    fits = _BESIDE.issuperset(before + after) and before[-1:] != ("per",)
    return words, _UNITS[words[units[0]]] if fits else None, after


@lru_cache(CACHED)
def is_step_rate(name: str) -> bool:
    """Whether a name is that of a number of steps a second, of which the inverse is the step time.

    >>> [is_step_rate(name) for name in ("It/sec", "global_step/sec", "interval_steps_per_second", "batches/s")]
    [True, True, True, True]
    >>> [is_step_rate(name) for name in ("samples/s", "tokens_per_second", "train_steps_per_second", "avg it/s")]
    [False, False, False, False]
    """
    return _RATE.fullmatch(name) is not None
