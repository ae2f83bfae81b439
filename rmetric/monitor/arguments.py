"""Check what a monitor is given, so that a mistake is one line before training and not a traceback in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rmetric.detectors import Detector
from rmetric.errors import UserError
from rmetric.monitor.hardware import HardwareReport, HardwareWatch
from rmetric.monitor.hardware.reports import Kind
from rmetric.monitor.notes import readable
from rmetric.monitor.ranks.hang_watch import HangWatch
from rmetric.monitor.record_interval import AUTO
from rmetric.monitor.sinks import Sink
from rmetric.monitor.worker_lost import UNKNOWN_WORKER


def check_trained(model: Any, optimizer: Any) -> None:
    """Raise :class:`UserError` unless these are a model with something to train and an optimizer."""
    if isinstance(model, torch.optim.Optimizer) and isinstance(optimizer, nn.Module):
        raise UserError("model and optimizer are swapped; call TrainingMonitor(model, optimizer)")
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be the torch module that is trained, not {_kind(model)}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        several = (
            "; of several, give the one that updates most of it" if isinstance(optimizer, list | tuple | dict) else ""
        )
        raise UserError(f"optimizer must be the torch optimizer of the model, not {_kind(optimizer)}{several}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError("a scripted model takes no hooks; give the monitor a model that torch.jit.script has not made")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise UserError(
            f"{type(model).__name__} has parameters that get their shapes in its first forward pass; make that before "
            "TrainingMonitor(model, optimizer)"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            f"{type(model).__name__} has no parameter with requires_grad=True; give the monitor the model that is "
            "trained, after its layers are unfrozen"
        )


def check_parameters(parameters: Any, model: nn.Module) -> list[nn.Parameter] | None:
    """Those of the model that are measured; raises :class:`UserError` unless one of them is trained."""
    if parameters is None:
        return None
    if not isinstance(parameters, Iterable):
        raise UserError(
            f"parameters must be those of the model, such as parameters=model.generator.parameters(); not "
            f"{parameters!r}"
        )
    chosen = [*parameters]
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    if trained.isdisjoint(map(id, chosen)):
        raise UserError(
            f"none of parameters= is a parameter of {type(model).__name__} with requires_grad=True; pass such as "
            "parameters=model.generator.parameters()"
        )
    return chosen


def stepping_optimizer(optimizer: Any) -> Any:
    """The optimizer that makes the steps.

    Inside wrappers that look like one but lack its hooks, as Accelerate's, or that let another one step, as common
    implementations of SAM do; any other as it is.
    """
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    base = getattr(optimizer, "base_optimizer", None)
    steps = isinstance(base, torch.optim.Optimizer) and base.param_groups is optimizer.param_groups
    return base if steps else optimizer


def usable_loss(loss: Any) -> Tensor | None:
    """A loss as a tensor; ``None`` if it is not one real number."""
    try:
        # a number is one of the host, in single precision, whatever the defaults of torch are
        dtype = torch.float32 if type(loss) is float else None
        tensor = loss if isinstance(loss, Tensor) else torch.as_tensor(loss, dtype=dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        return None
    readable = tensor.layout is torch.strided and not (tensor.is_complex() or tensor.is_quantized or tensor.is_meta)
    return tensor if readable and tensor.numel() == 1 else None


def check_recompute(recompute: Any) -> None:
    """Raise :class:`UserError` unless this is a function, or left out."""
    if recompute is not None and not callable(recompute):
        raise UserError(f"recompute must be a function that computes the step again, not {recompute!r}")


def returning_loss(recompute: Callable[[], Any]) -> Callable[[], Any]:
    """The same function, which raises :class:`UserError` unless it returns a loss."""

    def checked() -> Any:
        loss = recompute()
        if usable_loss(loss) is None:
            raise UserError(f"recompute must return the loss of the step; it has returned {_kind(loss)}")
        return loss

    return checked


def check_options(
    *, on_alert: Any, detectors: Any, config: Any, sinks: Any, scaler: Any, clock: Any, log: Any, hang: Any,
    hardware: Any, vocabulary: Any, update_entries: Any, announce: Any, sync: Any, attention_logits: Any,
    sigma_sq_every: Any, **_: Any,
) -> None:  # fmt: skip
    """Raise :class:`UserError` for an option of the wrong kind, with what to pass instead."""
    if on_alert is not None and not callable(on_alert):
        raise UserError(f"on_alert must be a function that takes an Alert, such as on_alert=print; not {on_alert!r}")
    if clock is not None and not callable(clock):
        raise UserError(f"clock must be a function that returns seconds, such as time.perf_counter; not {clock!r}")
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise UserError(f"scaler must be the torch.amp.GradScaler of the loop, or be left out; not {_kind(scaler)}")
    if config is not None and not isinstance(config, Mapping):
        raise UserError(f"config must be a dictionary, such as config={{'experiment_id': 'run 7'}}; not {config!r}")
    _check_items("detectors", detectors, str | Detector, "detectors=['numerics', 'r_metric_robust']")
    _check_items("sinks", sinks, Sink, "sinks=[TensorBoardSink('folder')]; a file for the log is log='run.jsonl'")
    if log is not None and not isinstance(log, str | PathLike):
        raise UserError(f"log must be the path of a file, such as log='run.jsonl'; not {log!r}")
    if vocabulary is not None:
        check_number("vocabulary", vocabulary, "tokens", least=2, example=50257)
    if update_entries is not None:
        check_number("update_entries", update_entries, "entries", example=16384)
    for name, given, kind in (("hang", hang, HangWatch), ("hardware", hardware, HardwareWatch)):
        if given is not None and not isinstance(given, bool | kind):
            raise UserError(f"{name} must be True, False, or a {kind.__name__}; not {given!r}")
    for name, given in (("announce", announce), ("sync", sync), ("attention_logits", attention_logits)):
        if not isinstance(given, int):
            raise UserError(f"{name} must be True or False; not {given!r}")
    check_number("sigma_sq_every", sigma_sq_every)


def check_number(name: str, number: Any, of: str = "steps", least: int = 1, example: int = 10) -> None:
    """Raise :class:`UserError` unless this is a whole number of something, at least ``least``."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise UserError(
            f"{name} must be a whole number of {of}, at least {least}, such as {name}={example}; not {number!r}"
        )


