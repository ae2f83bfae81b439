"""``run_case_study.py``, from the command line to its files, at small size; and one line for whatever goes wrong."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import load_study
from rmetric.evaluation.truth import truth_of
from rmetric.log_reader import read_log
from rmetric.replay import replay_log
from run_case_study import main
from tests.helpers import ROOT, ended_by, ends_of_a_command, lines_of, strict_json

pytest.importorskip("torch", reason="the case study needs torch")
pytest.importorskip("transformers", reason="the case study needs transformers")

pytestmark = pytest.mark.long

FLIP = "SILENT_DATA_CORRUPTION:target=weight,bit=30,tensor=layers.1.self_attn.o_proj"
SMALL = ["--steps", "82", "--fault-step", "21", "--batch", "4", "--length", "32", "--workers", "2", "--device", "cpu"]
FAULTS = [FLIP, "LR_SPIKE:factor=2,duration_steps=3", "NONE"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A small case study: its folder, and what the script printed."""
    out = tmp_path_factory.mktemp("case_study")
    (out / "run_00_of_an_earlier_study.jsonl").write_text("{}\n")
    (out / "dashboard_2.png").write_text("of an earlier study")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*SMALL, "--faults", *FAULTS, "--out", str(out), "--jobs", "1"]) == 0
    return out, printed.getvalue()


# --- End to end ------------------------------------------------------------------------------------------------------


def test_every_run_has_a_whole_log_with_the_shared_prefix(made: tuple[Path, str]) -> None:
    logs = sorted(made[0].glob("*.jsonl"))
    assert len(logs) == 3
    prefixes = set()
    for log in logs:
        events = lines_of(log.read_bytes())
        assert events[0]["event"] == "EXPERIMENT_START"
        assert events[-1]["event"] in ("EXPERIMENT_FAILURE", "EXPERIMENT_SUCCESS")
        assert events[0]["config"]["experiment_id"] == log.stem
        losses = [event["training_loss"] for event in events if event["event"] == "METRICS" and event["step"] < 21]
        assert len(losses) == 20
        prefixes.add(tuple(losses))
    assert len(prefixes) == 1


def test_outcomes_and_truth(made: tuple[Path, str]) -> None:
    flip, spike, control = (read_log(log) for log in sorted(made[0].glob("*.jsonl")))
    assert flip.terminal is not None and flip.terminal["event"] == "EXPERIMENT_FAILURE"
    assert 21 <= flip.terminal["step"] <= 32
    assert spike.terminal is not None and spike.onset == 21
    assert spike.first("FAULT_CLEARED") is not None
    assert control.terminal == {"event": "EXPERIMENT_SUCCESS", "step": 82, "outcome": "clean"}
    assert control.onset is None


def test_the_summary_agrees_with_the_logs(made: tuple[Path, str]) -> None:
    out, printed = made
    summary = strict_json((out / "summary.json").read_bytes())
    assert summary["control_equals_twin"] is True
    assert "standard library of Python" in summary["trained_on"]
    assert summary["trained_on"] in printed
    assert summary["plan"]["onset"] == 21 and summary["plan"]["rows"] == 4
    assert summary["distinct_healthy_steps"] == 82
    assert summary["r_metric_largest_difference"] < 1e-6
    assert [run["spelling"] for run in summary["runs"]] == FAULTS
    ev = Evaluator.of(load_study(out, 1), [*summary["detectors"]], jobs=1, draws=20)
    for name, entry in summary["detectors"].items():
        counts = ev.counts(name, "strict")
        expected = counts.fp[counts.counted].sum() if entry["gave_scores"] else None
        assert entry["strict"]["false_alarms"] == expected


def test_the_flipped_bit_is_seen_by_the_numbers_it_breaks(made: tuple[Path, str]) -> None:
    (log,) = made[0].glob("run_00_*.jsonl")
    run = read_log(log)
    assert run.alerts["numerics"] == run.onset  # a warning at once; whether in time is for physics to say
    scores = pd.read_csv(made[0] / "scores.csv")
    healthy = scores[(scores["run"].str.contains("run_02")) & (scores["detector"] == "numerics")]
    assert set(healthy["false_alarms"]) == {0}


def test_replay_works_on_the_logs_unchanged(made: tuple[Path, str]) -> None:
    for log in made[0].glob("*.jsonl"):
        replay, run = replay_log(log), read_log(log)
        assert (replay.records, replay.damaged) == (len(run.observations), 0)
        assert replay.outcome == truth_of(run).kind


def test_replay_gives_the_alerts_that_the_run_wrote(made: tuple[Path, str]) -> None:
    for log in made[0].glob("*.jsonl"):
        assert replay_log(log).alerts_agree is True


def test_files_and_screen(made: tuple[Path, str]) -> None:
    out, printed = made
    names = {path.name for path in out.iterdir()}
    assert {
        "metrics.csv",
        "held_out.csv",
        "scores.csv",
        "runs.md",
        "detectors.tex",
        "dashboard.png",
        "dashboard.pdf",
    } <= names
    assert "dashboard_2.png" not in names and "run_00_of_an_earlier_study.jsonl" not in names
    assert not [name for name in names if name.endswith(".part")]
    held_out = pd.read_csv(out / "held_out.csv")
    assert np.diff(held_out["step"]).max() <= 5
    for said in (
        "training tiny-llama on",
        "Case study: the runs",
        "Case study: detectors",
        "R-Metric (paper)",
        " s in all",
    ):
        assert said in printed


