"""Table 8, the ledger: every number of the paper, what it is here, and the command that tells.

Only the paper's values are typed in. Ours are counted from the logs, computed from the scores, read from the code, or
read from what the live side left: the case study's summary and the monitor's benchmark.
"""

from __future__ import annotations

import inspect
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rmetric.detectors import ROBUST, make_detector
from rmetric.evaluation.ablation import transfers
from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import Protocol
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import REAL, SIMULATED, backend_of
from rmetric.metric import RMetric
from rmetric.reporting.table import Cell, Column
from rmetric.signals import HardwareFailureRate, ValidationDrift
from studies import captions
from studies.catalogue import Inputs, Part, table
from studies.live_results import BENCHMARK, CASE_STUDY, FIRST, LiveResults

Value = str | int | float | Score | None
PAPER = "Fatima 2025"
F1, LEAD = str(captions.PAPER_F1), str(captions.PAPER_LEAD)
FILES = "the author's files"
TABLES = "python generate_paper_tables.py"
SUMMARY = "results/case_study/summary.json"
THEIR_RUNS = "the paper: four pretrained models of 0.6 to 1.2 billion parameters on T4 and L4"


@dataclass(frozen=True)
class Claim:
    """One number of the paper."""

    claim: str
    paper: str
    """As the paper has it."""
    source: str
    ours: Value = None
    """Where the protocol does not matter."""
    ours_paper: Value = None
    """Under the paper protocol."""
    ours_strict: Value = None
    """Under the strict protocol."""
    command: str = field(kw_only=True)
    """Prints ours."""
    remark: str = ""
    backend: str = ""
    """``simulated`` or ``real``, if it is about such runs alone."""

    def values(self) -> dict[str, Value]:
        """Protocol → our value under it; ``–`` where the protocol does not matter."""
        under = {"paper": self.ours_paper, "strict": self.ours_strict}
        return {protocol: value for protocol, value in under.items() if value is not None} or {"–": self.ours}


def ledger(ev: Evaluator, live: LiveResults | None = None) -> list[Claim]:
    """All claims, in the order of the paper. Without what real runs gave, their rows say what to run first."""
    live = live or LiveResults()
    return [
        *_metric(),
        *_study(ev),
        *_results(ev, live),
        *_calibrated(ev),
        *_baselines(ev),
        *_setting(ev),
        *_severities(ev),
        *_case_study(live),
    ]


def _metric() -> Iterable[Claim]:
    metric, short = RMetric.paper(), RMetric.paper_case_study()
    weights, how = metric.weights, _asked("RMetric.paper().weights")
    yield Claim("weight of λ", "0.10", PAPER, weights.lambda_, command=how)
    yield Claim("weight of σ²", "0.45", PAPER, weights.sigma_sq, command=how)
    yield Claim("weight of ΔL", "0.70", PAPER, weights.delta_l, command=how)
    total = _asked("sum(RMetric.paper().weights)")
    yield Claim("sum of the weights, upper end of R", "1.25", PAPER, math.fsum(weights), command=total)
    yield Claim(
        "alert threshold",
        "0.57",
        FILES,
        metric.threshold,
        command=_asked("RMetric.paper().threshold"),
        remark="0.55, 0.56, 0.60 and 0.65 also occur in their history: Table 5",
    )
    history = "normalisation history"
    yield Claim(f"{history} (values)", "1,000", FILES, metric.window, command=_asked("RMetric.paper().window"))
    shorter = _asked("RMetric.paper_case_study().window")
    yield Claim(f"{history}, case study (values)", "100", FILES, short.window, command=shorter)
    for claim, paper, signal in (
        ("λ: hardware events in the window", "50", HardwareFailureRate),
        ("ΔL: validation losses in the mean", "100", ValidationDrift),
    ):
        yield Claim(claim, paper, FILES, _default(signal, "window"), command=_default_asked(signal))


def _asked(expression: str, name: str = "RMetric", module: str = "rmetric") -> str:
    """The command that prints an expression in which a name of a module occurs."""
    return f'python -c "from {module} import {name}; print({expression})"'


def _default_asked(thing: type) -> str:
    """The command that prints the parameters of a class with their defaults."""
    name = thing.__name__
    return f'python -c "from inspect import signature; from {thing.__module__} import {name}; print(signature({name}))"'


