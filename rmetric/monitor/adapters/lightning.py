"""The monitor in the Trainer of Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rmetric.attributes import replaced
from rmetric.errors import LOGGER
from rmetric.monitor import TrainingMonitor
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
from rmetric.monitor.parameters import owned_by
from rmetric.monitor.sinks.base import optional_module
from rmetric.monitor.tensors import gathered

# Either package has hooks of the same names; a Trainer of one takes a callback of the other.
_PACKAGE = "lightning.pytorch" if find_spec("lightning") else "pytorch_lightning"
_Callback: Any = optional_module(_PACKAGE, "Lightning", "lightning").Callback
BY_HAND = (
    "call self.manual_backward(loss) in place of loss.backward(), with no step of another optimizer before its own"
)


class RMetricLightning(_Callback):  # type: ignore[misc]
    """Watches a Lightning Trainer: ``Trainer(..., callbacks=[RMetricLightning(log="run.jsonl")])``.

    Gradients are seen unscaled and unclipped, with every micro-batch of ``accumulate_grad_batches``. A ``reward`` that
    the module logs (``self.log("reward", ...)``) is that of the next record. Lightning's checkpoints carry the
    monitor's state. The Trainer's loggers get ``rmetric/<field>`` and ``rmetric/alerts`` every ``log_every_n_steps``,
    and at once after an alert; an open run of Weights & Biases gets each alert as an alert. With several optimizers the
    first one is watched, and of the module the parameters that it updates. With ``policy=GoBack(every=0)`` a run that
    fails goes back to the checkpoints of ``ModelCheckpoint``, which are kept from rotation; ``global_step``, schedule
    and data go on.
    A Trainer takes one of them: of two, Lightning says so (``RuntimeError``) when the Trainer is made.

    Parameters
    ----------
    validation_key
        Logged metric that is the validation loss.
    **options
        Of :class:`TrainingMonitor`.

    Raises
    ------
    UserError
        For an option that there is not.
    """

    def __init__(self, *, validation_key: str = "val_loss", **options: Any) -> None:
        check_option_names(RMetricLightning, options)
        self.monitor: TrainingMonitor | None = None
        """The monitor, from the start of the training on."""
        self._policies = PoliciesOfEachFit(options.pop("policy", None))
        self._validation_key, self._options = validation_key, options
        self._state: dict[str, Any] = {}
        """State of the checkpoint that is resumed, until the training starts."""
        self._losses: list[Tensor] = []
        self._rewarded: Tensor | None = None
        self._told_names = False
        self._asked_at, self._proceed = -1, True
        self._looked = self._vetoed = self._clips_between = False
        """Whether the next update was looked at before its clipping; whether the one that is due is left out; and
        whether this loop clips between the backward passes of an update."""
        self._stack = ExitStack()
        self._unseen = UnseenPasses(BY_HAND)
        self._kept: KeptCheckpoints | None = None
        self._offered: set[tuple[str, int]] = set()
        self._reports = FrameworkLog()
        self._reported = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch; the strategy has wrapped the model by now."""
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._asked_at, self._reported, self._losses = -1, 0, []
        self._looked = self._vetoed = self._clips_between = False
        self._stack.close()
        self._unseen = UnseenPasses(BY_HAND)
        policies = self._policies.take()
        self._kept = KeptCheckpoints(
            policies, lambda file: _load_checkpoint(trainer, file), writes=trainer.is_global_zero
        )
        self._offered = _written(trainer)
        with log_errors("the monitor's start"):
            self._reports = FrameworkLog()
            own = {"scaler": scaler, "parameters": _part_of_the_first(trainer.strategy.model, trainer.optimizers)}
            options = {**own, **options_of_monitor(self._options, self._reports, policies)}
            self.monitor = TrainingMonitor(trainer.strategy.model, trainer.optimizers[0], **options)
            self.monitor.step_number = trainer.global_step
            state, self._state = self._state, {}
            if state:
                self.monitor.load_state_dict(state)
            elif trainer.global_step:
                LOGGER.warning(
                    "the training goes on after step %d without a state of the monitor; its baselines begin anew",
                    trainer.global_step,
                )
            self._look_around_updates(trainer, pl_module)

    def _look_around_updates(self, trainer: Any, pl_module: Any) -> None:
        """Look before a module clips by itself, and take vetoed gradients away when nobody needs them any more.

        No hook comes after those of the module and clipping, which find no gradients where they were taken away before.
        A scaler has not unscaled yet when a module clips: then it is looked at after that. So is a loop that clips
        between the backward passes of an update, from the second clipping on.
        """
        plugin = trainer.precision_plugin
        scaled = getattr(plugin, "scaler", None) is not None
        clip, after_closure = plugin.clip_gradients, plugin._after_closure

        def clip_gradients(optimizer: Any, *args: Any, **options: Any) -> None:
            own = any(each is trainer.optimizers[0] for each in (optimizer, getattr(optimizer, "optimizer", None)))
            if own and self._losses and not (pl_module.automatic_optimization or scaled):
                self._clips_between |= self._looked
                if not self._clips_between:
                    self._looked = True
                    self._look(trainer, pl_module)
            clip(optimizer, *args, **options)

        def ready(model: Any, optimizer: Any) -> None:
            after_closure(model, optimizer)
            if self._vetoed:
                optimizer.zero_grad(set_to_none=True)  # an optimizer passes parameters without a gradient by

        self._stack.enter_context(replaced(plugin, "clip_gradients", clip_gradients))
        self._stack.enter_context(replaced(plugin, "_after_closure", ready))

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Keep the loss of a micro-batch."""
        if self.monitor is None:
            return
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scale = 1.0 if scaler is None else scaler.scale(torch.ones_like(loss))  # stays on the device
        self._losses.append((loss.detach() / scale).mean())

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Measure the step: Lightning has unscaled the gradients and clips them after this.

        An optimizer that evaluates its closure several times (LBFGS) comes here as often: the first time is the step's.
        """
        self._vetoed = False
        if self.monitor is None:
            return
        if optimizer is not trainer.optimizers[0]:
            self._losses = []  # those before the step of another optimizer are its own
            return
        looked, self._looked = self._looked, False
        if not looked and not self._losses:  # ``training_step`` has skipped the step
            if not pl_module.automatic_optimization:
                self._unseen.update()
            return
        if looked or self._asked_at == trainer.global_step:
            self._losses = []
        else:
            self._look(trainer, pl_module)
        self._vetoed = not self._proceed

    def _look(self, trainer: Any, pl_module: Any) -> None:
        assert self.monitor is not None
        self._unseen.seen()
        losses, self._losses = gathered(self._losses), []
        # Lightning divides each by their number; in manual optimisation their gradients add up as they are.
        loss = losses.mean() * trainer.accumulate_grad_batches if pl_module.automatic_optimization else losses.sum()
        self._offer_checkpoints(trainer)
        self._asked_at, self._proceed = trainer.global_step, self.monitor.step(loss)

    def _offer_checkpoints(self, trainer: Any) -> None:
        """Offer what the Trainer's checkpoint callbacks have written since the step before; no hook tells of it."""
        written = _written(trainer)
        for path, _ in sorted(written - self._offered) if self._kept is not None else ():
            self._kept.offer(Path(path))  # type: ignore[union-attr]
        self._offered = written

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Hand on a reward; report when it is time, once a step."""
        self._hand_on_reward(trainer)
        due = trainer.log_every_n_steps and trainer.global_step % trainer.log_every_n_steps == 0
        if (due or self._reports.urgent) and trainer.global_step > self._reported:
            self._report(trainer)

    def _hand_on_reward(self, trainer: Any) -> None:
        """Hand on what the module has logged since the last time; Lightning has its last reward there until another."""
        reward, last = trainer.callback_metrics.get(REWARD), self._rewarded
        if self.monitor is not None and reward is not None and (last is None or reward.data_ptr() != last.data_ptr()):
            self._rewarded = reward  # held, so that no other tensor is put in its place
            self.monitor.reward(reward)

    def _report(self, trainer: Any) -> None:
        values = self._reports.take()
        self._reported = trainer.global_step
        with log_errors("reporting to the loggers"):
            for logger in trainer.loggers if values else ():
                logger.log_metrics(values, step=trainer.global_step - 1)  # Lightning counts steps from 0

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self.monitor is None or trainer.sanity_checking:
            return
        loss = trainer.callback_metrics.get(self._validation_key)
        if loss is not None:
            self.monitor.validation(loss)
            return
        others = [
            name for name in trainer.callback_metrics if "val" in name.casefold() and "acc" not in name.casefold()
        ]
        if others and not self._told_names:
            self._told_names = True
            tell_other_names(type(self), others, self._validation_key)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.monitor is not None:
            self.monitor.close()
            self._report(trainer)
        self._stack.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the log incomplete, or end it with a lost worker."""
        if self.monitor is not None:
            self.monitor.__exit__(type(exception), exception, exception.__traceback__)
        self._stack.close()

    def state_dict(self) -> dict[str, Any]:
        """State for Lightning's checkpoint, also for one that is written after the end of the training."""
        return {} if self.monitor is None else self.monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state in Lightning's checkpoint until the training starts."""
        self._state = state_dict


def _part_of_the_first(
    model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> list[torch.nn.Parameter] | None:
    """What the first of several optimizers updates: of other networks there are gradients of earlier passes.

    ``None``: there is one optimizer, or the first trains nothing of the model.
    """
    owned = owned_by(optimizers[0])
    part = [parameter for parameter in model.parameters() if id(parameter) in owned]
    return part if len(optimizers) > 1 and any(parameter.requires_grad for parameter in part) else None


def _written(trainer: Any) -> set[tuple[str, int]]:
    """Latest checkpoint of each callback that writes them, and its step: ``last.ckpt`` is written again and again."""
    latest = (
        (getattr(callback, "_last_checkpoint_saved", ""), getattr(callback, "_last_global_step_saved", 0))
        for callback in trainer.checkpoint_callbacks
    )
    return {(str(path), step) for path, step in latest if path}


def _load_checkpoint(trainer: Any, file: Path) -> None:
    """Load weights and the optimizers' state in place; loops, callbacks and schedules go on."""
    saved = trainer.strategy.load_checkpoint(file)
    trainer.strategy.load_model_state_dict(saved, strict=True)
    for optimizer, state in zip(trainer.optimizers, saved["optimizer_states"], strict=True):
        load_optimizer_state(optimizer, state)
