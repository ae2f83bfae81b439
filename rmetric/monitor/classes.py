"""How many classes a model chooses from, as the gradients of its outputs say."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

LEAST_LOOKS, LOOKS = 8, 16
"""Looks that must agree before a number is known, and of how many of late the differences are kept."""
TOLERANCE = 0.02
"""Largest median difference between the loss and the cross-entropy of a sample of its targets, over ln(classes)."""


class ClassesSeen:
    """Number of classes of which the loss is the mean cross-entropy, so that a model that knows nothing is at its ln.

    Each look compares the loss with the cross-entropy that the gradient of the logits tells of. A sum, a further term,
    a weight for each example (a policy gradient) or a second head makes another loss of it, which says nothing. From
    the first look on that contradicts those before, in the number or in the median difference, none is known.

    >>> seen = ClassesSeen()
    >>> looks = [seen.update({"classes": 10.0, "cross_entropy": 2.3}, 2.31) for _ in range(LEAST_LOOKS)]
    >>> looks[-2:], seen.known, seen.update({"classes": 12.0, "cross_entropy": 2.3}, 2.31), seen.known
    ([False, True], 10, True, None)
    """

    def __init__(self) -> None:
        self.known: int | None = None
        """``None``: not known (yet)."""
        self._number = math.nan
        self._differences = deque[float](maxlen=LOOKS)

    def update(self, scalars: Mapping[str, float], loss: float) -> bool:
        """Take in the numbers of a step by name, and its loss, nats; whether what is known has changed."""
        number, difference = scalars.get("classes", math.nan), loss - scalars.get("cross_entropy", math.nan)
        if not math.isfinite(number + difference):
            return False
        if not self._differences:
            self._number = number
        self._differences.append(difference)
        judged = len(self._differences) >= LEAST_LOOKS
        if number != self._number or (judged and abs(np.median(self._differences)) > TOLERANCE * math.log(number)):
            self._number = math.nan  # for good
        before, self.known = self.known, int(number) if judged and number == self._number else None
        return self.known != before
