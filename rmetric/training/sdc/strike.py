"""One injection: a fork of the healthy twin is struck, watched, judged, and the struck step is computed once more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rmetric.errors import UserError
from rmetric.records import Event, Observations, Run, encode_event, read_run, terminal_event, write_atomically
from rmetric.training.forking import Trace, train, watching
from rmetric.training.live_run import LiveRun
from rmetric.training.policies.base import Repair
from rmetric.training.sdc.checksums import digest
from rmetric.training.sdc.detection import Alarms, alarms_of, first_seen
from rmetric.training.sdc.inject import injecting
from rmetric.training.sdc.localise import Diagnosis, Marks, localise, marked
from rmetric.training.sdc.outcome import Consequences, consequences
from rmetric.training.sdc.plan import Injection, Settings
from rmetric.training.sdc.products import Product
from rmetric.training.sdc.setup import shared_run
from rmetric.training.sdc.twin import NAME, PolicyFactory, Twin, Window, config_of, monitor_of, weights_of
from rmetric.training.sdc.witness import Evidence, gather_evidence


@dataclass(frozen=True)
class Repaired:
    """The same injection once more, with a policy."""

    identical: bool
    """Whether parameters and optimizer state at the end of the window are those of the twin, bit for bit."""
    verdicts: tuple[str, ...]
    """Of the policy's interventions, in their order: ``RecomputeStep: transient``."""
    steps: tuple[int, ...]
    """Their steps."""
    outcome: str
    """Judged as the run without a policy was."""


@dataclass(frozen=True)
class Struck:
    """One injection and all that came of it."""

    number: int
    """Position in the campaign."""
    injection: Injection
    before: float
    """The struck number."""
    after: float
    dtype: str
    """Of the struck number."""
    bit_part: str
    """What the bit belongs to: ``mantissa``, ``exponent`` or ``sign``."""
    consequences: Consequences
    delays: Mapping[str, int | None]
    """Detector → steps until it saw the flip; None: not within 10 steps."""
    disagreement: float
    """Score of the workers' disagreement in the struck step."""
    disagreement_alarm: bool
    suspect: int | None
    """The worker that stands out most in it."""
    diagnosis: Diagnosis
    marks: Marks
    repaired: Repaired | None
    """None: not tried (nothing to repair, or no policy)."""


@dataclass(frozen=True)
class Bench:
    """All that is needed to strike: one a process."""

    settings: Settings
    run: LiveRun
    twin: Twin
    records: Observations
    """Of the twin."""
    alarms: Alarms
    """Of the twin."""
    products: Sequence[Product]
    out: Path
    policy: PolicyFactory | None

    @classmethod
    def of(
        cls, settings: Settings, twin: Twin, products: Sequence[Product], out: Path, policy: PolicyFactory | None
    ) -> Bench:
        """Reads the twin's log, which must be in ``out``."""
        records = read_run(out / NAME).observations
        return cls(settings, shared_run(settings), twin, records, alarms_of(records), products, out, policy)

    def strike(self, number: int, injection: Injection) -> Struck:
        """Strike once, watch, judge, look for the place; with a policy, and if there is harm, once more with it."""
        self.run.load_state_dict(self.twin.snapshots[injection.step].run)
        evidence = gather_evidence(self.run, injection)
        log, trace, _ = self._train(number, injection, f"injection_{number:04}", None)
        flip = log.first("CORRUPTION")
        if flip is None:
            raise UserError(f"injection {number} of the campaign hit nothing: {injection.tensor} was not computed")
        healthy = max(evidence.again.largest_logit, torch.finfo(torch.float32).tiny)
        logit_factor = evidence.struck.largest_logit / healthy
        judged = self._judge(injection, log, trace, logit_factor)
        diagnosis = localise(evidence, self.products)
        return Struck(
            number=number,
            injection=injection,
            before=_number(flip, "before"),
            after=_number(flip, "after"),
            dtype=flip["dtype"],
            bit_part=flip["bit_part"],
            consequences=judged,
            delays=first_seen(alarms_of(log.observations), self.alarms, injection.step),
            disagreement=evidence.disagreement.score,
            disagreement_alarm=evidence.disagreement.alarm,
            suspect=_worker(evidence),
            diagnosis=diagnosis,
            marks=marked(diagnosis, injection),
            repaired=self._repair(number, injection, logit_factor) if self.policy and judged.harmful else None,
        )

    def _train(
        self, number: int, injection: Injection, name: str, policy: PolicyFactory | None
    ) -> tuple[Run, Trace, Sequence[Repair]]:
        """From the snapshot to the end of the window; leaves the run there. Returns log, trace and interventions."""
        fork, log = self.twin.snapshots[injection.step], self.out / f"{name}.jsonl"
        run, trace, end = self.run.load_state_dict(fork.run), fork.trace.copy(), self._end(injection)
        told = {key: value for key, value in asdict(injection).items() if value is not None}
        config = config_of(run, self.settings, name, told)
        write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
        with injecting(run, injection):  # before the monitor, whose hooks are to see a struck payload
            monitor = monitor_of(run, log, self.settings, name, told, policy)
            with watching(run, monitor):
                fork.go_on(monitor)
                monitor.note("FAULT_INJECTED", step=injection.step, fault="SILENT_DATA_CORRUPTION", number=number)
                for _ in train(Window.of(self.settings, end), run, monitor, trace, until=end):
                    pass
                repairs = monitor.repairs
        kind = "failed" if trace.non_finite_step else "recovered"
        with open(log, "ab") as file:
            file.write(encode_event(terminal_event(kind, trace.non_finite_step, "NAN_LOSS", end)))
        return read_run(log), trace, repairs

    def _end(self, injection: Injection) -> int:
        return injection.step + self.settings.window - 1

    def _judge(self, injection: Injection, log: Run, trace: Trace, logit_factor: float) -> Consequences:
        return consequences(
            log.observations,
            self.records,
            {step: loss for step, loss in trace.held_out.items() if step >= injection.step},
            self.twin.held_out,
            onset=injection.step,
            end=self._end(injection),
            logit_factor=logit_factor,
            weights_distance=self._distance(injection, trace),
        )

    def _distance(self, injection: Injection, trace: Trace) -> float:
        """How far the weights are from the twin's, in units of the twin's own way."""
        if trace.last_step < self._end(injection):
            return math.nan
        end = self.twin.ends[injection.step].weights
        model = self.twin.snapshots[injection.step].run["model"]
        begin = torch.cat([model[name].reshape(-1) for name, _ in self.run.model.named_parameters()])
        return float((weights_of(self.run) - end).norm() / (end - begin).norm())

    def _repair(self, number: int, injection: Injection, logit_factor: float) -> Repaired:
        log, trace, repairs = self._train(number, injection, f"injection_{number:04}_repaired", self.policy)
        ended = trace.last_step == self._end(injection)
        used = 1.0 if injection.step in {repair.step for repair in repairs} else logit_factor  # of the update's logits
        outcome = self._judge(injection, log, trace, used).outcome
        verdicts = tuple(f"{repair.policy}: {repair.verdict}" for repair in repairs)
        identical = ended and digest(self.run) == self.twin.ends[injection.step].digest
        return Repaired(identical, verdicts, tuple(repair.step for repair in repairs), outcome)


def _number(event: Event, name: str) -> float:
    """A number of an event; infinite where it was not finite, for then it is not written."""
    value = event.get(name)
    return float(value) if isinstance(value, int | float) else math.inf


def _worker(evidence: Evidence) -> int | None:
    suspect = evidence.disagreement.suspect
    return None if suspect is None else evidence.workers[suspect]
