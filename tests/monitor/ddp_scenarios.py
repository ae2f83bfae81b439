"""What the processes of test_ddp.py do. Each scenario gets (folder, rank) and returns what can be told in JSON."""

from __future__ import annotations

import copy
import io
import logging
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from rmetric.detectors import StreamingDetector
from rmetric.faults import make_fault
from rmetric.live.corpus import BYTES, corpus_of
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from rmetric.measurements import Observation
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.dispersion import collectives, dispersion_source, mean_loss, workers
from rmetric.monitor.measures import GradientNorms, UpdateSize
from rmetric.monitor.mechanism import MechanismWatch, UpdateAlignment
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.repair import SkipUpdate
from rmetric.monitor.worker_lost import WorkerLost
from rmetric.signals import HardwareFailureRate
from tests.live.processes import main
from tests.monitor.common import events_of

STEPS = 4
SEED_THAT_TAKES_THE_SECOND = 10
"""With it NODE_FAILURE draws worker 1; the first process writes the log."""


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))


def _wrapped(**settings: Any) -> DistributedDataParallel:
    return DistributedDataParallel(_network(), **settings)


def _batch(rank: int, step: int, part: int = 0) -> Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1000 * rank + 10 * step + part)) + rank


def _loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


def _own_norm(model: nn.Module, batches: list[Tensor]) -> float:
    """Norm of this worker's own gradient, computed alone and in double precision."""
    alone = copy.deepcopy(model).double()
    alone.zero_grad()
    for batch in batches:
        (_loss(alone, batch.double()) / len(batches)).backward()
    return math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in alone.parameters()))


def _norm(model: nn.Module) -> float:
    return math.sqrt(sum(float(parameter.grad.double().square().sum()) for parameter in model.parameters()))


