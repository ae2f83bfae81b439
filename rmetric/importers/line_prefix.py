"""Words of data before each report of a log, as in the name of a logger, a path or a host: they tell no data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from itertools import islice

from rmetric.importers.base import FieldMap, plain
from rmetric.importers.names import COUNTER_WORDS, DATA_WORDS, TEST_WORDS, VALIDATION_WORDS, meanings, means_loss
from rmetric.importers.pairs import LEVELS, pairs

MOST_REPORTS = 256
"""Lines with a loss that are looked at."""
_TOKEN = re.compile(r"[^\s\[\](){}|,;:=]+")
_LOGGED = re.compile(rf"\b(?:{'|'.join(LEVELS)})\b(?::[\w.]+:)?")
"""The level of a message, and the name of its logger where that follows: ``INFO:root:``."""
_LOSS = re.compile("loss", re.IGNORECASE)
_HELD_OUT = re.compile(rf"(?<![a-z])(?:{'|'.join(VALIDATION_WORDS | TEST_WORDS)})(?![a-z])", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_NO_DATA = "log"
"""What is read for such a word."""


def tokens_before_reports(texts: Iterable[str], fields: FieldMap) -> Set[str]:
    """Tokens with a word of held-out data that stand in each of the first lines with a loss.

    ``Test: [3/20] loss 2.5`` may be of a log of nothing but evaluations, though. So a word by itself counts only in
    what logging puts before a message, and beside a learning rate, which an evaluation has none of.

    >>> sorted(tokens_before_reports(["12:00 - my_test - INFO - loss: 2.5", "12:01 - my_test - INFO - loss: 2.4"],
    ...                              FieldMap({})))
    ['my_test']
    >>> tokens_before_reports(["Test: [1/20] loss 2.5", "Test: [2/20] loss 2.4"], FieldMap({}))
    set()
    """
    common: set[str] | None = None
    read = ((text, pairs(text)) for text in texts)
    reports = ((text, found, losses) for text, found in read if (losses := _losses(found, fields)))
    for text, found, losses in islice(reports, MOST_REPORTS):
        measured = {part for name, value in found.items() if type(value) is not int for part in name.split()}
        tokens = {*_tokens(text, measured, trains=any(_is_rate(name, fields) for name in found))}
        common = tokens if common is None else common & tokens
        if common and _losses(pairs(without_data(text, common)), fields) < losses:
            common = set()  # it is a part of a name: cv_agg's l2
        if not common:
            break
    return common or set()


def without_data(text: str, tokens: Set[str]) -> str:
    """A line in which the first of each of these tokens says nothing of data.

    >>> without_data("val_net - INFO - Epoch 3: val_net loss 2.5", {"val_net"})
    'log_net - INFO - Epoch 3: val_net loss 2.5'
    """
    parts, end, left = [], 0, {*tokens}
    for match in _TOKEN.finditer(text):
        key = _DIGITS.sub("", match[0])
        if key in left:
            left.remove(key)
            parts += [text[end : match.start()], _HELD_OUT.sub(_NO_DATA, match[0])]
            end = match.end()
    return "".join([*parts, text[end:]])


def _losses(names: Iterable[str], fields: FieldMap) -> int:
    """How many of them may be losses."""
    return sum(means_loss(name, fields) for name in names)


def _is_rate(name: str, fields: FieldMap) -> bool:
    return any(ours == "learning_rate" for ours, _ in meanings(name, fields))


def _tokens(text: str, measured: Set[str], *, trains: bool) -> Iterator[str]:
    """Those of a line, without numbers; none from its first loss on, and none that names what is measured."""
    level = _LOGGED.search(text)
    for match in _TOKEN.finditer(text):
        if _LOSS.search(match[0]):
            return
        is_logged = level is not None and match.start() < level.end()
        is_prefix = is_logged or (match[0] not in measured and (trains or _is_compound(match[0])))
        if is_prefix and _HELD_OUT.search(match[0]):
            yield _DIGITS.sub("", match[0])


def _is_compound(token: str) -> bool:
    words = plain(token).split("_")
    return not all(word in DATA_WORDS | COUNTER_WORDS or word.isdecimal() for word in words)
