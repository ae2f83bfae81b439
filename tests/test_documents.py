"""Documents are true: links, paths, names and options exist; examples, commands and headline numbers are run."""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmetric
from rmetric import read_run
from rmetric.commands import main as rmetric_main
from rmetric.detectors import DETECTORS
from rmetric.monitor import repair
from tests.author_interface import replay as author_replay
from tests.helpers import ROOT

OUTSIDE_DOCS = (
    "README.md", "ARTIFACT.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "data/README.md",
    "logs_FULL_METRIC/README.md",
)  # fmt: skip
DOCUMENTS = sorted([*(ROOT / name for name in OUTSIDE_DOCS), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FINDINGS = sorted((ROOT / "docs" / "findings").glob("*.md"))
PATH = re.compile(r"(?<![\w/.-])((?:rmetric|studies|benchmarks|tests|docs|data|logs_FULL_METRIC)/[\w./-]*\w)")
NOT_IN_THE_HEADLINE = {
    "isolation_forest", "isolation_forest_causal", "one_class_svm", "ecod", "lstm_forecaster", "half_space_trees",
    "mad_cusum",
}  # fmt: skip
"""Slow detectors, none of which is the best baseline."""

document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


# --- cheap: what a document names is there


@document
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def anchors(path: Path) -> set[str]:
    """Anchors of the headings of a document, as on GitHub."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@document
def test_paths_exist(path: Path) -> None:
    for name in PATH.findall(path.read_text(encoding="utf-8")):
        assert (ROOT / name).exists() or (path.parent / name).exists() or made_by_a_study(name), name


@document
def test_policies_have_the_options_that_are_given_to_them(path: Path) -> None:
    for name, options in re.findall(r"`(\w+)\(([^`]+)\)`", path.read_text(encoding="utf-8")):
        if policy := getattr(repair, name, None):
            given = [keyword.arg for keyword in ast.parse(f"f({options})", mode="eval").body.keywords]
            assert {*given} <= {*inspect.signature(policy).parameters}, name


@document
def test_files_named_without_their_folder_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", text):
        assert name in files_of_the_code() or f"Save this as `{name}`" in text, name


@functools.cache
def files_of_the_code() -> set[str]:
    below = [
        file for top in ("rmetric", "studies", "benchmarks", "examples", "tests") for file in (ROOT / top).rglob("*.py")
    ]
    return {file.name for file in (*below, *ROOT.glob("*.py"))}


def test_docstrings_are_read_as_they_are_meant() -> None:
    """What stands behind the items of a section is read as an item, and a table of reStructuredText as a paragraph."""
    section = re.compile(r"^(?:Parameters|Returns|Yields|Raises)\n-+\n(.*?)(?=^\w+\n-+$|\Z)", re.M | re.S)
    for file in (ROOT / "rmetric").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                assert not re.search(r"^={3}", text, re.M), f"{file}: {text}"
                for items in section.findall(text):
                    assert not re.search(r"^\S.*\n(?!    )", f"{items}\n", re.M), f"{file}: {items}"


def made_by_a_study(path: str) -> bool:
    """Whether git ignores the path: results that a command writes."""
    asked = subprocess.run(["git", "check-ignore", "--quiet", path], cwd=ROOT, capture_output=True)
    return asked.returncode == 0


@document
def test_dotted_names_exist(path: Path) -> None:
    for name in re.findall(r"`((?:rmetric|studies)(?:\.\w+)+)[`(]", path.read_text(encoding="utf-8")):
        assert is_importable(name), name


@document
def test_imports_in_examples_work(path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
    lines = [line.removeprefix(">>> ").strip() for block in blocks for line in block.splitlines()]
    for line in lines:
        if found := re.fullmatch(r"from ((?:rmetric|studies)[\w.]*) import ([\w, ]+)", line):
            for name in found[2].split(","):
                assert is_importable(f"{found[1]}.{name.strip()}"), line


def is_importable(dotted: str) -> bool:
    """Whether a dotted name is a module or can be reached from one; true where a module needs torch and has none."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(name) is None:
                continue
            try:
                thing = importlib.import_module(name)
            except ImportError as error:
                if (error.name or "").partition(".")[0] in ("rmetric", "studies"):
                    raise
                return True
            try:
                for part in parts[length:]:
                    thing = inspect.getattr_static(thing, part) if inspect.isclass(thing) else getattr(thing, part)
            except AttributeError:
                return False
            return True
    return False


def typed_commands(text: str) -> Iterator[str]:
    """Lines of a document's code blocks, indented blocks and code spans that begin with python, make or pip."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for span in [line.split(" #")[0], *re.findall(r"`([^`]+)`", line)]:
            yield from (part.strip() for part in span.split("&&") if re.match(r"\s*(python|make) \S", part))


@document
def test_commands_name_scripts_modules_targets_and_options_that_exist(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)) | {"reproduce", "smoke"}
    for command in typed_commands(path.read_text(encoding="utf-8")):
        words = shlex.split(command.replace("…", ""))
        if words[0] == "make":
            if not words[1].startswith("PYTHON"):
                assert words[1] in targets, command
        elif words[1] == "-m":
            if words[2].startswith(("rmetric", "studies", "tests")):
                assert has_options(module_file(words[2]), words), command
        elif (ROOT / words[1]).is_file():
            assert has_options(Path(words[1]), words), command
        else:
            assert words[1] not in ("", "-") and not words[1].endswith(".py"), command


def module_file(name: str) -> Path:
    """File that ``python -m name`` runs."""
    path = Path(name.replace(".", "/"))
    return path / "__main__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def has_options(script: Path, words: list[str]) -> bool:
    """Whether the source of a script, of what scripts share, or of the chosen suite names all options of a command."""
    files = [ROOT / script, ROOT / "rmetric" / "cli.py"]
    if script.name == "replay_and_analyze_logs.py":
        files += (ROOT / "rmetric" / "commands" / name for name in ("replay.py", "logs.py"))
    if script.parent.name == "benchmarks":
        files += (ROOT / "benchmarks").glob("*.py")
    if script.name == "run_case_study.py":
        suite = words[words.index("--suite") + 1] if "--suite" in words else "case_study"
        files.append(ROOT / "studies" / suite / "cli.py")
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return all(f'"{word.split("=")[0]}"' in source for word in words if word.startswith("--"))


@pytest.mark.slow
@document
def test_classes_in_code_spans_exist(path: Path) -> None:
    named = re.findall(r"`([A-Z][a-z]+[A-Z]\w*)[`(.]", path.read_text(encoding="utf-8"))
    assert {*named} <= words_of_the_code()


@functools.cache
def words_of_the_code() -> set[str]:
    files = (file for top in ("rmetric", "studies", "benchmarks") for file in (ROOT / top).rglob("*.py"))
    return {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


def test_make_knows_the_readme_s_targets() -> None:
    targets = set(re.findall(r"`make ([\w-]+)`", README))
    assert {"reproduce", "smoke", "case-study", "real-study", "test", "test-fast", "check"} <= targets
    for target in targets:
        assert subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.slow
def test_make_site_refuses_a_link_to_what_is_not_on_the_site(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra 'dev'")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    beside = ("rmetric", "data", "logs_FULL_METRIC", "CITATION.cff", "LICENSE")
    for name in (*beside, *(page.name for page in ROOT.glob("*.md"))):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs" / "api.md").write_text("# API\n", encoding="utf-8")  # the whole one takes longer than all others
    with (tmp_path / "docs" / "replay.md").open("a", encoding="utf-8") as page:
        page.write("\n[a folder](../studies/zoo)\n")
    said = subprocess.run(["make", "--dry-run", "site"], cwd=ROOT, capture_output=True, text=True).stdout
    (typed,) = [line for line in said.splitlines() if "mkdocs build" in line]
    built = subprocess.run(
        typed.replace(".venv/bin/python", sys.executable),
        shell=True, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert built.returncode != 0
    assert "'../studies/zoo'" in built.stdout and "Aborted with 1 warnings" in built.stdout


# --- examples and commands, run as they stand


def commands(text: str, section: str) -> list[str]:
    """Commands of the fenced blocks under a heading of a document, without their comments."""
    text = text.split(f"## {section}\n")[1].split("\n## ")[0]
    blocks = [block for language, block in re.findall(r"```(\w*)\n(.*?)```", text, re.S) if not language]
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def example(text: str, marker: str) -> str:
    """The Python block of a document that contains ``marker``."""
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if marker in block]
    return found


def document_text(name: str) -> str:
    """README, or a document of ``docs/``."""
    return README if name == "README" else (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    assert program == "python", command
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)


def status_of(command: str) -> int:
    """Exit status of a document's command whose script runs in this process: to import it in another takes longest."""
    program, script, *arguments = shlex.split(command)
    assert program == "python", command
    return importlib.import_module(Path(script).stem).main(arguments)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the README's commands can be typed: scripts and sample, results apart."""
    for name in ["rmetric", "studies", "logs_FULL_METRIC/sample", *(path.name for path in ROOT.glob("*.py"))]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


FEW = {
    "run_modern_experiments.py": " --repetitions 2 --steps 1000 --jobs 1",
    "generate_paper_tables.py": " --detectors r_metric r_metric_robust --jobs 1",
    "run_case_study.py": " --batch 4 --length 16 --jobs 1",
}
"""What a test adds to a document's command, so that it takes seconds."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "section", "number"), [(README, "Add a fault or a detector", 3), (EXTENDING, "A fault", 5)]
)
def test_the_example_of_a_fault_runs_through_the_whole_pipeline(
    text: str, section: str, number: int, checkout: Path
) -> None:
    (checkout / "nic_flap.py").write_text(example(text, "register_fault"), encoding="utf-8")
    typed = commands(text, section)
    assert len(typed) == number
    for command in typed:
        if command.startswith("python run_case_study.py"):
            pytest.importorskip("torch", reason="needs the extra 'live'")
        command += FEW.get(command.split()[1], "")
        ended = run(command, checkout)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    table = (checkout / "results/tables_nic_flap/table_2_scenario_matrix.md").read_text(encoding="utf-8")
    assert re.search(r"NIC_FLAP +\| high +\| +2 \|", table)


@pytest.mark.slow
def test_the_example_of_a_detector_stands_in_a_table(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, clean_registries: None
) -> None:
    monkeypatch.chdir(checkout)
    (checkout / "loss_above_lowest.py").write_text(example(EXTENDING, "register_detector"), encoding="utf-8")
    (typed,) = commands(EXTENDING, "A detector")
    assert status_of(typed) == 0
    table = (checkout / "results/tables_mine/table_3_detectors.md").read_text(encoding="utf-8")
    assert "| loss_above_lowest " in table


@pytest.mark.parametrize(
    ("name", "marker"), [("robust", "RMetric.robust"), ("replay", "replay_log"), ("risk", "RiskModel")]
)
def test_examples_that_read_a_log(name: str, marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sorted((ROOT / "tests" / "data" / "real_runs").glob("*.jsonl"))[0]
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_bytes(log.read_bytes())
    run = read_run("run.jsonl")
    exec(example(document_text(name), marker), {"run": run, "observation": next(iter(run.observations))})


@pytest.mark.parametrize(("name", "marker"), [("README", "TrainingMonitor"), ("repair", "recompute")])
def test_training_loops_are_monitored(name: str, marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'live'")

    class Model(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> SimpleNamespace:
            return SimpleNamespace(loss=super().forward(x).square().mean())

    monkeypatch.chdir(tmp_path)
    model, loader = Model(4, 1), [{"x": torch.ones(2, 4)} for _ in range(5)]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given = {
        "model": model,
        "loader": loader,
        "optimizer": optimizer,
        "val_loss": 1.0,
        "torch": torch,
        "rmetric": rmetric,
    }
    exec(example(document_text(name), marker), given)
    given["monitor"].close()
    assert len(read_run(tmp_path / "run.jsonl").observations) == 5


def test_the_readme_shows_how_a_diagnosis_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ((typed, shown),) = re.findall(r"```text\n\$ rmetric (.*?)\n(.*?)```", README, re.S)
    monkeypatch.chdir(ROOT)
    assert rmetric_main(shlex.split(typed)) == 1
    assert capsys.readouterr().out.startswith(shown)


@pytest.mark.slow
def test_the_readme_s_replay_commands(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    sample = next((ROOT / "logs_FULL_METRIC" / "sample").glob("*.jsonl"))
    (checkout / "my_run.jsonl").write_bytes(sample.read_bytes())
    (checkout / "output_dir").mkdir()
    state = '{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": NaN}, {"step": 2, "eval_loss": 2.5}]}'
    (checkout / "output_dir" / "trainer_state.json").write_text(state)
    (checkout / "metrics.csv").write_text("iteration,loss\n1,2.0\n2,1.9\n3,1.8\n")
    printed = ["step 1: loss 2.0\n", "step 2: loss 1.9\n", "step 3: loss 1.8\n"]
    notebook = {"cells": [{"cell_type": "code", "outputs": [{"text": printed}]}], "nbformat": 4}
    (checkout / "train.ipynb").write_text(json.dumps(notebook))
    (checkout / "results.json").write_text(json.dumps({"losses": [2.0, 1.9, 1.8]}))
    (checkout / "slurm-4711.out").write_text("".join(printed))
    typed = commands(README, "Replay a log")
    assert len(typed) == 4
    for command in typed:
        assert status_of(command) == 0, command


@pytest.mark.long
def test_the_authors_steps_work_in_order(checkout: Path) -> None:
    typed = [command for command in commands(README, "Reproduce") if command.startswith("python ")]
    assert [command.split()[1] for command in typed] == [
        "run_modern_experiments.py",
        "generate_paper_tables.py",
        "generate_all_figures.py",
        "run_case_study.py",
        "replay_and_analyze_logs.py",
    ]
    small = {
        "run_modern_experiments.py": " --smoke --steps 1500 --jobs 1",
        "generate_paper_tables.py": " --detectors r_metric r_metric_robust isolation_forest --jobs 1",
        "generate_all_figures.py": " --jobs 1",
        "run_case_study.py": " --steps 60 --batch 4 --length 16 --faults LR_SPIKE NONE --jobs 1",
        "replay_and_analyze_logs.py": " --no-plot --jobs 1",
    }
    for command in typed:
        ended = run(command + small.get(command.split()[1], ""), checkout)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    assert len(list((checkout / "logs_FULL_METRIC").glob("run_*.jsonl"))) == 36
    assert len(list((checkout / "results" / "figures").glob("*.png"))) >= 5
    assert len(list((checkout / "results" / "replay").glob("*.summary.json"))) == 36
    for log in (checkout / "results" / "case_study").glob("run_*.jsonl"):  # the author's scripts read live runs too
        assert author_replay.main(log, checkout / "picture.png")["experiment"] == log.stem


# --- numbers


def test_the_pages_of_other_tools_and_of_others_runs_have_the_same_false_alarms() -> None:
    sources = "AlgoPerf|modded-nanoGPT|Megatron-LM|public Trainer logs|zoo|bugs"
    found = re.findall(rf"^\| (?:{sources}), [^|]+\| ([\d,]+) \| (\d+) \|", document_text("abroad"), re.M)
    counts = [(int(alarms), int(steps.replace(",", ""))) for steps, alarms in found]
    counts.append((sum(alarms for alarms, _ in counts), sum(steps for _, steps in counts)))
    rates = " | ".join(f"{round(1e4 * alarms / steps, 2):g}" for alarms, steps in counts)
    assert len(counts) == 7 and f"| **robust R-Metric** | {rates} |" in document_text("peers")


@document
def test_lists_are_lists_on_the_site(path: Path) -> None:
    """Without an empty line above it, Python-Markdown, unlike GitHub, shows a list as text of the paragraph."""
    markdown = pytest.importorskip("markdown", reason="needs the extra 'dev'")
    made = markdown.markdown(path.read_text(encoding="utf-8"), extensions=["tables", "pymdownx.superfences"])
    assert re.findall(r"^(?:<p>)?(?:[-*+]|\d+\.) .*", re.sub(r"<pre>.*?</pre>", "", made, flags=re.S), re.M) == []


@pytest.mark.long
def test_the_findings_hold() -> None:
    ran = [doctest.testfile(str(path), module_relative=False) for path in FINDINGS]
    assert sum(result.attempted for result in ran) >= 7
    assert not any(result.failed for result in ran)


@pytest.mark.long
def test_the_readme_s_headline_is_what_the_full_study_gives(tmp_path: Path) -> None:
    """The 720 runs, the real ones beside them as in ``make reproduce``, and the detectors that are quick to score."""
    detectors = [name for name in DETECTORS if name not in NOT_IN_THE_HEADLINE]
    logs, out = tmp_path / "logs", tmp_path / "tables"
    made = run(f"python run_modern_experiments.py --out {logs}", ROOT)
    assert made.returncode == 0, made.stderr
    data_set = "data/real_runs.parquet" if (ROOT / "data" / "real_runs.parquet").is_file() else ""
    options = f"--logs {logs} {data_set} --out {out} --tables headline --detectors {' '.join(detectors)}"
    tabulated = run(f"python generate_paper_tables.py {options}", ROOT)
    assert tabulated.returncode == 0, tabulated.stderr
    headline = (out / "headline.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- headline.*?-->\n(.*?)\n<!-- /headline -->", README, re.S)
    assert shown in headline
    for said in ("254 failing runs", "F1 0.524", "F1 of 0.973", "0.976 [0.953, 0.995]"):
        assert said in " ".join(README.split())
    assert "254 failed, 318 recovered, 144 clean" in headline


@pytest.mark.long
def test_the_tables_of_what_interruptions_cost_are_what_their_command_gives(tmp_path: Path) -> None:
    text = document_text("cluster").split("## The tables that came out\n")[1]
    command = next(typed_commands(text))
    ended = run(f"{command} --out {tmp_path}", ROOT)
    assert ended.returncode == 0, ended.stderr
    compared = 0
    for made in tmp_path.glob("table_17*.md"):
        titles, _, *rows = cells_of(made.read_text(encoding="utf-8"))
        shown = cells_of(text)
        (begin,) = [index for index, row in enumerate(shown) if row[0] == titles[0]]
        chosen = [titles.index(title) for title in shown[begin]]
        known = shown[begin + 2 : begin + 2 + len(rows)]
        assert known == [[row[index] for index in chosen] for row in rows], made.name
        compared += 1
    assert compared == 2


def cells_of(text: str) -> list[list[str]]:
    """Cells of all rows of the tables of a Markdown document."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
