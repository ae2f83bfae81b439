"""What every fault promises that changes how a model computes, and not its weights."""

from __future__ import annotations

import pytest
from torch import nn

from rmetric.errors import UserError
from rmetric.faults import Fault, make_fault
from rmetric.live.corpus import Corpus
from tests.live.faults.common import Notes, same_bits, surface, trained
from tests.live.faults.structural import MakeRun, logits_of, run_of

STEPS = 3


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("tiny-moe", make_fault("EXPERT_FAILURE")),
        ("tiny-moe", make_fault("ROUTER_IMBALANCE", imbalance_factor=1.0, ramp_steps=1)),
        ("tiny-llama", make_fault("GQA_MISMATCH", layer_share=1.0)),
        ("tiny-llama", make_fault("LOW_PRECISION_ATTENTION", "high")),
        ("tiny-llama", make_fault("RMS_NORM_ERROR", scale=8.0)),
        ("tiny-llama", make_fault("RMS_NORM_ERROR", scale=1.0, epsilon=1.0)),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_leaving_restores_everything_and_the_twin_never_notices(
    model: str, fault: Fault, make_run: MakeRun, twin_of: MakeRun
) -> None:
    """One of two twins of the same state is trained meanwhile."""
    run = make_run(model)
    run.train_step()
    twin, other_twin = (twin_of(run, model) for _ in range(2))
    assert same_bits(run.state_dict(), twin.state_dict())
    logits_of(run)  # transformers puts hooks of its own at the first pass
    before, weights, said = surface(run), run.state_dict()["model"], logits_of(run)
    with fault.inject(run):
        during = logits_of(run)
        assert same_bits(run.state_dict()["model"], weights)
        assert not same_bits(during, said)
    assert same_bits(logits_of(run), said)
    assert surface(run) == before
    with fault.inject(run):
        trained(run, STEPS - 1)
        trained(twin, STEPS - 1)  # beside it, in the same process
        trained(run, 1)
        trained(twin, 1)
    trained(other_twin, STEPS)  # without any fault near
    assert surface(run) == before
    assert same_bits(twin.state_dict(), other_twin.state_dict())
    assert not same_bits(run.state_dict()["model"], twin.state_dict()["model"])
    twin.load_state_dict(run.state_dict())
    assert same_bits(logits_of(run), logits_of(twin))
    assert same_bits(trained(run, 2).state_dict(), trained(twin, 2).state_dict())


@pytest.mark.parametrize(("name", "part"), [("GQA_MISMATCH", "self_attn"), ("RMS_NORM_ERROR", "input_layernorm")])
def test_the_layers_depend_on_the_seed_of_the_run(name: str, part: str, text: Corpus) -> None:
    chosen = set()
    for seed in range(8):
        run = run_of("tiny-llama", text, seed=seed)
        notes = Notes(run)
        with make_fault(name).inject(run):
            chosen.add(notes.told[0]["modules"][0])
    assert chosen == {f"model.layers.0.{part}", f"model.layers.1.{part}"}


@pytest.mark.parametrize("name", ["GQA_MISMATCH", "LOW_PRECISION_ATTENTION"])
def test_a_model_without_attention_is_refused_in_words(name: str, make_run: MakeRun) -> None:
    run = make_run()
    run.model = nn.Linear(2, 2)
    with pytest.raises(UserError, match=f"fault {name} needs attention"), make_fault(name).inject(run):
        pytest.fail("entered")
