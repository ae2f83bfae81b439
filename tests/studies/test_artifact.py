"""Claims of the artefact: the document is made of them, they agree with the README, and a false one is found out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies.artifact import check as command
from studies.artifact.claims import BADGES, Check, Claim, read_checks
from tests.helpers import ROOT

HEADLINE = re.compile(r"<!-- headline.*?<!-- /headline -->", re.S)


def test_the_document_lists_the_claims() -> None:
    text = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    said = text.partition(command.BEGIN)[2].partition(command.END)[0].strip()
    assert said == command.listed(read_checks()).strip(), "python -m studies.artifact.check --into ARTIFACT.md"


def test_every_badge_has_claims() -> None:
    assert {check.badge for check in read_checks()} == {*BADGES}


def test_numbers_of_the_headline_are_those_of_the_readme() -> None:
    (check,) = [check for check in read_checks() if "--tables headline" in check.command]
    (headline,) = HEADLINE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    of_headline = [claim for claim in check.claim if claim.says.startswith(("F1", "The same"))]
    assert len(of_headline) >= 6
    for claim in of_headline:
        assert claim.found(headline) == f"{claim.expected:.3f}", claim.says


def test_commands_name_what_exists() -> None:
    for check in read_checks():
        for script in re.findall(r"(?:python|^|\s)([\w./]+\.py|\.ci/\w+)\b", check.command):
            assert (ROOT / script).is_file(), script


@pytest.mark.slow
def test_a_claimed_number_of_tests_is_what_its_command_chooses() -> None:
    counted = [
        (check.command, claim.expected)
        for check in read_checks()
        for claim in check.claim
        if claim.find.endswith("passed") and claim.expected is not None
    ]
    assert counted
    for typed, expected in counted:
        ended = command.typed(f"{typed} --collect-only")
        assert re.findall(r"(\d+)(?:/\d+)? tests collected", ended.output) == [f"{expected:g}"], ended.output


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims about what ``echo`` says, in place of those of the artefact."""
    right = Claim(says="half", find=r"F1 ([\d.]+)", expected=0.5, tolerance=0.02)
    wrong = Claim(says="one", find=r"F1 ([\d.]+)", expected=1.0, tolerance=0.02)
    silent = Claim(says="there", find="an alert")
    checks = [
        Check(badge="available", command="echo F1 0.51", minutes=0.1, claim=(right,)),
        Check(badge="reusable", command="echo F1 0.51", minutes=0.1, claim=(right, wrong, silent)),
        Check(badge="functional", command="echo F1 0.51; false", minutes=0.1, claim=(right,)),
    ]
    monkeypatch.setattr(command, "read_checks", lambda: checks)


@pytest.mark.usefixtures("claims")
def test_claims_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--badge", "available"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"available +half +0.5 ± 0.02 +0.51 +ok", said)
    assert "1 of 1 claims are borne out" in said


@pytest.mark.usefixtures("claims")
def test_claims_that_do_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 1
    said = capsys.readouterr().out
    assert re.search(r"one +1 ± 0.02 +0.51 +differs", said)
    assert re.search(r"there +yes +– +differs", said)
    assert re.search(r"functional +half +0.5 ± 0.02 +0.51 +status 1", said)  # the number is right, the command failed
    assert "2 of 5 claims are borne out" in said


def test_an_unknown_badge_is_refused() -> None:
    with pytest.raises(ValueError, match="no badge is named 'golden'; choose among available"):
        Check(badge="golden", command="true", minutes=0, claim=())