def _train(
    model: DistributedDataParallel, rank: int, *, accumulate: int = 1, sync_each: bool = False, spread: Any = None
) -> list[dict]:
    """Some steps, and of each what was collected and what it should have been."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(STEPS):
        batches = [_batch(rank, step, part) for part in range(accumulate)]
        own = _own_norm(model.module, batches)
        for batch in batches:
            with nullcontext() if sync_each or batch is batches[-1] else model.no_sync():
                (_loss(model, batch) / accumulate).backward()
        norms = spread.collect() if spread is not None else None
        found.append({"own": own, "mean": _norm(model), "norms": None if norms is None else norms.tolist()})
        optimizer.step()
        optimizer.zero_grad()
    return found


def _watched(
    rank: int, *, prepare: Callable[[DistributedDataParallel], object] | None = None, rounds: int = 1, **settings: Any
) -> dict[str, Any]:
    """Train with and without a spread."""
    train = {key: settings.pop(key) for key in ("accumulate", "sync_each") if key in settings}
    watched, alone = _wrapped(**settings), _wrapped(**settings)
    for model in (watched, alone):
        if prepare is not None:
            prepare(model)
    spread = dispersion_source(watched)
    steps = [step for _ in range(rounds) for step in _train(watched, rank, spread=spread, **train)]
    for _ in range(rounds):
        _train(alone, rank, **train)
    same = all(torch.equal(a, b) for a, b in zip(watched.parameters(), alone.parameters(), strict=True))
    return {"steps": steps, "same_as_unwatched": same, "source": spread.name}


def _watched_steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, monitor: TrainingMonitor, rank: int, steps: int = STEPS
) -> Iterator[float]:
    """Loss of each step of a plain loop, when it has been made."""
    for step in range(steps):
        loss = _loss(model, _batch(rank, step))
        loss.backward()
        monitor.step(loss)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


# -- DDP --------------------------------------------------------------------------------------------------------------


def _with_own_hook(model: DistributedDataParallel) -> None:
    model.register_comm_hook(None, default_hooks.allreduce_hook)


def _with_built_in_hook(model: DistributedDataParallel) -> None:
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


def _with_power_sgd(model: DistributedDataParallel) -> None:
    """A hook whose own collectives come from callbacks."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _messages() -> list[str]:
    """What is told from now on."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("rmetric").addHandler(handler)
    return messages


def _only_in_the_first_process(rank: int) -> dict[str, Any]:
    collectives.PATIENCE_S = 0.5
    messages = _messages()
    model = _wrapped()
    spread = dispersion_source(model) if rank == 0 else None
    found = {
        "steps": _train(model, rank, spread=spread),
        "hooks": len(model._forward_pre_hooks),
        "messages": [*messages],
    }
    collectives.PATIENCE_S = 30.0
    next(collectives.SERIAL) if rank else None  # so that the scenarios after this one count alike
    return found


def _given_up_by_one(rank: int) -> dict[str, Any]:
    """One process closes its spread; the others go on, and so does training."""
    model = _wrapped()
    spread = dispersion_source(model)
    _train(model, rank, spread=spread)
    if rank == 1:
        spread.close()
    steps = _train(model, rank, spread=spread)
    if rank == 0:
        spread.close()
    later = dispersion_source(model)
    return {"steps": steps, "a_later_one": _train(model, rank, spread=later)}


def _resumed(rank: int) -> dict[str, Any]:
    model = _wrapped()
    spread = dispersion_source(model)
    spread.start_measuring()
    return {"steps": _train(model, rank, spread=spread)}


def _uneven(rank: int) -> list[int]:
    """The first process has more batches than the second; DDP.join lets the second shadow it."""
    model = _wrapped()
    spread = dispersion_source(model)
    found = []
    with model.join():
        for step in range(3 + 2 * (rank == 0)):
            _loss(model, _batch(rank, step)).backward()
            norms = spread.collect()
            found.append(0 if norms is None else int((norms > 0).sum()))
            model.zero_grad()
    return found


def _uneven_alike(rank: int) -> bool:
    """Whether gradients that are averaged over those who still have batches are the same with and without a spread."""
    watched, alone = _wrapped(), _wrapped()
    spread = dispersion_source(watched)
    for model in (watched, alone):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.join(divide_by_initial_world_size=False):
            for step in range(3 + 2 * (rank == 0)):
                _loss(model, _batch(rank, step)).backward()
                if model is watched:
                    spread.collect()
                optimizer.step()
                optimizer.zero_grad()
    return all(torch.equal(a, b) for a, b in zip(watched.parameters(), alone.parameters(), strict=True))


def _monitored(folder: Path, rank: int) -> list[float]:
    model = _wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log = folder / f"healthy_{rank}.jsonl"
    losses = []
    with TrainingMonitor(model, optimizer, log=log, hardware=False) as monitor:
        for step, loss in enumerate(_watched_steps(model, optimizer, monitor, rank)):
            losses.append(loss)
            if step == 2 and rank == 0:
                monitor.state_dict()  # one process alone saves; the mean of the step is in its record all the same
    return losses


def _copied(rank: int) -> dict[str, Any]:
    """Copies and a file of a model that is watched, and of one that was; a pass of each of them."""
    model = _wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    file = io.BytesIO()
    with TrainingMonitor(model, optimizer, hardware=False, announce=False) as monitor:
        deque(_watched_steps(model, optimizer, monitor, rank), maxlen=0)
        torch.save(model, file)
        loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        twins = [copy.deepcopy(model), AveragedModel(model).module, loaded]
        phases = monitor._run.clock._phases
        before = phases.place  # type: ignore[union-attr]
        for twin in twins:
            _loss(twin, _batch(rank, STEPS)).backward()
        driven = phases.place is not before  # type: ignore[union-attr]
    twins.append(copy.deepcopy(model))
    for each in (model, twins[-1]):
        _loss(each, _batch(rank, STEPS)).backward()
    alike = [_norm(twin) == _norm(model) for twin in twins]
    hooked = [workers.communication_of(each) is not None for each in (model, *twins)]
    return {"driven": driven, "alike": alike, "hooked": hooked}


VOTING = ("error_sync", "error_policy", "error_before_policy")
"""Ways to be left by one process in which all of them vote in each step."""


class _Raises(StreamingDetector):
    """Ends the monitor of its process."""

    name = "raises"

    def __init__(self) -> None:
        super().__init__(threshold=0.0)

    def update(self, observation: Observation) -> float:
        raise ZeroDivisionError("as detectors do")


def _left_by_one(folder: Path, rank: int, how: str) -> dict[str, Any]:
    """The second process goes on without its monitor; a forward pass exchanges buffers, evaluation something else.

    ``how``: its monitor fails after (``error``) or before (``error_before_policy``) all have voted in a step; or is
    closed (``close``); or is not called any more (``forget``).
    """
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model, alone = DistributedDataParallel(network), DistributedDataParallel(copy.deepcopy(network))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, alone)]
    early = how == "error_before_policy"
    detectors: list[Any] = [_Raises()] if rank == 1 and how.startswith("error") and not early else ["numerics"]
    votes: dict[str, Any] = {"sync": True} if "sync" in how else {"policy": SkipUpdate()} if "policy" in how else {}
    log, mean_loss.PATIENCE_S = folder / f"left_{how}.jsonl", 0.5
    monitor = TrainingMonitor(model, optimizers[0], log=log, hardware=False, detectors=detectors, **votes)
    losses = []
    for step in range(8):
        if step == 4 and rank == 1 and how == "close":
            monitor.close()
        loss = _loss(model, _batch(rank, step))
        loss.backward()
        if not (how == "forget" and rank == 1 and step >= 4):
            losses.append(loss.item())
            monitor.step(loss.detach().as_subclass(_Unreadable) if early and rank == 1 and step == 4 else loss)
        optimizers[0].step()
        optimizers[0].zero_grad()
        dist.all_reduce(torch.ones(3))
    monitor.close()
    for step in range(8):
        _loss(alone, _batch(rank, step)).backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), alone.parameters(), strict=True))
    return {"losses": losses, "same": same, "enabled": monitor.enabled}


def _without_votes(rank: int, only_first: bool) -> dict[str, Any]:
    """A monitor that blocks and repairs in the first process alone, or with fewer batches in the second process."""
    model, messages = _wrapped(), _messages()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = rank == 0 or not only_first
    options: dict[str, Any] = {"sync": True, "policy": SkipUpdate(), "hardware": False, "announce": False}
    monitor = TrainingMonitor(model, optimizer, **options) if watched else None
    proceeded = []
    with nullcontext() if only_first else model.join():
        for step in range(STEPS + 2 * (rank == 0 and not only_first)):
            loss = _loss(model, _batch(rank, step))
            loss.backward()
            proceeded.append(monitor.step(loss) if monitor else True)
            optimizer.step()
            optimizer.zero_grad()
    if monitor:
        monitor.close()
    return {"proceeded": proceeded, "messages": [text for text in messages if "nothing is repaired" in text]}


def without_votes(folder: Path, rank: int) -> dict[str, Any]:
    """Trainings in which not every process can take part in a vote."""
    collectives.PATIENCE_S = 0.5
    return {"uneven": _without_votes(rank, False), "only_first": _without_votes(rank, True)}


def healthy(folder: Path, rank: int) -> dict[str, Any]:
    """All that needs no dead process, in one go: starting processes is what costs time."""
    return {
        "monitored": _monitored(folder, rank),
        **{how: _left_by_one(folder, rank, how) for how in ("error", "close", "forget", *VOTING)},
        "plain": _watched(rank),
        "many_buckets": _watched(rank, bucket_cap_mb=0.005),
        "views": _watched(rank, gradient_as_bucket_view=True),
        "unused": _watched(rank, find_unused_parameters=True),
        "accumulated": _watched(rank, accumulate=3),
        "averaged_each_pass": _watched(rank, accumulate=3, sync_each=True),
        "own_hook": _watched(rank, prepare=_with_own_hook),
        "own_hook_accumulated": _watched(rank, prepare=_with_own_hook, accumulate=3),
        "built_in_hook": _watched(rank, prepare=_with_built_in_hook),
        "power_sgd": _watched(rank, prepare=_with_power_sgd, rounds=10),
        "uneven_alike": _uneven_alike(rank),
        "only_first": _only_in_the_first_process(rank),
        "given_up_by_one": _given_up_by_one(rank),
        "resumed": _resumed(rank),
        "copied": _copied(rank),
        "uneven": _uneven(rank),
        "slow_network": _slow_network(rank),
        "sharded": _sharded(rank),
        "sharded_accumulated": _sharded(rank, accumulate=2),
        "sharded_each_pass": _sharded(rank, accumulate=2, sync_each=True),
        "sharded_root_empty": _sharded(rank, every=True),
        "sharded_in_part": _norms_of(rank, lambda network: fully_shard(network[0])),
        "ignored": _norms_of(rank, lambda network: fully_shard(network, ignored_params={*network[4].parameters()})),
        "tensor_parallel": _norms_of(rank, _in_columns_and_rows),
        "sampled": _sampled_parts(rank),
        "left_sharded": _left_sharded(folder / "left_sharded.jsonl", rank, fully_shard, "close"),
        "failed_sharded": _left_sharded(folder / "failed_sharded.jsonl", rank, fully_shard, "error"),
        "failed_late_sharded": _left_sharded(folder / "failed_late_sharded.jsonl", rank, fully_shard, "late"),
        "left_flat": _left_sharded(folder / "left_flat.jsonl", rank, _with_fsdp_1, "forget"),
    }


# -- FSDP2 ------------------------------------------------------------------------------------------------------------


def _sharded(rank: int, *, accumulate: int = 1, sync_each: bool = False, every: bool = False) -> dict[str, Any]:
    network, alone = _network(), _network()
    for layer in network if every else list(network)[:3]:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    model: Any = fully_shard(network)
    spread = dispersion_source(model)
    whole = GradientNorms(ModelParameters(model))
    found = []
    for step in range(STEPS):
        batches = [_batch(rank, step, part) for part in range(accumulate)]
        for batch in batches:
            model.set_requires_gradient_sync(sync_each or batch is batches[-1])
            (_loss(model, batch) / accumulate).backward()
        norms = spread.collect()
        total = torch.linalg.vector_norm(whole.measure(step)[1])  # type: ignore[arg-type]
        full = [parameter.grad.full_tensor() for parameter in model.parameters()]
        expected = torch.linalg.vector_norm(torch.cat([item.double().flatten() for item in full]))
        found.append(
            {
                "own": _own_norm(alone, batches),
                "norms": None if norms is None else norms.tolist(),
                "total": float(total),
                "expected": float(expected),
            }
        )
        model.zero_grad()  # the weights stay, so that the unsharded copy is the same
    spread.close()
    return {"steps": found, "source": spread.name}


def _in_columns_and_rows(network: nn.Module) -> None:
    parallelize_module(network, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})


def _norms_of(rank: int, shard: Callable[[Any], object]) -> dict[str, Any]:
    """Norms of a model of which a part is whole in every process, from a batch that all have."""
    model = _network()
    shard(model)
    measured = GradientNorms(ModelParameters(model))
    _loss(model, _batch(0, 0)).backward()
    gradients: list[Any] = [parameter.grad for parameter in model.parameters()]
    whole = [item.full_tensor() if hasattr(item, "full_tensor") else item for item in gradients]
    total = torch.linalg.vector_norm(measured.measure(1)[1])  # type: ignore[arg-type]
    return {"steps": [{"total": float(total), "expected": math.sqrt(sum(float(g.square().sum()) for g in whole))}]}


def replicas(folder: Path, rank: int) -> dict[str, Any]:
    """Losses of a process, where two replicas of the model have two shards each."""
    model: Any = fully_shard(_network(), mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with TrainingMonitor(model, optimizer, log=folder / "replicas.jsonl", hardware=False) as monitor:
        losses = [*_watched_steps(model, optimizer, monitor, rank)]
    return {"losses": losses}


def _with_fsdp_1(network: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(network, device_id=torch.device("cpu"), use_orig_params=True)


class _Unreadable(Tensor):
    """A loss at which a monitor fails."""

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise ZeroDivisionError("as classes do")


def _sampled_parts(rank: int) -> dict[str, Any]:
    """How many entries of its part of a model each process looks at; the second one has nothing of the small model."""
    model, small = _network(), nn.Linear(6, 1)
    messages, found = _messages(), {}
    for name, network in {"model": model, "small": small}.items():
        fully_shard(network)
        part = sum(item.to_local().numel() for item in network.parameters())  # type: ignore[attr-defined]
        entries = max(part // 8, 1)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        update = UpdateSize(ModelParameters(network), entries)
        alignment = UpdateAlignment(network, entries=entries)
        watch = MechanismWatch(network, optimizer, monitors=[alignment, "update"], stride=1)
        updates, seen = [], []
        for step in range(1, STEPS + 1):
            _loss(network, _batch(rank, step)).backward()
            updates.append(update.measure())
            pending = watch.step(step)
            seen.append({} if pending is None else dict(pending.read().values))
            optimizer.step()
            optimizer.zero_grad()
        kept = {"update": update.state_dict(), "update_alignment": alignment.state_dict()}
        found[name] = {
            "part": part,
            "asked": entries,
            "taken": {key: len(state["before"]) for key, state in kept.items()},
            "updates": [None if size is None else float(size) for size in updates],
            "seen": seen,
            "names": watch.names,
            "auto": MechanismWatch(network, optimizer).names,
        }
        watch.close()
    return {**found, "messages": [*messages]}


def _left_sharded(log: Path, rank: int, shard: Callable[[nn.Module], Any], how: str) -> dict[str, Any]:
    """The second process goes on without its monitor, of which the first one records every other step.

    ``how``: it is closed; or fails before (``error``) or after (``late``) the norms of a step are measured; or is not
    called any more (``forget``).
    """
    model = shard(_network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    messages = _messages()
    ends = False
    options: dict[str, Any] = {"clock": lambda: 1 / 0 if ends and how == "late" else time.perf_counter()}
    with TrainingMonitor(
        model, optimizer, log=log, hardware=False, announce=False, record_every=2, **options
    ) as monitor:
        for step in range(8):
            ends = rank == 1 and step == 3
            if ends and how in ("close", "forget"):
                monitor.close()
            loss = _loss(model, _batch(rank, step))
            loss.backward()
            if not (rank == 1 and step >= 3 and how == "forget"):
                monitor.step(loss.detach().as_subclass(_Unreadable) if ends and how == "error" else loss)
            optimizer.step()
            optimizer.zero_grad()
    return {
        "norms": [record.get("grad_norm") for record in events_of(log, "METRICS")] if rank == 0 else [],
        "remarks": [event["wrong"] for event in events_of(log, "CALL_ORDER")] if rank == 0 else [],
        "messages": [text for text in messages if "FSDP 1" in text],
    }


# -- faults -----------------------------------------------------------------------------------------------------------


class Bigrams(nn.Module):
    """The next byte from this one; transformers, which take seconds to import, are not needed here."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix, self.head = nn.Embedding(BYTES, 16), nn.Linear(16, 64), nn.Linear(64, BYTES)

    def forward(self, input_ids: Tensor, labels: Tensor) -> SimpleNamespace:
        logits = self.head(self.mix(self.embed(input_ids[:, :-1])).tanh())
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()))


