"""σ² over the workers of ``DistributedDataParallel``: the norm of each worker's own gradient."""

# No postponed annotations here: DDP compares those of a communication hook with the types themselves.
import time
from weakref import WeakKeyDictionary, proxy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from rmetric.errors import UserError
from rmetric.monitor.dispersion.collectives import CollectiveGuard, NormGather, OwnTimes, WorkerExchange
from rmetric.monitor.dispersion.mean_loss import group_beside
from rmetric.monitor.loop_probes import PassHook

Reduced = torch.futures.Future[Tensor]


class WorkerDispersion(WorkerExchange):
    """Gradient norms of the workers, from the second step on.

    In the first step all processes agree that each of them has a monitor; nothing is hooked before that, or if they do
    not. Then a communication hook takes the norm of each bucket before it is averaged. With gradient accumulation under
    ``no_sync`` that is the norm of what the worker has accumulated.

    DDP allows one communication hook and cannot remove it. If there is one already (say, one that compresses), hooks on
    the parameters take the norms instead, one small kernel a parameter; re-entrant checkpointing does not go with that.
    Once hooked, every process keeps exchanging its norm, also after :meth:`close`: the others still wait for it. A
    process that has run out of batches (``DDP.join``) counts with a norm of 0.

    Raises :class:`UserError` if the process group of the model does not exist any more.
    """

    def __init__(self, model: DistributedDataParallel, own_times: OwnTimes, guard: CollectiveGuard) -> None:
        if not dist.is_initialized():
            raise UserError(
                "the model is wrapped by DistributedDataParallel but there is no process group; "
                "call torch.distributed.init_process_group first, or give the bare model"
            )
        super().__init__(model.process_group, lambda: _hooked(model, own_times), guard)


class Communication:
    """State of the communication hook: its work beyond what DDP does by default."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.group = model.process_group
        self._model = proxy(model)
        self._workers: Tensor | float = self.group.size()
        self.gather: NormGather | None = None
        """Receives every bucket; ``None``: nothing is measured."""
        self.delay_s = 0.0
        """Delay before each bucket is sent: a network that has become slow."""

    def workers(self, bucket: dist.GradBucket) -> Tensor | float:  # type: ignore[name-defined]
        """Number of workers over which a bucket is averaged: all, or under ``DDP.join`` those that still train."""
        joined = self._model._join_config.enable and not self._model._divide_by_initial_world_size
        if not joined:
            return self.group.size()
        if bucket.index() == 0:
            trains = torch._C._current_graph_task_id() != -1  # one that is done sends zeros, and runs no backward pass
            self._workers = torch.full((1,), float(trains), device=bucket.buffer().device)
            dist.all_reduce(self._workers, group=self.group)
        return self._workers


_COMMUNICATIONS: WeakKeyDictionary[DistributedDataParallel, Communication] = WeakKeyDictionary()
"""Models that have this package's communication hook."""


def communicate(state: Communication, bucket: dist.GradBucket) -> Reduced:  # type: ignore[name-defined]
    """Average a bucket over the workers as DDP does by default: divide, then one asynchronous all-reduce."""
    gradient = bucket.buffer()
    if state.delay_s:
        time.sleep(state.delay_s)
    if state.gather is not None:
        if bucket.index() == 0:
            state.gather.begin()
        state.gather.add(gradient)
    gradient.mul_(1.0 / state.workers(bucket))  # as torch does, to the last bit
    reduced = dist.all_reduce(gradient, group=state.group, async_op=True).get_future()
    if state.gather is not None and bucket.is_last():
        state.gather.finish()
    averaged: Reduced = reduced.then(lambda done: done.value()[0])
    return averaged


def communication_of(model: nn.Module) -> Communication | None:
    """Return the state of this package's communication hook, which is registered if there is none yet.

    ``None``: there is another hook, or no ``DistributedDataParallel``.
    """
    if not isinstance(model, DistributedDataParallel):
        return None
    if model in _COMMUNICATIONS:
        return _COMMUNICATIONS[model]
    if model._comm_hooks:
        return None
    state = Communication(model)
    try:
        model.register_comm_hook(state, communicate)
    except RuntimeError:  # DDP does not list its built-in hooks, and has one
        return None
    finally:
        model._comm_hooks.pop()  # what it lists would come into copies and files, and a process group can be in none
    _COMMUNICATIONS[model] = state
    return state


def _hooked(model: DistributedDataParallel, own_times: OwnTimes) -> NormGather:
    """Make a gather that receives every gradient of the model from now on."""
    communication = communication_of(model)
    if communication is None:
        # Beside collectives that are not ours the exchange has a group of its own: theirs come from callbacks, too, and
        # so in another order in every process.
        gather = _gather_of(model, own_times, group_beside(model.process_group))
        _ParameterHooks(model, gather)
        return gather
    if communication.gather is None:
        communication.gather = _gather_of(model, own_times, model.process_group)
    communication.gather.collect()  # what a source before this one has not fetched
    communication.gather.own_times = own_times
    return communication.gather


def _gather_of(model: DistributedDataParallel, own_times: OwnTimes, group: dist.ProcessGroup) -> NormGather:
    watched = proxy(model)  # the gather is kept by the model's communication
    gather = NormGather(group, own_times, lambda: bool(watched._join_config.enable))
    model.register_forward_pre_hook(PassHook(gather.losses.settle))  # a forward pass may exchange buffers
    return gather


class _ParameterHooks:
    """Hands a gather the gradients of a model that has another communication hook. The hooks stay, see above."""

    def __init__(self, model: DistributedDataParallel, gather: NormGather) -> None:
        self._model, self._gather = model, gather
        self._pass = -1
        self.handles: list[RemovableHandle] = [
            parameter.register_post_accumulate_grad_hook(self._accumulated)
            for parameter in model.parameters()
            if parameter.requires_grad
        ]

    def _accumulated(self, parameter: nn.Parameter | Tensor) -> None:
        if not self._model.require_forward_param_sync or self._model._join_config.enable:
            return  # under no_sync nothing is averaged; under join those who are done run no backward pass
        current = torch._C._current_graph_task_id()
        if current != self._pass:
            self._pass = current
            self._gather.begin()
            torch.autograd.Variable._execution_engine.queue_callback(self._gather.finish)
        assert parameter.grad is not None
        self._gather.add(parameter.grad)
