"""Every option of every command line has a text in its help."""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.helpers import ROOT
from tests.importers.samples import benchmark

PARSED = ("parse_args(", "parse_known_args(")
COMMAND_LINES = sorted(
    path.relative_to(ROOT)
    for part in (ROOT.glob("*.py"), *((ROOT / name).rglob("*.py") for name in ("rmetric", "studies", "benchmarks")))
    for path in part
    if any(call in path.read_text(encoding="utf-8") for call in PARSED)
)


class ParsedError(Exception):
    """Raised in place of parsing, with the parser."""


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from options_of(command)
        else:
            yield action


@pytest.mark.parametrize("file", COMMAND_LINES, ids=str)
def test_every_option_has_help(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(parser: argparse.ArgumentParser, *given: Any, **options: Any) -> NoReturn:
        raise ParsedError(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse)
    monkeypatch.setattr(sys, "argv", [str(file)])
    monkeypatch.syspath_prepend(str(ROOT))
    module = ".".join(file.with_suffix("").parts)
    found = benchmark(file.stem) if file.parts[0] == "benchmarks" else importlib.import_module(module)
    with pytest.raises(ParsedError) as caught:
        found.main(*([[]] if "argv" in inspect.signature(found.main).parameters else []))
    (parser,) = caught.value.args
    assert [action.option_strings or action.dest for action in options_of(parser) if not action.help] == []
