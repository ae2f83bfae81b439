"""Faults as they are written on a command line: ``NAME[@severity][:key=value,key=value]``, combined with ``+``."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rmetric.errors import UserError
from rmetric.faults.base import FAULTS, Fault, combined, make_fault
from rmetric.registry import Registry

_PLUS = re.compile(r"(?<![0-9.][eE])\+")
"""A plus that joins faults; that of ``1e+3`` does not."""
_NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text", NoneType: "none"}
_BOOLEANS = {"true": True, "false": False}


def parse_fault(text: str, severity: str = "medium") -> Fault:
    """A fault, or a combination, from its spelling.

    Parameters
    ----------
    text
        For example ``LR_SPIKE``, ``LR_SPIKE@high``, ``LR_SPIKE@high:duration_steps=5+DATA_CORRUPTION:what=labels``.
    severity
        Of the parts that name none.

    Returns
    -------
    Fault
        A :class:`~rmetric.faults.base.CombinedFault` for more than one.

    Raises
    ------
    UserError
        For an unknown name, severity or parameter, and for a value that is not of the parameter's type.

    Examples
    --------
    >>> parse_fault("LR_SPIKE@high:duration_steps=5")
    LrSpike(duration_steps=5, factor=25.0)
    """
    return combined(*(_parse_part(part.strip(), severity) for part in _PLUS.split(text)))


def severities_of(text: str) -> str:
    """Severities of a fault in such a spelling, one a part.

    >>> severities_of("LR_SPIKE+DATA_CORRUPTION@high:what=labels")
    'medium+high'
    """
    heads = [part.strip().partition(":")[0] for part in _PLUS.split(text)]
    return "+".join(head.partition("@")[2] or "medium" for head in heads)


def _parse_part(text: str, severity: str) -> Fault:
    head, colon, rest = text.partition(":")
    name, at, own_severity = head.partition("@")
    if not name or (colon and not rest) or (at and not own_severity):
        raise UserError(
            f"fault {text!r} cannot be read; write NAME, NAME@severity or NAME@severity:key=value,key=value"
        )
    parameters = _parameters(FAULTS[name], rest) if rest else {}
    return make_fault(name, own_severity or severity, **parameters)


def _parameters(fault: type[Fault], text: str) -> dict[str, Any]:
    hints = get_type_hints(fault)
    known = Registry[Any](f"parameter of {fault.name}")
    for item in fields(fault):
        known.add(item.name, hints[item.name])
    found: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        kind = known[key]
        if not equals:
            raise UserError(f"{fault.name}:{key} has no value; write {key}={_described(kind)}")
        if key in found:
            raise UserError(f"{fault.name} gets {key} twice; give it once")
        try:
            found[key] = _typed(value, kind)
        except ValueError:
            raise UserError(f"{fault.name}:{key}={value} cannot be read; give {_described(kind)}") from None
    return found


def _typed(text: str, kind: Any) -> Any:
    """A text as a value of a field's type; raises ``ValueError`` where it is none."""
    if kind is str:
        return text
    if kind is int:
        return int(text)
    if kind is float and math.isfinite(number := float(text)):
        return number
    if kind is bool and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if kind is NoneType and text.lower() == "none":
        return None
    if get_origin(kind) is Literal:
        choices = {str(choice): choice for choice in get_args(kind)}
        if text in choices:
            return choices[text]
    if get_origin(kind) in (Union, UnionType):
        return _typed_as_one_of(text, get_args(kind))
    raise ValueError(text)


def _typed_as_one_of(text: str, kinds: tuple[Any, ...]) -> Any:
    for kind in sorted(kinds, key=lambda kind: (kind is not NoneType, kind is str)):  # "none" is also a text
        try:
            return _typed(text, kind)
        except ValueError:
            continue
    raise ValueError(text)


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_described, get_args(kind)))
    return _NAMES.get(kind, "it in Python: it has no spelling on the command line")
