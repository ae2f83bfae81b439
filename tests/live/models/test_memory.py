"""The estimate of memory: by hand, against what autograd keeps, against the peak of a real process; and its advice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Lfm2Config, Lfm2ForCausalLM, PreTrainedModel

from rmetric.errors import UserError
from rmetric.live.models import memory, tiny_model
from rmetric.live.models.memory import (
    CARDS,
    GIB,
    TrainingPlan,
    available_memory_gib,
    card_table,
    check_fits,
    choose_plan,
    lora_parameters,
    out_of_memory_in_one_line,
    plan_of,
)
from rmetric.live.models.shapes import SHAPES
from tests.helpers import ROOT

SMALL = TrainingPlan(
    name="small",
    parameters=1000,
    dtype=torch.float32,
    rows=2,
    length=8,
    layers=3,
    hidden=4,
    feed_forward=5,
    vocabulary=7,
)


def test_training_in_full_in_fp32_by_hand() -> None:
    found = SMALL.estimate()
    assert (found.weights_gib * GIB, found.gradients_gib * GIB, found.optimizer_gib * GIB) == (4000, 4000, 8000)
    assert found.casts_gib == 0
    assert found.activations_gib * GIB == 16 * 3 * (42 * 4 + 17 * 5)
    assert found.logits_gib * GIB == 16 * 7 * 12
    assert found.total_gib * GIB == pytest.approx(4000 + 4000 + 8000 + 12144 + 1344)


def test_lora_in_bf16_by_hand() -> None:
    found = replace(SMALL, lora=True, dtype=torch.bfloat16).estimate()
    adapters = lora_parameters(3, 4, 5)
    assert found.weights_gib * GIB == 1000 * 2 + adapters * 4
    assert found.casts_gib * GIB == adapters * 2
    assert (found.gradients_gib * GIB, found.optimizer_gib * GIB) == (adapters * 4, adapters * 8)
    assert found.activations_gib * GIB == 16 * 3 * (36 * 4 + 9 * 5)
    assert found.logits_gib * GIB == 16 * 7 * 16


def test_checkpointing_keeps_the_inputs_of_the_layers_and_one_whole_layer() -> None:
    found = replace(SMALL, gradient_checkpointing=True).estimate()
    assert found.activations_gib * GIB == 16 * (3 * 4 * 4 + 42 * 4 + 17 * 5)


def test_the_optimizer_s_step_counts_where_it_is_more_than_the_activations() -> None:
    found = replace(SMALL, parameters=10**6, rows=1, length=1).estimate()
    assert found.total_gib * GIB == pytest.approx(20 * 10**6)


def _gpt2(layers: int) -> PreTrainedModel:
    config = GPT2Config(vocab_size=256, n_embd=64, n_layer=layers, n_head=4, n_inner=192, n_positions=128)
    return GPT2LMHeadModel(config)


def _lfm2(layers: int) -> PreTrainedModel:
    return Lfm2ForCausalLM(
        Lfm2Config(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=192,
            block_auto_adjust_ff_dim=False,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            layer_types=["conv" if layer % 2 else "full_attention" for layer in range(layers)],
        )
    )


def _kept_bytes(model: PreTrainedModel, length: int, dtype: torch.dtype) -> int:
    """Bytes that autograd keeps for the backward pass of one sequence, weights left out, each storage once."""
    weights = {item.untyped_storage().data_ptr() for item in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros(1, length, dtype=torch.int64)
    mixed = dtype != torch.float32
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=dtype if mixed else None, enabled=mixed),
    ):
        loss = model.eval()(input_ids=ids, labels=ids, use_cache=False).loss  # eval: attention without dropout
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["tiny-llama", "tiny-qwen", "gpt2", "lfm2"])
def test_activations_are_within_a_factor_of_1_6_of_what_autograd_keeps(kind: str, dtype: torch.dtype) -> None:
    build = {"gpt2": _gpt2, "lfm2": _lfm2}.get(kind, lambda layers: tiny_model(kind, seed=0, layers=layers))
    lengths, depths = (32, 96), (2, 4)
    # Differences over length and depth leave the layers alone: no logits, no embedding, no cast of a weight.
    short, long = ([_kept_bytes(build(layers), length, dtype) for layers in depths] for length in lengths)
    measured = ((long[1] - long[0]) - (short[1] - short[0])) / (lengths[1] - lengths[0])
    found = replace(
        SMALL, dtype=dtype, rows=1, length=1, layers=depths[1] - depths[0], hidden=64, feed_forward=192
    ).estimate()
    assert 1 / 1.6 < found.activations_gib * GIB / measured < 1.6


PEAK = """
import torch
from rmetric.live.models.memory import GIB, TrainingPlan
from rmetric.live.models import tiny_model

