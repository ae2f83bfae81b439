"""The monitor in the Trainer of transformers."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from torch import nn

from rmetric.attributes import replaced
from rmetric.errors import LOGGER, UserError
from rmetric.files import write_atomically
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.adapters.accelerate import watched
from rmetric.monitor.adapters.framework_log import FrameworkLog
from rmetric.monitor.adapters.hooks import (
    REWARD,
    PoliciesOfEachFit,
    UnseenPasses,
    check_option_names,
    log_errors,
    options_of_monitor,
    tell_other_names,
)
from rmetric.monitor.adapters.kept_checkpoints import KeptCheckpoints, load_optimizer_state
from rmetric.monitor.ending import AtExit, close_all
from rmetric.monitor.repair.policy import Policy
from rmetric.monitor.sinks.base import optional_module

_transformers: Any = optional_module("transformers", "transformers", "'rmetric[live]'")
_TrainerCallback: Any = _transformers.TrainerCallback
_Accelerator: Any = optional_module("accelerate", "Accelerate, which the Trainer needs,", "accelerate").Accelerator
STATE_FILE = "rmetric_monitor.pt"
ADAPTER = "adapter_model.safetensors"
THEIRS = ("learning_rate", "grad_norm")
"""Fields that the Trainer logs by itself."""
FETCH = "get_batch_samples"
"""Method of the Trainer that is called before the forward passes of each step; subclasses make their own."""


class _LeftError(Exception):
    """The training was left without an event of its end."""


class RMetricCallback(_TrainerCallback):  # type: ignore[misc]
    """Watches a stock Trainer: ``Trainer(..., callbacks=[RMetricCallback(log="run.jsonl")])``.

    Gradients are seen unclipped, with every micro-batch of gradient accumulation; the loss is that of the step, as it
    is backpropagated. A ``reward`` that the training logs, as TRL's trainers of agents do, is that of the next record.
    Wherever the Trainer reports to (``report_to``), its training logs bring ``rmetric/<field>`` and ``rmetric/alerts``,
    at once after an alert where it trains in one process; an open run of Weights & Biases gets each alert as an alert.
    The state goes to ``rmetric_monitor.pt`` in each checkpoint and is taken up by
    ``trainer.train(resume_from_checkpoint=...)``. With ``policy=GoBack(every=0)`` a run that fails goes back to the
    Trainer's own checkpoints, which are kept from rotation; ``global_step``, schedule and data go on.

    Parameters
    ----------
    validation_key
        Metric of an evaluation that is the validation loss.
    checkpoint
        Folder of the checkpoint that is resumed, where it is not ``output_dir/checkpoint-<step>``.
    **options
        Of :class:`TrainingMonitor`.

    Raises
    ------
    UserError
        For an option that there is not.
    """

    def __init__(
        self, *, validation_key: str = "eval_loss", checkpoint: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        check_option_names(RMetricCallback, options)
        self.monitor: TrainingMonitor | None = None
        """The monitor, from the first backward pass on."""
        self._policies = PoliciesOfEachFit(options.pop("policy", None))
        self._validation_key, self._checkpoint, self._options = validation_key, checkpoint, options
        self._early: list[float] = []
        self._unseen: UnseenPasses | None = None
        self._evaluated = False
        """True once there was a validation loss, or it was said that there is none."""
        self._other_losses: list[str] = []
        """Names of what was evaluated in this step."""
        self._reports = FrameworkLog(THEIRS)
        self._kept: KeptCheckpoints | None = None
        self._stack = ExitStack()
        self._at_exit: AtExit | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_: Any
    ) -> None:
        """Wait for the first batches and their backward pass.

        No event of the Trainer comes between the last backward pass of a step and clipping, and none tells of the loss;
        only ``accelerator.backward`` has both. A callback is given neither the accelerator nor, under DDP or compiled,
        the wrapped model. So the Trainer tells of that when it fetches its first batches, and the class of the
        accelerator is watched until the one of this training makes its first backward pass; from then on that one
        object is. (A hook that waits for the model to run forward is one that ``torch.compile`` warns of.)
        """
        self._leave()
        if vars(state).setdefault("rmetric_callback", self) is not self:  # every training has a state of its own
            LOGGER.warning("another RMetricCallback watches this training; this one does nothing, leave it out")
            return
        unseen = UnseenPasses("a training_step of your own calls self.accelerator.backward(loss), not loss.backward()")
        self._unseen = unseen
        self._at_exit = AtExit(self._leave)  # no event tells of an exception or of Ctrl-C
        original = _Accelerator.backward
        wrapped = model

        def telling(fetch: Callable[..., Any]) -> Callable[..., Any]:
            def first_batches(trainer: Any, *args: Any, **options: Any) -> Any:
                nonlocal wrapped
                if trainer.state is state:
                    wrapped = trainer.model_wrapped
                return fetch(trainer, *args, **options)

            return first_batches

        def first_backward(accelerator: Any, loss: torch.Tensor, **options: Any) -> None:
            if any(own is optimizer for own in accelerator._optimizers):
                self._stack.close()
                unseen.seen()
                with log_errors("the monitor's start"):
                    policies = self._policies.take()
                    self._kept = KeptCheckpoints(
                        policies,
                        lambda folder: _load_checkpoint(folder, model, optimizer),
                        writes=state.is_world_process_zero,
                    )
                    self._begin(accelerator, wrapped, optimizer, policies, args.output_dir, state.global_step)
                accelerator.backward(loss, **options)
            else:
                original(accelerator, loss, **options)

        for kind in _defining(_transformers.Trainer, FETCH):
            self._stack.enter_context(replaced(kind, FETCH, telling(vars(kind)[FETCH])))
        self._stack.enter_context(replaced(_Accelerator, "backward", first_backward))

    def _begin(
        self, accelerator: Any, model: nn.Module, optimizer: Any, policies: Sequence[Policy], output: str, step: int
    ) -> None:
        self._reports = FrameworkLog(THEIRS)
        options = options_of_monitor(self._options, self._reports, policies)
        # The Trainer has weighed each micro-batch: their sum is the loss of the step.
        monitor = self._stack.enter_context(watched(accelerator, model, optimizer, torch.sum, options))
        self._stack.enter_context(self._reporting())
        if step:
            self._resume(monitor, Path(self._checkpoint or _checkpoint(output, step)), step)
        for loss in self._early:
            monitor.validation(loss)
        self.monitor = monitor

    def _reporting(self) -> AbstractContextManager[None]:
        """Put the monitor's numbers into what the Trainer logs of its training, and hand on the reward of an agent.

        Reporters hear of a log before callbacks of the user do, so that one of these cannot add to it. A training that
        was left is not kept alive by this.
        """
        original, own = _transformers.Trainer.log, ref(self)

        def log(trainer: Any, logs: dict[str, float], *args: Any, **options: Any) -> None:
            callback = own()
            known = any(callback is other for other in trainer.callback_handler.callbacks)
            if callback is not None and known and "loss" in logs:
                if callback.monitor is not None and REWARD in logs:
                    callback.monitor.reward(logs[REWARD])
                logs.update(callback._reports.take())
            original(trainer, logs, *args, **options)

        return replaced(_transformers.Trainer, "log", log)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have the Trainer log after an alert; with several processes that would need all of them."""
        if self._unseen is not None:
            self._unseen.update()
        self._tell_other_losses()
        if self._reports.urgent and args.world_size == 1:
            control.should_log = True

    def _resume(self, monitor: TrainingMonitor, checkpoint: Path, step: int) -> None:
        monitor.step_number = step
        try:
            state = torch.load(checkpoint / STATE_FILE, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 - a damaged file must not end the training
            LOGGER.warning(
                "no state of the monitor in %s (%s); its baselines begin anew at step %d",
                checkpoint, type(error).__name__, step,
            )  # fmt: skip
        else:
            monitor.load_state_dict(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> None:
        """Hand on the validation loss; of several sets each comes under a name of its own."""
        loss = metrics.get(self._validation_key)
        if loss is not None and self.monitor is not None:
            self.monitor.validation(loss)
        elif loss is not None:
            self._early.append(loss)
        self._evaluated |= loss is not None
        self._other_losses += [name for name in metrics if name.endswith("loss")]

    def _tell_other_losses(self) -> None:
        """Say, once and when all sets are evaluated, that the validation loss has another name."""
        others, self._other_losses = self._other_losses, []
        if others and not self._evaluated:
            self._evaluated = True
            tell_other_names(type(self), others, self._validation_key)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = _checkpoint(args.output_dir, state.global_step)
        if state.is_world_process_zero and self.monitor is not None and self.monitor.enabled and folder.is_dir():
            with log_errors("saving the monitor's state"):
                content = io.BytesIO()
                torch.save(self.monitor.state_dict(), content)
                write_atomically(folder / STATE_FILE, content.getvalue())
        if self._kept is not None and self.monitor is not None and self.monitor.enabled:
            self._kept.offer(folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell_other_losses()
        self._stack.close()
        close_all([self._at_exit])

    def _leave(self) -> None:
        """Clean up after a training that did not reach its end."""
        self._stack.__exit__(_LeftError, _LeftError(), None)
        self._stack, self.monitor, self._early, self._unseen = ExitStack(), None, [], None
        close_all([self._at_exit])


def _defining(kind: type, name: str) -> set[type]:
    """Classes that define a method which an object of a class, or of any that is derived from it, has."""
    own = {base for base in kind.__mro__ if name in vars(base)}
    derived: list[type] = kind.__subclasses__()
    return own.union(*(_defining(each, name) for each in derived))


def _checkpoint(output: str, step: int) -> Path:
    return Path(output) / f"checkpoint-{step}"


def _load_checkpoint(folder: Path, model: nn.Module, optimizer: Any) -> None:
    """Load weights and optimizer state; the schedule keeps its place, as the Trainer's count of steps does.

    Supported: ``model.safetensors``, in one file or several, an adapter of PEFT, and ``optimizer.pt``. Not: checkpoints
    of DeepSpeed and of FSDP. Raises :class:`UserError` where weights or optimizer state are missing
    (``save_only_model``).
    """
    if not (folder / "optimizer.pt").exists():
        raise UserError(f"{folder} has no optimizer.pt; leave save_only_model off, or give GoBack(every=50)")
    _load_weights(folder, model)
    saved = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
    load_optimizer_state(optimizer, saved)


def _load_weights(folder: Path, model: nn.Module) -> None:
    from safetensors.torch import load_file

    if (folder / ADAPTER).exists():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(folder / ADAPTER))
        return
    files = sorted(folder.glob("model*.safetensors"))
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    if not tensors:
        raise UserError(f"{folder} has no model.safetensors; give GoBack(every=50), which keeps copies in memory")
    model.load_state_dict(tensors, strict=False)  # tied weights are saved once
