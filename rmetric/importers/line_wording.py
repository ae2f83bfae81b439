"""A line of a log in other words: each name before its value, so that pairs can be read from left to right."""

from __future__ import annotations

import re
from collections.abc import Callable

from rmetric.importers.languages import with_english_parts
from rmetric.importers.names import measures_loss
from rmetric.importers.spellings import GROUPED, NAN

MAX_LINE = 20_000
"""Characters of a line that are looked at."""
MAX_NAME = 60
"""Characters of a name."""
VERTICALS = "|¦│┃║┆┇┊┋╎╏｜"
BARS = re.compile(f"[{VERTICALS}]")
"""What stands between the cells of a table."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|(?:\^\[)?\[\d{1,3}(?:;\d{1,3})*m")
"""What sets colours; the escape itself is lost where a terminal was copied."""
_PADDED = re.compile(rf"\s{{2,}}(?={NAN}\b)", re.IGNORECASE)
_CELL_OF_VALUE = re.compile(rf"[-+]?\.?\d\S*|(?i:{NAN})")
_ONE = rf"(?i:[-+]?\.?\d[\d.]*(?:e[-+]?\d+)?|{NAN})"
_COMMA = re.compile(r",(?!\d{3}(?!\d))")
"""One that parts no thousands."""
_VALUE_LAST = re.compile(rf"\s*([-+]?{GROUPED}|{_ONE})\s+([A-Za-z][\w /]*)")
"""``1.234 avg loss`` between commas."""
_MORE = rf"(?:\s*,\s*{_ONE}|\s*/\s*{_ONE})"
_VALUES_BEHIND = re.compile(
    rf"(?:[=-]>\s*(?={_ONE}{_MORE})|[:=]\s*(?={_ONE}{_MORE}{{2}}))(?P<values>{_ONE}{_MORE}+)", re.IGNORECASE
)
"""Two values or more behind an arrow, three behind a colon."""
_TERSE = re.compile(rf"(?:s:)?(\d+) (train|val|trl|tel)[ :](\d+\.\d+|(?i:{NAN}))(?=\s|$)")
_TERSE_NAMES = {"train": "train loss", "trl": "train loss", "val": "val loss", "tel": "val loss"}
"""``250 train 6.123456`` of build-nanogpt, ``s:250 tel:6.1234`` of llm.c."""
_BATCH_RANGE = re.compile(r"([Bb]atch(?:es)?\b\W{1,6})\d+\s*-\s*(?=\d)")
_GLUED_RANGE = re.compile(r"()\d+-(?=\d+batch)")
"""The begin of ``Batch [20-40]`` or ``21-40batch``, of which the end counts."""
_GLUED = re.compile(r"\dbatch")
_QUOTED = re.compile(r"(?<=\w)(?=['\"]\s*:)")
_LOGGABLE = r"\bProgress on:(\S*) ([\d.]+?)(?:\.0+)?([kM]?)it/([\d.]+?)(?:\.0+)?([kM]?)it (.*) postfix:"
_COUNTED = r"(?:epochs?|iterations?|steps?|(?:mini)?batch(?:es)?)"
_LOSS_AFTER = re.compile(
    rf"\b(loss|score) (?:at|after|of|for|in) (?:({_COUNTED}) )?(?:\d+\s?-\s?)?(\d+)(?: of \d+)?(?: ({_COUNTED}))?"
    r" (?:is|was)(?=:?\s+[-+.\d]|:?\s+nan|:?\s+inf)",
    re.IGNORECASE,
)


def _loss_last(found: re.Match[str]) -> str:
    """``loss after 3 iterations is 9.05`` or ``Score at iteration 3 is 9.05`` with its counter first."""
    name, before, count, behind = found.groups()
    return f", {before or behind or 'step'} {count}, {name.lower()}:"


_HELD_OUT = r"(val\w*|dev|eval\w*|test\w*)"
_TWO_LOSSES = rf"\s?[:=]?\s?({_ONE})\s?[/,]\s?({_ONE})"


def _of_both(found: re.Match[str]) -> str:
    """``train/val loss: 2.5 / 2.6`` as two losses, each after its name."""
    training, held_out, first, second = found.groups()
    return f"{training} loss: {first}, {held_out} loss: {second}"


_FOLD = r"fold \d+(?:\s?/\s?\d+)?\s*(?:[\],;|]|-\s)"
"""One that is set apart from what the line says of it."""
_REWORDED: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # ``Losses {'ner': 31.4}`` of spaCy
    ("osses", re.compile(r"(?i)\blosses\s*[:=]?\s*\{([^{}]*)\}"), lambda found: _QUOTED.sub(" loss", found[1])),
    ("Saving dict", re.compile("Saving dict for global step"), "evaluation at step"),  # estimators of TensorFlow
    ("metric '", re.compile("Evaluation metric '"), "'"),  # any loss, of GluonTS
    ("postfix:", re.compile(_LOGGABLE), r"\1: \2\3/\4\5 \6, "),  # a bar of tqdm-loggable, as Levanter shows it
    ("NNZs", re.compile(r"\bNorm(?=: [\d.]+, NNZs:)"), "weight norm"),  # linear models of scikit-learn
    ("oss (", re.compile(r"(?i)(\bloss)\s\([^()\d]*\)(?=\s(?:at|after|of|for)\s)"), r"\1"),  # (for one batch)
    # means over the folds of LightGBM's cross-validation, of the held-out data unless they say otherwise
    ("cv_agg's ", re.compile(r"\bcv_agg's (?:(train|valid) )?"), lambda found: f"{found[1] or 'valid'}'s "),
    # ``train/val loss: 2.5 / 2.6`` or ``training loss, validation loss: 2.5, 2.6``; letters of one case are found fast
    ("rain", re.compile(rf"(rain\w*)(?i:(?: loss)?\s?(?:[/,&]|and)\s?{_HELD_OUT} loss{_TWO_LOSSES})"), _of_both),
    # ``Loss (train/val) = 2.5/2.6``
    ("oss (", re.compile(rf"(?i)\bloss \((train\w*)\s?/\s?{_HELD_OUT}\){_TWO_LOSSES}"), _of_both),
    # ``cv fold 0 | epoch 3 | loss 2.5``: of a fold that is numbered by itself both losses may be told
    ("old ", re.compile(rf"(?i)\b(?:cv|(?:cross[- ])?validation|val) (?={_FOLD}(?!\s*\w*loss))"), ""),
    ("ScoreIterationL", re.compile(r"(?<=ScoreIterationListener - )Score"), "Loss"),  # DL4J's: lower is better
    ("-ELBO", re.compile(r"(?<!\S)-ELBO\b"), "negative ELBO"),
    ("oss ", _LOSS_AFTER, _loss_last),
    ("oss after ", re.compile(rf"(?i)\b(loss) after (\d+) ({_COUNTED})\s?[:=](?=\s*{_ONE})"), r", \3 \2, \1:"),
    ("core ", _LOSS_AFTER, _loss_last),
    ("10^", re.compile(r"(?<=\d)\s?[×x*·]\s?10\^([-+]?\d+)"), r"e\1"),
)
"""What a line must hold to be looked through, what is looked for, and words or a number in its place that tell more."""


def with_names_first(line: str) -> str:
    """A line without escapes, values after their names, and of a range of batches its end."""
    text = _name_first(value_last(two_cells(with_english_parts(_PADDED.sub(" ", without_escapes(line))))))
    if terse := _TERSE.match(text):
        text = f"step: {terse[1]} {_TERSE_NAMES[terse[2]]}: {terse[3]}{text[terse.end() :]}"
    for mark, pattern, telling in _REWORDED:
        if mark in text:
            text = pattern.sub(telling, text)
    if "-" in text and "atch" in text:
        return (_GLUED_RANGE if _GLUED.search(text) else _BATCH_RANGE).sub(r"\1", text)
    return text


def without_escapes(line: str) -> str:
    """The begin of a line, without what sets its colours."""
    return _ESCAPES.sub("", line[:MAX_LINE]) if "\x1b" in line or "[0m" in line else line[:MAX_LINE]


def two_cells(line: str) -> str:
    """A line; a row of a name and a value in cells of their own as a pair."""
    if not line.lstrip().startswith(tuple(VERTICALS)):
        return line
    before, *cells, after = map(str.strip, BARS.split(line.strip()))
    if before or after or len(cells) != 2 or len(cells[0]) > MAX_NAME or not any(map(str.isalpha, cells[0])):
        return line
    return ": ".join(cells) if _CELL_OF_VALUE.fullmatch(cells[1]) else line


def value_last(line: str) -> str:
    """A line; of one in which values stand before their names (``7 9.1 ms run, 1.2 loss, 0.1 lr``) as usual."""
    first, *cells = _COMMA.split(line) if line.count(",") > 1 else (line,)
    found = [_VALUE_LAST.fullmatch(cell) for cell in cells]
    if not cells or not all(found):
        return line
    named = (f"{'learning rate' if cell[2] == 'rate' else cell[2]}: {cell[1]}" for cell in found if cell)
    return ", ".join((first, *named))


def _name_first(line: str) -> str:
    """A line; of one in which all names stand before all values as usual.

    >>> _name_first("val, round, loss, acc ===> 001, 2.5, 0.5,"), _name_first("epoch/loss/acc: 1/2.5/0.5")
    ('val, round: 001, loss: 2.5, acc: 0.5,', 'epoch: 1, loss: 2.5, acc: 0.5')
    """
    most = max(line.count(","), line.count("/"))
    found = _VALUES_BEHIND.search(line) if most > 3 or (most > 1 and ">" in line) else None
    if found is None:
        return line
    between = "," if "," in found["values"] else "/"
    values, heads = found["values"].split(between), line[: found.start()].rstrip(" =-").split(between)
    before, _, first = between.join(heads[: 1 - len(values)]).rpartition(" ")
    names = [first, *map(str.strip, heads[1 - len(values) :])]
    if len(names) != len(values) or not all(map(str.isidentifier, names)) or not any(map(measures_loss, names)):
        return line
    named = ", ".join(f"{name}: {value.strip()}" for name, value in zip(names, values, strict=True))
    return f"{before} {named}{line[found.end() :]}".lstrip()
