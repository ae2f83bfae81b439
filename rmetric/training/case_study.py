"""One healthy prefix, then a fork for the twin and for each fault: real runs that differ in the fault alone."""

from __future__ import annotations

import logging
import math
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from joblib import Parallel, delayed

from rmetric.detectors import make_detector
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import Outcome, judge
from rmetric.faults import NO_FAULT, Fault, file_name_part, parse_fault
from rmetric.records import encode_event, write_atomically
from rmetric.registry import load_plugin
from rmetric.training.corpus import Corpus, standard_library
from rmetric.training.datasets import load_text_corpus, tokenized
from rmetric.training.hardware import HardwareWatch
from rmetric.training.live_run import LiveRun, LiveRunConfig
from rmetric.training.models import TINY_MODELS, tiny_model
from rmetric.training.monitor import TrainingMonitor
from rmetric.training.recorder import start_config, vocabulary_of

DEFAULT_FAULTS = (
    "LR_SPIKE",
    "SILENT_DATA_CORRUPTION:target=weight,bit=30,persistence=transient",
    "SILENT_DATA_CORRUPTION:target=gradient,bit=30,persistence=recurring",
    "DATA_CORRUPTION:what=labels,token_share=0.5",
    "GRADIENT_EXPLOSION",
    NO_FAULT,
)
"""As they are written on the command line; ``NONE`` is the control."""
TWIN = "twin"
LOGGED_DETECTORS = ("r_metric", "loss_spike", "grad_norm", "numerics", "robust_z")
"""Detectors whose alerts stand in the logs; the tables score all of them, these and the others, from the records."""

LOGGER = logging.getLogger("rmetric")

LORA: dict[str, Literal["auto"] | bool] = {"auto": "auto", "on": True, "off": False}
_Parts = tuple[torch.nn.Module, Corpus, dict[str, Any], torch.dtype | None]
"""Model, text, what there is to say about the model, type of the forward pass where it is not the weights'."""
OnProgress = Callable[[str, int], None]
"""Called with the name of a run and the number of steps that it has just done."""


@dataclass(frozen=True, kw_only=True)
class CaseStudyPlan:
    """All that the runs depend on, but for the versions of Python and of the libraries."""

    model: str = "tiny-llama"
    """A tiny model, or one for :func:`rmetric.training.pretrained.load_pretrained`."""
    dataset: str = ""
    """For :func:`rmetric.training.datasets.load_text_corpus`; empty: the source of the standard library."""
    faults: tuple[str, ...] = DEFAULT_FAULTS
    steps: int = 600
    """The horizon."""
    onset: int | None = None
    """First disturbed step; ``None``: drawn from the seed, uniform over the middle half of the run."""
    seed: int = 0
    """Of the weights of a tiny model, of the batches, of the faults' own draws and of the onset."""
    rows: int | None = None
    """Sequences a step; ``None``: 16, or 4 for a model that is not tiny."""
    length: int | None = None
    """Tokens a sequence; ``None``: 64, or 256 for a model that is not tiny."""
    workers: int = 4
    """Equal parts of a batch whose gradient norms make σ²."""
    learning_rate: float | None = None
    """``None``: 1e-3, or the paper's 5e-5 for a model that is not tiny."""
    eval_every: int = 20
    """Steps between validation losses, which detectors see."""
    judge_every: int = 5
    """Steps between the held-out losses that decide, against the twin, whether a run failed; no detector sees them."""
    device: str = "auto"
    lora: str = "auto"
    """``auto``, ``on`` or ``off``: train low-rank adapters instead of all weights."""
    plugins: tuple[str, ...] = ()
    """Python files that register faults."""

    def __post_init__(self) -> None:
        if self.lora not in LORA:
            raise UserError(f"--lora is {', '.join(LORA)}, not {self.lora!r}")
        if not 2 <= self.first_disturbed <= self.steps:
            raise UserError(f"the fault's step {self.first_disturbed} does not lie in a run of {self.steps} steps")
        if self.batch_rows % self.workers:
            raise UserError(
                f"a batch of {self.batch_rows} cannot be shared by {self.workers} workers; choose a multiple"
            )

    @property
    def tiny(self) -> bool:
        """Whether the model is one of the tiny ones."""
        return self.model in TINY_MODELS

    @property
    def batch_rows(self) -> int:
        """Sequences a step."""
        return self.rows or (16 if self.tiny else 4)

    @property
    def sequence_length(self) -> int:
        """Tokens a sequence."""
        return self.length or (64 if self.tiny else 256)

    @property
    def peak_learning_rate(self) -> float:
        """After the warm-up."""
        return self.learning_rate or (1e-3 if self.tiny else 5e-5)

    @property
    def first_disturbed(self) -> int:
        """The onset."""
        if self.onset is not None:
            return self.onset
        low, high = self.steps // 4 + 1, max(self.steps * 3 // 4, self.steps // 4 + 1)
        return int(np.random.default_rng((self.seed, 0x0A5E7)).integers(low, high, endpoint=True))

    def run_names(self) -> list[str]:
        """Name of each fault's run: what its log is called."""
        return [f"run_{number:02}_{file_name_part(_short(fault))}" for number, fault in enumerate(self.faults)]


