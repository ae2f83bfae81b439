"""The study: which runs it has, that its bytes depend on nothing but its plan, and that nothing can half-finish it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.evaluation.studies import load_study
from rmetric.log_reader import read_log
from rmetric.registry import load_plugin
from rmetric.simulation import RunSpec, run_batch
from studies.log_files import Entry, Finished
from studies.paper.plan import StudyPlan
from studies.paper.run import IN_PARTS, SIMULATION, simulate_all, simulate_study
from studies.runner import MANIFEST, Backend, run_study
from tests.helpers import ROOT

TINY = StudyPlan.smoke(steps=400, architectures=("gpt-4-moe", "mistral-7b"))
SHORT = StudyPlan.smoke(steps=400, architectures=("mistral-7b",))
"""12 runs."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


@pytest.fixture(scope="module")
def tiny_study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("tiny")
    simulate_study(TINY, folder)
    return contents(folder)


def test_the_matrix_has_exactly_720_runs_in_the_design_s_proportions() -> None:
    specs = StudyPlan().specs()
    assert len(specs) == 720
    assert len({spec.experiment_id for spec in specs}) == 720
    assert len({spec.seed for spec in specs}) == 720
    for architecture, native in {
        "llama-3-8b": {"GQA_MISMATCH", "RMS_NORM_ERROR"},
        "mistral-7b": {"GQA_MISMATCH", "LOW_PRECISION_ATTENTION"},
        "gpt-4-moe": {"EXPERT_FAILURE", "ROUTER_IMBALANCE"},
    }.items():
        mine = [spec for spec in specs if spec.architecture == architecture]
        assert sum(spec.is_control for spec in mine) == 48
        cells = Counter((spec.fault, spec.severity) for spec in mine if not spec.is_control)
        assert len(cells) == 24
        assert set(cells.values()) == {8}
        assert native < {spec.fault for spec in mine}


def test_names_are_like_the_authors() -> None:
    assert StudyPlan().specs()[0].experiment_id == "run_000_llama-3-8b_lr_spike_low_rep1"


def test_smoke_has_36_runs() -> None:
    assert len(StudyPlan.smoke().specs()) == 36


def test_a_run_has_the_same_seed_in_a_smaller_study() -> None:
    full = {(s.architecture, s.fault, s.severity, s.repetition): s.seed for s in StudyPlan().specs()}
    for spec in StudyPlan(architectures=("mistral-7b",), faults=("LR_SPIKE",), repetitions=2).specs():
        assert full[spec.architecture, spec.fault, spec.severity, spec.repetition] == spec.seed


def test_another_study_seed_gives_other_runs() -> None:
    first, second = StudyPlan().specs(), StudyPlan(seed=1).specs()
    assert not {spec.seed for spec in first} & {spec.seed for spec in second}


def test_faults_that_need_experts_are_left_out_of_dense_models_and_refused_alone() -> None:
    specs = StudyPlan(faults=("EXPERT_FAILURE", "LR_SPIKE"), repetitions=1, controls=0).specs()
    assert {spec.architecture for spec in specs if spec.fault == "EXPERT_FAILURE"} == {"gpt-4-moe"}
    with pytest.raises(UserError, match="mixture-of-experts"):
        StudyPlan(faults=("EXPERT_FAILURE",), architectures=("llama-3-8b",)).specs()


def test_bytes_do_not_depend_on_the_number_of_jobs(tiny_study: dict[str, bytes], tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path, jobs=2)
    assert contents(tmp_path) == tiny_study


def test_bytes_do_not_depend_on_the_batch(tiny_study: dict[str, bytes]) -> None:
    for spec in [TINY.specs()[3], TINY.specs()[-1]]:
        (log,) = run_batch([spec])
        assert log.content == tiny_study[f"{spec.experiment_id}.jsonl"]


