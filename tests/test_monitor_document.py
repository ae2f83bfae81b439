"""docs/monitor.md is true: every block of code in it is run, and what it says happens is seen to happen."""

from __future__ import annotations

import importlib
import logging
import math
import re
import shlex
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmetric
from rmetric import read_run
from rmetric.commands import main
from rmetric.detectors import RobustRMetricDetector
from tests.helpers import ROOT

torch = pytest.importorskip("torch", reason="needs the extra 'live'")
TEXT = (ROOT / "docs" / "monitor.md").read_text(encoding="utf-8")
ABROAD, ROBUST = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("abroad.md", "robust.md"))
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def block(marker: str) -> str:
    """The only block of code that contains ``marker``."""
    (number,) = [number for number, code in enumerate(BLOCKS) if marker in code]
    return BLOCKS[number]


def said(beginning: str) -> re.Pattern[str]:
    """A quotation of the document, by its first words; an ellipsis stands for anything."""
    quotes = [
        " ".join(re.sub(r"^> ?", "", part, flags=re.M).split()) for part in re.findall(r"(?:^>.*\n)+", TEXT, re.M)
    ]
    (quote,) = [quote for quote in quotes if quote.startswith(beginning)]
    return re.compile(re.escape(quote).replace("…", ".*"))


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two layers, four tensors, a loss in its answer as transformers' models have it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x: Any) -> SimpleNamespace:
        return SimpleNamespace(loss=self.head(self.encoder(x).tanh()).square().mean())


class Batches:
    """A hundred batches; while the one in ``broken`` is trained, the gradient of a weight is NaN."""

    def __init__(self, model: Model, broken: int = 0) -> None:
        self.now, self.broken = 0, broken
        model.encoder.weight.register_hook(
            lambda gradient: gradient * math.nan if self.now == self.broken else gradient
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for self.now in range(1, 101):
            yield {"x": torch.randn(8, 4)}


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Any]]]:
    """Names that a block finds, in a folder of its own; its monitor is closed at the end."""
    monkeypatch.chdir(tmp_path)
    made: list[dict[str, Any]] = []

    def make(*, broken: int = 0, **further: Any) -> dict[str, Any]:
        model = Model()
        names = {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), 0.01),
            "loader": Batches(model, broken),
        }
        made.append({**names, "val_loss": 1.0, "torch": torch, "rmetric": rmetric, "logging": logging, **further})
        return made[-1]

    yield make
    for names in made:
        if "monitor" in names:
            names["monitor"].close()


def trained(names: dict[str, Any]) -> None:
    """The loop of the document's first example, with the monitor that a block has made."""
    for batch in names["loader"]:
        names["optimizer"].zero_grad()
        loss = names["model"](**batch).loss
        loss.backward()
        if names["monitor"].step(loss):
            names["optimizer"].step()


