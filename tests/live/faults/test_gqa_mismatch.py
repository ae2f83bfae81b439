from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.faults import make_fault
from rmetric.live.corpus import Corpus
from rmetric.live.models import TINY_MODELS, tiny_model
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from rmetric.network.structure import attentions
from tests.live.architectures import model_of
from tests.live.faults.common import Notes
from tests.live.faults.structural import MakeRun, assert_named, logits_of, run_of

EVERYWHERE = make_fault("GQA_MISMATCH", layer_share=1.0)


def many_layers(text: Corpus, layers: int = 8, **shape: int) -> LanguageModelRun:
    model = tiny_model("tiny-llama", seed=0, layers=layers, **shape)
    config = LiveRunConfig(rows=4, length=16, workers=2)
    return LanguageModelRun(model, torch.optim.AdamW(model.parameters()), text, config)


def roll_weights(model: nn.Module) -> None:
    """Give each key/value head the weights of the head before, in all layers."""
    with torch.no_grad():
        for attention in attentions(model):
            for part in (attention.key, attention.value):
                for name, weight in part.module.named_parameters():
                    fused = part.module.__class__.__name__ == "Conv1D"  # GPT-2 stores the transposed matrix
                    outputs = weight.T if fused and name == "weight" else weight
                    cut = outputs[part.features]
                    cut.copy_(cut.roll(attention.head_size, dims=0).clone())


@pytest.mark.parametrize("name", [*TINY_MODELS, "gpt2", "lfm2", "qwen-moe"])
def test_it_answers_as_a_model_does_whose_weights_are_exchanged(name: str, text: Corpus) -> None:
    run, reference = run_of(name, text), run_of(name, text)
    healthy = logits_of(run)
    roll_weights(reference.model)
    with EVERYWHERE.inject(run):
        faulty = logits_of(run)
    assert torch.allclose(faulty, logits_of(reference), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(faulty, healthy, atol=1e-2)


def test_the_gradients_are_those_of_the_exchanged_weights(make_run: MakeRun) -> None:
    run, reference = make_run(), make_run()
    roll_weights(reference.model)
    notes, references = Notes(run), Notes(reference)
    with EVERYWHERE.inject(run):
        run.train_step()
    reference.train_step()
    for name, gradient in references.gradients.items():
        size = 16 if "k_proj" in name or "v_proj" in name else 0
        assert torch.allclose(notes.gradients[name].roll(size, dims=0), gradient, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize(("severity", "count"), [("low", 1), ("medium", 1), ("high", 3)])
def test_it_is_a_share_of_the_layers_and_at_least_one(severity: str, count: int, text: Corpus) -> None:
    run = many_layers(text)
    notes = Notes(run)
    outputs: dict[str, Tensor] = {}
    for attention in attentions(run.model):
        attention.module.register_forward_hook(
            lambda module, inputs, output, name=attention.name: outputs.__setitem__(name, output[0])
        )
    with make_fault("GQA_MISMATCH", severity).inject(run):
        note = assert_named(run, notes.told, "GQA_MISMATCH")
        logits_of(run)
        faulty = dict(outputs)
    logits_of(run)
    first = next(name for name in outputs if not torch.equal(outputs[name], faulty[name]))
    assert len({*note["modules"]}) == count
    assert first == note["modules"][0]  # those behind it get other inputs and differ too


def test_a_single_key_value_head_cannot_be_mismatched(text: Corpus) -> None:
    run = many_layers(text, layers=1, key_value_heads=1)
    with pytest.raises(UserError, match="GQA_MISMATCH needs two key/value heads or more"), EVERYWHERE.inject(run):
        pytest.fail("entered")


def test_the_reference_itself_is_another_model() -> None:
    model = model_of("tiny-llama")
    before = model.model.layers[0].self_attn.v_proj.weight.clone()
    roll_weights(model)
    assert torch.equal(model.model.layers[0].self_attn.v_proj.weight, torch.cat([before[16:], before[:16]]))
