"""Run the runs of a study into a folder: resume it, refuse another one, account for every log in a manifest."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from rmetric import __version__
from rmetric.dataset.sources import MANIFEST, find_parts
from rmetric.detectors import DETECTORS
from rmetric.errors import UserError
from rmetric.faults import FAULTS
from rmetric.files import checksum, naming, written_aside
from rmetric.log_writer import SCHEMA_VERSION
from rmetric.progress import progress_bar
from rmetric.registry import load_plugins
from rmetric.versions import content_checksums, foreign_code
from studies.folder_lock import alone_in
from studies.log_files import JSON_LINES, Entry, LogForm, Spec

JOURNAL = ".manifest.journal"
Entries = dict[str, dict[str, Any] | None]
"""File → its entry in the manifest, without the name; ``None``: it is not there yet."""


class Plan(Protocol):
    """Plan of a study, a frozen dataclass; simulated or trained.

    A field with ``adds_runs`` in its metadata says which runs there are and nothing of what they do: a folder can be
    resumed with another value of it, and keeps what it has.
    """

    def specs(self) -> Sequence[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Way in which the runs of a study are made."""

    name: str
    verb: str
    """Word of the progress bar."""
    execute: Callable[[Any, Sequence[Any], Path, int, Sequence[Path]], Iterator[Sequence[Entry]]]
    """Called with plan, specs, folder, processes and plugins; writes each log whole and yields what it has written."""
    version: int
    """Raised when the same plan gives other logs (:mod:`rmetric.versions`)."""
    fitted_files: tuple[Path, ...]
    """JSON files of fitted numbers that the logs depend on."""
    libraries: tuple[str, ...]
    """Packages that the logs depend on."""
    form: LogForm = JSON_LINES
    """How its runs lie in files."""


@dataclass(frozen=True)
class StudyResult:
    """Result of a call of :func:`run_study`."""

    folder: Path
    runs: int
    """Runs of the study."""
    made: int
    """Runs that this call simulated; the others were found finished."""
    finished: list[Entry]
    seconds: float

    @property
    def outcomes(self) -> Counter[str]:
        """Outcome → number of runs."""
        return sum((Counter(item.outcomes) for item in self.finished), Counter())

    @property
    def summary(self) -> str:
        """How many runs there are, and what came of them: two lines."""
        return (
            f"{self.runs} runs ({self.made} made now, {self.runs - self.made} found finished) in {self.folder}\n"
            f"  outcomes: {', '.join(f'{number} {kind}' for kind, number in sorted(self.outcomes.items()))}"
        )


def run_study(
    plan: Plan,
    folder: Path,
    *,
    backend: Backend,
    jobs: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    plugins: Sequence[Path] = (),
) -> StudyResult:
    """Run a study into a folder.

    A log appears under its name only when it is complete. The manifest is written when the study begins and, with a
    checksum of every log, when it ends; in between, a journal beside it has those of the logs that are finished.

    Parameters
    ----------
    folder
        Existing folder for the logs and ``manifest.json``.
    backend
        Simulation, or real training (:data:`studies.real_runs.run.TORCH`).
    resume
        Go on with the study that is in the folder: logs that are there and whole are kept.
    overwrite
        Remove the study that is in the folder first (its logs and manifest, nothing else).
    plugins
        Python files that register the user's own faults or detectors.

    Raises
    ------
    UserError
        If there is a study in the folder and neither flag is given, or if it is a different one; if other logs lie
        where a study is to be replaced; if another process is at work in the folder.
    """
    started = time.perf_counter()
    runs = plan.specs()
    if not runs:
        raise UserError("this study has no runs; give at least one repetition or control")
    specs, form = backend.form.files(runs), backend.form
    identity = _identity(plan, backend, plugins)
    with alone_in(folder):
        kept, others = _prepare(folder, identity, specs, form, resume=resume, overwrite=overwrite)
        todo = [spec for spec in specs if spec.experiment_id not in kept]
        if todo:
            _write_manifest(folder, identity, specs, kept, others, started)
        done = sum(item.runs for item in kept.values())
        with progress_bar(total=len(runs), initial=done, unit="run", desc=backend.verb) as bar:
            for made in backend.execute(plan, todo, folder, jobs, plugins) if todo else ():
                _note_down(folder, made)
                kept.update({item.name: item for item in made})
                bar.update(sum(item.runs for item in made))
        manifest = _read_manifest(folder) or {}
        if any(manifest.get(key) != value for key, value in _account(specs, kept, others).items()):
            _write_manifest(folder, identity, specs, kept, others, started)
    finished = [kept[spec.experiment_id] for spec in specs]
    return StudyResult(folder, len(runs), len(runs) - done, finished, time.perf_counter() - started)


