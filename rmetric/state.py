"""State of an object as plain values, so that a checkpoint can hold it and be read without pickle.

Everything that streams in this package (detectors, estimators) keeps its history in numbers, texts, lists, deques,
dictionaries and objects of such; one pair of functions therefore serves them all, those of a user's plug-in included.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Any

import numpy as np

from rmetric.errors import LOGGER

PLAIN = (type(None), bool, int, float, str)


def state_of(value: Any) -> Any:
    """The parts of a value: numbers, texts, lists, tuples and dictionaries with text keys.

    An object becomes a dictionary of its attributes; one that is not written in Python and knows its own state as bytes
    (river's statistics) becomes their hexadecimal text. Raises ``TypeError`` for anything else.

    >>> state_of({"seen": deque([1.5, 2.5], maxlen=4)})
    {'seen': [1.5, 2.5]}
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(state_of(item) for item in value)
    if isinstance(value, list | deque):
        return [state_of(item) for item in value]
    if isinstance(value, dict):
        return {str(key): state_of(item) for key, item in value.items()}
    if hasattr(value, "__dict__"):
        return {name: state_of(item) for name, item in vars(value).items()}
    return _own_state(value).hex()


def restore(value: Any, state: Any) -> Any:
    """The value that ``state`` describes; objects are changed in place, ``value`` says of which kinds they are.

    Raises ``ValueError`` if the state is that of something else.

    >>> restore(deque([9.0], maxlen=4), [1.5, 2.5])
    deque([1.5, 2.5], maxlen=4)
    """
    if isinstance(value, (*PLAIN, np.generic)):
        return state
    if isinstance(value, np.ndarray):
        return np.array(state, dtype=value.dtype)
    if isinstance(value, tuple):
        items = [restore(old, new) for old, new in zip(value, state, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, deque):
        return deque(state, maxlen=value.maxlen)
    if isinstance(value, list):
        if len(value) == len(state):
            return [restore(old, new) for old, new in zip(value, state, strict=True)]
        if any(hasattr(item, "__dict__") for item in value):  # objects, which their states cannot stand in for
            raise _of_another(value)
        return list(state)
    if isinstance(value, dict):
        return {key: restore(value[key], item) if key in value else item for key, item in state.items()}
    if hasattr(value, "__dict__"):
        return _restore_object(value, state)
    value.__setstate__(bytes.fromhex(state))
    return value


def usable(what: str, value: Any, state: Any) -> Any:
    """The state, if ``value`` can go on from it; otherwise that of ``value`` now, with a warning that says ``what``."""
    try:
        restore(deepcopy(value), state)  # a copy: what fails half-way leaves some of both
    except Exception:  # noqa: BLE001 - whatever is wrong with the state of one, the others go on
        LOGGER.warning(
            "%s begins anew: its state in the checkpoint is that of another version or of other settings; it learns "
            "again what is usual, and all else goes on from the checkpoint",
            what,
        )
        return state_of(value)
    return state


def _restore_object(value: Any, state: Any) -> Any:
    if not isinstance(state, dict):
        raise _of_another(value)
    # What has become public is in an older state under its private name.
    state = {name if hasattr(value, name) else name.lstrip("_"): item for name, item in state.items()}
    # An attribute may still stand in the class alone: a dataclass leaves a plain default there.
    if not {*vars(value)} <= {*state} or not all(hasattr(value, name) for name in state):
        raise _of_another(value)
    for name, item in state.items():
        object.__setattr__(value, name, restore(getattr(value, name), item))
    return value


def _of_another(value: Any) -> ValueError:
    told = f"this is not the state of a {type(value).__name__}; resume with the version and settings of the first run"
    return ValueError(told)


def _own_state(value: Any) -> bytes:
    state = value.__getstate__()
    if not isinstance(state, bytes):
        raise TypeError(f"the state of a {type(value).__name__} cannot be written as plain values")
    return state