def _tables(ev: Evaluator, number: int, *detectors: str) -> str:
    """The command that prints a table of these very logs."""
    named = f" --detectors {' '.join(detectors)}" if detectors else ""
    return f"{TABLES} --logs {shlex.quote(str(ev.study.folder))}{named} --tables {number}"


def _study(ev: Evaluator) -> Iterable[Claim]:
    runs = ev.study.runs
    models = list(dict.fromkeys(run.model_type for run in runs))
    how = _tables(ev, 8, REFERENCE)
    yield Claim("simulated runs", "720", PAPER, len(runs), command=how, remark="all logs given, of any kind")
    yield Claim(
        "architectures", "3 (Llama-3, Mistral, GPT-4-MoE)", PAPER, f"{len(models)} ({', '.join(models)})", command=how
    )
    low, high = ev.range_of(REFERENCE) if REFERENCE in ev.scores else (math.nan, math.nan)
    seen = f"{low:.3f} to {high:.3f}" if low <= high else Score.undefined("the R-Metric was not asked for")
    yield Claim("range of R", "0 to 1.25", PAPER, seen, command=how, remark="smallest and largest R of all records")


def _results(ev: Evaluator, live: LiveResults) -> Iterable[Claim]:
    if REFERENCE not in ev.detectors:
        nothing = Score.undefined("the R-Metric was not asked for")
        paper = strict = dict.fromkeys(("f1", "mean_lead", "lead_min"), nothing)
    else:
        paper, strict = ev.summary(REFERENCE, "paper"), ev.summary(REFERENCE, "strict")
    how, lead = _tables(ev, 3, REFERENCE), (paper["mean_lead"], strict["mean_lead"])
    simulation = Claim("F1 in simulation", F1, PAPER, None, paper["f1"], strict["f1"], command=how, remark="Table 3")
    if backend_of(ev.study) == REAL:
        nothing = Score.undefined("these logs are of real runs")
        yield replace(simulation, ours=nothing, ours_paper=None, ours_strict=None, backend=SIMULATED)
        yield replace(simulation, claim="F1 in real runs", paper="1.00", remark=f"Table 3; {THEIR_RUNS}", backend=REAL)
    else:
        yield replace(simulation, backend=SIMULATED)
        yield _real_runs(live)
    yield Claim("mean lead (steps)", LEAD, PAPER, None, *lead, command=how, remark="Table 3")
    yield Claim(
        "mean lead, small models (min)",
        "12.8",
        PAPER,
        None,
        paper["lead_min"],
        strict["lead_min"],
        command=how,
        remark=f"here: {_step_time(ev)}; the paper's {LEAD} steps at 3 s make 12.8 min",
    )
    yield Claim(
        "mean lead at production speed (min)",
        "2 to 8",
        PAPER,
        Score.undefined("there is no production run here to take its speed from"),
        command="–",
    )
    yield Claim(
        "transfer of the weights, performance loss (%)",
        "under 3",
        PAPER,
        None,
        _worst_transfer(ev, "paper"),
        _worst_transfer(ev, "strict"),
        command=_tables(ev, 7, REFERENCE),
        remark="largest loss of F1 over all pairs of architectures, Table 7",
    )
    yield Claim(
        "overhead (% of training time)",
        "1.8",
        PAPER,
        live.overhead_pct,
        command=BENCHMARK,
        remark=f"of a step, on {live.overhead['machine']}" if "machine" in live.overhead else "",
        backend=REAL,
    )


def _real_runs(live: LiveResults) -> Claim:
    if not live.case_study:
        return Claim("F1 in real runs", "1.00", PAPER, Score.undefined(FIRST), command=CASE_STUDY, backend=REAL)
    return Claim(
        "F1 in real runs",
        "1.00",
        PAPER,
        None,
        live.score(REFERENCE, "paper", "f1"),
        live.score(REFERENCE, "strict", "f1"),
        command=CASE_STUDY,
        remark=f"{live.made_on}; {THEIR_RUNS}",
        backend=REAL,
    )


def _step_time(ev: Evaluator) -> str:
    return "measured step time of small models" if backend_of(ev.study) == REAL else "simulated step time"


