"""Command lines of all scripts: one-line errors, number types with limits, output folders."""

from __future__ import annotations

import argparse
import errno
import functools
import io
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, ParamSpec

from rmetric.errors import UserError, did_you_mean, without, without_live
from rmetric.files import DEFAULT_LOGS
from rmetric.registry import load_plugin

P = ParamSpec("P")
INTERRUPTED, CUT_OFF, TERMINATED = 130, 141, 143
"""Exit status of a program that Ctrl-C, a broken pipe or SIGTERM ends: 128 and the signal's number."""
AGAIN_S = 0.01
"""Seconds after which a signal that was lost is sent once more."""
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space or choose another --out",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another --out",
    errno.EFBIG: "the file is larger than is allowed here; raise the limit (ulimit -f) or choose another --out",
    errno.EIO: "the disk fails to read or write; check the disk, or choose another --out",
    errno.ESTALE: "the folder is gone from its network drive; mount it again, or choose another path",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n) or lower --jobs",
    errno.EROFS: "the disk is read-only; choose another --out",
    errno.EPERM: "not permitted; choose another --out",
    errno.EACCES: "permission denied; change its permissions or choose another path",
    errno.ENOTDIR: "a file stands where a folder is due; choose another path",
    errno.EEXIST: "a file stands where a folder is due; choose another path",
    errno.EISDIR: "a folder stands where a file is due; choose another path",
    errno.ENOENT: "no such file or folder; check the path",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter path",
}


class _HelpFormatter(argparse.HelpFormatter):
    """Adds the default to each option's help, where there is one worth telling."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        untold = default is None or action.nargs == 0 or default in ([], argparse.SUPPRESS)
        if not action.option_strings or untold or "default" in text:
            return text
        shown = " ".join(map(_short, default if isinstance(default, list | tuple) else [default]))
        return f"{text} (default: {str(shown).replace('%', '%%')})"


def _short(default: object) -> str:
    """A default in text; a path below this folder is told from here, as it would be typed."""
    here = Path.cwd()
    return str(default.relative_to(here) if isinstance(default, Path) and default.is_relative_to(here) else default)


class _ExamplesFormatter(argparse.RawDescriptionHelpFormatter, _HelpFormatter):
    """Keeps the lines of an epilog with examples."""


class Parser(argparse.ArgumentParser):
    """An argument parser that prints defaults in ``--help`` and answers bad input with one line."""

    def __init__(self, description: str, *, examples: bool = False, **options: object) -> None:
        super().__init__(
            description=description,
            formatter_class=_ExamplesFormatter if examples else _HelpFormatter,
            allow_abbrev=False,
            **{"prog": _as_started(), **options},  # type: ignore[arg-type]
        )

    def add_jobs(self) -> None:
        """``--jobs``: one process a core unless told otherwise."""
        self.add_argument(
            "--jobs", type=whole_number(1), default=os.cpu_count() or 1, metavar="N", help="number of processes"
        )

    def add_engine(self) -> None:
        """``--jobs``, ``--engine`` and ``--address``: where the work is done (:mod:`rmetric.engines`)."""
        from rmetric.engines import ENGINES

        self.add_jobs()
        self.add_argument(
            "--engine",
            choices=ENGINES,
            default=ENGINES[0],
            help="what runs the processes: this machine, or a Dask or Ray cluster",
        )
        self.add_argument(
            "--address",
            metavar="HOST:PORT",
            help="scheduler of a running Dask or Ray cluster (default: one is started here)",
        )

    def add_plugin(self, registers: str) -> None:
        """``--plugin``, repeatable; the files are run while the arguments are parsed."""
        self.add_argument(
            "--plugin",
            type=plugin_file,
            action="append",
            default=[],
            metavar="FILE",
            help=f"Python file that registers {registers}",
        )

    def add_bootstrap(self, resamples: int = 2000) -> None:
        """``--bootstrap``: how many resamples an interval is made of."""
        self.add_argument(
            "--bootstrap", type=whole_number(20, 100_000), default=resamples, metavar="N", help="bootstrap resamples"
        )

    def add_evaluation(self) -> None:
        """Options of every script that scores studies: logs, detectors, plug-ins, the bootstrap, processes."""
        self.add_argument(
            "--logs", type=Path, nargs="+", default=[DEFAULT_LOGS], metavar="STUDY",
            help="folder of .jsonl logs, or .parquet data set; several: side by side",
        )  # fmt: skip
        self.add_argument(
            "--detectors", nargs="+", default=[], metavar="NAME",
            help="detectors by name (default: all but those of optional packages, such as lstm_forecaster)",
        )  # fmt: skip
        self.add_bootstrap()
        self.add_argument("--seed", type=whole_number(0), default=0, metavar="N", help="seed of the bootstrap")
        self.add_plugin("detectors")
        self.add_engine()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}{self._hint(message)} (try {self.prog} --help)\n")

    def _hint(self, message: str) -> str:
        """The subcommand, or the option, of a subcommand too, that is spelt like the first one that is not known."""
        found = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        commands = {name: each for choices in found for name, each in choices.items()}
        asked = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(", message)
        if asked and commands:
            return did_you_mean(asked[1], commands)
        _, told, unknown = message.partition("unrecognized arguments: ")
        options = [option for each in (self, *commands.values()) for option in each._option_string_actions]
        return did_you_mean(unknown.split("=")[0].split(" ")[0], options) if told else ""


def _as_started() -> str | None:
    """The program as it was typed, ``python -m NAME`` for a module; ``None``, for argparse to tell, for a file."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.origin != sys.argv[0]:  # of another one that has started it, such as cProfile
        return None
    return f"python -m {spec.name.removesuffix('.__main__')}"


