"""Write a log: numbers with 7 significant digits, one line of strict JSON an event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, pairwise
from types import NoneType
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from rmetric.records import FAILURE, SUCCESS, Event

SCHEMA_VERSION = 4
SIGNIFICANT_DIGITS = 7
_DECIMAL = f"%.{SIGNIFICANT_DIGITS}g"
_FLOATS, _PLAIN = (float, np.floating), (str, int, NoneType)
_LEAST_DECIMALS = SIGNIFICANT_DIGITS - 15
"""Digits after the point, for numbers just below 10^15; for those from 10^-15 there are 21."""
_UP, _DOWN = (
    np.array([float(f"1e{max(sign * decimals, 0)}") for decimals in range(_LEAST_DECIMALS, 22)]) for sign in (1, -1)
)


def to_log_precision(values: ArrayLike) -> NDArray[np.float64]:
    """Round to the 7 significant digits of the log: the double nearest to that decimal, so that it prints short.

    Non-finite values pass through. Rounding twice is rounding once.

    >>> to_log_precision([3.14159265358979, 0.0001234567891, 123456789.0]).tolist()
    [3.141593, 0.0001234568, 123456800.0]
    """
    x = np.asarray(values, dtype=np.float64)
    magnitude, rounded = np.abs(x, out=np.empty_like(x)), x.copy()
    odd = ~((magnitude >= 1e-15) & (magnitude < 1e15))
    some_odd = bool(odd.any())
    if some_odd:
        rounded[odd] = magnitude[odd] = 1.0
    # A mantissa below 10^7 and a power of ten up to 10^22 are exact, so that one division is correctly rounded.
    power = SIGNIFICANT_DIGITS - 1 - _LEAST_DECIMALS - np.floor(np.log10(magnitude)).astype(int)
    up, down = _UP.take(power), _DOWN.take(power)
    rounded /= down
    rounded *= up
    np.rint(rounded, out=rounded)
    rounded *= down
    rounded /= up
    if not some_odd:
        return rounded
    with np.errstate(invalid="ignore"):  # of a signalling NaN, as a flipped bit may leave it
        rounded[odd] = x[odd] + 0.0  # also turns -0.0 into 0.0
    extreme = odd & np.isfinite(x) & (x != 0.0)
    if extreme.any():
        rounded[extreme] = [at_log_precision(value) for value in x[extreme].tolist()]
    return rounded


def terminal_event(kind: str, failure_step: int | None, reason: str | None, horizon: int) -> Event:
    """The last line of a run that was judged: ``kind`` is ``failed`` or the outcome of a success."""
    if kind == "failed":
        return {"event": FAILURE, "step": failure_step, "reason": reason}
    return {"event": SUCCESS, "step": horizon, "outcome": kind}


def injection_entry(
    kind: str | None, severity: str | None, step: int | None, params: Mapping[str, Any]
) -> dict[str, Any]:
    """``fault_injection`` of EXPERIMENT_START's ``config``.

    ``kind`` is the name of the fault, ``NO_FAULT`` in a healthy run of a study, ``None`` in no experiment; ``step`` the
    first step with the fault.
    """
    return {"type": kind, "severity": severity, "trigger_step": step, "params": params}


def weights_entry(weights: Sequence[float]) -> dict[str, float]:
    """``r_metric_weights`` of EXPERIMENT_START's ``config``: those of λ, σ² and ΔL."""
    return dict(zip(("w1_lambda", "w2_sigma_sq", "w3_delta_l"), weights, strict=True))


def encode_event(event: Mapping[str, Any]) -> bytes:
    """One line of strict JSON, of the event :func:`as_logged`."""
    return orjson.dumps(as_logged(event)) + b"\n"


def as_logged(event: Mapping[str, Any]) -> Event:
    """An event as a reader has it. Floats get 7 significant digits; a non-finite one is left out and named."""
    return {key: strict_json(value) for key, value in with_non_finite_named(event).items()}


def with_non_finite_named(values: Mapping[str, Any]) -> Event:
    """The values; in place of those that are not finite their names, under ``non_finite``.

    >>> with_non_finite_named({"loss": math.inf, "norm": 1.5})
    {'norm': 1.5, 'non_finite': ['loss']}
    """
    named = [name for name, value in values.items() if isinstance(value, _FLOATS) and not math.isfinite(value)]
    return {name: values[name] for name in values if name not in named} | ({"non_finite": named} if named else {})


def at_log_precision(value: float | np.floating[Any]) -> float:
    """One finite number at log precision; :func:`to_log_precision` serves arrays.

    >>> at_log_precision(3.14159265358979)
    3.141593
    """
    return float(_DECIMAL % value)


