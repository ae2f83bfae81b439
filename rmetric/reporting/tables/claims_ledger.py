"""Table 8: the ledger of claims."""

from __future__ import annotations

from rmetric.evaluation.claims import ledger
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.live_results import LiveResults
from rmetric.reporting.formats import Cell, Column, Table
from rmetric.reporting.tables import captions


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
    caption = (
        "Claims. Every number of the paper, what it is here, and the command that gives it. Only the paper's values "
        f"are typed in. {captions.runs(ev)} {captions.interval(ev)}"
    )
    return [Table("table_8_claims", "Table 8: Claims", caption, columns, rows)]
