"""Diagnoses as SARIF 2.1.0, the format in which code hosts and editors take findings of tools."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from rmetric import __version__
from rmetric.advice import ADVICE
from rmetric.diagnosis.finding import Finding
from rmetric.diagnosis.result import Diagnosis
from rmetric.replay import plain_text

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_sarif(diagnoses: Iterable[Diagnosis]) -> dict[str, Any]:
    """One SARIF run for all diagnoses; a rule is a kind of finding, a result a finding.

    **Source:** OASIS, Static Analysis Results Interchange Format 2.1.0.
    """
    rules = [
        {"id": name, "help": {"text": f"Likely causes: {'; '.join(said.causes)}. {said.action}"}}
        for name, said in ADVICE.items()
    ]
    results = [_result(diagnosis, finding) for diagnosis in diagnoses for finding in diagnosis.findings]
    driver = {"name": "rmetric", "version": __version__, "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(diagnosis: Diagnosis, finding: Finding) -> dict[str, Any]:
    run = plain_text(diagnosis.run)
    place: dict[str, Any] = {"logicalLocations": [{"name": run, "kind": "module"}]}
    if diagnosis.source:
        uri = quote(PurePath(diagnosis.source).as_posix(), errors="surrogateescape")  # of a name that is no UTF-8
        place["physicalLocation"] = {"artifactLocation": {"uri": uri}}
    about = finding.to_dict()
    kept = {name: about[name] for name in ("step", "until", "numbers", "sure", "causes", "advice")}
    return {
        "ruleId": finding.name,
        "ruleIndex": list(ADVICE).index(finding.name),
        "level": finding.severity,
        "message": {"text": f"{run}, step {finding.step}: {finding.sentence}. {finding.advice}"},
        "locations": [place],
        "properties": kept,
    }
