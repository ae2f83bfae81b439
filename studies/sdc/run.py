"""Run a campaign: each injection goes into a fork of the healthy twin, which is watched, judged and repaired."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path

import torch

from rmetric.errors import UserError
from rmetric.live.run import LanguageModelRun
from rmetric.log_reader import read_log
from rmetric.log_writer import terminal_event
from rmetric.monitor.repair.policy import Policy
from rmetric.monitor.repair.recompute_step import RecomputeStep
from rmetric.monitor.repair.record import RepairRecord
from rmetric.monitor.repair.restore_state import RestoreState
from rmetric.records import NAN_LOSS, Event, Observations, Run
from rmetric.twins.recording import append_events, resumed
from rmetric.twins.snapshots import TruthRecord, train_to_end
from studies.processes import in_fresh_processes
from studies.sdc.campaign import Campaign, shared_run
from studies.sdc.detection import Alarms, alarms_of, first_seen
from studies.sdc.inject import injecting
from studies.sdc.localise import (
    Diagnosis,
    DiagnosisScore,
    StepEvidence,
    digest,
    gather_evidence,
    localise,
    score_diagnosis,
)
from studies.sdc.outcome import FlipEffect, flip_effect
from studies.sdc.plan import Injection, Settings
from studies.sdc.products import Product, products_of
from studies.sdc.twin import (
    TWIN_LOG,
    PolicyFactory,
    Twin,
    WindowSchedule,
    campaign_monitor,
    config_of,
    train_twin,
    weights_of,
)


@dataclass(frozen=True)
class RepairedRun:
    """The same injection once more, with a policy."""

    identical: bool
    """True if parameters and optimizer state at the end of the window are those of the twin, bit for bit."""
    verdicts: tuple[str, ...]
    """Verdicts of the policy's interventions, in their order: ``RecomputeStep: transient``."""
    steps: tuple[int, ...]
    """Their steps."""
    outcome: str
    """Judged as the run without a policy was."""


@dataclass(frozen=True)
class InjectionResult:
    number: int
    """Position in the campaign."""
    injection: Injection
    before: float
    """The number that is hit."""
    after: float
    dtype: str
    """Type of that number."""
    bit_part: str
    """Part of the number that the bit belongs to: ``mantissa``, ``exponent`` or ``sign``."""
    effect: FlipEffect
    delays: Mapping[str, int | None]
    """Detector → steps until it saw the flip; None: not within 10 steps."""
    disagreement: float
    """Score of the workers' disagreement in the faulty step."""
    disagreement_alarm: bool
    suspect: int | None
    """The worker that stands out most in it."""
    diagnosis: Diagnosis
    diagnosis_score: DiagnosisScore
    repaired: RepairedRun | None
    """None: not tried (nothing to repair, or no policy)."""


@dataclass(frozen=True)
class CampaignWorker:
    """Does injections of a campaign; one a process."""

    settings: Settings
    run: LanguageModelRun
    twin: Twin
    records: Observations
    """Records of the twin."""
    alarms: Alarms
    """Alarms of the twin."""
    products: Sequence[Product]
    out: Path
    policy: PolicyFactory | None

    @classmethod
    def with_log(
        cls, settings: Settings, twin: Twin, products: Sequence[Product], out: Path, policy: PolicyFactory | None
    ) -> CampaignWorker:
        """Reads the twin's log, which must be in ``out``."""
        records = read_log(out / TWIN_LOG).observations
        return cls(settings, shared_run(settings), twin, records, alarms_of(records), products, out, policy)

    def inject(self, number: int, injection: Injection) -> InjectionResult:
        """Inject once, watch, judge, look for the place; with a policy, and if there is harm, once more with it."""
        self.run.load_state_dict(self.twin.snapshots[injection.step].run)
        evidence = gather_evidence(self.run, injection)
        log, truth, _ = self._train(number, injection, f"injection_{number:04}", None)
        flip = log.first("CORRUPTION")
        if flip is None:
            raise UserError(f"injection {number} of the campaign hit nothing: {injection.tensor} was not computed")
        healthy = max(evidence.recomputed.largest_logit, torch.finfo(torch.float32).tiny)
        logit_factor = evidence.injected.largest_logit / healthy
        judged = self._judge(injection, log, truth, logit_factor)
        diagnosis = localise(evidence, self.products)
        return InjectionResult(
            number=number,
            injection=injection,
            before=_number(flip, "before"),
            after=_number(flip, "after"),
            dtype=flip["dtype"],
            bit_part=flip["bit_part"],
            effect=judged,
            delays=first_seen(alarms_of(log.observations), self.alarms, injection.step),
            disagreement=evidence.disagreement.score,
            disagreement_alarm=evidence.disagreement.alarm,
            suspect=_worker(evidence),
            diagnosis=diagnosis,
            diagnosis_score=score_diagnosis(diagnosis, injection),
            repaired=self._repair(number, injection, logit_factor) if self.policy and judged.harmful else None,
        )

    def _train(
        self, number: int, injection: Injection, name: str, policy: PolicyFactory | None
    ) -> tuple[Run, TruthRecord, Sequence[RepairRecord]]:
        """Train to the end of the window and leave the run there; returns log, truth and interventions."""
        snapshot, log = self.twin.snapshots[injection.step], self.out / f"{name}.jsonl"
        run, truth, end = self.run.load_state_dict(snapshot.run), snapshot.truth.copy(), self._end(injection)
        config = config_of(run, self.settings, name, injection.fields())
        make_monitor = partial(campaign_monitor, policy=policy)
        # The injection before the monitor, whose hooks are to see a changed payload.
        with injecting(run, injection), resumed(run, snapshot, log, config, make_monitor) as monitor:
            monitor.note("FAULT_INJECTED", step=injection.step, fault="SILENT_DATA_CORRUPTION", number=number)
            train_to_end(WindowSchedule.until(self.settings, end), run, monitor, truth)
            repairs = monitor.repairs
        kind = "failed" if truth.non_finite_step else "recovered"
        append_events(log, terminal_event(kind, truth.non_finite_step, NAN_LOSS, end))
        return read_log(log), truth, repairs

    def _end(self, injection: Injection) -> int:
        return injection.step + self.settings.window - 1

    def _judge(self, injection: Injection, log: Run, truth: TruthRecord, logit_factor: float) -> FlipEffect:
        return flip_effect(
            log.observations,
            self.records,
            {step: loss for step, loss in truth.held_out.items() if step >= injection.step},
            self.twin.held_out,
            onset=injection.step,
            end=self._end(injection),
            logit_factor=logit_factor,
            weights_distance=self._distance(injection, truth),
        )

    def _distance(self, injection: Injection, truth: TruthRecord) -> float:
        """Distance of the weights from the twin's, in units of the twin's own way."""
        if truth.last_step < self._end(injection):
            return math.nan
        end = self.twin.ends[injection.step].weights
        model = self.twin.snapshots[injection.step].run["model"]
        begin = torch.cat([model[name].reshape(-1) for name, _ in self.run.model.named_parameters()])
        return float((weights_of(self.run) - end).norm() / (end - begin).norm())

    def _repair(self, number: int, injection: Injection, logit_factor: float) -> RepairedRun:
        log, truth, repairs = self._train(number, injection, f"injection_{number:04}_repaired", self.policy)
        ended = truth.last_step == self._end(injection)
        used = 1.0 if injection.step in {repair.step for repair in repairs} else logit_factor  # of the update's logits
        outcome = self._judge(injection, log, truth, used).outcome
        verdicts = tuple(f"{repair.policy}: {repair.verdict}" for repair in repairs)
        identical = ended and digest(self.run) == self.twin.ends[injection.step].digest
        return RepairedRun(identical, verdicts, tuple(repair.step for repair in repairs), outcome)