def strict_json(value: Any) -> Any:
    """A value as strict JSON holds it: floats with 7 significant digits, as text where they are not finite.

    Raises ``TypeError`` for what is no JSON.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _FLOATS):
        return at_log_precision(value) if math.isfinite(value) else str(value)
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray):
        return [strict_json(item) for item in value]
    raise TypeError(f"a log cannot hold a {type(value).__name__}: {value!r}")


def encode_metrics(
    step: NDArray[np.int64],
    floats: Mapping[str, NDArray[np.float64]],
    states: Mapping[str, Sequence[Any] | NDArray[Any]],
    events: Iterable[tuple[int, Mapping[str, Any]]] = (),
) -> bytes:
    """METRICS lines, one a record, and lines of events between them.

    Parameters
    ----------
    step
        Shape (n,).
    floats
        Log name → values of shape (n,), already at log precision; NaN (not measured) is left out, an infinity is left
        out and named in ``non_finite``.
    states
        Log name → n JSON values, or an array of n: the fault-state fields and ``alerts``. Fast where it is the same
        object in many consecutive records.
    events
        Other events in their order, each with the index (0 to n) of the record that it precedes.

    Returns
    -------
    bytes
        Lines of records such as (here wrapped)::

            {"event":"METRICS","step":2510,"training_loss":3.412345,"validation_loss":3.401234,
             "learning_rate":0.0001812345,"grad_norm":1.312345,"update_rms":3.912345e-05,"step_time_s":5.012345,
             "step_time_max_s":5.112345,"lambda":0.8123456,"sigma_sq":0.03412345,"delta_l":-0.1123456,
             "lambda_norm":0.7,"sigma_sq_norm":0.01212345,"delta_l_norm":0.3123456,"r_metric":0.2945678,
             "alerts":{"loss_spike":310},"active_workers":[0,1,2,3,4,5,6,7],"router_imbalance_factor":0.0,
             "failed_experts":[],"force_gqa_mismatch":false,"force_rms_norm_error":false,"is_nan":false,
             "is_crashed":false}
    """
    told: dict[int, bytes] = defaultdict(bytes)
    for index, event in events:
        told[index] += encode_event(event)
    values_KN = np.array([*floats.values()]).reshape(len(floats), len(step))
    finite_KN, infinite_KN = np.isfinite(values_KN), np.isinf(values_KN)
    steps, numbers, taken = _numbers(step), _numbers(values_KN.T[finite_KN.T]), 0
    changes = np.logical_or.reduce([*map(_changes, (finite_KN, infinite_KN, *states.values()))])
    fields = [b',"%b":%%b' % name.encode() for name in floats]
    content = []
    # Records that are alike but for their numbers are written by one template.
    for start, end in pairwise(sorted({0, len(step), *(np.flatnonzero(changes) + 1).tolist(), *told})):
        known = [*compress(fields, finite_KN[:, start].tolist())]
        infinite = [*compress(floats, infinite_KN[:, start].tolist())]
        line_end = b"".join(known) + _line_end(states, start, infinite)
        template = _LINE_BEGIN + (line_end + _LINE_BEGIN).join(steps[start:end]) + line_end
        needed = len(known) * (end - start)
        content += [told[start], template % tuple(numbers[taken : taken + needed])]
        taken += needed
    return b"".join([*content, told[len(step)]])


_LINE_BEGIN = b'{"event":"METRICS","step":'


def _changes(values: NDArray[Any] | Sequence[Any]) -> NDArray[np.bool_]:
    """Whether a record has other values, or another object, than the one before it, shape (n - 1,).

    The values have shape (n,), or (K, n).
    """
    told = values if isinstance(values, np.ndarray) else np.fromiter(map(id, values), np.int64, len(values))
    changed = told[..., 1:] != told[..., :-1]
    return np.asarray(changed if changed.ndim == 1 else changed.any(axis=0))


def _line_end(states: Mapping[str, Sequence[Any] | NDArray[Any]], record: int, infinite: Sequence[str]) -> bytes:
    """What stands in a record's line after its numbers, as part of a template."""
    rest = {name: values[record] for name, values in states.items()} | ({"non_finite": infinite} if infinite else {})
    text = orjson.dumps(rest, option=orjson.OPT_SERIALIZE_NUMPY).replace(b"%", b"%%")
    return (b"," + text[1:] if rest else b"}") + b"\n"


def _numbers(values: NDArray[Any]) -> list[bytes]:
    """JSON of each finite number."""
    written = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)
    return written[1:-1].split(b",") if len(values) else []


def alerts_so_far(step: NDArray[np.int64], alerts: Mapping[str, int]) -> list[dict[str, int]]:
    """``alerts`` of each record: the detectors that have raised one by then, with its step, the earliest first."""
    ordered = sorted(alerts.items(), key=lambda item: item[1])
    states = [dict(ordered[:count]) for count in range(len(ordered) + 1)]
    begins = np.searchsorted(step, [at for _, at in ordered]).tolist()
    spans = pairwise([0, *begins, len(step)])
    return [state for state, (begin, end) in zip(states, spans, strict=True) for _ in range(begin, end)]
