"""Run a case study: one healthy prefix, then a fork for the twin and one for each fault."""

from __future__ import annotations

import logging
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers

from rmetric.faults import NO_FAULT, Fault, injected, parse_fault, severities_of
from rmetric.live.corpus import Corpus, standard_library
from rmetric.live.datasets import load_text_corpus, tokenized
from rmetric.live.models import tiny_model
from rmetric.live.models.memory import out_of_memory_in_one_line
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from rmetric.monitor.hardware import HardwareWatch
from rmetric.registry import load_plugins, plugin_errors
from rmetric.twins.recording import append_events, fault_entry, judge_against, log_config, record_fork, record_healthy
from rmetric.twins.snapshots import Snapshot, TruthRecord, train_to_end
from rmetric.twins.watching import close_hardware_watch, monitor_of, watching
from studies.case_study.plan import LORA, CaseStudyPlan
from studies.processes import in_fresh_processes, training_device

LOGGER = logging.getLogger("rmetric")
Parts = tuple[torch.nn.Module, Corpus, dict[str, Any], torch.dtype | None]
"""Model, text, description of the model, type of the forward pass where it is not the weights'."""


@lru_cache(maxsize=1)
def live_run(plan: CaseStudyPlan) -> tuple[LanguageModelRun, dict[str, Any]]:
    """A fresh run as planned, one a process, and its description."""
    load_plugins(plan.plugins)
    device = training_device(plan.device)
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
        "model": plan.model_name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "trainable_parameters": sum(parameter.numel() for parameter in trainable),
        **described,
        "dataset": corpus.name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return LanguageModelRun(model, optimizer, corpus, config), description


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


def fault_of(spelling: str) -> Fault | None:
    """The fault as it is written on the command line; ``None`` for ``NONE``, and for the twin's empty spelling."""
    return None if spelling in ("", NO_FAULT) else parse_fault(spelling)


def train_prefix(plan: CaseStudyPlan, run: LanguageModelRun, progress: OnProgress) -> Snapshot:
    """Train up to the step before the onset."""
    onset = plan.first_disturbed
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prefix.jsonl"
        with watching(run, monitor_of(run, log, {})) as monitor:
            _, snapshots = record_healthy(
                plan,
                run,
                monitor,
                log,
                onsets=(onset,),
                until=onset - 1,
                on_step=lambda step: progress("healthy prefix", 1),
            )
    return snapshots[onset]


def train_packed_fork(plan: CaseStudyPlan, name: str, spelling: str, packed: bytes, out: Path) -> TruthRecord:
    """Call :func:`train_fork` in another process."""
    return train_fork(plan, name, spelling, Snapshot.unpacked(packed), out)


def train_fork(plan: CaseStudyPlan, name: str, spelling: str, snapshot: Snapshot, out: Path) -> TruthRecord:
    """Train the twin, which nobody watches, or a fork with its log; to the horizon or to its failure."""
    run = live_run(plan)[0]
    if name == TWIN:
        truth = snapshot.truth.copy()
        train_to_end(plan, run.load_state_dict(snapshot.run), None, truth)
        return truth
    fault, config = fault_of(spelling), _config(plan, name, spelling, run)
    log = out / f"{name}.jsonl"
    with plugin_errors(name):
        return record_fork(plan, run, snapshot, log, config, fault=fault, details=f"{spelling} begins")


def _config(plan: CaseStudyPlan, name: str, spelling: str, run: LanguageModelRun) -> dict[str, Any]:
    own = {
        "experiment_id": name,
        "model_type": plan.model_name,
        "architecture": plan.model_name,
        "dataset": run.corpus.name,
        "seed": plan.seed,
        "num_workers": plan.workers,
        "total_training_steps": plan.steps,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": plan.batch_rows,
        "sequence_length": plan.sequence_length,
        "learning_rate": plan.peak_learning_rate,
        "fault_injection": fault_entry(fault_of(spelling), severities_of(spelling), plan.first_disturbed),
    }
    return log_config(run, own)


@dataclass(frozen=True)
class CaseStudy:
    """A finished case study: its runs and how they ended."""

    plan: CaseStudyPlan
    logs: tuple[Path, ...]
    """One a run, in the order of the plan."""
    description: dict[str, Any]
    """Model, text, versions, device and speed."""
    judged_steps: list[int]
    """Steps at which the held-out loss was taken."""
    held_out: dict[str, list[float]]
    """Name of a run (``twin`` included) → held-out loss at each judged step; NaN where the run had ended before."""
    twin_matches_control: bool | None
    """True if the control, which the monitor watched, and the twin, which it did not, agree to the last bit; ``None``
    without a control."""


def run_case_study(
    plan: CaseStudyPlan, out: Path, *, jobs: int = 1, on_progress: OnProgress | None = None
) -> CaseStudy:
    """Train, fork, break, judge.

    Parameters
    ----------
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
            truths = _train_all(plan, train_prefix(plan, run, progress), out, jobs, progress)
    finally:
        close_hardware_watch()
    names = plan.run_names()
    twin = truths[TWIN]
    judgements = {
        name: judge_against(twin, truths[name], faulty=fault != NO_FAULT)
        for name, fault in zip(names, plan.faults, strict=True)
    }
    logs = tuple(out / f"{name}.jsonl" for name in names)
    for log, judgement in zip(logs, judgements.values(), strict=True):
        append_events(log, judgement.last_event(plan.steps))
    control = next((name for name, fault in zip(names, plan.faults, strict=True) if fault == NO_FAULT), None)
    judged = sorted(twin.held_out)
    seconds = round(time.perf_counter() - started, 1)
    return CaseStudy(
        plan=plan,
        logs=logs,
        description={**description, "seconds": seconds, "steps": _steps_done(plan, truths), "jobs": jobs},
        judged_steps=judged,
        held_out={name: truth.losses_at(judged) for name, truth in truths.items()},
        twin_matches_control=None if control is None else truths[control].held_out == twin.held_out,
    )


def _check(plan: CaseStudyPlan, run: LanguageModelRun) -> None:
    """Enter and leave every fault once, so that one that does not fit is known before any training."""
    state = run.state_dict()
    for name, spelling in zip(plan.run_names(), plan.faults, strict=True):
        with plugin_errors(name):
            fault = fault_of(spelling)
            with nullcontext() if fault is None else injected(fault, run):
                pass
    run.load_state_dict(state)


def _train_all(
    plan: CaseStudyPlan, snapshot: Snapshot, out: Path, jobs: int, progress: OnProgress
) -> dict[str, TruthRecord]:
    """Name of a run, ``twin`` included → its truth."""
    spellings = {TWIN: "", **dict(zip(plan.run_names(), plan.faults, strict=True))}
    processes, forked = min(jobs, len(spellings)), plan.steps - plan.first_disturbed + 1
    done = {}
    if processes == 1:
        for name, spelling in spellings.items():
            done[name] = train_fork(plan, name, spelling, snapshot, out)
            progress(name, forked)
        return done
    packed, names = snapshot.packed(), list(spellings)
    tasks = [(plan, name, spelling, packed, out) for name, spelling in spellings.items()]
    for index, truth in in_fresh_processes(train_packed_fork, tasks, processes):
        done[names[index]] = truth
        progress(names[index], forked)
    return {name: done[name] for name in spellings}


def _steps_done(plan: CaseStudyPlan, truths: Mapping[str, TruthRecord]) -> int:
    """Training steps of all runs together, the prefix counted once."""
    return plan.first_disturbed - 1 + sum(truth.last_step - plan.first_disturbed + 1 for truth in truths.values())
