"""Pairs of runs that are compared."""

from __future__ import annotations

from rmetric.records import NO_FAULT, Observations, Run
from studies.compare.pairs import pairs_of


def _run(name: str, seed: int, fault: str = NO_FAULT, twin: str | None = None) -> Run:
    config = {"model_type": "tiny", "seed": seed, "twin": twin, "fault_injection": {"type": fault}}
    return Run(name, config, Observations.of([]), [{"event": "FAULT_INJECTED", "step": 7}])


def test_pairs_say_whose_fault_it_was_and_how_the_run_ended() -> None:
    healthy = [_run("a", 0), _run("b", 1)]
    faulty = [_run("hot", 0, "LR_SPIKE", "a"), _run("slow", 0, "NETWORK_DEGRADATION", "a")]
    assert [(pair.kind, pair.a.name, pair.b.name, pair.onset) for pair in pairs_of(healthy + faulty, {"hot"})] == [
        ("same seed, model, failed", "a", "hot", 7),
        ("other seed, model, failed", "b", "hot", 7),
        ("same seed, machine, recovered", "a", "slow", 7),
        ("other seed, machine, recovered", "b", "slow", 7),
        ("other seed, healthy", "a", "b", None),
    ]