def test_the_manifest_accounts_for_every_log(tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert manifest["complete"] is True
    assert set(manifest["runs"]) == {path.stem for path in tmp_path.glob("*.jsonl")}
    name, entry = next(iter(manifest["runs"].items()))
    run = read_log(tmp_path / f"{name}.jsonl")
    assert entry["records"] == len(run.observations)
    assert entry["bytes"] == (tmp_path / f"{name}.jsonl").stat().st_size


def test_no_log_holds_a_clock_a_path_or_a_host_name(tiny_study: dict[str, bytes]) -> None:
    everything = b"".join(tiny_study.values())
    assert os.uname().nodename.encode() not in everything
    assert str(ROOT).encode() not in everything
    assert not re.search(rb"20\d\d-\d\d-\d\d", everything)


def test_an_existing_study_is_never_touched_without_a_flag(tiny_study: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "run_000_something.jsonl").write_text("mine\n")
    with pytest.raises(UserError, match="--resume goes on with it, --overwrite replaces it"):
        simulate_study(TINY, tmp_path)
    assert (tmp_path / "run_000_something.jsonl").read_text() == "mine\n"


@pytest.mark.parametrize("backend", [SIMULATION, IN_PARTS], ids=["jsonl", "parquet"])
def test_overwrite_removes_the_old_study_and_nothing_else(backend: Backend, tmp_path: Path) -> None:
    run_study(StudyPlan.smoke(steps=300, architectures=("llama-3-8b",)), tmp_path, backend=backend)
    (tmp_path / "README.md").write_text("keep\n")
    simulate_study(TINY, tmp_path, overwrite=True)
    assert sorted(run.name for run in load_study(tmp_path).runs) == sorted(spec.experiment_id for spec in TINY.specs())
    assert (tmp_path / "README.md").exists()


def test_a_study_is_not_replaced_where_other_logs_would_pass_for_its_runs(tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    (tmp_path / "of_somebody_else.jsonl").write_text("{}\n")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(
        UserError, match=r"holds logs that are none of the study in it, such as of_somebody_else\.jsonl"
    ):
        simulate_study(TINY, tmp_path, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_resume_makes_missing_cut_and_changed_logs_anew(tiny_study: dict[str, bytes], tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    first, second, third, *_ = sorted(tmp_path.glob("*.jsonl"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-30])
    third.write_bytes(third.read_bytes().replace(b'"training_loss":1', b'"training_loss":2', 1) + b" ")
    result = simulate_study(TINY, tmp_path, resume=True)
    assert result.made == 3
    assert contents(tmp_path) == tiny_study


@pytest.mark.parametrize(
    ("backend", "lost", "there"), [(SIMULATION, 8, 16), (IN_PARTS, 1, 12)], ids=["jsonl", "parquet"]
)
def test_who_loads_an_unfinished_study_is_warned_how_much_of_it_there_is(
    backend: Backend, lost: int, there: int, tmp_path: Path
) -> None:
    run_study(TINY, tmp_path, backend=backend)
    assert load_study(tmp_path, jobs=1).warnings() == []
    for file in sorted(tmp_path.glob("run_*"))[:lost]:
        file.unlink()
    (warning,) = load_study(tmp_path, jobs=1).warnings()
    assert warning.startswith(f"{tmp_path} holds {there} of the 24 runs of its manifest") and "--resume" in warning
    (tmp_path / MANIFEST).write_text(json.dumps({"runs": ["of", "something", "else"]}))
    assert load_study(tmp_path, jobs=1).warnings() == []


def test_resume_of_a_finished_study_changes_no_file(tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert simulate_study(TINY, tmp_path, resume=True).made == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_resume_refuses_another_study_and_says_what_differs(tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    with pytest.raises(UserError, match=r"its seed is 0, not 5"):
        simulate_study(StudyPlan.smoke(steps=400, architectures=TINY.architectures, seed=5), tmp_path, resume=True)


@pytest.mark.parametrize("left", [100, 0])
def test_resume_says_that_a_manifest_is_damaged(left: int, tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    (tmp_path / MANIFEST).write_bytes((tmp_path / MANIFEST).read_bytes()[:left])
    with pytest.raises(UserError, match=r"manifest\.json is damaged.* --overwrite"):
        simulate_study(TINY, tmp_path, resume=True)
    assert simulate_study(TINY, tmp_path, overwrite=True).made == 24


@pytest.mark.parametrize("runs", [None, ["of", {"something": "else"}], "many"])
def test_overwrite_works_whatever_the_manifest_lists(runs: object, tmp_path: Path) -> None:
    simulate_study(SHORT, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "runs": runs}))
    assert simulate_study(SHORT, tmp_path, overwrite=True).made == 12


@pytest.mark.parametrize("entry", ["whole", {}, {"sha256": "0"}, {"outcome": "clean", "colour": "red"}, 7])
def test_resume_says_that_an_entry_of_the_manifest_is_damaged(entry: object, tmp_path: Path) -> None:
    simulate_study(SHORT, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    name = next(iter(manifest["runs"]))
    manifest["runs"][name] = entry
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=rf"manifest\.json is damaged, for its entry of {name} lacks .* --overwrite"):
        simulate_study(SHORT, tmp_path, resume=True)


@pytest.mark.parametrize(
    ("backend", "value"),
    [
        (IN_PARTS, {"outcomes": None}),
        (IN_PARTS, {"outcomes": [1]}),
        (IN_PARTS, {"outcomes": {"clean": "b"}}),
        (SIMULATION, {"outcome": ["clean"]}),
        (SIMULATION, {"outcome": None}),
        (SIMULATION, {"records": "12"}),
        (SIMULATION, {"bytes": None}),
    ],
)
def test_resume_says_that_a_value_of_the_manifest_is_of_a_wrong_kind(
    backend: Backend, value: dict[str, object], tmp_path: Path
) -> None:
    run_study(SHORT, tmp_path, backend=backend)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    name, entry = next(iter(manifest["runs"].items()))
    entry |= value
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=rf"manifest\.json is damaged, for its entry of {name} "):
        run_study(SHORT, tmp_path, backend=backend, resume=True)


def test_resume_mends_a_manifest_that_lists_nothing_and_says_it_is_complete(tmp_path: Path) -> None:
    simulate_study(SHORT, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "runs": {}}))
    assert simulate_study(SHORT, tmp_path, resume=True).made == 0
    assert json.loads((tmp_path / MANIFEST).read_text())["runs"] == manifest["runs"]


@pytest.mark.parametrize("flag", ["resume", "overwrite"])
def test_what_a_killed_process_left_half_written_is_removed(flag: str, tmp_path: Path) -> None:
    simulate_study(SHORT, tmp_path)
    for left in (".run_x.jsonl.1.part", f".{MANIFEST}.1.part"):
        (tmp_path / left).touch()
    simulate_study(SHORT, tmp_path, **{flag: True})
    assert {path.name for path in tmp_path.iterdir()} == {MANIFEST, *contents(tmp_path)}


@pytest.mark.parametrize("end", ['{"event": "EXPERIMENT_SUCCESS"}', '{"event": "EXPERIMENT_FAILURE"}', "[]"])
def test_resume_makes_a_log_anew_whose_end_says_too_little(end: str, tmp_path: Path) -> None:
    simulate_study(SHORT, tmp_path)
    before = contents(tmp_path)
    manifest, log = json.loads((tmp_path / MANIFEST).read_text()), next(iter(sorted(tmp_path.glob("*.jsonl"))))
    manifest["runs"][log.stem] = None
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    log.write_bytes(b"\n".join([*log.read_bytes().splitlines()[:-1], end.encode()]) + b"\n")
    assert simulate_study(SHORT, tmp_path, resume=True).made == 1
    assert contents(tmp_path) == before


def test_a_resume_that_is_broken_off_keeps_the_checksums(tmp_path: Path) -> None:
    def broken_off(*_: object) -> Iterator[list[Entry]]:
        raise KeyboardInterrupt

    simulate_study(SHORT, tmp_path)
    before = contents(tmp_path)
    first, second, *_ = sorted(tmp_path.glob("*.jsonl"))
    first.unlink()
    with pytest.raises(KeyboardInterrupt):
        run_study(SHORT, tmp_path, backend=replace(SIMULATION, execute=broken_off), resume=True)
    second.write_bytes(second.read_bytes().replace(b'"training_loss":1', b'"training_loss":2', 1))
    assert simulate_study(SHORT, tmp_path, resume=True).made == 2
    assert contents(tmp_path) == before


@pytest.mark.parametrize("flag", ["resume", "overwrite"])
def test_a_second_process_is_refused_while_the_first_is_at_work(flag: str, tmp_path: Path) -> None:
    told = rf"another process is at work on {tmp_path} \(process {os.getpid()} on "

    def started_twice(*work: Any) -> Iterator[list[Finished]]:
        for made in simulate_all(*work):
            with pytest.raises(UserError, match=told):
                simulate_study(SHORT, tmp_path, **{flag: True})
            yield made

    (tmp_path / ".lock").write_text("process 1, which was killed\n")
    assert run_study(SHORT, tmp_path, backend=replace(SIMULATION, execute=started_twice)).made == 12
    assert {path.name for path in tmp_path.iterdir()} == {MANIFEST, *contents(tmp_path)}


def interrupted(backend: Backend, folder: Path) -> dict[str, bytes]:
    """Contents of a study that was broken off right before its last manifest."""

    def broken_off(*work: Any) -> Iterator[Sequence[Entry]]:
        yield from backend.execute(*work)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(SHORT, folder, backend=replace(backend, execute=broken_off))
    return {path.name: path.read_bytes() for path in folder.glob("run_*")}


def test_resume_of_an_interrupted_study_makes_anew_what_was_changed_since(tmp_path: Path) -> None:
    made = interrupted(SIMULATION, tmp_path)
    log = tmp_path / min(made)
    log.write_bytes(made[log.name].replace(b'"training_loss":1', b'"training_loss":2', 1))
    with open(tmp_path / ".manifest.journal", "ab") as journal:
        journal.write(b'{"name": "run_of_a_line_cut_short", "sha2')
    assert simulate_study(SHORT, tmp_path, resume=True).made == 1
    assert contents(tmp_path) == made
    assert {path.name for path in tmp_path.iterdir()} == {MANIFEST, *made}


@pytest.mark.parametrize("lacks", ["sha256", "bytes"])
def test_a_log_whose_line_in_the_journal_lacks_something_is_examined(lacks: str, tmp_path: Path) -> None:
    made = interrupted(SIMULATION, tmp_path)
    journal = tmp_path / ".manifest.journal"
    first, *others = map(json.loads, journal.read_text().splitlines())
    del first[lacks]
    journal.write_text("".join(f"{json.dumps(entry)}\n" for entry in (first, *others)))
    assert simulate_study(SHORT, tmp_path, resume=True).made == 0
    assert contents(tmp_path) == made


@pytest.mark.parametrize("backend", [SIMULATION, IN_PARTS], ids=["jsonl", "parquet"])
@pytest.mark.parametrize("damage", [0.3, 0.5, 0.7])
def test_a_file_without_a_checksum_is_examined_whole(backend: Backend, damage: float, tmp_path: Path) -> None:
    made = interrupted(backend, tmp_path)
    (tmp_path / ".manifest.journal").unlink()
    file, content = tmp_path / min(made), made[min(made)]
    place = int(damage * len(content))
    file.write_bytes(content[:place] + bytes(64) + content[place + 64 :])
    assert run_study(SHORT, tmp_path, backend=backend, resume=True).made == (1 if backend is SIMULATION else 12)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("run_*")} == made


def test_resume_asks_each_run_for_its_name_a_few_times_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_study(SHORT, tmp_path)
    named, asked = RunSpec.experiment_id.fget, []
    monkeypatch.setattr(RunSpec, "experiment_id", property(lambda spec: asked.append(spec) or named(spec)))
    simulate_study(SHORT, tmp_path, resume=True)
    assert len(asked) < 10 * 12


@pytest.mark.parametrize(
    ("key", "found", "said"),
    [
        ("backend_version", 7, "made by version 7 of the simulation, not 1"),
        ("fitted", {"parameters.json": "0" * 16}, "its parameters.json is 0000000000000000, not "),
    ],
)
def test_resume_refuses_a_study_of_another_version(key: str, found: object, said: str, tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest["study"][key] = found
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=said):
        simulate_study(TINY, tmp_path, resume=True)


def test_resume_refuses_a_study_from_before_there_were_versions(tmp_path: Path) -> None:
    simulate_study(TINY, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    del manifest["study"]["backend_version"], manifest["study"]["backend"], manifest["study"]["fitted"]
    manifest["study"]["code"] = "0" * 16
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="made by version unknown of the simulation, not 1"):
        simulate_study(TINY, tmp_path, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_a_killed_study_is_finished_to_the_byte(jobs: str, tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--jobs", jobs, "--steps", "1000", "--repetitions", "6"]
    command = [sys.executable, str(ROOT / "run_modern_experiments.py"), *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while len(list(tmp_path.glob("run_*.jsonl"))) < 20 and process.poll() is None:
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished_before = len(list(tmp_path.glob("run_*.jsonl")))
    plan = StudyPlan(steps=1000, repetitions=6, controls=36)
    assert 0 < finished_before < len(plan.specs()), "the study was not killed half-way"
    assert json.loads((tmp_path / MANIFEST).read_text())["complete"] is False
    # What a kill in the middle of a write leaves behind:
    (tmp_path / ".run_000_x.jsonl.1.part").write_text("half")

    result = simulate_study(plan, tmp_path, jobs=2, resume=True)

    assert result.made == len(plan.specs()) - finished_before
    assert not list(tmp_path.glob(".*"))
    uninterrupted = tmp_path / "uninterrupted"
    uninterrupted.mkdir()
    simulate_study(plan, uninterrupted, jobs=2)
    assert contents(tmp_path) == contents(uninterrupted)


@pytest.mark.slow
def test_a_plugin_s_fault_reaches_the_worker_processes(tmp_path: Path) -> None:
    plugin = tmp_path / "my_fault.py"
    plugin.write_text(PLUGIN)
    out = tmp_path / "logs"
    command = [sys.executable, str(ROOT / "run_modern_experiments.py"), "--out", str(out), "--jobs", "2"]
    options = ["--plugin", str(plugin), "--faults", "TEST_NAP", "LR_SPIKE", "--steps", "300", "--repetitions", "12"]
    subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    run = read_log(next(out.glob("*test_nap_high_rep1.jsonl")))
    assert run.fault == "TEST_NAP"
    longest = run.observations["step_time_max_s"][run.observations.step >= run.onset]
    assert (longest > 1000).all()
    assert [*json.loads((out / MANIFEST).read_text())["study"]["plugins"]] == ["1. my_fault.py", "fault TEST_NAP"]


def test_resume_notices_what_a_plugin_imports_from_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_registries: None
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    beside, plugin, out = tmp_path / "naps.py", tmp_path / "with_help.py", tmp_path / "logs"
    beside.write_text("SECONDS = 10.0\n")
    plugin.write_text("import naps\n" + PLUGIN.replace("TEST_NAP", "HELPED_NAP").replace("10.0", "naps.SECONDS"))
    load_plugin(plugin)
    plan = StudyPlan(repetitions=1, controls=1, steps=100).only(["mistral-7b"], ["HELPED_NAP"])
    out.mkdir()
    simulate_study(plan, out, plugins=[plugin])
    assert simulate_study(plan, out, plugins=[plugin], resume=True).made == 0
    beside.write_text("SECONDS = 20.0\n")
    with pytest.raises(UserError, match=r"its fault HELPED_NAP is [0-9a-f]{16}, not "):
        simulate_study(plan, out, plugins=[plugin], resume=True)


def test_plugins_of_one_name_count_each(tmp_path: Path, clean_registries: None) -> None:
    plugins, out = [tmp_path / folder / "fault.py" for folder in ("a", "b")], tmp_path / "logs"
    for place, plugin in enumerate(plugins):
        plugin.parent.mkdir()
        plugin.write_text(PLUGIN.replace("TEST_NAP", f"NAP_{place}"))
        load_plugin(plugin)
    out.mkdir()
    simulate_study(SHORT, out, plugins=plugins)
    plugins[0].write_text(f"{plugins[0].read_text()}\n# changed\n")
    with pytest.raises(UserError, match=r"its 1\. fault\.py is [0-9a-f]{64}, not "):
        simulate_study(SHORT, out, plugins=plugins, resume=True)


PLUGIN = '''
from dataclasses import dataclass
from rmetric.faults import Fault, register_fault

@register_fault("TEST_NAP")
@dataclass(frozen=True, kw_only=True)
class Nap(Fault):
    """Every step takes a nap."""
    source = "test"
    nap_s: float = 10.0
    severities = {"low": {}, "medium": {}, "high": {"nap_s": 1000.0}}

    def simulate(self, state, active, rng):
        state.stall_s += active * self.nap_s
'''