def _live_run(seed: int = 0) -> LanguageModelRun:
    text = corpus_of("counting", (np.arange(4000) % 251).astype(np.uint8), BYTES)
    model = DistributedDataParallel(Bigrams(), bucket_cap_mb=0.02)
    config = LiveRunConfig(rows=2, length=16, workers=1, seed=seed)
    return LanguageModelRun(model, torch.optim.AdamW(model.parameters()), text, config)


def _slow_network(rank: int) -> dict[str, Any]:
    """The same run with and without a slow network, and how long each bucket waited."""
    waits: list[tuple[int, float]] = []
    fault = make_fault("NETWORK_DEGRADATION", "low", delay_ms=2.0, collectives_per_step=1000)
    run, twin = _live_run(), _live_run()
    losses = [[float(each.train_step()) for each in (run, twin)] for _ in range(2)]
    true_time = workers.time
    workers.time = SimpleNamespace(sleep=lambda seconds: waits.append((run.step, seconds)))  # type: ignore[assignment]
    try:
        with fault.inject(run):
            losses += [[float(each.train_step()) for each in (run, twin)] for _ in range(3)]
        losses += [[float(each.train_step()) for each in (run, twin)] for _ in range(2)]
    finally:
        workers.time = true_time
    same = all(torch.equal(a, b) for a, b in zip(run.model.parameters(), twin.model.parameters(), strict=True))
    buckets = len(run.model.reducer._get_zeros_like_grad_buckets())
    return {"losses": losses, "waits": waits, "same_weights": same, "buckets": buckets}


