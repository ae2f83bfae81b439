from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import (
    GPTBigCodeConfig,
    GPTBigCodeForCausalLM,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
)

from rmetric.errors import UserError
from rmetric.live.models import tiny_model
from rmetric.network.attention import wrapped_attention
from rmetric.network.structure import (
    attentions,
    chosen_layers,
    decoder_layers,
    drawn,
    expert_blocks,
    model_name,
    norms,
    unwrapped,
)
from rmetric.streams import stable_hash
from tests.live.architectures import MOES, NAMES, ROUTED, STACKED, model_of, tokens

LAYERS = {"gpt2": ["transformer.h.0", "transformer.h.1"], "lfm2": [f"model.layers.{index}" for index in range(3)]}
HEADS = {"gpt2": (4, 4, 8), "lfm2": (4, 2, 8), "qwen-moe": (4, 2, 8)}
NORMS = {"gpt2": ["ln_1", "ln_2"], "lfm2": ["operator_norm", "ffn_norm"]}


@pytest.mark.parametrize("name", NAMES)
def test_the_layers_come_in_order_under_their_names(name: str) -> None:
    model = model_of(name)
    layers = decoder_layers(model)
    assert [layer.name for layer in layers] == LAYERS.get(name, ["model.layers.0", "model.layers.1"])
    assert [layer.index for layer in layers] == list(range(len(layers)))
    assert all(model.get_submodule(layer.name) is layer.module for layer in layers)


@pytest.mark.parametrize("name", NAMES)
def test_attention_has_its_heads_and_in_one_stack_the_number_is_its_label(name: str) -> None:
    model = model_of(name)
    found = attentions(model)
    numbers = [1] if name == "lfm2" else [0, 1]
    assert [attention.layer for attention in found] == [attention.label for attention in found] == numbers
    for attention in found:
        assert (attention.heads, attention.key_value_heads, attention.head_size) == HEADS.get(name, (4, 2, 16))
        assert model.get_submodule(attention.name) is attention.module
        for part in (attention.query, attention.key, attention.value):
            assert model.get_submodule(part.name) is part.module


ATTENTIONS = {
    "bart": [
        *(f"model.encoder.layers.{index}.self_attn" for index in range(2)),
        *(f"model.decoder.layers.{index}.{part}_attn" for index in range(3) for part in ("self", "encoder")),
    ],
    "clip": [
        *(f"text_model.encoder.layers.{index}.self_attn" for index in range(2)),
        *(f"vision_model.encoder.layers.{index}.self_attn" for index in range(3)),
    ],
}
ATTENTIONS["whisper"] = ATTENTIONS["bart"]


@pytest.mark.parametrize("name", STACKED)
def test_attention_is_found_in_every_stack_under_its_name(name: str) -> None:
    model = model_of(name)
    found = attentions(model)
    assert [attention.name for attention in found] == ATTENTIONS[name]
    assert [attention.label for attention in found] == ATTENTIONS[name]
    assert all(model.get_submodule(attention.name) is attention.module for attention in found)
    first = ATTENTIONS[name][0].partition("layers")[0]  # faults stay with the first stack
    assert [layer.name for layer in decoder_layers(model)] == [f"{first}layers.{index}" for index in range(2)]


@pytest.mark.parametrize("name", NAMES)
def test_the_projection_of_the_values_makes_the_values(name: str) -> None:
    model = model_of(name)
    found = attentions(model)[0]
    used: list[Tensor] = []
    made: list[Tensor] = []

    def keep(inner: Any, module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        used.append(value)
        return inner(module, query, key, value, mask, **options)

    hook = found.value.module.register_forward_hook(lambda module, inputs, output: made.append(output))
    with wrapped_attention([found.module], keep):
        model(tokens())
    hook.remove()
    rows, length = tokens().shape
    heads = made[0][..., found.value.features].view(rows, length, found.key_value_heads, found.head_size)
    assert torch.equal(heads.transpose(1, 2), used[0])
    assert found.query.features.stop - found.query.features.start == found.heads * found.head_size


@pytest.mark.parametrize("name", NAMES)
def test_norms_are_those_on_the_residual_stream(name: str) -> None:
    model = model_of(name)
    found = norms(model)
    expected = NORMS.get(name, ["input_layernorm", "post_attention_layernorm"])
    assert [norm.name.rpartition(".")[2] for norm in found] == expected * len(decoder_layers(model))
    assert all(getattr(norm.module, norm.epsilon_attribute) < 1e-3 for norm in found)


@pytest.mark.parametrize("name", MOES)
def test_experts_are_found_with_their_router(name: str) -> None:
    model = model_of(name)
    blocks = expert_blocks(model)
    assert [(block.layer, block.name) for block in blocks] == [(0, "model.layers.0.mlp"), (1, "model.layers.1.mlp")]
    for block in blocks:
        assert (block.count, block.top_k) == (4, 2)
        assert block.router.weight.shape[0] == 4  # type: ignore[union-attr]
        assert block.experts.down_proj.shape[0] == 4  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ROUTED)
def test_experts_are_found_whatever_the_attention_is(name: str) -> None:
    model = model_of(name)
    layers = [0, 1] if name == "llama-4" else [1, 2]
    blocks = expert_blocks(model)
    assert [block.layer for block in blocks] == [block.label for block in blocks] == layers
    assert all(model.get_submodule(block.name).experts is block.experts for block in blocks)
    assert {(block.count, block.top_k) for block in blocks} == {(4, 2)}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MOES])
def test_a_dense_model_has_no_experts_and_the_message_says_what_to_choose(name: str) -> None:
    model = model_of(name)
    model.config.name_or_path = name
    message = f"fault X needs a mixture-of-experts model and {name} ({type(model).__name__}) is dense"
    with pytest.raises(UserError) as caught:
        expert_blocks(model, "fault X")
    assert str(caught.value) == f"{message}; choose a model that has experts"