def resident(key):
    line = next(line for line in open("/proc/self/status") if line.startswith(key))
    return int(line.split()[1]) * 1024 / GIB

def train(rows, length, **shape):
    model = tiny_model("tiny-llama", seed=0, **shape).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(2):
        ids = torch.randint(0, shape["vocabulary"], (rows, length))
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return sum(item.numel() for item in model.parameters())

torch.set_num_threads(1)
train(1, 8, hidden=64, layers=1, feed_forward=64, vocabulary=16)
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
shape = {"hidden": 256, "layers": 6, "feed_forward": 768, "vocabulary": 4096}
parameters = train(4, 64, **shape)
plan = TrainingPlan(name="", parameters=parameters, dtype=torch.float32, rows=4, length=64, **shape)
print(plan.estimate().total_gib, resident("VmHWM") - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak is read and reset through /proc")
def test_the_estimate_is_within_a_factor_of_2_of_a_process_s_peak() -> None:
    # The allocator hands memory back at once, so that the peak is what is held and not what is fragmented.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    estimate, peak = map(float, done.stdout.split())
    assert peak > 0.1
    assert 0.5 < estimate / peak < 2


def test_adapters_are_not_counted_short() -> None:
    exact = 16 * 36 * (2 * (2048 + 2048) + 2 * (2048 + 256) + 3 * (2048 + 11_008))  # two of the projections are narrow
    assert exact < lora_parameters(36, 2048, 11_008) < 1.1 * exact


PLAN = plan_of(SHAPES["qwen2.5-3b"], torch.bfloat16)


def test_the_first_that_fits_is_chosen() -> None:
    assert choose_plan(PLAN, 78).manner == "in full"
    assert choose_plan(PLAN, 65).manner == "in full, checkpointed"
    assert choose_plan(PLAN, 22).manner == "LoRA"
    assert choose_plan(PLAN, 12).manner == "LoRA, checkpointed"
    assert choose_plan(PLAN, 80, lora=True).manner == "LoRA"
    for available in (78, 65, 22, 12):
        assert choose_plan(PLAN, available).estimate().total_gib <= 0.9 * available


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    with pytest.raises(UserError) as refused:
        choose_plan(PLAN, 22, lora=False)
    message = str(refused.value)
    assert re.match(
        r"training Qwen/Qwen2.5-3B in full, checkpointed, 4 × 256 tokens in a pass, needs about 5\d\.", message
    )
    assert "22.0 GiB are free" in message
    assert "LoRA, checkpointed (--lora on), 9.0 GiB" in message
    assert "--model openai-community/gpt2-large or Qwen/Qwen3-0.6B or LiquidAI/LFM2-700M" in message
    assert "\n" not in message


def test_a_smaller_batch_is_named_when_it_helps() -> None:
    with pytest.raises(
        UserError,
        match=r"would fit: 2 × 256 tokens in a pass \(--batch, --length\), LoRA, checkpointed; as asked, --model meta",
    ):
        choose_plan(PLAN, 9.2)
    smaller = replace(PLAN, lora=True, gradient_checkpointing=True, rows=2)
    assert check_fits(smaller, 9.2).total_gib < 9.2


def test_where_nothing_fits_a_tiny_model_is_named() -> None:
    with pytest.raises(UserError, match="what would fit: a tiny model"):
        check_fits(PLAN, 0.5)


def test_available_memory_of_this_machine() -> None:
    assert 0 < available_memory_gib("cpu") < 10_000


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="POSIX")
def test_available_memory_without_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    pages = {"SC_AVPHYS_PAGES": 3 * 2**18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert available_memory_gib("cpu") == 3.0


def test_available_memory_of_a_cuda_device_counts_what_torch_holds_in_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * GIB, 15 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: GIB)
    assert available_memory_gib("cuda:0") == 12.0


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_out_of_memory_is_one_line(error: Exception) -> None:
    with (
        pytest.raises(UserError, match="out of memory while training; take a smaller --batch"),
        out_of_memory_in_one_line("training"),
    ):
        raise error


def test_an_impossible_allocation_is_one_line() -> None:
    with pytest.raises(UserError, match="out of memory"), out_of_memory_in_one_line("trying"):
        torch.empty(2**62, dtype=torch.uint8)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shapes"), out_of_memory_in_one_line("training"):
        raise RuntimeError("shapes do not match")


def test_the_table_of_the_document_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main([]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed == card_table()
    assert printed in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert printed.count("\n") == 1 + len(SHAPES)


def test_the_table_says_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CARDS, "T4", (1.0, "float16"))
    assert card_table().count("does not fit") == len(SHAPES)


def test_a_plan_is_immutable() -> None:
    with pytest.raises(AttributeError):
        PLAN.rows = 1  # type: ignore[misc]
    assert isinstance(PLAN, TrainingPlan)
