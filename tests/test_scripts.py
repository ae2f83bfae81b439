"""What every script promises: help, exit status, and one line that says what to do when the input is bad."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmetric.cli import Parser, output_folder, script
from rmetric.commands import main as rmetric_command
from rmetric.faults import FAULTS
from tests.helpers import ROOT, ended_by, ends_of_a_command, hearing_ctrl_c

SCRIPTS = (
    "simulator",
    "run_modern_experiments",
    "generate_paper_tables",
    "generate_all_figures",
    "run_case_study",
    "replay_and_analyze_logs",
)
Main = Callable[[list[str]], int]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts lie at the top level, as the authors' do."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def main_of(script: str) -> Main:
    return importlib.import_module(script).main


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, f"{script}.py", *arguments], cwd=ROOT, capture_output=True, text=True)


def fails_with_one_line(capsys: pytest.CaptureFixture[str], script: str, *arguments: str) -> str:
    """Run a script in process; it must end with 2 and exactly one line on the error stream. Returns that line."""
    status = main_of(script)(list(arguments))
    lines = capsys.readouterr().err.strip().splitlines()
    assert status == 2, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_tells_defaults(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(script)(["--help"]) == 0
    text = capsys.readouterr().out
    assert "(default: " in text
    assert "None" not in text


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_opens_with_its_command_and_stays_thin(script: str) -> None:
    source = (ROOT / f"{script}.py").read_text()
    assert f"python {script}.py" in source.split('"""')[1]
    assert len(source.splitlines()) <= 115


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "run_modern_experiments.py --backend torch", "-m studies.zoo.record", "-m studies.loops.record",
        "-m studies.gpu.run", "-m studies.states.recall", "benchmarks/monitor.py", "benchmarks/repair.py",
        "benchmarks/mechanism.py", "benchmarks/shared_machine.py", "-m rmetric.live.models.memory",
    ],
)  # fmt: skip
def test_training_without_torch_says_what_to_install(command: str, tmp_path: Path) -> None:
    missing, work = tmp_path / "missing", tmp_path / "work"
    for folder in (missing, work):
        folder.mkdir()
    (missing / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    file, *rest = command.split()
    words = [sys.executable, file if file == "-m" else str(ROOT / file), *rest]
    own = {**os.environ, "PYTHONPATH": f"{missing}{os.pathsep}{ROOT}"}
    ended = subprocess.run(words, cwd=work, env=own, capture_output=True, text=True)
    said = "error: real training needs torch, which is missing: pip install 'rmetric[live]'\n"
    assert (ended.returncode, ended.stderr, [*work.iterdir()]) == (2, said, [])


def test_an_option_that_is_nearly_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert rmetric_command(["replay", "log.jsonl", "--no-plots=1"]) == 2
    assert "unrecognized arguments: --no-plots=1; did you mean --no-plot?" in capsys.readouterr().err
    assert rmetric_command(["replay", "log.jsonl", "--zzzz"]) == 2
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unknown_option_is_one_line(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--help" in fails_with_one_line(capsys, script, "--no-such-option")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_file_where_the_output_folder_is_due(script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    line = fails_with_one_line(capsys, script, "--out", str(file))
    assert "file where a folder is due" in line
    line = fails_with_one_line(capsys, script, "--out", str(file / "below"))
    assert "file stands where a folder is due" in line or "file where a folder is due" in line


@pytest.mark.parametrize("script", ["generate_paper_tables", "generate_all_figures"])
def test_missing_and_empty_folders_of_logs(script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert "does not exist" in fails_with_one_line(capsys, script, "--logs", str(tmp_path / "no"), "--out", out)
    (tmp_path / "empty").mkdir()
    assert "holds no .jsonl logs" in fails_with_one_line(
        capsys, script, "--logs", str(tmp_path / "empty"), "--out", out
    )
    (tmp_path / "file").write_text("")
    assert "is a file" in fails_with_one_line(capsys, script, "--logs", str(tmp_path / "file"), "--out", out)


def test_unknown_names_are_answered_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", str(tmp_path / "out"))
    line = fails_with_one_line(capsys, "simulator", "--fault", "LR_SPIKES", *out)
    assert "did you mean 'LR_SPIKE'?" in line
    line = fails_with_one_line(capsys, "simulator", "--architecture", "llama3-8b", *out)
    assert "did you mean 'llama-3-8b'?" in line
    line = fails_with_one_line(capsys, "run_modern_experiments", "--architectures", "mistral", *out)
    assert "did you mean 'mistral-7b'?" in line
    line = fails_with_one_line(capsys, "run_modern_experiments", "--faults", "NODE_FAIL", *out)
    assert "did you mean 'NODE_FAILURE'?" in line
    line = fails_with_one_line(capsys, "run_modern_experiments", "--faults", "LR_SPIKE", "LR_SPIKE", *out)
    assert "LR_SPIKE is given twice" in line
    line = fails_with_one_line(capsys, "simulator", "--fault", "LR_SPIKE+", *out)
    assert "fault 'LR_SPIKE+' lacks a name" in line
    line = fails_with_one_line(capsys, "generate_paper_tables", "--detectors", "r_metrics", *out)
    assert "did you mean 'r_metric'?" in line
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "arguments", [("simulator", "--fault", "SPIKE"), ("run_modern_experiments", "--faults", "SPIKE")]
)
def test_an_unknown_fault_is_told_those_that_can_be_simulated_the_nearest_first(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = fails_with_one_line(capsys, *arguments, "--out", str(tmp_path / "out"))
    known = line.split("(known: ")[1].removesuffix(")").split(", ")
    assert known[0] == "LR_SPIKE"
    assert {*known} == {name for name, fault in FAULTS.items() if fault.simulated}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--steps", "-5"),
        ("--steps", "0"),
        ("--steps", "many"),
        ("--log-every", "0"),
        ("--seed", "-1"),
        ("--steps", "10", "--log-every", "20"),
    ],
)
@pytest.mark.parametrize("script", ["simulator", "run_modern_experiments"])
def test_impossible_numbers(
    script: str, arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_with_one_line(capsys, script, *arguments, "--out", str(tmp_path / "out"))


@pytest.mark.parametrize("step", ["0", "5001", "-3", "soon"])
def test_impossible_fault_steps(step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails_with_one_line(capsys, "simulator", f"--fault-step={step}", "--out", str(tmp_path))


@pytest.mark.parametrize("options", [("--fault-step", "300"), ("--severity", "high")])
def test_what_a_run_without_a_fault_cannot_have(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = fails_with_one_line(capsys, "simulator", "--fault", "NONE", *options, "--out", str(tmp_path))
    assert "leave --fault-step and --severity out" in line


def test_the_transfer_set_has_no_architectures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="real training needs torch")
    pytest.importorskip("transformers", reason="real training needs transformers")
    options = ["--backend", "torch", "--transfer", "--architectures", "gpt-4-moe", "--out", str(tmp_path)]
    assert "leave --architectures out" in fails_with_one_line(capsys, "run_modern_experiments", *options)


def test_what_only_real_runs_have_is_refused_for_simulated_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in (["--transfer"], ["--device", "cuda"]):
        line = fails_with_one_line(capsys, "run_modern_experiments", *option, "--out", str(tmp_path / "logs"))
        assert "add --backend torch" in line


def test_no_fault_cannot_be_combined_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = fails_with_one_line(capsys, "simulator", "--fault", "NONE+LR_SPIKE", "--out", str(tmp_path))
    assert "NONE is a run without a fault and cannot be combined" in line


@pytest.mark.slow
def test_a_module_is_named_as_it_was_started() -> None:
    ended = subprocess.run([sys.executable, "-m", "studies.compare", "--foo"], cwd=ROOT, capture_output=True, text=True)
    assert ended.stderr.endswith("(try python -m studies.compare --help)\n")


def test_what_another_program_runs_is_named_by_itself() -> None:
    words = [sys.executable, "-m", "cProfile", "generate_paper_tables.py", "--foo"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert "(try generate_paper_tables.py --help)\n" in ended.stderr


def test_help_tells_defaults_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    p = Parser("Nothing.")
    p.add_argument("--agents", action="store_const", const=1, default=ROOT, help="a switch")
    p.add_argument("--out", type=Path, default=ROOT / "data", help="a folder")
    p.add_argument("--data", nargs="+", default=[ROOT / "data" / "a.csv", Path("b.csv")], help="files")
    told = p.format_help()
    assert "a folder (default: data)" in told and "files (default: data/a.csv b.csv)" in " ".join(told.split())
    assert told.count("default") == 2


def test_an_expert_fault_on_a_dense_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = fails_with_one_line(capsys, "simulator", "--fault", "ROUTER_IMBALANCE", "--out", str(tmp_path))
    assert "choose --architecture gpt-4-moe" in line


def test_plugins_that_cannot_be_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a file" in fails_with_one_line(capsys, "simulator", "--plugin", str(tmp_path / "no.py"))
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module_anywhere\n")
    assert "no_such_module_anywhere" in fails_with_one_line(capsys, "simulator", "--plugin", str(broken))


def test_a_detector_of_a_plugin_that_breaks_in_a_simulated_run_is_named_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clean_registries: None
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from dataclasses import dataclass\n"
        "from rmetric.detectors import StreamingDetector, register_detector\n"
        "@register_detector('broken')\n"
        "@dataclass(kw_only=True)\n"
        "class Broken(StreamingDetector):\n"
        "    title, reads, online, source = 'Broken', ('training_loss',), True, 'nobody'\n"
        "    threshold: float = 1.0\n"
        "    def update(self, observation):\n"
        "        return 1 / 0\n"
    )
    line = fails_with_one_line(capsys, "simulator", "--plugin", str(broken), "--out", str(tmp_path / "out"))
    assert f"{broken}, line 9" in line and "division by zero" in line and "fails in run" in line


@contextlib.contextmanager
def mounted(folder: Path, option: str) -> Iterator[Path]:
    """A real file system in memory, small or read-only; skips the test where none can be mounted."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here (that needs root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_is_one_line(jobs: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as small:
        options = ["--smoke", "--steps", "500", "--overwrite", "--out", str(small), "--jobs", jobs]
        ended = run("run_modern_experiments", *options)
    assert ended.returncode == 2, ended.stderr
    assert [line for line in ended.stderr.splitlines() if line.startswith("error: ")], ended.stderr
    assert "disk is full" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EFBIG, "raise the limit (ulimit -f)"),
        (errno.EIO, "check the disk"),
        (errno.ESTALE, "mount it again"),
        (errno.EMFILE, "raise the limit (ulimit -n)"),
        (errno.ENXIO, os.strerror(errno.ENXIO)),
    ],
)
def test_any_error_of_the_system_is_one_line(number: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    @script
    def failing(argv: Sequence[str] | None) -> None:
        raise OSError(number, os.strerror(number), "a.jsonl")

    assert failing([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: a.jsonl: ") and told in line


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_file_beyond_the_limit_is_one_line(jobs: str, tmp_path: Path) -> None:
    options = ["--smoke", "--steps", "1000", "--out", str(tmp_path), "--jobs", jobs]
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); {MODERN}"
    ended = subprocess.run([sys.executable, "-c", limited, *options], cwd=ROOT, capture_output=True, text=True)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert line.startswith(f"error: {tmp_path}/run_") and "ulimit -f" in line


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_what_an_encoding_lacks_ends_no_script(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "rmetric", "replay", "--help"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"weights of ?" in ended.stdout


MODERN = "import sys, run_modern_experiments; sys.exit(run_modern_experiments.main(None))"


@pytest.mark.slow
def test_a_read_only_disk_is_one_line(tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "ro") as fixed:
        for script in SCRIPTS:
            ended = run(script, "--out", str(fixed / "out"))
            assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
            assert ended.stderr.splitlines()[-1].startswith("error: ")
            assert "read-only" in ended.stderr
        with pytest.raises(OSError, match="Read-only") as caught:
            output_folder(fixed)
        assert caught.value.filename == str(fixed)


@pytest.mark.parametrize("out", ["run.jsonl", "runs.parquet", "page.html", ""])
def test_a_read_only_disk_is_told_by_the_name_that_was_given(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = next((ROOT / "logs_FULL_METRIC" / "sample").glob("*.jsonl"))
    command = "report" if out.endswith(".html") else "convert"
    with mounted(tmp_path / "fixed", "ro") as fixed:
        assert rmetric_command([command, str(log), "--out", str(fixed / out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {fixed / out}: the disk is read-only")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    quiet = run("run_modern_experiments", "--smoke", "--steps", "300", "--out", str(tmp_path / "quiet"))
    assert quiet.returncode == 0
    assert quiet.stderr == ""
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    command = [
        sys.executable,
        "run_modern_experiments.py",
        "--smoke",
        "--steps",
        "300",
        "--out",
        str(tmp_path / "loud"),
    ]
    assert subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=follower).returncode == 0
    os.close(follower)
    shown = _read_all(leader)
    os.close(leader)
    assert "simulating" in shown
    assert "36/36" in shown


def _read_all(terminal: int) -> str:
    pieces = []
    with contextlib.suppress(OSError):  # the end of a pseudo-terminal is an input/output error
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_the_simulator_writes_a_run_and_its_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--fault", "DATA_CORRUPTION", "--severity", "high", "--steps", "1200", "--fault-step", "700"]
    assert main_of("simulator")([*options, "--seed", "3", "--out", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    stem = "llama-3-8b_data_corruption_high_seed3"
    assert names == [f"{stem}.jsonl", f"{stem}_twin.jsonl"]
    assert "onset: 700" in capsys.readouterr().out


def test_the_simulator_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of("simulator")(["--list-faults"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12
    assert main_of("simulator")(["--list-architectures"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_simulator_s_class_is_importable_from_the_script() -> None:
    from rmetric import TrainingSimulator

    assert importlib.import_module("simulator").TrainingSimulator is TrainingSimulator


@pytest.mark.slow
@ends_of_a_command
def test_what_a_signal_breaks_off_is_one_line_and_goes_on_with_resume(
    sent: signal.Signals, ended: tuple[int, str], tmp_path: Path
) -> None:
    study = ["run_modern_experiments.py", "--out", str(tmp_path), "--jobs", "2", "--repetitions", "2"]
    assert ended_by(sent, study, lambda: [*tmp_path.glob("run_*.jsonl")]) == ended
    kept = {log.name: log.stat().st_mtime_ns for log in tmp_path.glob("run_*.jsonl")}
    resumed = run("run_modern_experiments", *study[1:], "--resume")
    logs = {log.name: log.stat().st_mtime_ns for log in tmp_path.glob("run_*.jsonl")}
    assert f"{len(logs)} runs ({len(logs) - len(kept)} made now, {len(kept)} found finished)" in resumed.stdout
    assert 0 < len(kept) < len(logs) and kept.items() <= logs.items()
    assert not [*tmp_path.glob(".*")]


def test_sigterm_ends_a_script_once_and_leaves_no_handler() -> None:
    cleaned_up = []

    @script
    def terminated(argv: Sequence[str] | None) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # as `timeout` does
            cleaned_up.append(True)

    assert terminated([]) == 143
    assert cleaned_up
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@ends_of_a_command
def test_a_signal_that_python_drops_is_heard_all_the_same(
    sent: signal.Signals, ended: tuple[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    class TakenAway:
        def __del__(self) -> None:
            signal.raise_signal(sent)  # as while a generator is closed

    @script
    def deaf(argv: Sequence[str] | None) -> None:
        TakenAway()
        time.sleep(20)

    before = sys.unraisablehook
    with hearing_ctrl_c():
        assert (deaf([]), capsys.readouterr().err) == ended
    assert sys.unraisablehook is before


@pytest.mark.parametrize(
    ("code", "status", "told"), [(None, 0, ""), (0, 0, ""), (7, 7, ""), ("no more disks", 1, "no more disks\n")]
)
def test_a_script_that_is_ended_from_within_has_the_status_and_the_words_of_any_program(
    code: object, status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @script
    def ending(argv: Sequence[str] | None) -> None:
        sys.exit(code)  # type: ignore[arg-type]

    assert ending([]) == status
    assert capsys.readouterr().err == told


def test_a_program_that_calls_a_script_keeps_its_own_handler_of_sigterm() -> None:
    heard, statuses = [], []

    @script
    def calm(argv: Sequence[str] | None) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        assert calm([]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
    thread = threading.Thread(target=lambda: statuses.append(calm([])))
    thread.start()
    thread.join()
    assert statuses == [0]