def script(main: Callable[P, int | None]) -> Callable[P, int]:
    """Make ``main(argv=None)`` return an exit status.

    Its own, 0 for ``None``; 1 after a text that ends it, as of any program; 2 after one line ``error: …`` for what the
    user can mend; 130 after Ctrl-C, and 143 after SIGTERM, which ends it in the same way; 141, as of a program that a
    broken pipe ends, where nobody read on before it was done.
    """

    @functools.wraps(main)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> int:
        status: int | None = CUT_OFF
        _print_any_text()
        with _sigterm_as_ctrl_c() as terminated, _heard_again(terminated):
            try:
                status = main(*args, **kwargs)
                if sys.stdout is not None:  # closed by the shell: `>&-`
                    sys.stdout.flush()
            except SystemExit as request:
                if isinstance(request.code, int | None):
                    return request.code or 0
                print(request.code, file=sys.stderr)
                return 1
            except BrokenPipeError:  # `script | head`: the reader has what it wanted
                sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - lives until the interpreter ends
            except UserError as error:
                return _fail(str(error))
            except OSError as error:
                if error.errno is None:
                    raise  # of a library, and nothing that the system says
                said = _ADVICE.get(error.errno) or error.strerror or os.strerror(error.errno)
                return _fail(f"{error.filename or 'output'}: {said}")
            except KeyboardInterrupt:
                print("terminated" if terminated else "interrupted", file=sys.stderr)
                return TERMINATED if terminated else INTERRUPTED
        return status or 0

    return wrapped


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM raise ``KeyboardInterrupt`` in the block, and note it in the list.

    Once: ``timeout`` sends it twice in a row, and the second would break off the cleaning up. A handler of the program
    that calls the script stays as it is, and so do workers, which inherit none.
    """
    terminated: list[int] = []

    def end(number: int, frame: object) -> None:
        if not terminated:
            terminated.append(number)
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    ours = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield terminated
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _heard_again(terminated: list[int]) -> Iterator[None]:
    """Send a signal once more where it was lost in the block: Python drops what is raised as an object is taken away,
    such as a generator that nobody has read to its end.
    """
    before = sys.unraisablehook

    def hear(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not KeyboardInterrupt or threading.current_thread() is not threading.main_thread():
            before(dropped)
            return
        number = terminated.pop() if terminated else signal.SIGINT
        threading.Timer(AGAIN_S, _send_to_main, [number]).start()  # what is raised in here would be lost too

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before


def _send_to_main(number: int) -> None:
    """Send a signal to the thread that hears it, which may be waiting for something."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:
        signal.raise_signal(number)


def _print_any_text() -> None:
    """Print what an encoding lacks as ``?``: the λ of a help text must not end a script on a console of Windows."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            with suppress(OSError):  # of a stream that can be no other any more; it stays as it is
                stream.reconfigure(errors="replace")


@contextmanager
def real_training() -> Iterator[None]:
    """Around the imports of a script that trains: a package that is missing is the user's error."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(without_live("real training", error)) from None


@contextmanager
def real_training_only() -> Iterator[None]:
    """Around the imports at the head of a program that trains: ends it as :func:`real_training` ends a script."""
    try:
        with real_training():
            yield
    except UserError as error:
        sys.exit(_fail(str(error)))


@contextmanager
def psutil_only() -> Iterator[None]:
    """Around the import of psutil at the head of a benchmark: the extra of the developers brings it, no user's does."""
    try:
        yield
    except ModuleNotFoundError as error:
        sys.exit(_fail(without("this benchmark", error, "psutil")))


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def whole_number(minimum: int = 0, maximum: int = 2**53) -> Callable[[str], int]:
    """Argument type: an integer in [minimum, maximum]."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"{value} is not in the range {minimum} to {maximum}")
        return value

    return parse


def plugin_file(path: str) -> Path:
    """Argument type: a Python file, which is run at once so that what it registers is known by name from here on."""
    try:
        load_plugin(path)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(path).resolve()


def named_once(names: Sequence[str]) -> tuple[str, ...]:
    """The names that an option was given; raises :class:`UserError` where one stands twice."""
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{name} is given twice; name each once")
    return tuple(names)


def fraction(text: str) -> float:
    """Argument type: a number from 0 to 1."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not in the range 0 to 1")
    return value


def positive_number(text: str) -> float:
    """Argument type: a finite number above 0."""
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def as_typed(program: str, argv: Sequence[str] | None) -> str:
    """The command line of a script, ``argv`` as its ``main`` has it, so that it can be typed again."""
    return shlex.join([*program.split(), *(sys.argv[1:] if argv is None else argv)])


def output_folder(path: str | Path) -> Path:
    """Make a folder if need be and check that it can be written to; raises :class:`UserError` if not."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file where a folder is due; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=folder):  # raises the OSError that a later write would
            pass
    except OSError as error:
        error.filename = str(folder)  # and not a file that nobody knows of
        raise
    return folder
