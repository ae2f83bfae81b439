"""Engines: the same results in the same order, whatever dies on the way."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import psutil
import pytest

from rmetric.engines import engine, parallel_map
from rmetric.engines.local import ENVIRONMENT
from rmetric.errors import UserError
from tests.helpers import ROOT, ends_of_a_command, hearing_ctrl_c


def square(number: int) -> int:
    return number * number


def square_or_die_once(marker: Path, number: int) -> int:
    """The process that comes to 5 first is killed as by the kernel."""
    if number == 5 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def worker(number: int) -> int:
    return os.getpid()


def threads_of(number: int) -> str:
    return os.environ["OMP_NUM_THREADS"]


def variable(name: str) -> str | None:
    return os.environ.get(name)


def own_number(folder: Path, number: int) -> int:
    """Leave the number of the process that is at work, then work for ever."""
    (folder / f"{os.getpid()}").touch()
    while True:
        time.sleep(0.1)


def noted_and_slow(folder: Path, number: int) -> None:
    (folder / f"{os.getpid()}").touch()
    time.sleep(0.2)


def onto_a_full_disk(number: int) -> int:
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(bytes([number]))
    return number


def await_that(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.1)
    pytest.fail("waited for 20 s in vain")


def said_by(script: Path, text: str) -> tuple[int, str, str]:
    """Status, output and errors of a script, where nobody says anything of threads."""
    script.write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=["dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[request.param])
    with engine(request.param, jobs=2):
        yield request.param


def test_local_results_come_in_order() -> None:
    with engine("local", jobs=2):
        assert list(parallel_map(square, range(20), 2)) == [number**2 for number in range(20)]


@pytest.mark.slow
def test_local_processes_are_kept_for_the_next_work_and_end_where_one_stops_early() -> None:
    with engine("local", jobs=2):
        kept = {number for _ in range(2) for number in parallel_map(worker, range(8), 2)}
        assert len(kept) <= 2
        stopped = iter(parallel_map(worker, range(8), 2))
        kept.add(next(stopped))
        del stopped
        await_that(lambda: not any(map(psutil.pid_exists, kept)))
        assert not {*parallel_map(worker, range(8), 2)} & kept


@pytest.mark.slow
def test_a_script_of_a_few_lines_needs_no_guard(tmp_path: Path) -> None:
    told = said_by(
        tmp_path / "script.py",
        "from tests.engines.test_engines import square\n"
        "from rmetric.engines import engine, parallel_map\n"
        'with engine("local", jobs=2):\n'
        "    print(*parallel_map(square, range(5), 2))\n",
    )
    assert told == (0, "0 1 4 9 16\n", "")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_a_killed_worker_costs_nothing_and_a_full_disk_is_said(cluster: str, tmp_path: Path) -> None:
    work = partial(square_or_die_once, tmp_path / "marker")
    assert list(parallel_map(work, range(20), 2)) == [number**2 for number in range(20)]
    assert (tmp_path / "marker").exists()
    with pytest.raises(OSError, match="No space left") as caught:
        list(parallel_map(onto_a_full_disk, range(3), 2))
    assert caught.value.errno == errno.ENOSPC


def test_an_address_needs_a_cluster() -> None:
    with pytest.raises(UserError, match="add --engine dask"), engine("local", 1, "tcp://127.0.0.1:8786"):
        pass


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_an_empty_address_starts_nothing_here(name: str) -> None:
    with pytest.raises(UserError, match="--address is empty"), engine(name, 1, ""):
        pass


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("rmetric.engines.dask.CONNECT_TIMEOUT_S", 1)  # nothing will come
    with pytest.raises(UserError, match="no Dask scheduler answers"), engine("dask", 1, "tcp://127.0.0.1:9"):
        pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_another_program_in_place_of_a_scheduler_is_one_line(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("rmetric.engines.dask.CONNECT_TIMEOUT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            with suppress(OSError):
                met.append(other.accept()[0])
                met[0].sendall(greeting)

        met: list[socket.socket] = []
        Thread(target=greet, daemon=True).start()
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UserError, match=f"no Dask scheduler answers at {address}"), engine("dask", 1, address):
            pass
    met[0].close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_without_workers_is_told_of_and_in_the_end_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("rmetric.engines.dask.SILENCE_S", 0.2)
    monkeypatch.setattr("rmetric.engines.dask.WORKERS_TIMEOUT_S", 1)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(UserError, match=f"{address} was without workers for 1 s"), engine("dask", 1, address):
            list(parallel_map(square, range(3), 1))
    assert capsys.readouterr().err == f"waiting for workers of {address}\n"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_whose_loop_runs_connects_as_well() -> None:
    distributed = pytest.importorskip("distributed")

    async def cell(address: str) -> list[int]:
        with engine("dask", 1, address):
            return list(parallel_map(square, range(3), 1))

    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        assert asyncio.run(cell(cluster.scheduler_address)) == [0, 1, 4]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_lacks_this_repository_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    options = ["--port", "0", "--no-dashboard", "--scheduler-file", str(file := tmp_path / "scheduler.json")]
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", *options]
    scheduler = subprocess.Popen(command, cwd=tmp_path, env=without, stderr=subprocess.DEVNULL)
    try:
        await_that(file.exists)
        address = json.loads(file.read_bytes())["address"]
        with pytest.raises(UserError, match="lacks this repository; PYTHONPATH"), engine("dask", 1, address):
            list(parallel_map(square, range(3), 1))
    finally:
        scheduler.kill()
        scheduler.communicate()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "127.0.0.1:99999"])
def test_a_ray_that_is_not_there_is_one_line(address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match="no Ray cluster answers"), engine("ray", 1, address):
        pass


def test_a_worker_of_dask_that_is_killed_while_it_starts_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]

    def killed(**options: object) -> None:
        assert not any(logger.isEnabledFor(logging.ERROR) for logger in loggers), "Dask tells it in pages"
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("rmetric.engines.dask.LocalCluster", killed)
    with pytest.raises(UserError, match="a worker ended while it started"), engine("dask", 1):
        pass
    assert [logger.level for logger in loggers] == levels


@pytest.mark.slow
def test_local_processes_compute_in_one_thread_each_and_nothing_is_left_of_that(tmp_path: Path) -> None:
    told = said_by(  # in a process of its own, for what others have started keeps their environment
        tmp_path / "script.py",
        "import os\n"
        "from rmetric.engines import parallel_map\n"
        "from tests.engines.test_engines import threads_of\n"
        'print({*parallel_map(threads_of, range(4), 2)}, "OMP_NUM_THREADS" in os.environ)\n',
    )
    assert told == (0, "{'1'} False\n", "")


@pytest.mark.slow
def test_workers_of_dask_start_without_a_word_where_another_cluster_has_its_usual_port(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("distributed")
    with socket.socket() as taken:
        with suppress(OSError):  # another cluster really has it
            taken.bind(("", 8787))
            taken.listen()
        with engine("dask", jobs=1):
            assert list(parallel_map(square, range(3), 1)) == [0, 1, 4]
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_workers_that_are_started_here_have_the_environment_of_local_processes() -> None:
    pytest.importorskip("distributed")
    with engine("dask", jobs=1):
        found = dict(zip(ENVIRONMENT, parallel_map(variable, ENVIRONMENT, 1), strict=True))
    assert found == {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}


# Whoever runs the tests in the background of a shell has Ctrl-C ignored, and so would all processes that they start.
ASKING = """
import signal
from functools import partial
from pathlib import Path
from rmetric.engines import parallel_map
from tests.engines.test_engines import own_number
signal.signal(signal.SIGINT, signal.default_int_handler)
list(parallel_map(partial(own_number, Path({folder!r})), range(2), 2))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_local_processes_end_with_the_one_that_asked(tmp_path: Path, sent: signal.Signals) -> None:
    asking = subprocess.Popen([sys.executable, "-c", ASKING.format(folder=str(tmp_path))], stderr=subprocess.DEVNULL)
    await_that(lambda: len([*tmp_path.iterdir()]) == 2)
    asking.send_signal(sent)
    assert asking.wait(timeout=20)
    await_that(lambda: not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir()))


