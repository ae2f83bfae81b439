"""Simulate one training run with a fault, and its fault-free twin; write both as JSONL logs.

    python simulator.py                                    # LR_SPIKE of medium severity on llama-3-8b, 5,000 steps
    python simulator.py --architecture gpt-4-moe --fault EXPERT_FAILURE --severity high --seed 1
    python simulator.py --list-faults

Writes to results/simulator/, in under a second. What is modelled and what is assumed: docs/simulator.md.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rmetric.architectures import ARCHITECTURES
from rmetric.cli import Parser, output_folder, script, whole_number
from rmetric.errors import UserError
from rmetric.faults import FAULTS, NO_FAULT, SEVERITIES, file_name_part
from rmetric.files import write_atomically
from rmetric.simulation import MAX_STEPS, RunSpec, TrainingSimulator, run_batch

__all__ = ["TrainingSimulator", "main"]


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Simulate one training run with a fault, and its fault-free twin.")
    p.add_argument("--architecture", default="llama-3-8b", metavar="NAME", help="architecture profile")
    p.add_argument("--fault", default="LR_SPIKE", metavar="NAME", help="fault, combination A+B, or NONE")
    p.add_argument("--severity", default="medium", choices=SEVERITIES, help="severity of the fault")
    p.add_argument(
        "--fault-step", default="random", metavar="STEP", help="onset; random: in the middle half of the run"
    )
    p.add_argument("--seed", type=whole_number(0), default=0, metavar="N", help="seed of all noise in the run")
    p.add_argument("--steps", type=whole_number(1, MAX_STEPS), default=5000, metavar="N", help="training steps")
    p.add_argument("--log-every", type=whole_number(1), default=10, metavar="STEPS", help="steps between records")
    p.add_argument("--out", type=Path, default=Path("results/simulator"), help="folder for the two logs")
    p.add_plugin("faults")
    p.add_argument("--list-faults", action="store_true", help="list the faults and exit")
    p.add_argument("--list-architectures", action="store_true", help="list the architectures and exit")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if args.list_faults:
        print("\n".join(f"{name:24} {_first_line(fault)}" for name, fault in FAULTS.items() if fault.simulated))
    if args.list_architectures:
        for name, profile in ARCHITECTURES.items():
            print(f"{name:24} {profile.parameters_b:g}e9 parameters, {profile.layers} layers ({profile.source})")
    if args.list_faults or args.list_architectures:
        return
    if args.fault == NO_FAULT and (args.fault_step, args.severity) != ("random", "medium"):
        raise UserError("a run without a fault has no onset and no severity; leave --fault-step and --severity out")
    severity = "" if args.fault == NO_FAULT else f"_{args.severity}"
    spec = RunSpec(
        architecture=args.architecture,
        fault=args.fault,
        severity=args.severity,
        seed=args.seed,
        onset=_onset(args.fault_step),
        steps=args.steps,
        log_every=args.log_every,
        name=f"{args.architecture}_{file_name_part(args.fault)}{severity}_seed{args.seed}",
    )
    twin = replace(spec.twin(), name=f"{spec.name}_twin")
    folder = output_folder(args.out)
    for log in run_batch([spec, twin]):
        write_atomically(folder / f"{log.name}.jsonl", log.content)
        failure = f" at step {log.outcome.failure_step} ({log.outcome.reason})" if log.outcome.failure_step else ""
        alerts = ", ".join(f"{name} at {step}" for name, step in log.alerts.items()) or "none"
        print(f"{folder / log.name}.jsonl: {log.outcome.kind}{failure}, {log.records} records")
        print(f"  onset: {log.onset or 'none'}; first alerts: {alerts}")


def _onset(text: str) -> int | None:
    if text == "random":
        return None
    if not text.isdecimal():
        raise UserError(f"--fault-step must be a step number or random, not {text!r}")
    return int(text)


def _first_line(fault: type) -> str:
    return (inspect.getdoc(fault) or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
