"""Run a case study: one healthy prefix, then a fork for the twin and one for each fault."""

from __future__ import annotations

import logging
import math
import platform
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers

from rmetric.detectors import make_detector
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import Outcome, judge
from rmetric.faults import NO_FAULT, Fault, parse_fault
from rmetric.files import write_atomically
from rmetric.live.corpus import Corpus, standard_library
from rmetric.live.datasets import load_text_corpus, tokenized
from rmetric.live.models import tiny_model
from rmetric.live.models.memory import out_of_memory_in_one_line
from rmetric.live.run import LiveRun, LiveRunConfig
from rmetric.log_writer import encode_event, terminal_event
from rmetric.monitor.hardware import HardwareWatch
from rmetric.monitor.recorder import start_config, vocabulary_of
from rmetric.registry import load_plugin
from rmetric.twins.forks import (
    LOGGED_DETECTORS,
    Fork,
    Trace,
    close_hardware_watch,
    monitor_of,
    train,
    train_with_fault,
    watching,
)
from studies.case_study.plan import LORA, CaseStudyPlan
from studies.processes import in_fresh_processes

Parts = tuple[torch.nn.Module, Corpus, dict[str, Any], torch.dtype | None]
"""Model, text, what there is to say about the model, type of the forward pass where it is not the weights'."""


@lru_cache(maxsize=1)
def live_run(plan: CaseStudyPlan) -> tuple[LiveRun, dict[str, Any]]:
    """A fresh run as planned, one a process, and what there is to say about it."""
    for plugin in plan.plugins:
        load_plugin(plugin)
    device = device_of(plan.device)
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


def device_of(name: str) -> torch.device:
    """A device by torch's name for it; ``auto``: the GPU if there is one. :class:`UserError` if it is not to be had."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"the device {name!r} is not to be had here; choose --device cpu") from error
    return device


def _tiny(plan: CaseStudyPlan, device: torch.device) -> Parts:
    corpus = load_text_corpus(plan.dataset, None, length=plan.sequence_length) if plan.dataset else standard_library()
    model = tiny_model(plan.model, seed=plan.seed, context=max(plan.sequence_length, 64))
    model.to(device)  # type: ignore[arg-type]
    return model, corpus, {"dtype": "float32"}, None


def _pretrained(plan: CaseStudyPlan, device: torch.device) -> Parts:
    from rmetric.live.models.pretrained import load_pretrained

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


TWIN = "twin"
OnProgress = Callable[[str, int], None]
"""Called with the name of a run and the number of steps that it has just done."""


def train_prefix(plan: CaseStudyPlan, run: LiveRun, progress: OnProgress) -> Fork:
    """Train up to the step before the onset."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prefix.jsonl"
        with watching(run, monitor_of(run, log, {})) as monitor:
            for _ in train(plan, run, monitor, trace, until=plan.first_disturbed - 1):
                progress("healthy prefix", 1)
            return Fork.of(run, monitor, log, trace)


def train_packed_fork(plan: CaseStudyPlan, name: str, spelling: str, packed: bytes, out: Path) -> Trace:
    """As :func:`train_fork`, in another process."""
    return train_fork(plan, name, spelling, Fork.unpacked(packed), out)


def train_fork(plan: CaseStudyPlan, name: str, spelling: str, fork: Fork, out: Path) -> Trace:
    """Train a fork to the horizon, or until its loss is not finite or a worker is lost."""
    run = live_run(plan)[0].load_state_dict(fork.run)
    trace = fork.trace.copy()
    if name == TWIN:
        for _ in train(plan, run, None, trace, until=plan.steps):
            pass
        return trace
    fault, log = fault_of(spelling), out / f"{name}.jsonl"
    config = _config(plan, name, spelling, run)
    write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
    monitor = monitor_of(run, log, config)
    with watching(run, monitor):
        fork.go_on(monitor)
        if fault is not None:
            train_with_fault(plan, run, monitor, trace, fault, f"{spelling} begins")
        else:
            for _ in train(plan, run, monitor, trace, until=plan.steps):
                pass
    return trace


