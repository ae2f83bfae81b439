"""Layers that are unfrozen, added, removed or replaced in training are watched from their first gradient on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rmetric
from rmetric.advice import TRAINED
from rmetric.monitor import Alert, TrainingMonitor
from rmetric.monitor.estimators import FROZEN_RECORDS
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.repair import RecomputeStep
from tests.live.live import read
from tests.monitor.common import events_of


class Layers(nn.Module):
    """Layers of one width, one after the other; counts how often its parameters are listed."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))
        self.listed = 0

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.listed += 1
        return super().named_modules(*args, **kwargs)

    def forward(self, data: Tensor) -> Tensor:
        for layer in self.layers:
            data = layer(data).tanh()
        return data


def batch(step: int) -> Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(step))


class Training:
    """A model whose layers change, and its optimizer, made anew with each change as users do."""

    def __init__(self, model: Layers, micro_batches: int = 1) -> None:
        self.model, self.micro_batches, self.step = model, micro_batches, 0
        self.renew()

    def renew(self) -> None:
        self.optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], lr=0.1)

    def compute(self, poison: Callable[[], Tensor] | None = None) -> Tensor:
        self.optimizer.zero_grad()
        loss = torch.zeros(())
        for data in batch(self.step).chunk(self.micro_batches):
            part = (self.model(data) - data).square().mean() / self.micro_batches
            part.backward()
            loss = loss + part.detach()
        if poison is not None:
            poison().view(-1)[0] = math.nan
        return loss

    def train(self, monitor: TrainingMonitor, steps: int, poison: Callable[[], Tensor] | None = None) -> list[bool]:
        proceeded = []
        for _ in range(steps):
            self.step += 1
            proceeded.append(monitor.step(self.compute(poison), recompute=self.compute))
            if proceeded[-1]:
                self.optimizer.step()
        return proceeded


def unfreeze(training: Training) -> nn.Module:
    return training.model.layers[0].requires_grad_(True)


def add(training: Training) -> nn.Module:
    training.model.layers.append(nn.Linear(4, 4))
    return training.model.layers[-1]


def replace(training: Training) -> nn.Module:
    training.model.layers[1] = nn.Linear(4, 4)
    return training.model.layers[1]


def replace_weight(training: Training) -> nn.Module:
    training.model.layers[1].weight = nn.Parameter(torch.eye(4))
    return training.model.layers[1]


def remove_before(training: Training) -> nn.Module:
    del training.model.layers[1]
    return training.model.layers[1]


CHANGES = {
    "unfrozen": (unfreeze, "layers.0.weight"),
    "added": (add, "layers.3.weight"),
    "replaced": (replace, "layers.1.weight"),
    "replaced weight": (replace_weight, "layers.1.weight"),
    "another removed": (remove_before, "layers.1.weight"),
}


def frozen() -> Training:
    model = Layers()
    model.layers[0].requires_grad_(False)
    return Training(model)


@pytest.mark.parametrize("change", CHANGES)
def test_its_first_gradient_is_seen_and_named(change: str) -> None:
    make, name = CHANGES[change]
    training = frozen()
    alerts: list[Alert] = []
    options: dict[str, Any] = {"sync": True, "detectors": ["numerics"], "on_alert": alerts.append}
    with TrainingMonitor(training.model, training.optimizer, hardware=False, **options) as monitor:
        assert training.train(monitor, 3) == [True] * 3
        layer: Any = make(training)
        training.renew()
        assert training.train(monitor, 1, poison=lambda: layer.weight.grad) == [False]
        assert training.train(monitor, 2) == [True] * 2
    [alert] = alerts
    assert alert.step == 4 and f"the gradient of {name} is not finite" in alert.message


@pytest.mark.parametrize("change", CHANGES)
def test_its_gradient_is_repaired(change: str) -> None:
    training = frozen()
    policy = RecomputeStep(rehearsal=False)
    with TrainingMonitor(training.model, training.optimizer, hardware=False, policy=policy) as monitor:
        training.train(monitor, 25)
        layer: Any = CHANGES[change][0](training)
        training.renew()
        training.train(monitor, 1, poison=lambda: layer.weight.grad)
        training.train(monitor, 2)
        assert monitor.enabled
        assert [(repair.step, repair.verdict) for repair in monitor.repairs if repair.step == 26] == [(26, "transient")]
    assert all(parameter.isfinite().all() for parameter in training.model.parameters())