# --- What is in the folder already -----------------------------------------------------------------------------------


def _identity(plan: Plan, backend: Backend, plugins: Sequence[Path]) -> dict[str, Any]:
    """All that the bytes of the logs depend on."""
    settings = json.loads(json.dumps(asdict(plan)))  # type: ignore[call-overload]
    extending = {item.name for item in fields(plan) if item.metadata.get("adds_runs")}  # type: ignore[arg-type]
    return {
        "plan": {name: value for name, value in settings.items() if name not in extending},
        "package_version": __version__,
        "schema_version": SCHEMA_VERSION,
        "backend_version": backend.version,
        "backend": backend.name,
        "fitted": content_checksums(backend.fitted_files),
        "libraries": {name: version(name) for name in backend.libraries},
        "plugins": {
            **{f"{place}. {path.name}": checksum(path) for place, path in enumerate(plugins, start=1)},
            **_foreign_code(plugins),
        },
    }


def _foreign_code(plugins: Sequence[Path]) -> dict[str, str]:
    """Checksum of the code of each fault from outside this package, and of each detector whose alerts stand in logs.

    It covers what a plug-in imports from below its folder.
    """
    load_plugins(plugins)
    kinds: dict[str, type] = {f"fault {name}": kind for name, kind in FAULTS.items()}
    kinds |= {f"detector {name}": kind for name, kind in DETECTORS.items() if kind.online}
    return {name: code for name, kind in kinds.items() if (code := foreign_code(kind))}


def _prepare(
    folder: Path,
    identity: dict[str, Any],
    specs: Sequence[Spec],
    form: LogForm,
    *,
    resume: bool,
    overwrite: bool,
) -> tuple[dict[str, Entry], Entries]:
    """Clear or check the folder; returns the finished logs to keep, and the manifest's entries of further runs."""
    manifest = _read_manifest(folder)
    present = sorted(path.stem for path in folder.glob(f"run_*{form.suffix}"))
    own = {spec.experiment_id for spec in specs}
    if overwrite:
        listed = (manifest or {}).get("runs")
        _clear(folder, own | (listed.keys() if isinstance(listed, dict) else set()))
        return {}, {}
    if manifest is None and not present:
        return {}, {}
    if not resume:
        raise UserError(f"{folder} already holds a study; --resume goes on with it, --overwrite replaces it")
    if manifest is None:
        raise UserError(f"{folder} holds logs without {MANIFEST}; choose another --out, or move them away")
    if not isinstance(manifest.get("study"), dict) or not isinstance(manifest.get("runs"), dict):
        raise _damaged(folder, "so that nobody knows which study its logs are of")
    if manifest["study"] != identity:
        different = _first_difference(manifest["study"], identity)
        raise UserError(f"{folder} holds another study ({different}); choose another --out, or use --overwrite")
    for leftover in _cut_short(folder):
        leftover.unlink(missing_ok=True)
    listed = manifest["runs"] | _noted_down(folder, form)
    found = (_finished(folder, spec, listed.get(spec.experiment_id), form) for spec in specs)
    others = {name: entry for name, entry in listed.items() if name not in own}
    return {item.name: item for item in found if item is not None}, others


def _damaged(folder: Path, how: str) -> UserError:
    return UserError(
        f"{folder / MANIFEST} is damaged, {how}; put a copy of it back, or make the study anew with --overwrite"
    )


def _clear(folder: Path, own: Collection[str]) -> None:
    """Remove the logs of a study, in whichever form, and its manifest; :class:`UserError` if there are other logs.

    Whoever reads the folder would take those for runs of the study that is to come.
    """
    logs = [*sorted(folder.glob("*.jsonl")), *find_parts(folder)]
    others = [log.name for log in logs if log.stem not in own]
    if others:
        raise UserError(
            f"{folder} holds logs that are none of the study in it, such as {others[0]}; "
            "choose another --out, or move them away"
        )
    for file in (*logs, *_cut_short(folder), folder / JOURNAL, folder / MANIFEST):
        file.unlink(missing_ok=True)


