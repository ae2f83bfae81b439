"""``name value`` pairs in a line of text, whatever stands between name and value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rmetric.importers.base import CACHED
from rmetric.importers.line_wording import MAX_NAME, with_names_first
from rmetric.importers.names import (
    AGAIN,
    COUNTER_WORDS,
    DATA_WORDS,
    EPOCH_WORDS,
    LINE_NUMBER,
    MAGNITUDE,
    SHORT_WORDS,
    STEP_WORDS,
    TEST_WORDS,
    TOTAL,
    TRAINING_WORDS,
    VALIDATION_WORDS,
    is_adversarial,
    measures_loss,
)
from rmetric.importers.spellings import (
    DASHES,
    GROUPED,
    NAN,
    NO_MORE,
    NOT_FINITE_ON_WINDOWS,
    NOT_MEASURED,
    OF_TYPE,
    WHOLE_GROUPED,
)
from rmetric.importers.step_times import with_unit, without_a_name

SETTING = 300
"""Characters before a value in which a word such as *valid* counts."""
LONGEST_KEPT, LINES_KEPT = 400, 1 << 16
"""Characters of a line whose pairs are kept, and how many such lines: some 60 MB at the most."""
LONGEST_ROW = 256
"""Pairs of a report."""
_SCALES = {"k": "e3", "K": "e3", "M": "e6"}
"""A letter right after a number → what it stands for, as an exponent: that loses no digit. A small m is a minute."""
_COMMAS = rf"(?:(?!{GROUPED})\d+(?:,\d[\d.]*){{1,8}}|[1-9]\d{{0,2}}(?:\.\d{{3}})+,\d+){NO_MORE}"
"""A number with a comma that parts no thousands, and several of them; with points between thousands as well."""
_NO_NAME = r"(?!(?:counts?|iters?|iterations?|steps|values?)\b)"
_EXPONENT = r"(?:(?:[eE][-+]?|[dD][-+])\d+|(?-i:f)[-+]?\d{1,3}(?![\w.]))"
"""``e-05``, ``D-05`` as Fortran writes it, and ``f0`` as Julia does."""
_NEXT = rf"(?:{_NO_NAME}[a-z][\w./]*(?:\s[a-z][\w./]*)?(?:\s|[:=]\s?)(?:[-+.\d]|{NAN})|[.\d])"
"""A number, or another name and its value: before it, ``loss nan`` has a value; ``loss nan count 3`` has none."""
_SIGN_NEXT = r"(?:/nan|\s?(?:[*@!%]|[^\w\s\x00-\x7f]|\+-|-[\s>])|\son\s\(|\s?[a-z%]{1,6}\s*(?:[|,;)\]]|$))"
"""A sign after NaN, what it is of in a bracket, or its unit at the end of a part of the line."""
_OF_PROSE = re.compile(
    r"\b(?:an?|any|are|detected|encountered|first|found|got|had|has|have|if|in|no|of|saw|skipped|the|to|were|with)\s$",
    re.IGNORECASE,
)
"""Words before NaN between blanks that make it no value: ``found nan in 3 layers``."""
_ABSENT = rf"(?:(?:{NOT_MEASURED})(?=\s|[,;|)\]}}]|$)|{DASHES}(?=\s*(?:[,;|]|$)))"
_AFTER_LOSS = r"(?:(?<=loss\s)|(?<=loss[:=])|(?<=loss[:=]\s)|(?<=loss\s[:=]\s))"
_VALUE = re.compile(
    rf"""(?=[-+.\dni*∞])                                       # what follows is slow, and most letters begin no value
    (?<![\w.])(?<!\d[/-])(?<![^A-Za-z_]\d:)(?<!^\d:)        # not within a word, a time, a date, a path; but in "l2:0.1"
    (?:(?P<windows>{NOT_FINITE_ON_WINDOWS})
      |(?P<commas>[-+]?{_COMMAS}(?:{_EXPONENT})?)
      |(?P<number>[-+]?(?:{GROUPED}|\d+(?!\d|,\d)(?:\.\d*)?|(?<!:)\.\d+)(?:{_EXPONENT})?)
       (?P<scale>(?-i:[kKM])\b)?
       (?:\s*/\s*(?P<total>{WHOLE_GROUPED}{NO_MORE}|\d+(?:\.\d+(?=(?-i:[kKM])\b))?)
        (?P<total_scale>(?-i:[kKM])\b)?(?![\w.]*/)(?!\s+\d\d:\d\d))?
      |(?P<word>{NAN})(?=\s*(?:[\]|│┃║,;()}}'"<>]|\.?$|\.\s|\s\s))
      |(?<=[:=→])(?P<after>{NAN}\b)|(?<=[:=→]\s)(?P<spaced>{NAN}\b)
      |(?:(?<=[a-z]\s)|(?<=[a-z_]\d\s|->\s))(?P<between>{NAN})(?=\s{_NEXT}|{_SIGN_NEXT})
      |{_AFTER_LOSS}(?P<absent>{_ABSENT}))
    (?P<unit>[a-zA-Zµ%]{{0,6}})(?=[^\w:./-]|[:.](?!\d)|/s|/nan|$)       # a unit may follow, more digits may not""",
    re.VERBOSE | re.IGNORECASE,
)
_CONSTRUCTOR = re.compile(rf"(?<=[:=\s])\s*(?:{OF_TYPE}\[?|\{{['\"]?\d\w{{0,40}}['\"]?:\s*)$")
"""``Array(``, ``np.float64(``, ``tensor([`` or ``{'0_default':``, of the first group, between a name and its value."""
LEVELS = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL")
_LEVEL = rf"\b(?:{'|'.join(LEVELS)})\b(?::[\w.]+:|:|\s)\s*"
"""What Python's logging puts before a message: ``INFO:root:`` or ``INFO``."""
_RATE, _SIGN = r"^\s?[A-Za-z]{0,10}/\w{1,6}\s+(?=\w)", r"(?:^|\s)[^\w\s\x00-\x7f]{1,4}\s"
"""What may stand between a value and the next name: its unit as in ``12 tok/s lr 0.1``, and ``▸``."""
_CLOCK = (
    r"\d:\d\d(?:[.,]\d+)?(?:Z|\s?[-+]\d\d:?\d\d|\s[AaPp][Mm])?(?:\s+(?:std(?:out|err)\s[FP]\s)?|-)(?=[\[(]?[^\W\d])"
)
"""A time right before a name: ``2024-01-01 12:30:00 step 10``, ``eta 1:02:03 loss 2.5``; what containerd adds to it."""
_SENTENCE = r"(?<=\w{4})\.\s+(?=[A-Z]\w*(?:\s\w+)?\s(?:is|was)\b)"
"""Where another sentence begins: ``took 1.2 seconds. Loss is 0.5``."""
_BREAK = re.compile(
    rf"[|,;{{}}\t]|[\"']\s+(?=\w)|\s\s|\s-\s|\s[-–—]+\s|:\s|\]\s|\]:\s*(?=\w)|\)\s(?=\S)|{_RATE}|{_SIGN}|{_LEVEL}|{_CLOCK}|{_SENTENCE}"
)
_BATCHES = re.compile(r"\]?(?:\s*\([\d.\s]+%\s*\))?\s*\[\s*\d+\s*/\s*\d")
"""What follows an epoch before its batches: ``Train: 3 [500/1251]``, ``[3/90][500/1251]``, ``1/6 (16%) [8/9]``."""
_OF_RANGE = re.compile(r"\s?\[\d+\s?-\s?\d+\]$")
"""The steps of a mean behind its name: ``avg. loss [951-1000]: 2.5``."""
_THEN_DECIMALS = re.compile(r"\]?\s*[:=]?\s+[-+]?\d*\.\d")
"""What follows the step in ``Train loss 200 1.234``."""
_PLACING = ("at", "of", "after")
_PLACING_A_LOSS = (*_PLACING, "for", "over", "in")
_PLACE = re.compile(rf"(?:\s+(?:{'|'.join(_PLACING_A_LOSS)})\s+|\s*\()\w+$", re.IGNORECASE)
"""What ``Cost after iteration 100: 0.69`` says beside the name of its value."""
_BEGINS_TRAINING = re.compile(r"\btrain(?:ing)?\s*[:|\]]", re.IGNORECASE)
_REST_OF_NAME = re.compile(r"[^()\d:=]{0,24}\)\s*[:=]\s*[-+]?(?:\.?\d|nan\b|inf\b)", re.IGNORECASE)
"""What follows a number in the name of a loss, up to the loss."""
_COUNTERS = STEP_WORDS | EPOCH_WORDS
"""What tells in a bracket where a loss is from; that of a batch, the batch's size as often."""
_OWN_NAME = re.compile(r"\w+_\w+\W*$")
"""A name that says of which data it is, and only of its own value where others are of the training: ``val_acc``."""
_TOTAL_OF = re.compile(rf"\b(?P<of>{'|'.join(sorted(DATA_WORDS))}|loss|losses)\W{{1,5}}total\W*$", re.IGNORECASE)
"""``Train - Total`` before what may be the whole loss of some data, and ``Losses: total`` before one."""
_MEAN_OVER = re.compile(
    r"\bloss(?:es)?\s(?=\w)(?:(?:of|on|over|for|in)\s)?(?:the\s)?(?P<latest>last|past|previous)?\s?$", re.IGNORECASE
)
_OVER = re.compile(r"(?P<of>\s[a-z-]{4,12})?(?:\s*[:=]|\s(?:is|was)\b)\s*[-+]?(?:\.?\d|nan\b|inf\b)", re.IGNORECASE)
"""What stands around the number in ``average loss over the last 100 steps: 2.5``."""
_LIST_GOES_ON = re.compile(r"\s*,\s*[-+]?\.?\d")
_EPOCH_AND_BATCH = re.compile(r",\s+\d+\]|:\s+\d+/\d+\]")
"""What follows the epoch in ``[2,  4000] loss: 1.3`` and ``[2: 40/100] loss: 1.3``."""
LARGEST_LINE_NUMBER = 10**9
"""A number before a line that is not smaller is a time."""
_A_RATE = re.compile(r"(?:^\d|(?<!\w)\d+\.)[\d.]*\s?\w*/")
"""What is no name in ``58.7s/10 iters`` or ``done 5.00it/100it``."""
_TRIM = " \t:=[('\"<>-*#~"
_TIME = re.compile(r"\d:\d\d")
_DATE = re.compile(
    r"\b(?:mon|tue|wed|thu|fri|sat|sun)\W+(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)$", re.IGNORECASE
)
"""What stands before the day of a date: ``Training Loss (Mon Mar 11 09:27:59 2019)``."""
_WORDS = re.compile(r"[a-z]+")
_PLAIN = str.maketrans("dDEf", "eeee", ",_'")
"""What makes of a number that a person writes one that Python reads."""


