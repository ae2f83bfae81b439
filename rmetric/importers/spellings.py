"""How programs spell a number, and that there is none: parts of patterns, all without regard to case."""

from __future__ import annotations

NOT_FINITE_ON_WINDOWS = r"[-+]?1\.\#(?-i:[A-Z]+)0*"
"""``-1.#IND``, ``1.#QNAN``, ``1.#INF00``; cut to few digits, ``1.#R`` or ``1.#J``: NaN or infinity."""
OF_TYPE = (
    r"(?i:(?:[a-z_]\w{0,20}\.){0,3}[a-z_]{0,20}(?:tensor|array|float|double|int|scalar|variable|value|real)\d{0,3}\()"
)
"""``tensor(``, ``np.float64(``, ``EagerTensor(``: a type before its value."""
NOT_MEASURED, DASHES = r"none|null|n/?a|\*{2,}|∞", r"-{1,3}"
"""What stands where nothing was measured. ``nan`` is not among them: a NaN that was written was measured."""
