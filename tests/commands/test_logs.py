"""What subcommands share: the names in their help, and a hint for a subcommand that is misspelt."""

from __future__ import annotations

import pytest

from rmetric.commands import main
from rmetric.commands.logs import FORMATS
from rmetric.importers import AUTO, IMPORTERS


def test_help_names_every_format() -> None:
    assert sorted(FORMATS) == sorted([AUTO, *IMPORTERS])


@pytest.mark.parametrize(
    ("typed", "hint"), [("diag", "; did you mean diagnose?"), ("rebort", "; did you mean report?"), ("xyz", "")]
)
def test_an_unknown_subcommand_is_told_the_nearest(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 2
    told = capsys.readouterr().err
    assert f"invalid choice: '{typed}'" in told
    assert told.endswith(f"){hint} (try rmetric --help)\n")