def _number(event: Event, name: str) -> float:
    """A number of an event; infinite where it was not finite, for then it is not written."""
    value = event.get(name)
    return float(value) if isinstance(value, int | float) else math.inf


def _worker(evidence: StepEvidence) -> int | None:
    suspect = evidence.disagreement.suspect
    return None if suspect is None else evidence.workers[suspect]


TASK = 8
"""Injections that a process does at a time."""
Numbered = tuple[int, Injection]


@dataclass(frozen=True)
class CampaignResult:
    """All that came of a campaign."""

    campaign: Campaign
    twin: Twin
    results: tuple[InjectionResult, ...]
    """One an injection, in the order of the campaign."""
    policy: tuple[str, ...]
    """Names of the repair policies; empty: none."""
    seconds: float
    out: Path
    """Folder of the logs."""


def run_campaign(
    campaign: Campaign,
    out: Path,
    *,
    jobs: int = 1,
    policy: PolicyFactory | None = None,
    on_progress: Callable[[str, int], None] | None = None,
) -> CampaignResult:
    """Train the healthy twin, then inject into a fork of it for each injection.

    Parameters
    ----------
    out
        Existing folder for the logs: the twin's, and one an injection. Those of an earlier campaign are replaced.
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
    for old in (*out.glob("injection_*.jsonl"), out / TWIN_LOG):
        old.unlink(missing_ok=True)
    shared_run.cache_clear()
    run = shared_run(campaign.settings)
    products = products_of(run)
    twin = train_twin(campaign, run, out, policy, lambda steps: progress("twin", steps))
    names = tuple(type(part).__name__ for part in _parts(policy))
    done: dict[int, InjectionResult] = {}
    for item in _all(campaign, twin, products, out, policy, jobs):
        done[item.number] = item
        progress("injection", 1)
    ordered = tuple(done[number] for number in range(len(campaign.injections)))
    return CampaignResult(campaign, twin, ordered, names, time.perf_counter() - began, out)


def repair_policy() -> tuple[Policy, ...]:
    """Policies of a campaign: memory that changed by itself is restored, a suspicious step computed again."""
    return RestoreState(), RecomputeStep(max_retries=2)


def _parts(policy: PolicyFactory | None) -> Sequence[Policy]:
    made = policy() if policy is not None else ()
    return (made,) if isinstance(made, Policy) else made


def _all(
    campaign: Campaign, twin: Twin, products: Sequence[Product], out: Path, policy: PolicyFactory | None, jobs: int
) -> Iterator[InjectionResult]:
    numbered = list(enumerate(campaign.injections))
    if jobs == 1 or len(numbered) <= TASK:
        yield from starmap(CampaignWorker.with_log(campaign.settings, twin, products, out, policy).inject, numbered)
        return
    packed = twin.packed()
    tasks = [
        (campaign.settings, packed, products, out, policy, part)
        for part in (numbered[first : first + TASK] for first in range(0, len(numbered), TASK))
    ]
    for _, results in in_fresh_processes(inject_some, tasks, jobs):
        yield from results


def inject_some(
    settings: Settings,
    packed: bytes,
    products: Sequence[Product],
    out: Path,
    policy: PolicyFactory | None,
    injections: Sequence[Numbered],
) -> list[InjectionResult]:
    """Some injections, in another process."""
    shared_run(settings)
    worker = CampaignWorker.with_log(settings, Twin.unpacked(packed), products, out, policy)
    return list(starmap(worker.inject, injections))
