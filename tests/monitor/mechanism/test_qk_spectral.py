"""The spectrum of updates of W_QᵀW_K in its thin form, against the explicit d × d matrices in double precision."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rmetric.errors import UserError
from rmetric.monitor.mechanism import QkSpectral, QkWeights
from rmetric.monitor.mechanism.qk_spectral import describe, update_singular_values
from rmetric.network.structure import attentions
from tests.live.architectures import NAMES, STACKED, model_of
from tests.monitor.mechanism.common import arrays_of, measured


def explicit_forms(model: nn.Module) -> list[list[tuple[Tensor, Tensor]]]:
    """(W_Q, W_K) of every head of every layer in double precision, read off the weights in another way."""
    layers = []
    for attention in attentions(model):
        size = attention.head_size
        if hasattr(attention.module, "c_attn"):
            query, key, _ = attention.module.c_attn.weight.detach().double().clone().T.chunk(3)
        else:
            query = attention.module.q_proj.weight.detach().double().clone()
            key = attention.module.k_proj.weight.detach().double().clone()
        groups = query.shape[0] // key.shape[0]
        heads = range(query.shape[0] // size)
        layers.append(
            [(query[h * size :][:size], key[h // groups * size :][:size]) for h in heads]
        )  # neighbouring query heads share a key head
    return layers


def moved(model: nn.Module, size: float) -> nn.Module:
    """A copy whose weights have changed."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return other


def changed(before: nn.Module, after: nn.Module) -> QkSpectral:
    """A monitor of one model that has become another since it looked."""
    monitor = QkSpectral(before)
    assert monitor.take() is None  # nothing to compare with yet
    before.load_state_dict(after.state_dict())
    return monitor


@pytest.mark.parametrize("name", [*NAMES, *STACKED])
def test_singular_values_are_those_of_the_explicit_matrices(name: str) -> None:
    before = model_of(name).double()
    after = moved(before, 1e-2)
    olds, news = explicit_forms(before), explicit_forms(after)
    found = arrays_of(changed(before, after))
    heads = zip(itertools.chain(*olds), itertools.chain(*news), strict=True)
    for index, ((q, k), (q_now, k_now)) in enumerate(heads):
        full = q_now.T @ k_now - q.T @ k
        first_order = (q_now - q).T @ k + q.T @ (k_now - k)
        rank = min(2 * q.shape[0], q.shape[1])
        for prefix, matrix in (("", full), ("first_order_", first_order)):
            values = np.linalg.svd(matrix.numpy(), compute_uv=False)
            shares = values[:rank] ** 2 / np.sum(values**2)
            nats = -np.sum(shares * np.log(shares))
            assert found[f"{prefix}spectral_norm"][index] == pytest.approx(values[0], rel=1e-9)
            assert found[f"{prefix}entropy"][index] == pytest.approx(nats / math.log(rank), rel=1e-9)
            assert found[f"{prefix}effective_rank"][index] == pytest.approx(math.exp(nats), rel=1e-9)
    assert index + 1 == len(found["entropy"])


@pytest.mark.parametrize("size", [1e-2, 1e-5])
@pytest.mark.parametrize("name", ["tiny-llama", "gpt2"])
def test_single_precision_is_enough_for_the_small_changes_of_training(name: str, size: float) -> None:
    before = model_of(name)
    after = moved(before, size)
    exact = arrays_of(changed(copy.deepcopy(before).double(), copy.deepcopy(after).double()))
    found = arrays_of(changed(before, after))
    for key, values in exact.items():
        assert found[key] == pytest.approx(values, rel=1e-4), key