def _calibrated(ev: Evaluator) -> Iterable[Claim]:
    """The paper's F1 again, of the metric that is fitted to a false-alarm budget; nothing without it."""
    if ROBUST not in ev.detectors:
        return
    fitted = ev.within_budget(ROBUST)
    summary = ev.summary_of(fitted.counts, ev.halves.score) if fitted.counts is not None else {}
    missing = Score.undefined(fitted.reason)
    strict = {key: summary.get(key, missing) for key in ("f1", "mean_lead")}
    remark = "strict protocol, held out, at most one false alarm per 10,000 healthy steps: Table 9"
    said = {"command": _tables(ev, 9, REFERENCE, ROBUST), "remark": remark}
    yield Claim("F1, calibrated R-Metric", F1, PAPER, ours_strict=strict["f1"], **said)
    yield Claim("mean lead, calibrated R-Metric (steps)", LEAD, PAPER, ours_strict=strict["mean_lead"], **said)


def _baselines(ev: Evaluator) -> Iterable[Claim]:
    others = [name for name in ev.detectors if name not in (REFERENCE, ROBUST)]
    yield Claim(
        "baselines",
        "6 (Isolation Forest, validation slope, loss spike, gradient norm, σ² only, ΔL only)",
        PAPER,
        len(others),
        command=_tables(ev, 8),
        remark="all detectors that were scored but the two R-Metrics; Table 1 names them",
    )
    maker = ("make_detector", "rmetric.detectors")
    for claim, paper, name in (("loss spike: z above", "3", "loss_spike"), ("gradient norm above", "100", "grad_norm")):
        how = _asked(f"make_detector('{name}').threshold", *maker)
        yield Claim(claim, paper, PAPER, make_detector(name).threshold, command=how)
    rises = math.floor(make_detector("validation_slope").threshold) + 1
    how = _asked("make_detector('validation_slope').threshold // 1 + 1", *maker)
    yield Claim("validation slope: rises in a row", "3", PAPER, rises, command=how)


def _setting(ev: Evaluator) -> Iterable[Claim]:
    coarser = "--log-every 100 gives theirs" if backend_of(ev.study) == SIMULATED else ""
    settings = (
        ("training steps a run", "5,000", "total_training_steps", ""),
        ("steps between records", "100", "log_every_n_steps", coarser),
        ("steps between evaluations", "100", "eval_every_n_steps", ""),
        ("workers whose gradient norms make σ²", "8", "num_workers", ""),
        ("step time (s)", "5", "step_time_s", ""),
        ("price (USD per accelerator-hour)", "2.50", "usd_per_accelerator_hour", ""),
    )
    found: dict[str, list[float]] = {key: [] for _, _, key, _ in settings}
    for run in ev.study.runs:
        for key, values in found.items():
            if isinstance(run.config.get(key), int | float):
                values.append(run.config[key])
    how = _tables(ev, 8, REFERENCE)
    for claim, paper, key, remark in settings:
        ours = _listed(found[key], f"the logs' config has no {key}")
        yield Claim(claim, paper, FILES, ours, command=how, remark=remark)


def _severities(ev: Evaluator) -> Iterable[Claim]:
    faults = (
        ("LR_SPIKE, factor (low / medium / high)", "5 / 15 / 25", "LR_SPIKE", "factor", 1.0),
        ("NETWORK_DEGRADATION, delay (ms)", "50 / 150 / 250", "NETWORK_DEGRADATION", "delay_ms", 1.0),
        ("DATA_CORRUPTION, share of tokens (%)", "2 / 5 / 10", "DATA_CORRUPTION", "token_share", 100.0),
        ("ROUTER_IMBALANCE, factor", "0.7 to 0.8", "ROUTER_IMBALANCE", "imbalance_factor", 1.0),
    )
    for claim, paper, fault, key, scale in faults:
        values = []
        for run in ev.study.runs:
            value = run.injection.get("params", {}).get(key) if run.fault == fault else None
            if isinstance(value, int | float):
                values.append(round(scale * value, 9))
        ours = _listed(values, f"no log has {fault} with {key}")
        yield Claim(claim, paper, FILES, ours, command=_tables(ev, 8, REFERENCE))