def _cut_short(folder: Path) -> list[Path]:
    """Files that a process which was killed left half-written."""
    return [*folder.glob(".run_*.part"), *folder.glob(f".{MANIFEST}.*.part")]


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _note_down(folder: Path, made: Sequence[Entry]) -> None:
    """Add to the journal what is finished since the manifest was written, an entry a line."""
    with naming(folder), open(folder / JOURNAL, "ab") as file:
        file.write(b"".join(json.dumps(vars(item)).encode() + b"\n" for item in made))


def _noted_down(folder: Path, form: LogForm) -> Entries:
    """Entries of the journal. A line that is damaged, as by a power cut, lists nothing: that log is examined."""
    entries: Entries = {}
    with suppress(FileNotFoundError):
        for line in (folder / JOURNAL).read_bytes().splitlines():
            with suppress(ValueError, TypeError, KeyError):
                entry = dict(json.loads(line))
                name = entry.pop("name")
                if _entry(form, name, entry):
                    entries[name] = entry
    return entries


def _first_difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    for key, value in wanted.items():
        there = found.get(key)
        if there == value:
            continue
        if key == "backend_version":
            return f"made by version {there or 'unknown'} of the {wanted['backend']}, not {value}"
        if isinstance(value, dict) and isinstance(there, dict):
            for name in {**value, **there}:
                if value.get(name) != there.get(name):
                    return f"its {name} is {there.get(name)}, not {value.get(name)}"
        return f"its {key} is {there}, not {value}"
    return "its manifest is damaged"


def _finished(folder: Path, spec: Spec, listed: Any, form: LogForm) -> Entry | None:
    """The file of a run or of several if it is there and whole, else ``None``; ``listed`` is its entry as it was read.

    Raises :class:`UserError` for an entry that is none.
    """
    try:
        content = (folder / f"{spec.experiment_id}{form.suffix}").read_bytes()
    except FileNotFoundError:
        return None
    if listed is None:
        return form.examined(spec, content)
    entry = _entry(form, spec.experiment_id, listed)
    if entry is None:
        raise _damaged(folder, f"for its entry of {spec.experiment_id} lacks what belongs there")
    return entry if listed["sha256"] == hashlib.sha256(content).hexdigest() else None


def _entry(form: LogForm, name: str, listed: Any) -> Entry | None:
    """An entry as it was read, or ``None`` if it lacks what belongs there, or has values of a wrong kind."""
    try:
        entry = form.entry(name=name, **listed)
        kinds, numbers = entry.outcomes.keys(), (entry.bytes, entry.records, *entry.outcomes.values())
    except (AttributeError, TypeError):
        return None
    whole = all(isinstance(kind, str) for kind in kinds) and all(isinstance(number, int) for number in numbers)
    return entry if whole else None


def _account(specs: Sequence[Spec], finished: dict[str, Entry], others: Entries) -> dict[str, Any]:
    """Part of the manifest that says what is finished."""
    runs: Entries = {
        spec.experiment_id: {key: value for key, value in vars(item).items() if key != "name"} if item else None
        for spec in specs
        for item in [finished.get(spec.experiment_id)]
    }
    runs = {**others, **runs}
    return {"complete": all(runs.values()), "runs": runs}


def _write_manifest(
    folder: Path,
    identity: dict[str, Any],
    specs: Sequence[Spec],
    finished: dict[str, Entry],
    others: Entries,
    started: float,
) -> None:
    account = _account(specs, finished, others)
    manifest = {
        "study": identity,
        "complete": account["complete"],
        "provenance": {
            "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - started, 2),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            "commit": _commit(),
        },
        "runs": account["runs"],
    }
    with written_aside(folder / MANIFEST) as file:  # forced to the disk: without it nobody knows what the logs are
        file.write(json.dumps(manifest, indent=1).encode() + b"\n")
    (folder / JOURNAL).unlink(missing_ok=True)


@cache
def _commit() -> str | None:
    """Commit of the working tree that this package lies in, if it lies in one."""
    here = Path(__file__).resolve().parent
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None