def pairs(line: str) -> dict[str, Any]:
    """The pairs of a line, in its order; a name that comes again keeps its first value.

    ``3/10`` and ``[3/10]`` without a name count batches; ``name of`` holds the number after the slash. A number of the
    training alone, before batches, is the epoch, and so is the first in ``[2, 4000]``, ``[2: 40/50]`` and
    ``[2/9][40/50]``; one alone before the rest of the line is ``#``. ``34.5k`` is 34,500; ``loss None`` has the value
    ``None``. A loss after a word such as *valid* is a validation loss. Whole numbers with a comma between that parts no
    thousands, as in ``0,88``, stay a text.

    >>> pairs("| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.12 | loss  7.64 | ppl  2079.22")
    {'epoch': 1, 'batch': 200, 'batch of': 2983, 'lr': 20.0, 'ms/batch': 12.12, 'loss': 7.64, 'ppl': 2079.22}
    >>> pairs("Train: 3 [ 500/1251 ( 40%)]  Loss: 6.01 (6.01)")
    {'Train epoch': 3, 'batch': 500, 'batch of': 1251, 'Loss': 6.01}
    >>> pairs("{'loss': nan, 'learning_rate': '4e-05', 'epoch': 0.02}")
    {'loss': nan, 'learning_rate': 4e-05, 'epoch': 0.02}
    >>> pairs("validation loss at iteration 1000 | lm loss value: 5.4E+00")
    {'iteration': 1000, 'validation lm loss value': 5.4}
    """
    return _pairs(line) if len(line) > LONGEST_KEPT else {**_kept(line)}