def _short(fault: str) -> str:
    """A fault's spelling without the parameters' names: ``LR_SPIKE:factor=30`` becomes ``LR_SPIKE_30``."""
    name, _, settings = fault.partition(":")
    return "_".join(
        [name.replace("@", "_"), *(setting.partition("=")[2] for setting in settings.split(",") if settings)]
    )


@dataclass(frozen=True)
class CaseStudy:
    """What was run, and what came out."""

    plan: CaseStudyPlan
    logs: tuple[Path, ...]
    """One a run, in the order of the plan."""
    description: dict[str, Any]
    """What was trained on what, with which versions, where, how fast."""
    judged_steps: list[int]
    """Steps at which the held-out loss was taken."""
    held_out: dict[str, list[float]]
    """Name of a run (``twin`` included) → held-out loss at each judged step; NaN where the run had ended before."""
    outcomes: dict[str, Outcome]
    twin_matches_control: bool | None
    """Whether the control, which the monitor watched, and the twin, which it did not, agree to the last bit; ``None``
    without a control."""


@dataclass
class _Trace:
    """What the truth about a run is made of."""

    held_out: dict[int, float] = field(default_factory=dict)
    non_finite_step: int | None = None
    worker_lost_step: int | None = None


@dataclass(frozen=True)
class _Fork:
    """The state at the end of the healthy prefix."""

    run: dict[str, Any]
    monitor: dict[str, Any]
    log: bytes
    """Lines of the prefix's log but for the first."""
    trace: _Trace