# --- Options ---------------------------------------------------------------------------------------------------------


def test_help_tells_the_plan_s_own_defaults() -> None:
    from studies.case_study.plan import DEFAULT_FAULTS, CaseStudyPlan

    suite = importlib.import_module("studies.case_study.cli")
    tiny, other = CaseStudyPlan(), CaseStudyPlan(model="other/model")
    helps = {action.dest: str(action.help) for action in suite.parser()._actions}
    assert {*suite.PLANNED} <= {*helps}
    for name in ("model", "steps", "seed", "workers", "eval_every"):
        assert f"(default: {getattr(tiny, name)})" in helps[name]
    both = {"rows": "batch_rows", "length": "sequence_length", "learning_rate": "peak_learning_rate"}
    for name, value in both.items():
        assert f"(default: {getattr(tiny, value)}; not tiny: {getattr(other, value)})" in helps[name]
    for name in ("device", "lora"):
        default = helps[name].partition("(default: ")[2]
        assert default.startswith((f"{getattr(tiny, name)}, ", f"{getattr(tiny, name)})"))
    for fault in DEFAULT_FAULTS:
        name, _, settings = fault.partition(":")
        assert settings or name in helps["faults"]


def test_help_needs_no_torch() -> None:
    probe = "import sys, run_case_study as s; assert s.main(['--help']) == 0; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True).returncode == 0


def test_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-faults"]) == 0
    assert re.search(r"LR_SPIKE +The scheduler.*\n +.*factor=15.0", capsys.readouterr().out)


# --- Bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--faults", "LR_SPIKES"], "did you mean 'LR_SPIKE'?"),
        (["--faults", "LR_SPIKE@severe"], "severity"),
        (["--faults", "LR_SPIKE:facto=3"], "did you mean 'factor'?"),
        (["--faults", "EXPERT_FAILURE"], "needs a mixture-of-experts model"),
        (["--faults", "NONE", "ROUTER_IMBALANCE"], "choose a model that has experts"),
        (["--model", "./no-such-model"], "no-such-model"),
        (["--dataset", "./no-such-text.txt"], "no-such-text.txt"),
        (["--device", "tpu"], "choose --device cpu"),
        (["--batch", "6"], "cannot be shared"),
        (["--steps", "20", "--fault-step", "21"], "does not lie in a run of 20 steps"),
        (["--steps", "2"], "not in the range"),
        (["--lr", "0"], "above 0"),
    ],
)
def test_bad_input_is_one_line_before_any_training(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "run_00_earlier.jsonl"
    earlier.write_text("{}\n")
    assert main([*options, "--out", str(tmp_path), "--jobs", "1"]) == 2
    screen = capsys.readouterr()
    lines = screen.err.strip().splitlines()
    assert not screen.out  # no training is announced that is then refused
    assert len(lines) == 1 and lines[0].startswith("error: "), lines
    assert said in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == [earlier.name]


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_torch_it_says_what_to_install(package: str, tmp_path: Path) -> None:
    # In a process of its own: to import the package anew in this one would leave two copies of it.
    code = f"import sys; sys.modules[{package!r}] = None; import run_case_study as s; sys.exit(s.main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", code, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert package in line and "pip install 'rmetric[live]'" in line


def test_a_plugin_that_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plugin", "no/such/plugin.py"]) == 2
    assert "is not a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("decorator", "told"),
    [
        ("@contextmanager", "broken.py, line 10: Broken.inject.<locals>.<lambda> fails in run run_"),
        ("", "broken.py: inject of fault BROKEN gives no context; is @contextmanager missing, or its yield? (run run_"),
    ],
)
def test_a_fault_of_a_plugin_that_breaks_in_training_is_named_with_the_run(
    decorator: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, clean_registries: None
) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(
        "from contextlib import contextmanager\nfrom dataclasses import dataclass\n"
        "from rmetric import Fault, register_fault\n"
        "@register_fault('BROKEN')\n@dataclass(frozen=True, kw_only=True)\nclass Broken(Fault):\n"
        "    def simulate(self, state, active, rng): pass\n"
        f"    {decorator}\n    def inject(self, training):\n"
        "        with training.at('loss', lambda *_: nothing):\n            yield\n"
    )
    command = ["--steps", "12", "--fault-step", "4", "--batch", "4", "--length", "16", "--device", "cpu", "--jobs", "2"]
    assert main([*command, "--plugin", str(plugin), "--faults", "BROKEN", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


@ends_of_a_command
def test_a_signal_leaves_valid_incomplete_logs(sent: signal.Signals, ended: tuple[int, str], tmp_path: Path) -> None:
    command = ["run_case_study.py", "--steps", "150", "--fault-step", "4", "--batch", "4", "--length", "16"]
    command += ["--jobs", "2", "--faults", "NONE", "LR_SPIKE", "--out", str(tmp_path), "--device", "cpu"]

    def a_log_grows() -> bool:
        return any(log.read_bytes().count(b"\n") > 20 for log in tmp_path.glob("run_*.jsonl"))

    code, told = ended_by(sent, command, a_log_grows)
    assert (code, told.splitlines(keepends=True)[-1]) == ended  # before it, what the machine has no sensors for
    assert not (tmp_path / "summary.json").exists()
    logs = [log for log in tmp_path.glob("run_*.jsonl") if log.stat().st_size]
    assert logs
    for log in logs:
        assert read_log(log).terminal is None