def test_a_killed_local_process_is_one_line(tmp_path: Path) -> None:
    work = partial(square_or_die_once, tmp_path / "marker")
    with engine("local", jobs=2), pytest.raises(UserError, match="--resume"):
        list(parallel_map(work, range(20), 2))


INTERRUPTED = """
import sys
from functools import partial
from pathlib import Path
from rmetric.cli import script
from rmetric.engines import engine, parallel_map
from tests.engines.test_engines import noted_and_slow

@script
def main(argv):
    with engine("dask", jobs=2):
        list(parallel_map(partial(noted_and_slow, Path({folder!r})), range(1000), 2))

if __name__ == "__main__":
    sys.exit(main(None))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@ends_of_a_command
@pytest.mark.parametrize("while_it_starts", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_signal_to_all_processes_is_one_line_with_workers_of_dask(
    while_it_starts: bool, sent: signal.Signals, ended: tuple[int, str], tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    (asked := tmp_path / "asked.py").write_text(INTERRUPTED.format(folder=str(tmp_path)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with hearing_ctrl_c():
        asking = subprocess.Popen(
            [sys.executable, asked], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    begun = (lambda: _children(asking.pid) >= 2) if while_it_starts else (lambda: len([*tmp_path.iterdir()]) >= 3)
    await_that(begun)
    os.killpg(asking.pid, sent)  # a terminal sends Ctrl-C to the workers as well, a scheduler of jobs SIGTERM
    _, told = asking.communicate(timeout=60)
    assert (asking.returncode, told) == ended


STARTING = """
import sys
from rmetric.cli import script
from rmetric.engines import parallel_map, start_ahead

@script
def main(argv):
    start_ahead("slow_to_import")
    import slow_to_import
    list(parallel_map(slow_to_import.nothing, range(2), 2))

if __name__ == "__main__":
    sys.exit(main(None))
"""
SLOW_TO_IMPORT = """
import os, time
from pathlib import Path
(Path(__file__).parent / f"{os.getpid()}.begun").touch()
for _ in range(100):
    time.sleep(0.01)

def nothing(number):
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@ends_of_a_command
def test_a_signal_to_all_processes_is_one_line_while_work_is_imported(
    sent: signal.Signals, ended: tuple[int, str], tmp_path: Path
) -> None:
    (asked := tmp_path / "asked.py").write_text(STARTING, encoding="utf-8")
    (tmp_path / "slow_to_import.py").write_text(SLOW_TO_IMPORT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    with hearing_ctrl_c():
        asking = subprocess.Popen(
            [sys.executable, asked], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    await_that(lambda: len([*tmp_path.glob("*.begun")]) == 2)
    os.killpg(asking.pid, sent)
    _, told = asking.communicate(timeout=60)
    assert (asking.returncode, told) == ended


def _children(process: int) -> int:
    return len(psutil.Process(process).children(recursive=True))
