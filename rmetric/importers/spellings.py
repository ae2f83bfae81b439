"""How programs spell a number, and that there is none: parts of patterns, all without regard to case."""

from __future__ import annotations

NOT_FINITE_ON_WINDOWS = r"[-+]?1\.\#(?-i:[A-Z]+)0*"
"""``-1.#IND``, ``1.#QNAN``, ``1.#INF00``; cut to few digits, ``1.#R`` or ``1.#J``: NaN or infinity."""
OF_TYPE = (
    r"(?i:(?:[a-z_]\w{0,20}\.){0,3}[a-z_]{0,20}"
    r"(?:tensor|array|float|double|int|scalar|variable|value|real|optional)\d{0,3}\()"
)
"""``tensor(``, ``np.float64(``, ``EagerTensor(``: a type before its value."""
NOT_MEASURED, DASHES = r"none|null|n/?a|\*{2,}|∞", r"-{1,3}"
"""What stands where nothing was measured. ``nan`` is not among them: a NaN that was written was measured."""
NO_MORE = r"(?![.,]?\d)"
"""Behind a number: it does not go on."""
WHOLE_GROUPED = r"[1-9]\d{0,2}(?:[,_']\d{3})+"
GROUPED = rf"{WHOLE_GROUPED}(?:\.\d+)?{NO_MORE}"
"""A number with something between its thousands: a whole one, and any."""
NAN = r"[-+]?\.?(?:nan|inf(?:inity)?)x{0,3}"
"""``.nan`` is YAML's; PaddleOCR fills up to six characters with ``x``."""