def test_experts_that_are_modules_of_their_own_are_refused_in_words() -> None:
    model = model_of("tiny-moe")
    experts = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
    model.model.layers[1].mlp.experts = experts
    with pytest.raises(UserError, match=r"experts of model.layers.1.mlp are of no known form; fault X needs"):
        expert_blocks(model, "fault X")


def test_a_router_that_does_not_say_how_many_it_chooses_is_no_sign_of_a_dense_model() -> None:
    sparse = {"num_layers": 2, "num_decoder_layers": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_experts": 4}
    model = SwitchTransformersForConditionalGeneration(SwitchTransformersConfig(**sizes, **sparse))
    with pytest.raises(UserError, match=r"experts of encoder.block.1.layer.1.mlp are of no known form"):
        expert_blocks(model, "fault X")


def test_experts_without_a_router_that_is_known_are_no_sign_of_a_dense_model() -> None:
    mixture = nn.ModuleDict({"choice": nn.Linear(8, 2), "experts": nn.ModuleList(nn.Linear(8, 8) for _ in range(2))})
    model = nn.Sequential(nn.Linear(8, 8), mixture)
    with pytest.raises(UserError, match=r"experts of Sequential are of no known form \(1.experts\); fault X needs"):
        expert_blocks(model, "fault X")


@pytest.mark.parametrize("find", [attentions, norms])
def test_a_model_that_is_no_transformer_is_refused_in_words(find: Any) -> None:
    with pytest.raises(UserError, match=r"fault X needs .* and Linear has none; choose a model that has it$"):
        find(nn.Linear(3, 3), "fault X")
    assert decoder_layers(nn.Linear(3, 3)) == []


class Fused(nn.Module):
    """Attention as in nanoGPT: one projection, and other names for its sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(8, 24)
        self.n_head, self.n_embd = 2, 8


class Bare(nn.Module):
    """Attention whose projections are no modules."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = 4
        self.q_proj, self.k_proj, self.v_proj = (nn.Parameter(torch.ones(8, 8)) for _ in range(3))


@pytest.mark.parametrize("attention", [Fused, Bare])
def test_attention_that_does_not_say_its_sizes_is_of_no_known_form(attention: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Embedding(5, 8), nn.ModuleList([attention()]))
    with pytest.raises(UserError, match="policy X needs attention with q_proj, k_proj and v_proj or GPT-2's c_attn"):
        attentions(model, "policy X")


def test_attention_of_ones_own_is_told_what_it_lacks() -> None:
    own = Bare()
    del own.head_dim, own.q_proj, own.k_proj, own.v_proj
    own.q_proj, own.k_proj, own.v_proj = (nn.Linear(8, 8) for _ in range(3))
    with pytest.raises(UserError, match=r"and Sequential has these without the head_dim of transformers' attention"):
        attentions(nn.Sequential(nn.ModuleList([own])))


def test_a_fused_projection_that_goes_head_by_head_is_of_no_known_form() -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 64}
    model = GPTBigCodeForCausalLM(GPTBigCodeConfig(multi_query=False, **sizes, bos_token_id=1, eos_token_id=2))
    with pytest.raises(UserError, match=r"or GPT-2's c_attn, and GPTBigCodeForCausalLM has none"):
        attentions(model)


def test_a_layer_that_makes_no_values_of_its_own_is_left_out() -> None:
    model = model_of("tiny-llama")
    model.model.layers[0].self_attn.v_proj = None
    assert [attention.label for attention in attentions(model)] == [1]


def test_a_path_never_reaches_a_message(tmp_path: Path) -> None:
    model = model_of("tiny-llama")
    model.config.name_or_path = ""
    assert model_name(model) == "LlamaForCausalLM"
    model.config.name_or_path = str(tmp_path / "mine")
    assert model_name(model) == "mine (LlamaForCausalLM)"


def test_the_shells_of_data_parallel_training_and_compilation_are_looked_through() -> None:
    model = model_of("tiny-llama")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        shell = nn.parallel.DistributedDataParallel(model)
        assert unwrapped(shell) is model
        assert attentions(shell) == attentions(model)
    finally:
        dist.destroy_process_group()
    assert unwrapped(torch.compile(model, backend="eager")) is model


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks
def test_an_adapted_model_has_the_same_parts() -> None:
    peft = pytest.importorskip("peft")
    plain = attentions(tiny_model("tiny-llama", seed=0))
    adapted = attentions(
        peft.get_peft_model(tiny_model("tiny-llama", seed=0), peft.LoraConfig(target_modules=["k_proj", "v_proj"]))
    )
    shape = [(part.layer, part.heads, part.key_value_heads, part.head_size, part.key.features) for part in plain]
    assert [(one.layer, one.heads, one.key_value_heads, one.head_size, one.key.features) for one in adapted] == shape


def test_a_layer_that_is_not_there_cannot_be_chosen() -> None:
    assert chosen_layers([0, 2], None, "fault X") == [0, 2]
    assert chosen_layers([0, 2], 2, "fault X") == [2]
    with pytest.raises(UserError, match=r"fault X cannot be brought upon layer 1; choose one of \[0, 2\]"):
        chosen_layers([0, 2], 1, "fault X")


def test_what_is_drawn_is_different_and_in_order() -> None:
    rng = np.random.default_rng(stable_hash("drawn") % 2**32)
    for _ in range(20):
        numbers = drawn(rng, 3, 5)
        assert numbers == sorted({*numbers})
        assert len(numbers) == 3
        assert {*numbers} <= {*range(5)}