def killed(folder: Path, rank: int) -> dict[str, Any]:
    """NODE_FAILURE kills one of the processes in earnest, and the other one has to cope."""
    run = _live_run(seed=SEED_THAT_TAKES_THE_SECOND)
    fault = make_fault("NODE_FAILURE", "high", incubation_steps=2.0, events_per_step=0.0)
    found: dict[str, Any] = {}
    try:
        with TrainingMonitor(run.model, run.optimizer, log=folder / "survivor.jsonl", hardware=False) as monitor:
            run.observer = monitor
            run.train_step()
            with fault.inject(run):
                for _ in range(100):
                    run.train_step()
    except RuntimeError as error:
        rate = HardwareFailureRate(start_s=0.0)
        if WorkerLost.caused(error):
            rate.update(36.0)
        found = {"step": run.step, "lambda": rate.value, "worker": WorkerLost.worker_of(error)}
    return found


def killed_in_two_lines(folder: Path, rank: int) -> None:
    """The second process is killed; the first is left by what its next collective raises, and nobody catches it."""
    model = _wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = TrainingMonitor(model, optimizer, log=folder / "survivor.jsonl", hardware=False, sync=True)
    for made, _ in enumerate(_watched_steps(model, optimizer, monitor, rank, 100), start=1):
        if rank == 1 and made == STEPS:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(
        {
            "healthy": healthy,
            "without_votes": without_votes,
            "replicas": replicas,
            "killed": killed,
            "killed_in_two_lines": killed_in_two_lines,
        }
    )
