"""Words of data before each report of a log, as in the name of a logger, a path or a host: they tell no data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from rmetric.importers.base import FieldMap, words_of
from rmetric.importers.names import (
    COUNTER_WORDS,
    DATA_WORDS,
    TEST_WORDS,
    TRAINING_WORDS,
    VALIDATION_WORDS,
    losses_of_data,
    meanings,
    means_loss,
    names_epoch,
)
from rmetric.importers.pairs import LEVELS, pairs
from rmetric.measurements import LOSSES

MOST_REPORTS = 256
"""Lines with a loss that are looked at."""
SEVERAL = 3
"""Losses of the training, and of the validation, at least, that tell a training; an evaluation may end with a mean."""
_TOKEN = re.compile(r"[^\s\[\](){}|,;:=]+")
_LOGGED = re.compile(rf"\b(?:{'|'.join(LEVELS)})\b(?::[\w.]+:)?")
"""The level of a message, and the name of its logger where that follows: ``INFO:root:``."""
_LOSS = re.compile("loss", re.IGNORECASE)
_HELD_OUT, _TRAINING = (
    re.compile(rf"(?<![a-z])(?:{'|'.join(words)})(?![a-z])", re.IGNORECASE)
    for words in (VALIDATION_WORDS | TEST_WORDS, TRAINING_WORDS)
)
_OF_WHICH = re.compile(r"^(?:validation|test) ")
"""What a name begins with that a word of data somewhere before it was given to."""
_PARTS_OF_A_PATH = re.compile(r"[./:]")
_OF_SETS = frozenset(("set", "data", "dataset", "loader", "split", "subset", "clean", "other"))
_DIGITS = re.compile(r"\d+")
_NO_DATA = "log"
"""What is read for such a word."""


def tokens_before_reports(texts: Iterable[str], fields: FieldMap) -> Set[str]:
    """Tokens with a word of held-out data that stand in each of the first lines with a loss.

    ``Test: [3/20] loss 2.5`` or ``eval.py:9 - batch 3 loss 2.5`` may be of a log of nothing but evaluations, though. So
    tokens count only where something tells a training: a learning rate; losses of which some are, without these tokens,
    the validation's and some are not; or, for the compound name of a logger before the level of a message, epochs.

    >>> sorted(tokens_before_reports(["- my_test - INFO - epoch 1 loss: 2.5", "- my_test - INFO - epoch 2 loss: 2.4"],
    ...                              FieldMap({})))
    ['my_test']
    >>> tokens_before_reports(["Test: [1/20] loss 2.5", "Test: [2/20] loss 2.4"], FieldMap({}))
    frozenset()
    """
    common: Set[tuple[str, bool]] | None = None
    reports: list[tuple[str, Mapping[str, Any]]] = []
    read = ((text, pairs(text)) for text in texts)
    for text, found in islice((report for report in read if _is_report(report[1], fields)), MOST_REPORTS):
        measured = {part for name, value in found.items() if type(value) is not int for part in name.split()}
        tokens = {*_tokens(text, measured)}
        common = tokens if common is None else common & tokens
        if not common:
            return frozenset()
        reports.append((text, found))
    return _tokens_of_a_training(common or set(), reports, fields)


def _tokens_of_a_training(
    common: Set[tuple[str, bool]], reports: Sequence[tuple[str, Mapping[str, Any]]], fields: FieldMap
) -> Set[str]:
    """Those of the common tokens that tell no data; none if one is a part of the name of a loss, as cv_agg's l2."""
    tokens = {token for token, _ in common}
    told: Counter[str] = Counter()
    for text, found in reports:
        losses, bare = _losses(found, fields), _losses(pairs(without_data(text, tokens)), fields)
        tells_both = len({*losses.values()}) > 1 or _goes_on_with_training(text)
        if bare != losses and (tells_both or {*map(_without_data, bare)} != {*map(_without_data, losses)}):
            return frozenset()
        told.update({*bare.values()})
    if min(told[ours] for ours in LOSSES) >= SEVERAL or any(_has_rate(found, fields) for _, found in reports):
        return tokens
    are_epochs = all(any(map(names_epoch, found)) for _, found in reports)
    return {token for token, is_of_logger in common if is_of_logger and are_epochs}


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


def _goes_on_with_training(text: str) -> bool:
    """Whether a word of training stands behind the first loss: ``{'val': {'loss': 2.5}, 'train': {'loss': 2.4}}``."""
    loss = _LOSS.search(text)
    return loss is not None and _TRAINING.search(text, loss.end()) is not None


def _losses(names: Iterable[str], fields: FieldMap) -> dict[str, str]:
    """Names that may be losses → ours."""
    return {name: ours for name in names for ours, _ in meanings(name, fields) if ours in LOSSES}


def _without_data(name: str) -> str:
    return _OF_WHICH.sub("", name)


def _is_report(names: Collection[str], fields: FieldMap) -> bool:
    return any(means_loss(name, fields) for name in names) or bool(losses_of_data(names, fields))


def _has_rate(names: Iterable[str], fields: FieldMap) -> bool:
    return any(ours == "learning_rate" for name in names for ours, _ in meanings(name, fields))


def _tokens(text: str, measured: Set[str]) -> Iterator[tuple[str, bool]]:
    """Those of a line, without numbers, each with whether it is the compound name of a logger.

    None from the first loss of the line on, none that names what is measured, and behind the level of a message none
    that may be the name of data.
    """
    level = _LOGGED.search(text)
    for match in _TOKEN.finditer(text):
        if _LOSS.search(match[0]):
            return
        is_logged = level is not None and match.start() < level.end()
        is_compound = _is_compound(match[0])
        is_prefix = is_logged or (match[0] not in measured and is_compound)
        if is_prefix and _HELD_OUT.search(match[0]):
            yield _DIGITS.sub("", match[0]), is_logged and is_compound


def _is_compound(token: str) -> bool:
    """Whether a word of held-out data stands beside one of something else: ``my_test``, but not ``test_set``."""
    held_out = (part for part in _PARTS_OF_A_PATH.split(token) if _HELD_OUT.search(part))
    return any(not all(map(_may_be_of_data, words_of(part))) for part in held_out)


def _may_be_of_data(word: str) -> bool:
    return word in DATA_WORDS | COUNTER_WORDS | _OF_SETS or not word.isalpha()
