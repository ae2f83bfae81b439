"""A campaign from its first step to its last result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmetric.training.policies.base import Policy
from rmetric.training.policies.recompute_step import RecomputeStep
from rmetric.training.policies.restore_state import RestoreState
from rmetric.training.processes import in_fresh_processes
from rmetric.training.sdc.campaign import Campaign
from rmetric.training.sdc.plan import Injection, Settings
from rmetric.training.sdc.products import Product, products_of
from rmetric.training.sdc.setup import shared_run
from rmetric.training.sdc.strike import Bench, Struck
from rmetric.training.sdc.twin import NAME, PolicyFactory, Twin, train_twin

TASK = 8
"""Injections that a process does at a time."""
Numbered = tuple[int, Injection]


@dataclass(frozen=True)
class CampaignResult:
    """All that came of a campaign."""

    campaign: Campaign
    twin: Twin
    struck: tuple[Struck, ...]
    """One an injection, in the order of the campaign."""
    policy: tuple[str, ...]
    """Names of the repair policies; empty: none."""
    seconds: float
    out: Path
    """Where the logs are."""


def run_campaign(
    campaign: Campaign,
    out: Path,
    *,
    jobs: int = 1,
    policy: PolicyFactory | None = None,
    on_progress: Callable[[str, int], None] | None = None,
) -> CampaignResult:
    """Train the healthy twin, then strike a fork of it for each injection.

    Parameters
    ----------
    campaign
        What to do.
    out
        Existing folder for the logs: the twin's, and one an injection. Those of an earlier campaign are replaced.
    jobs
        Processes.
    policy
        Makes the repair policy with which every harmful injection is done a second time; the twin has it as well.
    on_progress
        Told of steps of the twin and of finished injections.

    Raises
    ------
    UserError
        For an injection that the model cannot have.
    """
    began = time.perf_counter()
    progress = on_progress or (lambda what, count: None)
    for old in (*out.glob("injection_*.jsonl"), out / NAME):
        old.unlink(missing_ok=True)
    shared_run.cache_clear()
    run = shared_run(campaign.settings)
    products = products_of(run)
    twin = train_twin(campaign, run, out, policy, lambda steps: progress("twin", steps))
    names = tuple(type(part).__name__ for part in _parts(policy))
    done: dict[int, Struck] = {}
    for struck in _all(campaign, twin, products, out, policy, jobs):
        done[struck.number] = struck
        progress("injection", 1)
    ordered = tuple(done[number] for number in range(len(campaign.injections)))
    return CampaignResult(campaign, twin, ordered, names, time.perf_counter() - began, out)


def repair_policy() -> tuple[Policy, ...]:
    """What a campaign repairs with: memory that changed by itself is restored, a suspicious step computed again."""
    return RestoreState(), RecomputeStep(max_retries=2)


def _parts(policy: PolicyFactory | None) -> Sequence[Policy]:
    made = policy() if policy is not None else ()
    return (made,) if isinstance(made, Policy) else made


def _all(
    campaign: Campaign, twin: Twin, products: Sequence[Product], out: Path, policy: PolicyFactory | None, jobs: int
) -> Iterator[Struck]:
    numbered = list(enumerate(campaign.injections))
    if jobs == 1 or len(numbered) <= TASK:
        yield from _struck(Bench.of(campaign.settings, twin, products, out, policy), numbered)
        return
    packed = twin.packed()
    tasks = [
        (campaign.settings, packed, products, out, policy, part)
        for part in (numbered[first : first + TASK] for first in range(0, len(numbered), TASK))
    ]
    for _, results in in_fresh_processes(strike_some, tasks, jobs):
        yield from results


def strike_some(
    settings: Settings,
    packed: bytes,
    products: Sequence[Product],
    out: Path,
    policy: PolicyFactory | None,
    injections: Sequence[Numbered],
) -> list[Struck]:
    """Some injections, in another process."""
    shared_run(settings)
    return list(_struck(Bench.of(settings, Twin.unpacked(packed), products, out, policy), injections))


def _struck(bench: Bench, injections: Sequence[Numbered]) -> Iterator[Struck]:
    for number, injection in injections:
        yield bench.strike(number, injection)