def _case_study(live: LiveResults) -> Iterable[Claim]:
    small = f"{live.made_on}; theirs: Qwen-2.5 3B" if live.made_on else ""
    theirs = (
        ("case study: steps", "800", "steps", f"{small}; --steps 800 gives theirs"),
        ("case study: batch", "4", "rows", f"{small}; --batch 4 gives theirs"),
        ("case study: learning rate", "5e-5", "learning_rate", f"{small}, pretrained; --lr 5e-5 gives theirs"),
        ("case study: sequence length", "256 to 512", "length", f"{small}; --length 256 gives theirs"),
    )
    for claim, paper, key, remark in theirs:
        ours, said = live.planned(key), remark if small else ""
        yield Claim(claim, paper, FILES, ours, command=_of_summary(f"['plan']['{key}']"), remark=said, backend=REAL)
    spike = live.injected("LR_SPIKE")
    known = spike.get("parameters") or {}
    told: Value = Score.undefined("the case study had no LR_SPIKE" if live.case_study else FIRST)
    if {"factor", "duration_steps"} <= {*known}:
        told = f"{known['factor']:g}, {spike.get('onset')}, {known['duration_steps']}"
    yield Claim(
        "case study: LR_SPIKE factor, at step, for steps",
        "15, 400, 20",
        FILES,
        told,
        command=_of_summary("['runs']"),
        remark="here the step is drawn from the seed, on no grid of evaluations; --fault-step 400 gives theirs",
        backend=REAL,
    )
    every = live.planned("eval_every")
    how = _of_summary("['plan']['eval_every']")
    yield Claim("case study: steps between evaluations", "20", FILES, every, command=how, backend=REAL)
    yield Claim(
        "case study: validation losses in the mean of ΔL",
        "10",
        FILES,
        _default(ValidationDrift, "window"),
        command=_default_asked(ValidationDrift),
        remark="here as in the simulated study, and signed; they take the absolute value in the case study",
        backend=REAL,
    )


def _of_summary(part: str) -> str:
    """The command that prints a part of what the case study left."""
    return f"python -c \"import json; print(json.load(open('{SUMMARY}')){part})\""


def _worst_transfer(ev: Evaluator, protocol: Protocol) -> Score:
    abroad = [item for item in transfers(ev) if item.protocol == protocol and item.source != item.target]
    losses = [item.loss_pct for item in abroad if item.loss_pct.defined]
    if not losses:
        return Score.undefined("fewer than two architectures have failed runs in both halves")
    return max(losses, key=lambda loss: loss.value)


def _default(thing: type, parameter: str) -> int:
    return int(inspect.signature(thing).parameters[parameter].default)


def _listed(values: list[float], missing: str) -> Value:
    known = sorted(set(values))
    if not known:
        return Score.undefined(missing)
    return float(known[0]) if len(known) == 1 else " / ".join(f"{value:g}" for value in known)


# --- Table 8 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Book:
    """Sources of one study's part of the ledger."""

    ev: Evaluator
    live: LiveResults
    backends: tuple[str, ...]
    """Of all studies of the table: a claim about real runs is not asked of simulated ones beside them."""


def _books(inputs: Inputs) -> Mapping[str, Book]:
    backends = tuple(backend_of(ev.study) or "" for ev in inputs.studies.values())
    return {study: Book(ev, inputs.live, backends) for study, ev in inputs.studies.items()}


@table(
    "table_8_claims",
    "Claims",
    "Claims. Every number of the paper, what it is here, and the command that gives it. Only the paper's values are "
    "typed in. {runs} {interval}",
    [
        Column("claim", "Claim"),
        Column("paper", "Paper"),
        Column("protocol", "Protocol"),
        Column("ours", "Ours", None),
        Column("source", "Source"),
        Column("command", "Command"),
        Column("remark", "Remark"),
    ],
    needs=_books,
    about=("claim", "paper", "protocol"),
    shared=True,
)
def claims(book: Book) -> Part:
    """One row a number of the paper and protocol."""
    own = backend_of(book.ev.study)
    rows: list[dict[str, Cell]] = [
        {
            "claim": claim.claim,
            "paper": claim.paper,
            "protocol": protocol,
            "ours": value,
            "source": claim.source,
            "command": claim.command,
            "remark": claim.remark or None,
        }
        for claim in ledger(book.ev, book.live)
        if claim.backend in ("", own) or claim.backend not in book.backends
        for protocol, value in claim.values().items()
    ]
    return Part(rows, captions.facts(book.ev))
