"""Table 8: the ledger of claims."""

from __future__ import annotations

from collections.abc import Mapping

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.reporting.table import Cell, Column, Table
from studies import captions
from studies.live_results import LiveResults
from studies.paper.claims import Claim, ledger
from studies.paper.tables.side_by_side import heading, woven

NAME, TITLE = "table_8_claims", "Table 8: Claims"


def tables(ev: Evaluator, live: LiveResults | None = None) -> list[Table]:
    """One row a number of the paper; ``live`` is what real runs gave, if any were made."""
    rows: list[dict[str, Cell]] = [
        {
            "claim": claim.claim,
            "paper": claim.paper,
            "source": claim.source,
            "ours": claim.ours,
            "ours_paper": claim.ours_paper,
            "ours_strict": claim.ours_strict,
            "command": claim.command,
            "remark": claim.remark or None,
        }
        for claim in ledger(ev, live)
    ]
    columns = [
        Column("claim", "Claim"),
        Column("paper", "Paper"),
        Column("source", "Source"),
        Column("ours", "Ours", None),
        Column("ours_paper", "Ours, paper protocol", None, "paper"),
        Column("ours_strict", "Ours, strict protocol", None, "strict"),
        Column("command", "Command"),
        Column("remark", "Remark"),
    ]
    return [Table(NAME, TITLE, _caption(ev), columns, rows)]


def of_several(studies: Mapping[str, Evaluator], live: LiveResults | None = None) -> list[Table]:
    """One row a number of the paper and protocol, one column a study; a dash where a claim is not about such runs."""
    ledgers = {study: {claim.claim: claim for claim in ledger(ev, live)} for study, ev in studies.items()}
    names = list(dict.fromkeys(name for each in ledgers.values() for name in each))
    rows = [row for name in names for row in _rows({study: each.get(name) for study, each in ledgers.items()})]
    columns = [
        Column("claim", "Claim"),
        Column("paper", "Paper"),
        Column("protocol", "Protocol"),
        *(Column(f"ours_{study}", heading(study), None) for study in studies),
        Column("source", "Source"),
        Column("command", "Command"),
        Column("remark", "Remark"),
    ]
    caption = woven({study: _caption(ev) for study, ev in studies.items()})
    return [Table(NAME, TITLE, caption, columns, rows, protocol_of_row="protocol")]


def _rows(claims: Mapping[str, Claim | None]) -> list[dict[str, Cell]]:
    known = {study: claim for study, claim in claims.items() if claim is not None}
    about = {study: claim for study, claim in known.items() if claim.world in ("", study)}
    said = about or known
    first = next(iter(said.values()))
    protocols: list[str] = [
        protocol
        for protocol in PROTOCOLS
        if any(getattr(claim, f"ours_{protocol}") is not None for claim in said.values())
    ]
    remarks = list(dict.fromkeys(claim.remark for claim in said.values() if claim.remark))
    return [
        {
            "claim": first.claim,
            "paper": first.paper,
            "protocol": protocol,
            **{f"ours_{study}": claim.under(protocol) for study, claim in said.items()},
            "source": first.source,
            "command": first.command,
            "remark": "; ".join(remarks) or None,
        }
        for protocol in protocols or ["–"]
    ]


def _caption(ev: Evaluator) -> str:
    return (
        "Claims. Every number of the paper, what it is here, and the command that gives it. Only the paper's values "
        f"are typed in. {captions.runs(ev)} {captions.interval(ev)}"
    )