def heard(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rmetric"]


def test_a_loop_of_my_own_is_watched_and_says_what_the_document_quotes(
    given: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    healthy = given()
    exec(block("# 2: after backward"), healthy)
    assert len(read_run("run.jsonl").observations) == 100
    assert [text for text in heard(caplog) if "in order as far as it was watched" in text]
    Path("run.jsonl").unlink()
    caplog.clear()
    broken = given(broken=81)
    code = block("# 2: after backward").replace(
        "    optimizer.step()", "    monitor.step_number == 81 or optimizer.step()"
    )
    exec(code, broken)
    alert, closing = heard(caplog)
    assert said("R-Metric: Step 81").fullmatch(alert), alert
    assert said("R-Metric: not in order").fullmatch(closing), closing


@pytest.mark.slow
def test_the_trainer_is_watched(given: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.monitor.adapters.reference import small_model, tokens

    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=3, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True,
        save_strategy="no",
    )  # fmt: skip
    names = given(Trainer=transformers.Trainer, model=small_model(), args=args, data=tokens(8))
    exec(block("RMetricCallback"), names)
    assert len(read_run("run.jsonl").observations) == 3
    logged = {name for entry in names["trainer"].state.log_history for name in entry}
    assert {"rmetric/lambda", "rmetric/alerts"} <= logged


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning_is_watched(given: Callable[..., dict[str, Any]]) -> None:
    lightning = pytest.importorskip("lightning")
    importlib.import_module("lightning.pytorch")
    from tests.monitor.adapters.test_lightning import batches, module_of

    exec(block("RMetricLightning"), given(lightning=lightning, module=module_of(lightning.pytorch), loader=batches(6)))
    assert len(read_run("run.jsonl").observations) == 3


@pytest.mark.slow
def test_accelerate_is_watched(given: Callable[..., dict[str, Any]]) -> None:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    names = given(accelerator=accelerator)
    names["model"], names["optimizer"] = accelerator.prepare(names["model"], names["optimizer"])
    exec(block("import monitored"), names)
    assert len(read_run("run.jsonl").observations) == 100


def test_a_loop_that_reports_its_numbers_is_watched(given: Callable[..., dict[str, Any]]) -> None:
    def train_step(state: float, batch: Any) -> tuple[float, dict[str, float]]:
        return 0.99 * state, {"loss": state, "grad_norm": 1.0}

    names = given(train_step=train_step, schedule=lambda step: 0.1 / (1 + step), state=2.0)
    exec(block("rmetric.MetricsMonitor(log="), names)
    seen = read_run("run.jsonl").observations
    assert seen.step.tolist() == [*range(100)]
    assert seen["learning_rate"][1] == 0.05


def test_keras_is_watched(given: Callable[..., dict[str, Any]]) -> None:
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = torch.ones(64, 4).numpy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)  # of Keras's torch backend
        exec(block("RMetricKeras"), given(model=model, x=x, y=x[:, :1]))
    assert len(read_run("run.jsonl").observations) == 6


def test_a_callback_hears_beside_the_console(
    given: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    names = given(broken=50, message_someone=told.append)
    exec(block("message_someone"), names)
    trained(names)
    names["monitor"].close()
    assert len(told) == 1 and told[0].startswith("numerics, step 50: Step 50: ")
    assert any("Step 50" in text for text in heard(caplog))


def test_a_handler_takes_alerts_to_a_file(given: Callable[..., dict[str, Any]]) -> None:
    names = given(broken=50)
    logger = logging.getLogger("rmetric")
    before = [*logger.handlers]
    exec(block("FileHandler"), names)
    try:
        names["monitor"] = rmetric.TrainingMonitor(names["model"], names["optimizer"], hardware=False)
        trained(names)
        names["monitor"].close()
        assert "Step 50" in Path("alerts.txt").read_text()
    finally:
        for handler in [handler for handler in logger.handlers if handler not in before]:
            logger.removeHandler(handler)
            handler.close()


@pytest.mark.slow
def test_the_sinks_show_the_run(given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "tensorboard", "prometheus_client"):
        pytest.importorskip(name)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    names = given()
    exec(block("PrometheusEndpoint").replace("9400", "0"), names)
    trained(names)
    endpoint = names["sinks"][-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
        shown = answer.read().decode()
    assert 'rmetric_events_total{detector="numerics",event="ALERT"' in shown
    names["monitor"].close()
    assert list(Path("tb").glob("events*")) and list(Path("wandb").glob("offline-run-*"))


@pytest.mark.slow
def test_the_commands_judge_a_log(given: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    names = given(broken=81)
    exec(
        block("# 2: after backward").replace(
            "    optimizer.step()", "    monitor.step_number == 81 or optimizer.step()"
        ),
        names,
    )
    (typed,) = [code.splitlines() for language, code in re.findall(r"```(\w*)\n(.*?)```", TEXT, re.S) if not language]
    assert [line.split()[1] for line in typed] == ["diagnose", "replay"]
    capsys.readouterr()
    for command, status in zip(typed, (1, 0), strict=True):  # 1: there are findings
        assert main(shlex.split(command)[1:]) == status
        assert "81" in capsys.readouterr().out


def test_the_run_so_far_can_be_asked(given: Callable[..., dict[str, Any]]) -> None:
    names = given(broken=50)
    names["monitor"] = rmetric.TrainingMonitor(names["model"], names["optimizer"], hardware=False, sync=True)
    trained(names)
    exec(block("monitor.repairs"), names)
    assert names["monitor"].alerts["numerics"] == 50 and names["monitor"].repairs == []
    assert names["monitor"].last["grad_norm"] > 0.0


def test_a_veto_keeps_the_weights_finite(given: Callable[..., dict[str, Any]]) -> None:
    names = given(broken=50)
    exec(block("sync=True"), names)
    assert all(bool(weight.isfinite().all()) for weight in names["model"].parameters())


def test_a_policy_is_made(given: Callable[..., dict[str, Any]]) -> None:
    names = given(broken=50)
    exec(block("GoBack"), names)
    assert all(bool(weight.isfinite().all()) for weight in names["model"].parameters())
    # Computed again, it is NaN again, and no update is made of it.
    repairs = [(repair.step, repair.policy, repair.verdict) for repair in names["monitor"].repairs]
    assert repairs == [(50, "RecomputeStep", "agrees"), (50, "RefuseUpdate", "refused")]


def test_a_resumed_run_goes_on_with_its_log(given: Callable[..., dict[str, Any]]) -> None:
    names = given()
    names["monitor"] = rmetric.TrainingMonitor(names["model"], names["optimizer"], log="run.jsonl", hardware=False)
    trained(names)
    exec(block("torch.save"), names)
    trained(names)
    names["monitor"].detach()
    exec(block("torch.load"), names)
    trained(names)
    names["monitor"].close()
    run = read_run("run.jsonl")
    assert run.observations.step.tolist() == list(range(1, 201)) and run.terminal is not None
    assert [path.name for path in Path().glob("*.jsonl")] == ["run.jsonl"]


def test_a_cluster_manager_adds_an_event(given: Callable[..., dict[str, Any]]) -> None:
    names = given()
    names["monitor"] = rmetric.TrainingMonitor(names["model"], names["optimizer"], log="run.jsonl", hardware=False)
    exec(block("hardware_event"), names)
    trained(names)
    names["monitor"].close()
    (event,) = [event for event in read_run("run.jsonl").events if event.get("component") == "Faulty GPU"]
    assert (event["kind"], event["worker"]) == ("fatal", 3)


def test_a_change_that_is_meant_is_announced(given: Callable[..., dict[str, Any]]) -> None:
    names = given()
    names["monitor"] = rmetric.TrainingMonitor(names["model"], names["optimizer"], log="run.jsonl", hardware=False)
    exec(block("monitor.planned("), names)
    trained(names)
    names["monitor"].close()
    run = read_run("run.jsonl")
    (event,) = [event for event in run.events if event["event"] == "PLANNED_CHANGE"]
    assert (event["step"], event["what"]) == (1, "unfreeze the encoder")
    assert run.observations["planned_changes"][0] == 1.0


def test_a_threshold_is_raised(given: Callable[..., dict[str, Any]]) -> None:
    names = given(broken=50)
    exec(block("RobustRMetricDetector(threshold=3.55)"), names)
    assert RobustRMetricDetector().threshold == 2.55
    trained(names)
    names["monitor"].close()
    events = {
        event["detector"]: event["threshold"] for event in read_run("run.jsonl").events if event["event"] == "ALERT"
    }
    assert events == {"numerics": 0.0, "r_metric_robust": 3.55}


def test_other_detectors_are_chosen(given: Callable[..., dict[str, Any]]) -> None:
    names = given(broken=50)
    exec(block("RobustZ(threshold=20.0, window=128)"), names)
    trained(names)
    names["monitor"].close()
    assert set(names["monitor"].alerts) == {"numerics", "robust_z"}


def test_a_silenced_console_leaves_the_alerts_in_the_log(
    given: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    names = given(broken=50)
    exec(block("announce=False"), names)
    trained(names)
    names["monitor"].close()
    assert not heard(caplog)
    assert names["monitor"].alerts["numerics"] == 50
    assert any(event["event"] == "ALERT" for event in read_run("run.jsonl").events)


@pytest.mark.slow
def test_the_inside_of_a_model_is_looked_at(given: Callable[..., dict[str, Any]]) -> None:
    pytest.importorskip("transformers")
    from tests.live.live import make_live_run

    run = make_live_run()
    names = given(model=run.model, optimizer=run.optimizer)
    exec(block('mechanism="auto"'), names)
    run.observer = names["monitor"]
    for _ in range(33):
        run.train_step()
    names["monitor"].close()
    assert "attention_entropy" in read_run("run.jsonl").observations.columns


def test_the_limits_are_those_that_were_measured() -> None:
    section = TEXT.split("## When to believe it\n")[1].split("\n## ")[0]
    of_runs = ROBUST.split("## When to trust it\n")[1].split("| faults and bugs |")[0]
    for line in (section + of_runs).splitlines():
        pages = re.findall(r"\]\((findings/\S+?\.md)", line)
        measured = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages) or ABROAD
        for number in re.findall(r"\d+\.\d+", line):
            assert number in measured, number
    for words in ("one alert or two a run", "not measured"):
        assert words in " ".join(section.split()) and words in ROBUST


def test_every_block_is_run_by_a_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    markers = re.findall(r"block\((['\"])(.+?)\1\)", source)
    run = {number for number, code in enumerate(BLOCKS) for _, marker in markers if marker in code}
    assert run == set(range(len(BLOCKS)))