def test_every_singular_value_of_grouped_heads() -> None:
    generator = torch.Generator().manual_seed(0)

    def drawn(heads: int) -> Tensor:
        return torch.randn(heads, 4, 20, generator=generator).double()

    query, key, a, b = drawn(6), drawn(2), 0.1 * drawn(6), 0.1 * drawn(2)
    full, first_order = update_singular_values(QkWeights(0, query, key), QkWeights(0, query + a, key + b))
    assert full.shape == first_order.shape == (6, 8)
    for head in range(6):
        k, change = key[head // 3], b[head // 3]
        explicit = (query[head] + a[head]).T @ (k + change) - query[head].T @ k
        values = torch.linalg.svdvals(explicit)
        assert full[head].tolist() == pytest.approx(values[:8].tolist(), rel=1e-9)
        assert values[8:].max() < 1e-12
        linear = torch.linalg.svdvals(a[head].T @ k + query[head].T @ change)
        assert first_order[head].tolist() == pytest.approx(linear[:8].tolist(), rel=1e-9)


def test_heads_as_wide_as_the_model() -> None:
    query, key = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    full, _ = update_singular_values(QkWeights(0, query, key), QkWeights(0, 2 * query, key))
    assert full.tolist()[0] == pytest.approx(torch.linalg.svdvals(query[0].T @ key[0]).tolist())


def test_nothing_of_the_models_width_squared_is_ever_made() -> None:
    width, shapes = 96, []

    class Shapes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            outputs = result if isinstance(result, tuple | list) else [result]
            shapes.extend(tuple(output.shape) for output in outputs if isinstance(output, Tensor))
            return result

    generator = torch.Generator().manual_seed(0)
    before, after = (QkWeights(0, *torch.randn(2, 4, 8, width, generator=generator)) for _ in range(2))
    with Shapes():
        full, _ = update_singular_values(before, after)
    assert full.shape == (4, 16)
    assert shapes and not [shape for shape in shapes if shape.count(width) > 1]


def test_spectra_whose_entropy_is_known() -> None:
    even, one = torch.full((8,), 1e-25), torch.tensor([3.0] + [0.0] * 7)
    spectra = describe(torch.stack([even, one, torch.zeros(8)]))
    assert spectra["entropy"].tolist()[:2] == pytest.approx([1.0, 0.0])
    assert spectra["effective_rank"].tolist()[:2] == pytest.approx([8.0, 1.0])
    assert spectra["spectral_norm"].tolist() == pytest.approx([1e-25, 3.0, 0.0])
    assert spectra["entropy"][2].isnan() and spectra["effective_rank"][2].isnan()


def test_the_worst_head_is_named_and_one_that_did_not_change_is_not_it() -> None:
    model = model_of("tiny-llama").double()
    after = copy.deepcopy(model)
    with torch.no_grad():
        after.model.layers[1].self_attn.q_proj.weight[32:48] += 0.1  # query head 2 alone
        after.model.layers[1].self_attn.q_proj.weight[0] += 0.5  # one row of query head 0: rank one
    seen = measured(changed(model, after))
    assert seen.worst["qk_entropy"] == "layer 1, head 0"
    assert seen.values["qk_entropy"] == pytest.approx(0.0, abs=1e-9)
    assert seen.values["qk_effective_rank"] == pytest.approx(1.0)
    assert seen.details["spectral_norm"][0].tolist() == [0.0] * 4


@pytest.mark.parametrize("part", ["self_attn", "encoder_attn"])
def test_a_change_in_a_later_stack_is_seen_where_it_is(part: str) -> None:
    model = model_of("bart").double()
    monitor = QkSpectral(model)
    monitor.take()
    attention = getattr(model.model.decoder.layers[2], part)
    before = attention.q_proj.weight.detach().clone()
    with torch.no_grad():
        attention.q_proj.weight[8:16] *= 2.0  # head 1
    seen = measured(monitor)
    largest = torch.linalg.matrix_norm(before[8:16].T @ attention.k_proj.weight.detach()[8:16], 2)
    assert seen.values["qk_spectral_norm"] == pytest.approx(float(largest), rel=1e-9)
    assert {*seen.worst.values()} == {f"layer model.decoder.layers.2.{part}, head 1"}
    assert [len(row) for row in seen.details["entropy"]] == [4] * 8


def test_without_any_change_there_is_no_entropy_and_a_norm_of_zero() -> None:
    monitor = QkSpectral(model_of("tiny-llama"))
    monitor.take()
    assert measured(monitor).values == {"qk_spectral_norm": 0.0}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_told_and_hides_no_other_head(bad: float) -> None:
    model = model_of("tiny-llama")
    after = moved(model, 1e-2)
    with torch.no_grad():
        after.model.layers[0].self_attn.q_proj.weight[17, 3] = bad  # head 1
    seen = measured(changed(model, after))
    assert {name: math.isfinite(value) for name, value in seen.values.items()} == dict.fromkeys(
        QkSpectral.measures, False
    )
    assert {*seen.worst.values()} == {"layer 0, head 1"}
    assert np.isfinite(seen.details["entropy"]).sum() == 7


def test_weights_may_be_given_by_a_callable() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Parameter(torch.randn(2, 12, 10, generator=torch.Generator().manual_seed(0)).double())

    def read(model: nn.Module) -> list[QkWeights]:
        return [QkWeights(7, model.both[0].unflatten(0, (3, 4)), model.both[1].unflatten(0, (3, 4)))]

    model = Mine()
    monitor = QkSpectral(model, weights=read)
    monitor.take()
    query, key = model.both.detach().clone()
    with torch.no_grad():
        model.both[0] *= 1.5
    seen = measured(monitor)
    largest = max(0.5 * np.linalg.norm((query[h : h + 4].T @ key[h : h + 4]).numpy(), 2) for h in (0, 4, 8))
    assert seen.values["qk_spectral_norm"] == pytest.approx(largest)
    assert seen.worst["qk_entropy"].startswith("layer 7, head ")


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks
def test_low_rank_adapters_count() -> None:
    peft = pytest.importorskip("peft")
    model = model_of("tiny-llama").double()
    before = explicit_forms(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj"])).double()
    monitor = QkSpectral(adapted)
    monitor.take()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5))
    found = arrays_of(monitor)
    after = explicit_forms(adapted.merge_and_unload())
    q, k = before[1][3]
    q_now, k_now = after[1][3]
    expected = np.linalg.norm((q_now.T @ k_now - q.T @ k).numpy(), 2)
    assert found["spectral_norm"].reshape(2, 4)[1, 3] == pytest.approx(expected, rel=1e-9)
    assert expected > 0


