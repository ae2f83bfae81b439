"""Fit the simulator to the fit half (odd repetitions) of real runs.

python -m studies.calibration.calibrate --from data/real_runs.parquet       # writes rmetric/simulation/parameters.json
python -m studies.calibration.calibrate --from logs_REAL --out mine.json
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rmetric
from rmetric.cli import Parser, script
from rmetric.errors import UserError
from rmetric.evaluation.split import digest, half_of
from rmetric.evaluation.studies import Study, load_study
from rmetric.faults import SEVERITIES
from rmetric.faults.processes import Response
from rmetric.files import write_atomically
from rmetric.plain_numbers import rounded
from rmetric.simulation.healthy import HealthyParameters
from rmetric.simulation.parameters import SHIPPED, VERSION, SimulationParameters
from studies.calibration.assumptions import ELSEWHERE, HEALTHY, UNSEEN, Assumption
from studies.calibration.noise import fit_noise
from studies.calibration.real_runs import Estimate, pairs
from studies.calibration.responses import Cell, cells_of, fit_response, fit_shared

DIGITS = 4
LIBRARIES = ("numpy", "scipy")
UNITS = {
    "time_constant_steps": "steps",
    "delay_steps": "steps",
    "delay_spread": "1",
    "spread": "1",
    "collapse_share": "share of runs",
    "non_finite_share": "share of runs",
    "non_finite_gradient_share": "share of runs",
    "grad_norm_onset": "factor",
    "grad_norm_early": "factor",
    "grad_norm_lasting": "factor",
    "worker_spread": "factor",
    "update_rms": "factor",
}
"""Units of the fields of a response; the others are relative to the loss."""


def calibrate(study: Study) -> dict[str, Any]:
    """Contents of the parameter file, from the fit half of a study of real runs and nothing else.

    Raises
    ------
    UserError
        If the fit half has no control run, or no faulty run beside its twin.
    """
    runs = half_of(study.runs, "fit")
    cells = cells_of(pairs(runs))
    if not cells:
        raise UserError(
            f"{study.folder} has no faulty run beside its twin in the fit half (odd repetitions); give real runs "
            "that run_modern_experiments.py --backend torch has made"
        )
    fitted = fit_noise(runs) | fit_shared(cells)
    healthy = {item.name: _healthy(item.name, fitted) for item in fields(HealthyParameters)}
    rate, per_excess = healthy["healing_rate"]["value"], healthy["gradient_per_excess"]["value"]
    return {
        "version": VERSION,
        "provenance": {
            "source": study.folder.name,
            "half": "fit (odd repetitions)",
            "source_sha256": digest(runs),
            "runs": len(runs),
            "records": sum(len(run.observations) for run in runs),
            "package_version": rmetric.__version__,
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in LIBRARIES},
            "command": "python -m studies.calibration.calibrate",
        },
        "healthy": healthy,
        "response_fields": {
            item.name: {"unit": UNITS.get(item.name, "of the loss"), "what": _described(Response, item.name)}
            for item in fields(Response)
        },
        "responses": _responses(cells, rate, per_excess),
        "assumed_elsewhere": {name: asdict(assumption) for name, assumption in ELSEWHERE.items()},
    }


def _healthy(name: str, fitted: Mapping[str, Estimate]) -> dict[str, Any]:
    what = _described(HealthyParameters, name)
    if name in fitted:
        return _stated(fitted[name]) | {"unit": (UNSEEN.get(name) or HEALTHY[name]).unit, "what": what}
    assumed: Assumption = HEALTHY.get(name) or UNSEEN[name]
    return {
        "value": assumed.value, "basis": "assumed", "unit": assumed.unit, "what": what, "source": assumed.source,
    }  # fmt: skip


def _stated(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _known(estimate.value),
        "interval": [_known(estimate.low), _known(estimate.high)],
        "basis": "fitted",
        "runs": estimate.runs,
        "records": estimate.records,
    }


def _responses(cells: Mapping[tuple[str, str], Cell], rate: float, per_excess: float) -> dict[str, Any]:
    """Fault → severity → response; a severity without runs has that of the next lower one, or of the next higher."""
    found: dict[str, dict[str, Any]] = {}
    for (fault, severity), cell in cells.items():
        estimates = fit_response(cell, rate, per_excess)
        found.setdefault(fault, {})[severity] = {
            "runs": len(cell.pairs),
            "records": sum(len(pair.run.observations) for pair in cell.pairs),
            "fields": {
                item.name: {
                    "value": _known(estimates[item.name].value),
                    "interval": [_known(estimates[item.name].low), _known(estimates[item.name].high)],
                }
                for item in fields(Response)
            },
        }
    return {fault: {severity: _nearest(by, severity) for severity in SEVERITIES} for fault, by in found.items()}


def _nearest(by_severity: Mapping[str, Any], severity: str) -> dict[str, Any]:
    if severity in by_severity:
        return by_severity[severity]  # type: ignore[no-any-return]
    at = SEVERITIES.index(severity)
    stand_in = min(by_severity, key=lambda name: (abs(SEVERITIES.index(name) - at), SEVERITIES.index(name)))
    return {**by_severity[stand_in], "runs": 0, "records": 0, "source": f"assumed: no run; as at {stand_in}"}


def _described(kind: type, name: str) -> str:
    """The docstring under a field, from the source: it is said once, there."""
    import ast
    import inspect

    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    for item, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign) and getattr(item.target, "id", "") == name:
            assert isinstance(after, ast.Expr)
            assert isinstance(after.value, ast.Constant)
            return " ".join(str(after.value.value).split())
    raise KeyError(name)


def _known(value: float) -> float | None:
    return rounded(value, DIGITS) if math.isfinite(value) else None


def render(content: Mapping[str, Any]) -> str:
    """JSON with one parameter a line, which a person can read and compare."""
    return _render(content, 0) + "\n"


def _render(value: Any, depth: int) -> str:
    leaf = not isinstance(value, Mapping) or "value" in value
    if leaf or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    pad = " " * (depth + 1)
    parts = (f"{pad}{json.dumps(key)}: {_render(item, depth + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(parts) + f"\n{' ' * depth}}}"


def parser() -> Parser:
    p = Parser("Fit the simulator's parameters to the fit half (odd repetitions) of real runs.")
    p.add_argument("--from", dest="logs", type=Path, required=True, help="folder of real logs, or a .parquet data set")
    p.add_argument("--out", type=Path, default=SHIPPED, help="file to write (default: the shipped one)")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, fit, write, say what was assumed for want of runs."""
    args = parser().parse_args(argv)
    study = load_study(args.logs, args.jobs)
    study.warn()
    content = calibrate(study)
    text = render(content)
    SimulationParameters.of(text)  # what is written can be read
    write_atomically(args.out, text.encode())
    unseen = [name for name in UNSEEN if content["healthy"][name]["basis"] == "assumed"]
    empty = [f"{f} {s}" for f, by in content["responses"].items() for s, cell in by.items() if not cell["runs"]]
    print(f"{content['provenance']['runs']} runs, {content['provenance']['records']:,} records: {args.out}")
    if unseen:
        print(f"note: too few runs for {', '.join(unseen)}; assumed")
    if empty:
        print(f"note: no run of {', '.join(empty)}; as at the next severity")


if __name__ == "__main__":
    sys.exit(main())
