"""What adapters share: options checked, errors logged and not raised, passes that are not seen."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rmetric.errors import LOGGER, UserError, on_one_line
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.adapters.framework_log import FrameworkLog
from rmetric.monitor.repair.policy import Policy, checked_policies
from rmetric.monitor.sinks import WandbAlerts
from rmetric.registry import Registry

REWARD = "reward"
"""Name under which an agent's training logs its mean reward: TRL's trainers, those since the last log."""
UPDATES = 3
"""Updates without a backward pass before that is told."""


def check_option_names(adapter: Callable[..., Any], options: Iterable[str]) -> None:
    """Raise :class:`UserError` for an option that neither an adapter nor :class:`TrainingMonitor` has."""
    known = Registry[Any](f"option of {adapter.__name__}")
    for taker in (adapter, TrainingMonitor):
        for parameter in inspect.signature(taker).parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                known.add(parameter.name, taker)
    _ = [known[name] for name in options]


def options_of_monitor(given: Mapping[str, Any], reports: FrameworkLog, policies: Sequence[Policy]) -> dict[str, Any]:
    """Options given to an adapter, with its log of the framework, alerts of W&B, and the policies of this fit."""
    sinks = [*given.get("sinks", ()), reports, WandbAlerts()]
    return {**given, "sinks": sinks, "policy": policies or None}


def tell_other_names(adapter: type[Any], others: Sequence[str], key: str) -> None:
    """Say that what may be the validation loss has not the name that an adapter looks for."""
    LOGGER.warning(
        "evaluations have %s and no %s, so that there is no validation loss; choose one of them: %s(validation_key=%r)",
        ", ".join(others), key, adapter.__name__, others[0],
    )  # fmt: skip


class PoliciesOfEachFit:
    """``policy=`` of an adapter, of which a Trainer may make several fits: a policy serves one monitor."""

    def __init__(self, policy: Policy | Iterable[Policy] | None) -> None:
        self._next = checked_policies(policy)
        self._unused = _copied(self._next)

    def take(self) -> tuple[Policy, ...]:
        """Policies for the next monitor: the given ones first, then copies of them as they were given."""
        taken, self._next = self._next, _copied(self._unused)
        return taken


def _copied(policies: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """Copies that call the same functions: of a method, the object that it belongs to is the user's."""
    callbacks = {id(value): value for policy in policies for value in vars(policy).values() if callable(value)}
    return copy.deepcopy(policies, callbacks)


class UnseenPasses:
    """Says, once, that a training makes updates of which its adapter sees no backward pass.

    ``advice`` says which call is missing.
    """

    def __init__(self, advice: str) -> None:
        self._advice, self._updates = advice, 0.0

    def seen(self) -> None:
        """Take in a backward pass: from now on there is nothing to say."""
        self._updates = -math.inf

    def update(self) -> None:
        self._updates += 1
        if self._updates == UPDATES:
            LOGGER.warning(
                "%d updates were made and no backward pass was seen, so that no step is watched; %s",
                UPDATES, self._advice,
            )  # fmt: skip


@contextmanager
def log_errors(doing: str) -> Iterator[None]:
    """Log an error inside the context as a warning, so that training goes on; a :class:`UserError` is raised."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - the training must not end because it is watched
        LOGGER.warning("%s failed, training goes on: %s", doing, on_one_line(error))