def _config(plan: CaseStudyPlan, name: str, spelling: str, run: LiveRun) -> dict[str, Any]:
    fault, severities = fault_of(spelling), re.findall(r"@(\w+)", spelling)
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


def fault_of(spelling: str) -> Fault | None:
    return None if spelling in ("", NO_FAULT) else parse_fault(spelling)


LOGGER = logging.getLogger("rmetric")


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
        Told of every step (of a fork: when it is finished).

    Raises
    ------
    UserError
        For an unknown model, fault or text, and for a fault that this model cannot have, before any training; and
        when memory does not suffice.
    """
    started = time.perf_counter()
    progress = on_progress or (lambda name, steps: None)
    live_run.cache_clear()  # whatever this process trained before
    run, description = live_run(plan)
    _check(plan, run)
    for old in out.glob("run_*.jsonl"):
        old.unlink()
    for note in HardwareWatch.automatic(interval_s=None).notes():
        LOGGER.warning("%s", note)
    try:
        with out_of_memory_in_one_line("training"):
            traces = _train_all(plan, train_prefix(plan, run, progress), out, jobs, progress)
    finally:
        close_hardware_watch()
    names = plan.run_names()
    outcomes = {name: _judge(plan, name, fault, traces) for name, fault in zip(names, plan.faults, strict=True)}
    logs = tuple(out / f"{name}.jsonl" for name in names)
    for log, outcome in zip(logs, outcomes.values(), strict=True):
        _end(log, plan, outcome)
    control = next((name for name, fault in zip(names, plan.faults, strict=True) if fault == NO_FAULT), None)
    judged = sorted(traces[TWIN].held_out)
    seconds = round(time.perf_counter() - started, 1)
    return CaseStudy(
        plan=plan,
        logs=logs,
        description={**description, "seconds": seconds, "steps": _steps_done(plan, traces), "jobs": jobs},
        judged_steps=judged,
        held_out={name: [trace.held_out.get(step, math.nan) for step in judged] for name, trace in traces.items()},
        outcomes=outcomes,
        twin_matches_control=None if control is None else traces[control].held_out == traces[TWIN].held_out,
    )


def _check(plan: CaseStudyPlan, run: LiveRun) -> None:
    """Enter and leave every fault once, so that one that does not fit is known before any training."""
    state = run.state_dict()
    for spelling in plan.faults:
        fault = fault_of(spelling)
        if fault is not None:
            with fault.inject(run):
                pass
    run.load_state_dict(state)


def _train_all(plan: CaseStudyPlan, fork: Fork, out: Path, jobs: int, progress: OnProgress) -> dict[str, Trace]:
    """Name of a run, ``twin`` included → its trace."""
    spellings = {TWIN: "", **dict(zip(plan.run_names(), plan.faults, strict=True))}
    processes = min(jobs, len(spellings))
    if processes == 1:
        finished = ((name, train_fork(plan, name, spelling, fork, out)) for name, spelling in spellings.items())
        return {name: _told(plan, name, trace, progress) for name, trace in finished}
    packed, names = fork.packed(), list(spellings)
    tasks = [(plan, name, spelling, packed, out) for name, spelling in spellings.items()]
    done = {
        names[index]: _told(plan, names[index], trace, progress)
        for index, trace in in_fresh_processes(train_packed_fork, tasks, processes)
    }
    return {name: done[name] for name in spellings}


def _told(plan: CaseStudyPlan, name: str, trace: Trace, progress: OnProgress) -> Trace:
    progress(name, plan.steps - plan.first_disturbed + 1)
    return trace


def _steps_done(plan: CaseStudyPlan, traces: Mapping[str, Trace]) -> int:
    """Training steps of all runs together, the prefix counted once."""
    return plan.first_disturbed - 1 + sum(trace.last_step - plan.first_disturbed + 1 for trace in traces.values())


def _judge(plan: CaseStudyPlan, name: str, fault: str, traces: Mapping[str, Trace]) -> Outcome:
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
    terminal = terminal_event(outcome.kind, outcome.failure_step, outcome.reason, plan.steps)
    with open(log, "ab") as file:
        file.write(encode_event(terminal))