@lru_cache(LINES_KEPT)
def _kept(line: str) -> dict[str, Any]:
    """The pairs of a line, for who reads it again: a log is surveyed, and searched for runs, before it is read."""
    return _pairs(line)


def _pairs(line: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    listed: set[str] = set()
    data = _Data()
    end, beside, is_guess = 0, "", False
    for match in _VALUE.finditer(with_names_first(line)):
        begin, stop = match.span()
        gap = match.string[end:begin]
        if _is_no_value(gap, match) or _is_in_name(gap, match):
            data.is_of_a_bar |= match["unit"] == "%" and bool(_setting(gap[-SETTING:]))
            continue
        is_first, end = end == 0, stop
        name = _name(gap[-2 * MAX_NAME :]) or beside
        said = "" if gap.endswith("[") and _opens_a_place(name, match) else name
        if _is_whole(match):
            name = _name_of_count(said, match) if said else _unnamed(gap, match, found, is_first)
        elif name.casefold() == "total" and not match["unit"]:
            name = _of_total(gap) or name
        beside = _beside(said, name)
        name = name or without_a_name(match["unit"], match.string, stop)
        if not name or (name in found and name == LINE_NUMBER):
            continue
        if is_guess and said and name.casefold() == "batch":
            is_guess = False  # "[1/90] batch 0/60": the first one was none
            found.pop("batch"), found.pop("batch" + TOTAL, None)
        is_guess = is_guess or (not said and name == "batch" and name not in found)
        name = with_unit(data.named(name, gap), match["unit"], match.string, stop)
        if name in found:
            continue
        found[name] = _value(match)
        if match["total"] is not None:
            found[name + TOTAL] = _number(match["total"], match["total_scale"])
        if gap.endswith("[") and _is_of_parts(name) and _LIST_GOES_ON.match(match.string, stop):
            listed.add(name)
    if listed and any(map(measures_loss, found.keys() - listed)):
        found = {name: value for name, value in found.items() if name not in listed}
    return found if found.keys() - {LINE_NUMBER} else {}


def _is_of_parts(name: str) -> bool:
    """Whether a list of this name may be the parts of a loss beside it, and not the only loss of another network."""
    return measures_loss(name) and not is_adversarial(name)


class _Data:
    """The data that the numbers of a line are of, as far as it has said so from left to right."""

    def __init__(self) -> None:
        self._setting = self._measured = ""
        """``validation`` or ``test``, and what the numbers named after their data alone measure."""
        self._has_own = self._trains = False
        """Whether a loss has been named after other data than those of the training, and anything after these."""
        self.is_of_a_bar = False
        """Whether they stand in a progress bar of an evaluation, which may repeat the loss of the training."""

    def named(self, name: str, gap: str) -> str:
        """The name of the next number with what it measures, and on which data, where it does not say that itself."""
        if name.casefold() == "loss" and self._has_own:
            self._setting = ""
        elif not self._setting:
            before = gap[-SETTING:]
            self._setting = _setting(_without_own_name(before) if self._trains else before)
        elif _BEGINS_TRAINING.search(gap):
            self._setting = ""
        self._trains = self._trains or _is_of_training(name)
        if measures_loss(name):
            words = _words(name.casefold())
            self._has_own |= not words.isdisjoint(VALIDATION_WORDS | TEST_WORDS)
            name = f"{self._setting} {name}" if self._setting and words.isdisjoint(DATA_WORDS) else name
            name = f"{name} {AGAIN}" if self.is_of_a_bar and not words.isdisjoint(TRAINING_WORDS) else name
        self._measured, name = _of_the_same(self._measured, name)
        return name


@lru_cache(CACHED)
def _is_of_training(name: str) -> bool:
    """Whether a name says that its number, and so the others of its line, are of the training."""
    return "." not in name and not TRAINING_WORDS.isdisjoint(_words(name.casefold()))


@lru_cache(CACHED)
def _without_own_name(gap: str) -> str:
    """What stands between two values, without a name that tells the data of the next one alone."""
    return _OWN_NAME.sub("", gap)


def _of_total(gap: str) -> str:
    """The data alone whose total a number is called, or that it is that of a loss; empty if neither is said."""
    found = _TOTAL_OF.search(gap)
    of = "" if found is None else found["of"]
    return "total loss" if "loss" in of.casefold() else of


def _is_no_value(gap: str, match: re.Match[str]) -> bool:
    """Whether it is a part of a name (``LR (group 0)=0.1``), how full a bar is (``2%|#   | 40/1600``), or prose."""
    if match["between"] is not None:
        return _OF_PROSE.search(gap) is not None
    return match.string.startswith(")=", match.end()) or (
        match["unit"] == "%" and match.string.startswith("|", match.end())
    )


def _opens_a_place(name: str, match: re.Match[str]) -> bool:
    """Whether a number in a bracket is the epoch of a step that is told with its batch: ``"step": [3, 200]``."""
    return _counter(name).casefold() in STEP_WORDS and _EPOCH_AND_BATCH.match(match.string, match.end()) is not None


def _is_in_name(gap: str, match: re.Match[str]) -> bool:
    """Whether a number tells of what a loss is the mean, in a bracket behind its name or not, before its value.

    ``Loss (mean of the last 100): 2.5``, ``loss over 100 steps: 2.5``
    """
    mean = _MEAN_OVER.search(gap) if "oss" in gap and _is_whole(match) else None
    over = None if mean is None else _OVER.match(match.string, match.end())
    if mean is not None and over is not None:
        return mean["latest"] is not None or over["of"] is not None
    if "(" not in gap:
        return False
    before, _, inside = gap.rpartition("(")
    is_open = (
        ")" not in inside
        and inside.strip().casefold() not in _COUNTERS
        and _REST_OF_NAME.match(match.string, match.end()) is not None
    )
    return is_open and measures_loss(_name(before[-2 * MAX_NAME :]))


def _beside(said: str, name: str) -> str:
    """The name of a value after a counter, of what was said before that; empty if nothing was."""
    is_counted = said != name and (name == "step" or _PLACE.search(said))
    return _PLACE.sub("", said) if is_counted else ""


@lru_cache(CACHED)
def _of_the_same(measured: str, name: str) -> tuple[str, str]:
    """What a number measures where its name says that first and of which data last, and its whole name.

    >>> _of_the_same("", "loss train"), _of_the_same("loss", "val"), _of_the_same("loss", "val acc")
    (('loss', 'loss train'), ('loss', 'loss val'), ('', 'val acc'))
    """
    before, _, data = name.rpartition(" ")
    if data.casefold() not in DATA_WORDS | SHORT_WORDS.keys():
        return "", name
    before = before or measured
    return before, f"{before} {data}".lstrip()


def _is_whole(match: re.Match[str]) -> bool:
    number = match["number"]
    return number is not None and (number.isdecimal() or match["scale"] is not None)


def _name_of_count(name: str, match: re.Match[str]) -> str:
    """Name of a whole number with one: what it counts, where its words or what follows tell that."""
    has_total = match["total"] is not None
    counter = _counter(name, has_total)
    if _is_counter(match) and TRAINING_WORDS.issuperset(_WORDS.findall(name)):
        return match["unit"]
    if not has_total and counter == name and measures_loss(name) and _THEN_DECIMALS.match(match.string, match.end()):
        return "step"
    return _epoch(name) if _BATCHES.match(match.string, match.end()) else counter


def _unnamed(gap: str, match: re.Match[str], found: Mapping[str, Any], is_first: bool) -> str:
    """Name of a whole number without one, by where it stands; empty if it says nothing."""
    if _is_counter(match):
        return match["unit"]
    opens, between = gap.rstrip()[-1:], gap.strip()
    is_epoch = _EPOCH_AND_BATCH if match["total"] is None else _BATCHES
    if opens == "[" and is_epoch.match(match.string, match.end()):
        return "epoch"
    if match["total"] is not None or between.startswith("][") or (between == "," and "epoch" in found):
        is_of_workers = opens == "(" and not any(known.casefold() in COUNTER_WORDS for known in found)
        return "" if is_of_workers else "batch"
    is_alone = (opens == "[" and match.string.startswith(("]", " |"), match.end())) or (is_first and not opens)
    return LINE_NUMBER if is_alone and _number(match["number"], match["scale"]) < LARGEST_LINE_NUMBER else ""


def _is_counter(match: re.Match[str]) -> bool:
    """Whether a number has what it counts as its unit: ``3epoch:``, and not ``3it/s``."""
    return match["unit"] in COUNTER_WORDS and not match.string.startswith("/", match.end())


@lru_cache(CACHED)
def _name(gap: str) -> str:
    """The words right before a value."""
    text = _OF_RANGE.sub("", _CONSTRUCTOR.sub("", gap).rstrip(_TRIM))
    if found := MAGNITUDE.search(text):
        return found[0]
    start = 0
    for found in _BREAK.finditer(text):
        start = found.end()
    name = text[start:].rpartition("=")[2].lstrip(" \t'\"[(<>])-*#~.").strip()
    if name in LEVELS or _DATE.search(name) or _A_RATE.search(name):
        return ""
    return name if len(name) <= MAX_NAME and any(map(str.isalpha, name)) and not _TIME.search(name) else ""


@lru_cache(CACHED)
def _counter(name: str, has_total: bool = False) -> str:
    """A name that ends with what is counted (``validation loss at iteration``) as that.

    ``Training [10/500]``, which has a total, counts batches.
    """
    _, bracket, last = name.rpartition("(")
    if bracket and last.casefold() in COUNTER_WORDS:
        return last  # Train Metrics (step
    words = _WORDS.findall(name.casefold())
    if has_total and words and (TRAINING_WORDS | {"batch"}).issuperset(words):
        return "batch"
    placing = _PLACING_A_LOSS if measures_loss(name) else _PLACING  # "tokens in batch" are no batches
    if len(words) > 1 and words[-1] in COUNTER_WORDS and words[-2] in placing and words[0] != "number":
        return words[-1]
    if len(words) == 2 and words[0] in COUNTER_WORDS and words[1] in DATA_WORDS:
        return words[0]  # Epoch(train), Iter(val)
    return name


@lru_cache(CACHED)
def _epoch(name: str) -> str:
    """The name of a number before batches; if it says no more than that this is training, it is the epoch's."""
    words = _WORDS.findall(name.casefold())
    return f"{name} epoch" if words and TRAINING_WORDS.issuperset(words) else _counter(name)


@lru_cache(CACHED)
def _setting(gap: str) -> str:
    """``validation`` or ``test`` if a word before a value says that it is one of these."""
    words = _words(gap.casefold())
    if words & TEST_WORDS:
        told = next(said for said in map(_words, reversed(gap.casefold().split())) if said & TEST_WORDS)
        return "validation" if told & VALIDATION_WORDS else "test"  # "Val(Test-Normal)" validates
    return "validation" if words & VALIDATION_WORDS else ""


def _words(text: str) -> set[str]:
    return set(_WORDS.findall(text))


def _value(match: re.Match[str]) -> int | float | str | None:
    if match["absent"] is not None:
        return None
    if match["windows"] is not None:
        return math.nan
    if match["commas"] is not None:
        return str(match["commas"])
    number = match["number"]
    if number is None:
        broken = match["word"] or match["after"] or match["spaced"] or match["between"]
        return float(broken.replace(".", "").rstrip("xX"))
    return _number(number, match["scale"])


def _number(text: str, scale: str | None) -> int | float:
    plain = text if text.isdecimal() else text.translate(_PLAIN)
    if scale is not None and "e" not in plain:
        plain += _SCALES[scale]
    return int(plain) if plain.isdecimal() and len(plain) < 19 else float(plain)
