"""Captions of several studies as one: sentences that all share stand once, the others name their study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from studies.captions import heading

_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z0-9(λσΔ])")


def woven(texts: Mapping[str, str]) -> str:
    """Texts of several studies as one: the sentences that all share once, the others with their study's name.

    >>> woven({"simulated": "Both. 12 runs. End.", "real": "Both. 16 runs. End."})
    'Both. Simulated: 12 runs. Real: 16 runs. End.'
    """
    sentences = {study: _SENTENCES.split(text) for study, text in texts.items()}
    first = next(iter(sentences.values()))
    common = [sentence for sentence in first if all(sentence in each for each in sentences.values())]
    rests = {study: _between(each, common) for study, each in sentences.items()}
    parts: list[str] = []
    for place in range(len(common) + 1):
        parts += [f"{heading(study)}: {' '.join(rest[place])}" for study, rest in rests.items() if rest[place]]
        parts += common[place : place + 1]
    return " ".join(parts)


def _between(sentences: Sequence[str], common: Sequence[str]) -> list[list[str]]:
    """The sentences before the first common one, between each two, and after the last."""
    rests: list[list[str]] = [[]]
    for sentence in sentences:
        if len(rests) <= len(common) and sentence == common[len(rests) - 1]:
            rests.append([])
        else:
            rests[-1].append(sentence)
    return rests + [[] for _ in range(len(common) + 1 - len(rests))]