@pytest.mark.parametrize("change", CHANGES)
def test_gradient_norm_and_update_are_those_of_all_parameters(change: str, tmp_path: Path) -> None:
    training, log = frozen(), tmp_path / "run.jsonl"
    norms, updates = [], [math.nan]
    with TrainingMonitor(training.model, training.optimizer, log=log, hardware=False, update_entries=None) as monitor:
        for step in range(1, 7):
            if step == 4:
                CHANGES[change][0](training)
                training.renew()
            trained = [p for p in training.model.parameters() if p.requires_grad]
            before = [p.detach().clone() for p in trained]
            training.train(monitor, 1)
            norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in trained)))
            moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(trained, before, strict=True)])
            updates.append(float(moved.square().mean().sqrt()))
    seen = read(log).observations
    assert seen["grad_norm"].tolist() == pytest.approx(norms, rel=1e-5)
    there = [2, 3, 5, 6]  # in step 4 the old parameters' update is told
    assert [seen["update_rms"][s - 1] for s in there] == pytest.approx([updates[s - 1] for s in there], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frozen", "told"),
    [(range(150), {1: 2.0, 151: 6.0}), (range(100, 200), {1: 6.0, 132: 2.0, 201: 6.0})],
    ids=["from the beginning", "for a while"],
)
def test_layers_that_are_unfrozen_are_no_alert(frozen: range, told: dict[int, float], tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = pairwise((16, 64, 64, 4))
    model = nn.Sequential(*(layer for size in sizes for layer in (nn.Linear(*size), nn.Tanh())))
    optimizer, log = torch.optim.AdamW(model.parameters(), lr=1e-3), tmp_path / "run.jsonl"
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False) as monitor:
        for step in range(300):
            model[:4].requires_grad_(step not in frozen)
            inputs = torch.randn(32, 16)
            loss = nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long())
            loss.backward()
            monitor.step(loss)
            optimizer.step()
            optimizer.zero_grad()
    seen = read(log).observations
    parameters = zip(seen.step.tolist(), seen["trained_parameters"].tolist(), strict=True)
    assert {step: number for step, number in parameters if number == number} == told
    assert seen["update_rms"][frozen.stop + 10] > 1.2 * seen["update_rms"][frozen.stop - 10]
    assert monitor.alerts == {}


@pytest.mark.parametrize("announced", [False, True])
def test_layers_that_are_frozen_by_accident_are_told_of_once_and_are_no_alert(
    announced: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training, log = Training(Layers()), tmp_path / "run.jsonl"
    first, *_ = training.model.parameters()
    with TrainingMonitor(training.model, training.optimizer, log=log, hardware=False) as monitor:
        for frozen in (False, True) * 3:  # what comes again is known
            if frozen and announced:
                monitor.planned("freeze the first layer")
            first.requires_grad_(not frozen)
            training.train(monitor, 40)
    change = {"step": 40 + FROZEN_RECORDS, "setting": TRAINED, "before": 6.0, "now": 5.0}
    lines = [{name: line[name] for name in change} for line in events_of(log, "SETTING_CHANGED")]
    assert lines == ([] if announced else [change])
    assert sum(TRAINED in record.getMessage() for record in caplog.records) == len(lines)
    assert monitor.alerts == {}
    (note,) = (note for note in rmetric.diagnose(log).notes if "tensors" in note)
    assert note == "fewer tensors were trained by step 72 (5, not 6), step 152 (5, not 6), step 232 (5, not 6)"


def test_micro_batches_of_an_unfrozen_layer_count_from_the_next_step_on(tmp_path: Path) -> None:
    model = Layers()
    model.layers[0].requires_grad_(False)
    training, log = Training(model, micro_batches=2), tmp_path / "run.jsonl"
    with TrainingMonitor(model, training.optimizer, log=log, hardware=False) as monitor:
        training.train(monitor, 3)
        unfreeze(training)
        training.renew()
        training.train(monitor, 1)
        norms, alone = [], Layers()
        alone.load_state_dict(model.state_dict())
        for data in batch(5).chunk(2):
            alone.zero_grad()
            (alone(data) - data).square().mean().backward()
            norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in alone.parameters())))
        training.train(monitor, 1)
    assert read(log).observations["sigma_sq"][-1] == pytest.approx(
        float(torch.tensor(norms).var(correction=0)), rel=1e-3
    )


