"""Check the claims of the artefact: type each command, and compare what it prints with what it must.

make artifact                                              # all of them
python -m studies.artifact.check --badge available         # those of one badge
python -m studies.artifact.check --into ARTIFACT.md        # check nothing, put the list of claims into the document
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from rmetric.cli import Parser, script
from studies.artifact.claims import BADGES, Check, Claim, read_checks
from studies.documents import put_between

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- claims: python -m studies.artifact.check -->", "<!-- end of claims -->"


@dataclass(frozen=True)
class Ended:
    output: str
    status: int
    seconds: float


def typed(command: str) -> Ended:
    """Run a command with the programs of this environment first in the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    begin = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    return Ended(done.stdout, done.returncode, time.monotonic() - begin)


def holds(claim: Claim, ended: Ended) -> bool:
    """Whether a claim is borne out: by a command that ended well."""
    return ended.status == 0 and claim.holds(ended.output)


def rows(check: Check, ended: Ended) -> Iterator[list[str]]:
    """Lines of the table that is printed: one a claim."""
    for claim in check.claim:
        verdict = "ok" if holds(claim, ended) else "differs" if ended.status == 0 else f"status {ended.status}"
        yield [check.badge, claim.says, _expected(claim), claim.found(ended.output) or "–", verdict,
               f"{ended.seconds:.0f}"]  # fmt: skip


def _expected(claim: Claim) -> str:
    if claim.expected is None:
        return "yes"
    return f"{claim.expected:g} ± {claim.tolerance:g}" if claim.tolerance else f"{claim.expected:g}"


def listed(checks: Sequence[Check]) -> str:
    """Markdown: the claims by badge, each with its command, time, expected number and tolerance."""
    return "\n".join(_of_badge(badge, [check for check in checks if check.badge == badge]) for badge in BADGES)


def _of_badge(badge: str, checks: Sequence[Check]) -> str:
    parts = [f"### {badge.capitalize()}\n"]
    for check in checks:
        claims = [[claim.says, _expected(claim)] for claim in check.claim]
        command = check.command.replace(" && ", " \\\n  && ")
        parts.append(f"```\n{command}\n```\n\n{check.minutes:g} minutes.\n")
        parts.append(tabulate(claims, ["claim", "expected"], tablefmt="pipe", disable_numparse=True) + "\n")
    return "\n".join(parts)


def parser() -> Parser:
    p = Parser("Check the claims of the artefact, and print a table of what was found.")
    p.add_argument("--badge", choices=BADGES, help="only the claims of this badge")
    p.add_argument("--into", type=Path, metavar="FILE", help="put the list of claims into this document instead")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Parse; type, compare, print; 1 if a claim is not borne out."""
    args = parser().parse_args(argv)
    checks = [check for check in read_checks() if args.badge in (None, check.badge)]
    if args.into is not None:
        put_between(args.into, BEGIN, END, listed(checks))
        return 0
    table: list[list[str]] = []
    failed = 0
    for check in checks:
        print(f"$ {check.command}", file=sys.stderr, flush=True)
        ended = typed(check.command)
        failed += sum(not holds(claim, ended) for claim in check.claim)
        if ended.status:
            print(ended.output, file=sys.stderr)
        table += rows(check, ended)
    print(
        tabulate(
            table, ["badge", "claim", "expected", "found", "verdict", "seconds"], maxcolwidths=[None, 60, None, 30]
        )
    )
    print(f"\n{len(table) - failed} of {len(table)} claims are borne out")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
