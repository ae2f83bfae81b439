"""All monitors together in a live run: when they look, what they log, and that they change and break nothing."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmetric.detectors.mechanism import DeviationRule, Direction, OwnPastDetector
from rmetric.errors import UserError
from rmetric.live.run import LiveRun
from rmetric.measurements import MECHANISM
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.mechanism import MONITORS, STRIDE, MechanismMonitor, MechanismWatch, MonitorResult
from rmetric.monitor.mechanism.base import HostArrays, Task
from rmetric.monitor.mechanism.execution import BackgroundExecutor, InlineExecutor
from tests.helpers import lines_of
from tests.live.architectures import model_of, tokens
from tests.live.live import make_live_run, read, train, watched
from tests.monitor.common import Waits, backward, batch_of


def run_of(name: str = "tiny-moe", **config: Any) -> LiveRun:
    run = make_live_run(name, **{"rows": 4, "length": 12, "workers": 2, **config})
    run.held_out_loss("validation")  # a mixture of experts puts up hooks of its own at its first pass
    return run


def watch_of(run: LiveRun, **options: Any) -> MechanismWatch:
    return MechanismWatch(run.model, run.optimizer, **{"stride": 3, **options})


def tables(model: nn.Module) -> list[Any]:
    """Everything that a hook can be in."""
    hooks = [
        [[*table] for name, table in sorted(vars(module).items()) if name.endswith("_hooks")]
        for module in model.modules()
    ]
    own = [[*vars(module)] for module in model.modules()]
    parameters = [[*(parameter._backward_hooks or {})] for parameter in model.parameters()]
    return [hooks, own, parameters, dict(ALL_ATTENTION_FUNCTIONS)]


@dataclass(kw_only=True)
class Sharp(OwnPastDetector):
    """Alerts at the first measurement after its warm-up of two."""

    name: ClassVar[str] = "sharp"
    title: ClassVar[str] = "sharp"
    watched: ClassVar[Mapping[str, DeviationRule]] = {"query_norm": DeviationRule(Direction.EITHER, floor=1e-9)}
    threshold: float = -1.0
    warm_up: int = 2


class Failing(MechanismMonitor):
    """Raises at one of its moments."""

    name = "failing"
    measures = ()

    def __init__(self, moment: str) -> None:
        self._moment = moment

    def _fail_at(self, moment: str) -> None:
        if moment == self._moment:
            raise RuntimeError("mine")

    def arm(self) -> None:
        self._fail_at("arm")

    def disarm(self) -> None:
        self._fail_at("disarm")

    def take(self) -> Task | None:
        self._fail_at("take")
        return self._work

    def _work(self) -> dict[str, Tensor]:
        self._fail_at("work")
        return {"one": torch.ones(())}

    def summarise(self, found: HostArrays) -> MonitorResult:
        self._fail_at("summarise")
        return MonitorResult(details=found)

    def state_dict(self) -> dict[str, Any]:
        self._fail_at("state_dict")
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._fail_at("load_state_dict")


# -- what is measured and logged --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_measurement_of_the_log_stands_in_its_steps_and_nowhere_else(tmp_path: Path) -> None:
    run = run_of()
    with watched(run, log=tmp_path / "run.jsonl", mechanism=watch_of(run)):
        train(run, 10)
    log = read(tmp_path / "run.jsonl")
    for name in MECHANISM:
        measured = log.observations.step[~torch.tensor(log.observations[name]).isnan().numpy()].tolist()
        late = {"qk_entropy": [6, 9], "qk_effective_rank": [6, 9], "qk_spectral_norm": [6, 9], "update_alignment": [9]}
        assert measured == late.get(name, [3, 6, 9]), name
    assert (log.observations["attention_logit_max"] > 0).nonzero()[0].tolist() == [2, 5, 8]
    events = [event for event in log.events if event["event"] == "MECHANISM"]
    assert {event["step"] for event in events} == {3, 6, 9}
    assert [event["monitor"] for event in events if event["step"] == 9] == [*MONITORS]


@pytest.mark.slow
def test_details_say_where_the_worst_is(tmp_path: Path) -> None:
    run = run_of()
    with watched(run, log=tmp_path / "run.jsonl", mechanism=watch_of(run)):
        train(run, 6)
    log = read(tmp_path / "run.jsonl")
    events = {event["monitor"]: event for event in log.events if event["event"] == "MECHANISM" and event["step"] == 6}
    entropy = events["qk_spectral"]["details"]["entropy"]
    layer, head = min(((layer, head) for layer in (0, 1) for head in range(4)), key=lambda at: entropy[at[0]][at[1]])
    assert events["qk_spectral"]["worst"]["qk_entropy"] == f"layer {layer}, head {head}"
    assert log.observations["qk_entropy"][5] == pytest.approx(entropy[layer][head], rel=1e-4)
    update = events["update"]["details"]
    assert update["tensors"][update["max"].index(max(update["max"]))] == events["update"]["worst"]["update_max"]
    assert len(events["router"]["details"]["load"][1]) == 4


def test_what_all_logits_say_is_not_replaced_by_the_sample(tmp_path: Path) -> None:
    run = run_of("tiny-llama", workers=1)
    watch = watch_of(run, monitors=("attention",))
    with watched(run, log=tmp_path / "run.jsonl", mechanism=watch, attention_logits=True):
        train(run, 3)
    log = read(tmp_path / "run.jsonl")
    [event] = [event for event in log.events if event["event"] == "MECHANISM"]
    sample = max(max(row) for row in event["details"]["logit_max"])
    assert log.observations["attention_logit_max"][2] >= sample * 0.9999
    assert (log.observations["attention_logit_max"] > 0).all()


def test_numbers_that_are_not_finite_are_written_as_such_and_read_back(tmp_path: Path) -> None:
    run = run_of("tiny-llama")
    with watched(run, log=tmp_path / "run.jsonl", mechanism=watch_of(run)):
        train(run, 5)
        with torch.no_grad():
            run.model.model.layers[1].self_attn.q_proj.weight[0, 0] = math.nan
        train(run, 1)
    log = read(tmp_path / "run.jsonl")
    for name in ("qk_entropy", "query_norm", "attention_entropy", "update_max"):
        assert log.observations[name][5] == math.inf, name
    lines = lines_of((tmp_path / "run.jsonl").read_bytes())
    [record] = [line for line in lines if line["event"] == "METRICS" and line["step"] == 6]
    assert "qk_entropy" in record["mechanism"]["non_finite"]


@pytest.mark.slow
def test_an_alert_names_the_place(tmp_path: Path) -> None:
    run, alerts = run_of("tiny-llama"), []
    with watched(run, detectors=[Sharp()], mechanism=watch_of(run), on_alert=alerts.append):
        train(run, 12)
    assert [alert.step for alert in alerts][:1] == [9]
    assert "mostly for query_norm of layer " in alerts[0].message


# -- that it changes nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-moe"])
def test_training_is_the_same_to_the_bit_and_every_hook_is_given_back(name: str) -> None:
    alone, run = run_of(name), run_of(name)
    before = tables(run.model)
    monitor = watched(run, mechanism=watch_of(run, stride=2))
    assert train(run, 7) == train(alone, 7)
    assert tables(run.model) != before  # armed for step 8, and the monitor's own hooks
    monitor.close()
    assert tables(run.model) == before
    for one, other in zip(run.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(run.model(tokens()).logits, alone.model(tokens()).logits)


def test_hooks_stand_in_the_sampled_steps_alone() -> None:
    run = run_of()
    watch = watch_of(run)
    free = tables(run.model)
    hooked = []
    for step in range(1, 8):
        hooked.append(tables(run.model) != free)
        train(run, 1)
        pending = watch.step(step)
        assert (pending is not None) == (step in (3, 6))
    assert hooked == [False, False, True, False, False, True, False]


def test_what_a_model_has_no_mechanism_for_is_said_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("deepseek-3")
    with caplog.at_level(logging.INFO, logger="rmetric"):
        watch = MechanismWatch(model, torch.optim.SGD(model.parameters()))
    assert watch.names == ("router", "update", "update_alignment", "gradient_alignment")
    [message] = [record.message for record in caplog.records]
    assert message.startswith(
        "mechanism monitors of this model: router, update, update_alignment, gradient_alignment; "
    )
    assert "left out: qk_spectral (the spectrum of queries and keys needs attention with q_proj" in message
    assert ", attention (the monitor of attention rows needs attention with q_proj" in message


def test_a_monitor_that_cannot_be_made_is_left_out_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("tiny-llama")
    del model.model.layers[1].self_attn.config  # says which attention function is called
    with caplog.at_level(logging.INFO, logger="rmetric"):
        watch = MechanismWatch(model, torch.optim.SGD(model.parameters()))
    assert watch.names == ("qk_spectral", "update", "update_alignment", "gradient_alignment")
    assert "attention (AttributeError(" in caplog.text


def test_off_by_default(tmp_path: Path) -> None:
    run = run_of()
    with watched(run, log=tmp_path / "run.jsonl"):
        train(run, 3)
    assert "MECHANISM" not in (tmp_path / "run.jsonl").read_text()
    assert "mechanism" not in (tmp_path / "run.jsonl").read_text()


# -- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 5, 6])
def test_a_fork_goes_on_exactly(tmp_path: Path, at: int) -> None:
    """Right before a sampled step (5), right after one (6), and in between."""
    whole, halves, log = run_of(), run_of(), tmp_path / "halves.jsonl"
    with watched(whole, log=tmp_path / "whole.jsonl", mechanism=watch_of(whole)):
        train(whole, 12)
    monitor = watched(halves, log=log, mechanism=watch_of(halves))
    train(halves, at)
    state, run_state = monitor.state_dict(), halves.state_dict()
    monitor.detach()
    later = run_of().load_state_dict(run_state)
    resumed = watched(later, log=log, mechanism=watch_of(later))
    resumed.load_state_dict(torch.load(saved(tmp_path, state), weights_only=True))
    train(later, 12 - at)
    resumed.close()
    one, other = read(tmp_path / "whole.jsonl"), read(log)
    for name in MECHANISM:
        assert one.observations[name].tolist() == pytest.approx(other.observations[name].tolist(), abs=0, nan_ok=True)
    of_mechanism = [[event for event in run.events if event["event"] == "MECHANISM"] for run in (one, other)]
    assert of_mechanism[0] == of_mechanism[1]


def saved(folder: Path, state: dict[str, Any]) -> Path:
    torch.save(state, folder / "state.pt")
    return folder / "state.pt"


def test_a_state_of_other_settings_is_refused() -> None:
    run = run_of()
    state = watch_of(run).state_dict()
    with pytest.raises(ValueError, match="has the stride 3"):
        watch_of(run, stride=4).load_state_dict(state, 3)
    with pytest.raises(ValueError, match="resume with the settings of the first run"):
        watch_of(run, monitors=("update",)).load_state_dict(state, 3)


# -- that it breaks nothing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["arm", "take", "work", "summarise", "disarm"])
def test_a_monitor_that_raises_is_given_up_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    run = run_of("tiny-llama")
    watch = watch_of(run, monitors=(Failing(moment), "update"))
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        with watched(run, log=tmp_path / "run.jsonl", mechanism=watch) as monitor:
            train(run, 7)
        assert not monitor.enabled  # closed, not broken off
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["the mechanism monitor failing is given up: RuntimeError: mine"]
    assert watch.names == ("update",)
    observations = read(tmp_path / "run.jsonl").observations
    assert len(observations) == 7
    assert (observations["update_max"] > 0).nonzero()[0].tolist() == [2, 5]


@pytest.mark.parametrize("moment", ["take", "state_dict", "load_state_dict"])
def test_what_was_given_up_stays_so_in_a_run_that_is_resumed(moment: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        run = run_of("tiny-llama")
        with watched(run, mechanism=watch_of(run, monitors=(Failing(moment), "update"))) as monitor:
            train(run, 4)
            state = monitor.state_dict()
            assert monitor.enabled and state["step"] == 4
        run = run_of("tiny-llama")
        watch = watch_of(run, monitors=(Failing(moment), "update"))
        with watched(run, mechanism=watch) as monitor:
            monitor.load_state_dict(state)
            train(run, 4)
            assert monitor.enabled
    given_up = "the mechanism monitor failing is given up: RuntimeError: mine"
    again = (
        [] if moment == "load_state_dict" else ["the mechanism monitor failing was given up in the run that is resumed"]
    )
    assert caplog.messages == [given_up, *again]
    assert watch.names == ("update",)


@pytest.mark.parametrize("name", ["router", "attention"])
def test_a_hook_that_raises_does_not_reach_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    run = run_of("tiny-moe", workers=1)
    monkeypatch.setattr(torch.special, "entr", None)
    watch = watch_of(run, monitors=(name,))
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        for step in range(1, 7):
            train(run, 1)
            watch.step(step)
    given_up = f"the mechanism monitor {name} is given up: TypeError: 'NoneType' object is not callable"
    assert caplog.messages == [given_up]
    assert watch.names == ()
    resumed = watch_of(run, monitors=(name,))
    resumed.load_state_dict(watch.state_dict(), 6)
    assert resumed.names == ()


# -- where and how it runs --------------------------------------------------------------------------------------------


def test_beside_the_training_or_at_once_the_numbers_are_the_same(tmp_path: Path) -> None:
    texts = []
    for where in (BackgroundExecutor, InlineExecutor):
        run = run_of()
        with watched(run, log=tmp_path / f"{where.__name__}.jsonl", mechanism=watch_of(run, executor=where)):
            train(run, 9)
        log = read(tmp_path / f"{where.__name__}.jsonl")
        texts.append([event for event in log.events if event["event"] == "MECHANISM"])
    assert texts[0] == texts[1] != []


def test_a_watch_of_its_own_needs_no_training_monitor() -> None:
    run = run_of("tiny-llama")
    watch = watch_of(run, stride=1, monitors=("update", "qk_spectral"))
    found = []
    for step in (1, 2, 3):
        train(run, 1)
        pending = watch.step(step)
        found.append({*pending.read().values})
    watch.close()
    everything = {"update_max", "qk_entropy", "qk_effective_rank", "qk_spectral_norm"}
    assert found == [{"update_max"}, everything, everything]


def test_auto_takes_what_the_model_has() -> None:
    dense, sparse, plain = model_of("tiny-llama"), model_of("tiny-moe"), nn.Linear(4, 2)
    names = {}
    for model in (dense, sparse, plain):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        names[model] = MechanismWatch(model, optimizer).names
    assert names[sparse] == tuple(MONITORS)
    assert names[dense] == tuple(name for name in MONITORS if name != "router")
    assert names[plain] == ("update", "update_alignment", "gradient_alignment")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["auto", "update", ("update", "qk_spectral")])
def test_the_monitor_takes_a_choice(tmp_path: Path, mechanism: Any) -> None:
    run = run_of("tiny-llama", rows=2, length=4)
    with watched(run, log=tmp_path / "run.jsonl", mechanism=mechanism):
        train(run, STRIDE)
    assert read(tmp_path / "run.jsonl").observations["update_max"][STRIDE - 1] > 0


def test_what_cannot_be_watched_is_refused_in_words() -> None:
    run = run_of("tiny-llama")
    with pytest.raises(UserError, match="unknown mechanism monitor 'ruoter'; did you mean 'router'"):
        watch_of(run, monitors=("ruoter",))
    with pytest.raises(UserError, match="the monitor of routers needs a mixture-of-experts model"):
        TrainingMonitor(run.model, run.optimizer, hardware=False, mechanism=("router",))
    for stride in (0, 2.5, "8"):
        with pytest.raises(UserError, match=r"^stride must be a whole number of steps, at least 1, such as stride=32"):
            watch_of(run, stride=stride)
    for mechanism in (True, False, 5, ("update", Failing), MechanismWatch):
        with pytest.raises(UserError, match=r"^mechanism monitors are 'auto', or names or objects"):
            TrainingMonitor(run.model, run.optimizer, hardware=False, mechanism=mechanism)  # type: ignore[arg-type]


def test_a_single_monitor_needs_no_list() -> None:
    assert watch_of(run_of("tiny-llama"), monitors=Failing("never")).names == ("failing",)


def test_mixed_precision(tmp_path: Path) -> None:
    run = run_of(autocast=torch.bfloat16)
    with watched(run, log=tmp_path / "run.jsonl", mechanism=watch_of(run), scaler=run.scaler):
        train(run, 9)
    seen = read(tmp_path / "run.jsonl").observations
    assert all(math.isfinite(seen[name][8]) for name in MECHANISM)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
def test_passes_that_are_computed_again_for_the_gradient_change_nothing(tmp_path: Path) -> None:
    values = []
    for checkpointing in (False, True):
        run = run_of("tiny-llama")
        if checkpointing:
            run.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        log = tmp_path / f"{checkpointing}.jsonl"
        with watched(run, log=log, mechanism=watch_of(run)):
            train(run, 9)
        values.append([read(log).observations[name][8] for name in MECHANISM])
    assert values[0] == pytest.approx(values[1], rel=1e-5, nan_ok=True)


def test_a_step_that_is_computed_once_more_is_measured_once() -> None:
    found = []
    for wrong_first in (False, True):
        run = run_of("tiny-moe")
        watch = watch_of(run, stride=1, monitors=("router", "attention", "gradient_alignment"))
        batch = batch_of(run)
        run.model.train()
        if wrong_first:
            backward(run, batch.part(1, 2), 2)
        watch.restarting(lambda run=run, batch=batch: [backward(run, batch.part(part, 2), 2) for part in range(2)])()
        pending = watch.step(1)
        found.append(pending.read().events)
        watch.close()
    assert found[0] == found[1]


def test_nothing_waits_for_the_device_in_the_training_thread() -> None:
    calls = {}
    for watching in (False, True):
        run = run_of("tiny-moe")
        run.model.train()
        watch, batch = watch_of(run, monitors="auto" if watching else (), executor=BackgroundExecutor), batch_of(run)
        with Waits() as waits:  # a mixture of experts has some waits of its own
            for step in range(1, 7):
                backward(run, batch.part(0, 2), 2)
                backward(run, batch.part(1, 2), 2)
                pending = watch.step(step)
        calls[watching] = waits.calls
        found = {*pending.read().values} if pending is not None else set()
        assert found >= ({"qk_spectral_norm", "update_max", "routing_entropy"} if watching else set())
        watch.close()
    assert calls[True] == calls[False]
