from __future__ import annotations

import pytest
import torch

from rmetric.faults import make_fault
from rmetric.live.corpus import Corpus
from rmetric.live.injection.rounded_attention import RoundedAttention
from rmetric.network.attention import wrapped_attention
from rmetric.network.structure import attentions
from tests.live.architectures import NAMES
from tests.live.faults.common import Notes
from tests.live.faults.structural import MakeRun, assert_named, logits_of, run_of


@pytest.mark.parametrize("name", NAMES)
def test_all_layers_round_and_nothing_else_changes(name: str, text: Corpus) -> None:
    run = run_of(name, text)
    notes = Notes(run)
    healthy = logits_of(run)
    fault = make_fault("LOW_PRECISION_ATTENTION", rounding="up", bias_ulp=0.5, block_keys=4)
    with fault.inject(run):
        faulty = logits_of(run)
    note = assert_named(run, notes.told, "LOW_PRECISION_ATTENTION")
    assert note["modules"] == [attention.name for attention in attentions(run.model)]
    assert (note["rounding"], note["bias_ulp"]) == ("up", 0.5)
    error = ((faulty - healthy).norm() / healthy.norm()).item()
    assert 1e-5 < error < 0.05
    reference = RoundedAttention(rounding="up", bias_ulp=0.5, block=4)
    with wrapped_attention([attention.module for attention in attentions(run.model)], reference):
        assert torch.equal(logits_of(run), faulty)


def test_no_later_token_changes_what_an_earlier_one_gets(make_run: MakeRun) -> None:
    run = make_run("tiny-mistral")
    ids = torch.arange(24)[None] * 7 % 256
    changed = ids.clone()
    changed[:, 12:] = 5
    with make_fault("LOW_PRECISION_ATTENTION", "high").inject(run), torch.no_grad():
        first, second = run.model(ids).logits, run.model(changed).logits
    assert torch.allclose(first[:, :12], second[:, :12], atol=1e-6)
    assert not torch.allclose(first[:, 12:], second[:, 12:], atol=1e-3)


def test_a_higher_severity_has_a_larger_error(make_run: MakeRun) -> None:
    run = make_run()
    healthy = logits_of(run)
    errors = []
    for severity in ("low", "medium", "high"):
        with make_fault("LOW_PRECISION_ATTENTION", severity).inject(run):
            errors.append((logits_of(run) - healthy).norm().item())
    assert 0 < errors[0] < errors[1] < errors[2]


def test_the_bias_reaches_the_weights_of_queries_and_keys(make_run: MakeRun) -> None:
    """Through δ alone: with the exact gradient the rows of dS sum to zero, with the rounded output they do not."""
    run, healthy = make_run(), make_run()
    notes, others = Notes(run), Notes(healthy)
    with make_fault("LOW_PRECISION_ATTENTION", "high").inject(run):
        run.train_step()
    healthy.train_step()
    for part in ("q_proj", "k_proj"):
        name = f"model.layers.0.self_attn.{part}.weight"
        change = notes.gradients[name] - others.gradients[name]
        assert change.norm() > 0.5 * others.gradients[name].norm()