def check_record_interval(steps: Any, processes: int, **in_every_step: bool) -> None:
    """Raise :class:`UserError` unless it is ``"auto"`` or a number of steps, and goes with what else is asked for."""
    if steps != AUTO:
        check_number("record_every", steps)
    asked = [name for name, there in in_every_step.items() if there]
    if steps != 1 and asked:
        raise UserError(f"{asked[0]} looks at every step; leave it out, or leave record_every at 1, not {steps!r}")
    if steps == AUTO and processes > 1:
        raise UserError("record_every='auto' is for a training in one process; give a number of steps")


def check_state(state: Any) -> None:
    """Raise :class:`UserError` unless this is what a monitor's ``state_dict`` returned, or empty."""
    if isinstance(state, Mapping) and (not state or _is_state(state)):
        return
    parts = state.items() if isinstance(state, Mapping) else ()
    key = next((key for key, part in parts if _is_state(part)), None)
    hint = "what monitor.state_dict() has returned" if key is None else f"checkpoint[{key!r}], the monitor's part of it"
    raise UserError(f"this is not the state of a monitor; pass {hint}")


def _is_state(part: Any) -> bool:
    return isinstance(part, Mapping) and {"step", "history", "recorder"} <= part.keys()


def hardware_report(component: Any, kind: Any, worker: Any, details: Any) -> HardwareReport:
    """Report of a hardware event that a user saw; raises :class:`UserError` for a kind or a worker there is not."""
    if kind not in get_args(Kind):
        raise UserError(f"kind= of a hardware_event must be {' or '.join(get_args(Kind))}, not {kind!r}")
    number = readable(worker)
    if isinstance(number, bool) or not isinstance(number, int) or number < UNKNOWN_WORKER:
        raise UserError(f"worker= of a hardware_event must be the rank of a worker, such as worker=3; not {worker!r}")
    return HardwareReport(readable(str(component)), kind, number, readable(str(details)))


def _check_items(name: str, given: Any, kind: Any, example: str) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UserError(f"{name} must be a list, such as {example}; not {given!r}")
    for item in given:
        if not isinstance(item, kind):
            raise UserError(f"{name} cannot hold {item!r}; pass such as {example}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