def test_what_has_no_attention_is_refused_in_words() -> None:
    told = r"^the spectrum of queries and keys needs attention .* Linear has none; .* QkSpectral\(model, weights=…\)$"
    with pytest.raises(UserError, match=told):
        QkSpectral(nn.Linear(2, 2))


def test_quantised_weights_are_refused_in_words() -> None:
    model = model_of("tiny-llama")
    packed = nn.Parameter(torch.zeros(2048, 1, dtype=torch.uint8), requires_grad=False)
    model.model.layers[0].self_attn.q_proj.weight = packed
    with pytest.raises(UserError, match="is it quantised"):
        QkSpectral(model)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks
@pytest.mark.parametrize(
    ("kind", "options"),
    [("LoHaConfig", {}), ("IA3Config", {"feedforward_modules": []}), ("LoraConfig", {"use_dora": True})],
)
def test_adapters_that_are_no_low_rank_sum_are_refused_in_words(kind: str, options: dict[str, Any]) -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model_of("tiny-llama"), getattr(peft, kind)(target_modules=["q_proj"], **options))
    with pytest.raises(UserError, match=r"layers.0.self_attn.q_proj is adapted by .*; leave this monitor out"):
        QkSpectral(adapted)


def test_a_projection_without_a_weight_is_refused_in_words() -> None:
    model = model_of("tiny-llama")
    model.model.layers[1].self_attn.k_proj.weight = None
    with pytest.raises(UserError, match=r"model.layers.1.self_attn.k_proj has no weight \(is it quantised\?\)"):
        QkSpectral(model)