def run_case_study(
    plan: CaseStudyPlan, out: Path, *, jobs: int = 1, on_progress: OnProgress | None = None
) -> CaseStudy:
    """Train, fork, break, judge.

    Parameters
    ----------
    plan
        What to do.
    out
        Existing folder for the logs. Logs of an earlier case study in it are replaced.
    jobs
        Processes for the forks; 1 on an accelerator.
    on_progress
        Told of every step (of a fork in another process: when it is finished).

    Raises
    ------
    UserError
        For an unknown model, fault or text, and for a fault that this model cannot have; before any training.
    """
    started = time.perf_counter()
    progress = on_progress or (lambda name, steps: None)
    run, description = _live_run(plan)
    _check(plan, run)
    for old in out.glob("run_*.jsonl"):
        old.unlink()
    for note in HardwareWatch.automatic(interval_s=None).notes():
        LOGGER.warning("%s", note)
    fork = _train_prefix(plan, run, progress)
    names = [TWIN, *plan.run_names()]
    faults = ["", *plan.faults]
    work = (delayed(_train_fork)(plan, name, fault, fork, out) for name, fault in zip(names, faults, strict=True))
    traces: dict[str, _Trace] = {}
    for name, trace in Parallel(n_jobs=min(jobs, len(names)), return_as="generator")(work):
        progress(name, plan.steps - plan.first_disturbed + 1)
        traces[name] = trace
    outcomes = {name: _judge(plan, name, fault, traces) for name, fault in zip(names[1:], faults[1:], strict=True)}
    logs = tuple(out / f"{name}.jsonl" for name in names[1:])
    for log, outcome in zip(logs, outcomes.values(), strict=True):
        _end(log, plan, outcome)
    control = next((name for name, fault in zip(names[1:], plan.faults, strict=True) if fault == NO_FAULT), None)
    seconds = time.perf_counter() - started
    steps = plan.first_disturbed - 1 + sum(max(trace.held_out) - plan.first_disturbed + 1 for trace in traces.values())
    judged = sorted(traces[TWIN].held_out)
    return CaseStudy(
        plan,
        logs,
        {**description, "seconds": round(seconds, 1), "steps": steps, "jobs": jobs},
        judged,
        {name: [trace.held_out.get(step, math.nan) for step in judged] for name, trace in traces.items()},
        outcomes,
        None if control is None else traces[control].held_out == traces[TWIN].held_out,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The run that is forked
# ---------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _live_run(plan: CaseStudyPlan) -> tuple[LiveRun, dict[str, Any]]:
    """A fresh run as planned, one a process, and what there is to say about it."""
    for plugin in plan.plugins:
        load_plugin(plugin)
    device = _device(plan.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # several processes share the cores, and sums come out the same in each
    model, corpus, described, autocast = _tiny(plan, device) if plan.tiny else _pretrained(plan, device)
    config = LiveRunConfig(
        seed=plan.seed,
        rows=plan.batch_rows,
        length=plan.sequence_length,
        workers=plan.workers,
        learning_rate=plan.peak_learning_rate,
        autocast=autocast,
    )
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=plan.peak_learning_rate)
    description = {
        "model": plan.model,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "trainable_parameters": sum(parameter.numel() for parameter in trainable),
        **described,
        "dataset": corpus.name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return LiveRun(model, optimizer, corpus, config), description


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"the device {name!r} is not to be had here; choose --device cpu") from error
    return device


def _tiny(plan: CaseStudyPlan, device: torch.device) -> _Parts:
    corpus = load_text_corpus(plan.dataset, None, length=plan.sequence_length) if plan.dataset else standard_library()
    model = tiny_model(plan.model, seed=plan.seed, context=max(plan.sequence_length, 64))
    model.to(device)  # type: ignore[arg-type]
    return model, corpus, {"dtype": "float32"}, None


def _pretrained(plan: CaseStudyPlan, device: torch.device) -> _Parts:
    from rmetric.training.pretrained import load_pretrained  # peft and the hub's client, which a tiny model needs not

    loaded = load_pretrained(
        plan.model,
        device=device,
        lora=LORA[plan.lora],
        rows=plan.batch_rows // plan.workers,
        length=plan.sequence_length,
        seed=plan.seed,
    )
    if plan.dataset:
        corpus = load_text_corpus(plan.dataset, loaded.tokenizer, length=plan.sequence_length)
    else:
        corpus = tokenized(standard_library(), loaded.tokenizer)
    autocast = None if loaded.compute_dtype == torch.float32 else loaded.compute_dtype
    return loaded.model, corpus, loaded.description, autocast


def _check(plan: CaseStudyPlan, run: LiveRun) -> None:
    """Enter and leave every fault once, so that one that does not fit is known before any training."""
    state = run.state_dict()
    for spelling in plan.faults:
        fault = _fault(spelling)
        if fault is not None:
            with fault.inject(run):
                pass
    run.load_state_dict(state)


def _fault(spelling: str) -> Fault | None:
    return None if spelling in ("", NO_FAULT) else parse_fault(spelling)


# ---------------------------------------------------------------------------------------------------------------------
# Prefix and forks
# ---------------------------------------------------------------------------------------------------------------------


def _train_prefix(plan: CaseStudyPlan, run: LiveRun, progress: OnProgress) -> _Fork:
    """Train up to the step before the onset."""
    trace = _Trace()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prefix.jsonl"
        monitor = _monitor(plan, run, log, {})
        run.observer = monitor
        for _ in _steps(plan, run, monitor, trace, until=plan.first_disturbed - 1):
            progress("healthy prefix", 1)
        state = monitor.state_dict()
        monitor.detach()
        lines = log.read_bytes().splitlines(keepends=True)
    return _Fork(run.state_dict(), state, b"".join(lines[1:]), trace)


def _train_fork(plan: CaseStudyPlan, name: str, spelling: str, fork: _Fork, out: Path) -> tuple[str, _Trace]:
    """Train a fork to the horizon, or until its loss is not finite or a worker is lost."""
    run = _live_run(plan)[0].load_state_dict(fork.run)
    trace = _Trace(dict(fork.trace.held_out))
    if name == TWIN:
        for _ in _steps(plan, run, None, trace, until=plan.steps):
            pass
        return name, trace
    fault, log = _fault(spelling), out / f"{name}.jsonl"
    config = _config(plan, name, spelling, run)
    write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
    monitor = _monitor(plan, run, log, config)
    monitor.load_state_dict(fork.monitor)
    run.observer = monitor
    with _ending(monitor), ExitStack() as stack:
        if fault is not None:
            onset = plan.first_disturbed
            monitor.note("FAULT_INJECTED", step=onset, fault=fault.label, details=f"{spelling} begins")
            run.step += 1  # the faults' draws are those of the first disturbed step
            stack.enter_context(fault.inject(run))
            run.step -= 1
        for step in _steps(plan, run, monitor, trace, until=plan.steps):
            if fault is not None and fault.duration_steps and step == plan.first_disturbed + fault.duration_steps - 1:
                stack.close()
                monitor.note("FAULT_CLEARED", step=step + 1, fault=fault.label)
    return name, trace


@contextmanager
def _ending(monitor: TrainingMonitor) -> Iterator[None]:
    try:
        yield
    finally:
        monitor.detach()


def _steps(
    plan: CaseStudyPlan, run: LiveRun, monitor: TrainingMonitor | None, trace: _Trace, *, until: int
) -> Iterator[int]:
    """Train up to a step; yields the number of each step done."""
    while run.step < until:
        run.train_step()
        if monitor is not None and run.step % plan.eval_every == 0:
            monitor.validation(run.held_out_loss("validation"))
        if run.step % plan.judge_every == 0 or run.step == plan.steps:
            trace.held_out[run.step] = run.held_out_loss("judge")
        yield run.step
        trace.non_finite_step, trace.worker_lost_step = run.non_finite_step, run.worker_lost_step
        if run.non_finite_step is not None or run.worker_lost_step is not None:
            return


def _monitor(plan: CaseStudyPlan, run: LiveRun, log: Path, config: dict[str, Any]) -> TrainingMonitor:
    return TrainingMonitor(
        run.model,
        run.optimizer,
        log=log,
        detectors=LOGGED_DETECTORS,
        config=config,
        scaler=run.scaler,
        hardware=_hardware_watch(),
    )


@cache
def _hardware_watch() -> HardwareWatch:
    """One for all runs of a process; the user is told once, before training, what λ counts."""
    watch = HardwareWatch.automatic()
    watch.notes()
    return watch


# ---------------------------------------------------------------------------------------------------------------------
# The log's first and last line
# ---------------------------------------------------------------------------------------------------------------------


def _config(plan: CaseStudyPlan, name: str, spelling: str, run: LiveRun) -> dict[str, Any]:
    fault, severities = _fault(spelling), re.findall(r"@(\w+)", spelling)
    injection = {
        "type": fault.label if fault else NO_FAULT,
        "severity": ("+".join(severities) or "medium") if fault else None,
        "trigger_step": plan.first_disturbed if fault else None,
        "params": fault.parameters if fault else {},
    }
    own = {
        "experiment_id": name,
        "model_type": plan.model,
        "architecture": plan.model,
        "dataset": run.corpus.name,
        "seed": plan.seed,
        "num_workers": plan.workers,
        "total_training_steps": plan.steps,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": plan.batch_rows,
        "sequence_length": plan.sequence_length,
        "learning_rate": plan.peak_learning_rate,
        "fault_injection": injection,
    }
    thresholds = {name: make_detector(name).threshold for name in LOGGED_DETECTORS}
    return start_config(run.model, thresholds, vocabulary_of(run.model), plan.workers, own)


def _judge(plan: CaseStudyPlan, name: str, fault: str, traces: dict[str, _Trace]) -> Outcome:
    """Against the twin, at the judged steps; what a run did not live to see is an excess."""
    twin, own = traces[TWIN], traces[name]
    steps = sorted(twin.held_out)
    return judge(
        [own.held_out.get(step, math.nan) for step in steps],
        [twin.held_out[step] for step in steps],
        steps,
        non_finite_step=own.non_finite_step,
        worker_lost_step=own.worker_lost_step,
        faulty=fault != NO_FAULT,
    )


def _end(log: Path, plan: CaseStudyPlan, outcome: Outcome) -> None:
    if outcome.kind == "failed":
        terminal = {"event": "EXPERIMENT_FAILURE", "step": outcome.failure_step, "reason": outcome.reason}
    else:
        terminal = {"event": "EXPERIMENT_SUCCESS", "step": plan.steps, "outcome": outcome.kind}
    with open(log, "ab") as file:
        file.write(encode_event(terminal))