def test_a_layer_that_is_frozen_as_a_run_is_resumed_counts_once_it_is_trained_again() -> None:
    def dispersion(resume: bool) -> float:
        training = Training(Layers(), micro_batches=3)
        monitor = TrainingMonitor(training.model, training.optimizer, hardware=False)
        training.train(monitor, 4)
        training.model.layers[0].requires_grad_(False)
        training.train(monitor, 4)
        if resume:
            state = monitor.state_dict()
            monitor.detach()
            monitor = TrainingMonitor(training.model, training.optimizer, hardware=False)
            monitor.load_state_dict(state)
        training.train(monitor, 4)
        training.model.requires_grad_()
        training.train(monitor, 4)
        monitor.close()
        return monitor.last["sigma_sq"]

    assert dispersion(resume=True) == dispersion(resume=False) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["frozen again at first", "as it was left"])
def test_a_resumed_run_with_unfrozen_layers_writes_the_same_log(tmp_path: Path, at_once: bool) -> None:
    def begin(name: str, training: Training) -> TrainingMonitor:
        options: dict[str, Any] = {"log": tmp_path / name, "hardware": False, "clock": lambda: 0.0}
        return TrainingMonitor(training.model, training.optimizer, policy=RecomputeStep(rehearsal=False), **options)

    def thaw(training: Training) -> None:
        training.optimizer.add_param_group({"params": [*unfreeze(training).parameters()]})

    straight = frozen()
    monitor = begin("straight.jsonl", straight)
    straight.train(monitor, 4)
    thaw(straight)
    straight.train(monitor, 4)
    monitor.state_dict()
    straight.train(monitor, 100)
    monitor.close()

    first = frozen()
    monitor = begin("resumed.jsonl", first)
    first.train(monitor, 4)
    thaw(first)
    first.train(monitor, 4)
    state, weights = monitor.state_dict(), {name: value.clone() for name, value in first.model.state_dict().items()}
    first.train(monitor, 3)
    monitor.detach()

    second = frozen()
    if at_once:
        thaw(second)
    monitor = begin("resumed.jsonl", second)
    second.model.load_state_dict(weights)
    second.step = 8
    monitor.load_state_dict(state)
    if not at_once:
        thaw(second)
    second.train(monitor, 100)
    assert monitor.enabled
    monitor.close()
    resumed, whole = ((tmp_path / name).read_bytes().splitlines() for name in ("resumed.jsonl", "straight.jsonl"))
    assert resumed == whole


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("at", [1, 6])
def test_a_parameter_that_is_resized_in_place_is_watched_on(width: int, at: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes, agreements = [], []
    with TrainingMonitor(model, optimizer, hardware=False, sync=True) as monitor:
        for step in range(1, 12):
            if step == at:  # as transformers resizes the embeddings of a vocabulary
                model[0].weight.data, model[0].bias.data = torch.randn(width, 4), torch.zeros(width)
                model[1].weight.data = torch.randn(3, width)
            model(batch(step)).square().mean().backward()
            monitor.step(1.0)
            sizes.append(monitor.last["update_rms"])
            agreements.append(monitor.last["grad_agreement"])
            optimizer.step()
            optimizer.zero_grad()
        assert monitor.enabled
    unknown = [step for step, size in enumerate(sizes, 1) if math.isnan(size)]
    assert unknown == [step for step, size in enumerate(agreements, 1) if math.isnan(size)] == sorted({1, at})


def test_the_model_is_listed_anew_only_where_it_has_changed() -> None:
    training = frozen()
    with TrainingMonitor(training.model, training.optimizer, hardware=False) as monitor:
        training.train(monitor, 2)
        training.model.listed = 0
        training.train(monitor, 5)
        assert training.model.listed == 0
        add(training)
        training.train(monitor, 5)
        assert 0 < training.model.listed < 10


def test_numbers_are_kept_and_a_parameter_that_is_gone_has_no_gradient() -> None:
    model = Layers(2)
    parameters = ModelParameters(model)
    assert parameters.names == [name for name, _ in model.named_parameters()]
    (model(batch(1)).sum()).backward()
    gone = model.layers[0].weight
    del model.layers[0]
    parameters.refresh()
    place = parameters.names.index("layers.1.weight")
    assert parameters.names == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
    assert parameters.tensors[0] is model.layers[0].weight and parameters.tensors[place].grad is None
    assert gone.grad is not None and all(tensor is not gone for tensor in parameters.tensors)


def test_a_parameter_without_memory_is_left_out_until_it_has_some() -> None:
    model = Layers(2)
    model.spare = nn.Parameter(torch.empty(3, device="meta"))
    training = Training(model)
    with TrainingMonitor(model, training.optimizer, hardware=False) as monitor:
        training.train(monitor, 4)
        assert monitor.enabled and monitor.last is not None
    parameters = ModelParameters(model)
    assert "spare" not in parameters.names
    model.spare = nn.Parameter(torch.ones(3))
    parameters.refresh()
    assert "spare" in parameters.names
