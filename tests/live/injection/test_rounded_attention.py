from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from rmetric.errors import UserError
from rmetric.live.injection.rounded_attention import RoundedAttention, RoundedFunction, Rounding, rounded_to_bf16
from rmetric.network.attention import replaced_attention, wrapped_attention
from rmetric.network.structure import attentions
from tests.live.architectures import NAMES, NO_SPECIAL, VOCABULARY, model_of, modules_of, padded, tokens

EXACT = RoundedAttention(rounding=None)


# --- the attention ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, padded()], ids=["full", "padded"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_without_rounding_it_is_the_models_own_attention(name: str, implementation: str, mask: Tensor | None) -> None:
    model = model_of(name, implementation)
    compared = 0

    def compare(
        inner: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
    ) -> tuple[Tensor, None]:
        nonlocal compared
        compared += 1
        own, ours = (tuple(part.detach().requires_grad_() for part in (query, key, value)) for _ in range(2))
        expected = inner(module, *own, mask, **options)[0]
        result = EXACT(inner, module, *ours, mask, **options)[0]
        assert result.shape == expected.shape
        assert torch.allclose(result, expected, rtol=1e-5, atol=1e-6)
        direction = torch.randn_like(expected)
        for ours_gradient, gradient in zip(
            torch.autograd.grad(result, ours, direction), torch.autograd.grad(expected, own, direction), strict=True
        ):
            assert torch.allclose(ours_gradient, gradient, rtol=1e-4, atol=1e-5)
        return expected, None

    with wrapped_attention(modules_of(model), compare):
        model(tokens(), attention_mask=mask)
    assert compared == len(attentions(model))


def test_with_rounding_it_is_near_the_models_own_and_farther_with_more_bias() -> None:
    model = model_of("tiny-mistral")
    own = model(tokens()).logits.detach()
    errors = []
    for bias in (0.0, 0.5, 8.0, 64.0):
        with replaced_attention(modules_of(model), RoundedAttention(rounding="truncate", bias_ulp=bias)):
            errors.append((model(tokens()).logits.detach() - own).norm().item() / own.norm().item())
    assert 0 < errors[0] < errors[1] < errors[2] < errors[3]
    assert errors[1] < 0.02
    assert torch.equal(model(tokens()).logits, own)


def test_probabilities_are_rounded_to_nearest_and_each_block_of_keys_with_the_bias() -> None:
    how = RoundedAttention(rounding="down", bias_ulp=2.0, block=2)
    weights, values = torch.rand(1, 1, 1, 5), torch.randn(1, 1, 5, 1)
    p, v = weights.bfloat16().float().flatten(), values.flatten()
    total = torch.zeros(1)
    for keys in ([0, 1], [2, 3], [4]):
        total = rounded_to_bf16(total + p[keys] @ v[keys], "down", 2.0)
    assert torch.equal(how.products(weights, values).flatten(), total)
    above_one, value = torch.full((1, 1, 1, 1), 1.0 + 2.0**-9), torch.full((1, 1, 1, 1), 1.0 + 2.0**-8 - 2.0**-20)
    nearest = RoundedAttention(bias_ulp=0.0)
    assert nearest.products(above_one, value).item() == 1.0  # unrounded, their product is nearer to 1 + 2⁻⁷


def test_keys_that_are_masked_add_neither_a_product_nor_a_rounding() -> None:
    how = RoundedAttention(rounding="up", bias_ulp=8.0, block=2)
    weights, values = torch.rand(1, 1, 3, 8), torch.randn(1, 1, 8, 4)
    weights[..., 2:] = 0.0
    assert torch.equal(how.products(weights, values), how.products(weights[..., :2], values[..., :2, :]))


def test_a_query_that_may_look_at_nothing_answers_zero() -> None:
    logits = torch.full((1, 1, 2, 3), -torch.inf)
    logits[..., 1, :] = torch.tensor([0.0, 1.0, 2.0])
    output = RoundedFunction.apply(logits, torch.randn(1, 1, 3, 4), None, EXACT)
    assert torch.equal(output[0, 0, 0], torch.zeros(4))
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_gradient_without_rounding_is_the_exact_one(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, values = (
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in ((1, 2, 3, 4), (1, 2, 4, 5))
    )
    kept = (torch.rand(1, 2, 3, 4, generator=generator) > share).double() / (1 - share)
    assert torch.autograd.gradcheck(lambda *inputs: RoundedFunction.apply(*inputs, kept, EXACT), (logits, values))


def test_the_rounded_output_reaches_the_gradient_through_delta() -> None:
    how = RoundedAttention(rounding="truncate", bias_ulp=8.0, block=4)
    logits, values = torch.randn(1, 2, 3, 8, requires_grad=True), torch.randn(1, 2, 8, 5)
    output = RoundedFunction.apply(logits, values, None, how)
    upstream = torch.randn_like(output)
    (gradient,) = torch.autograd.grad(output, logits, upstream)
    probabilities = logits.softmax(-1)
    (exact,) = torch.autograd.grad(probabilities @ values, logits, upstream)
    error = (upstream * (output - logits.softmax(-1) @ values)).sum(-1, keepdim=True)
    assert error.abs().max() > 0.01
    assert torch.allclose(gradient, exact - probabilities * error, atol=1e-5)


def test_dropout_drops_the_share_that_the_model_says() -> None:
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, attn_pdrop=0.5, **sizes, **NO_SPECIAL))
    used: list[Tensor] = []

    class Watched(RoundedAttention):
        def products(self, unnormalised: Tensor, values: Tensor) -> Tensor:
            used.append(unnormalised)
            return super().products(unnormalised, values)

    with replaced_attention(modules_of(model), Watched(rounding=None)):
        model.train()(tokens())
        model.eval()(tokens())
    dropped = [(part.tril() == 0).sum().item() - (part == 0).triu(1).sum().item() for part in used]
    looked_at = 2 * 4 * 24 * 25 // 2
    assert 0.4 * looked_at < dropped[0] < 0.6 * looked_at
    assert dropped[1] == 0


def test_attention_that_does_more_than_a_softmax_is_refused_in_words() -> None:
    query = torch.randn(1, 2, 3, 4)
    with pytest.raises(UserError, match="attention with softcap"):
        EXACT(lambda: None, nn.Identity(), query, query, query, None, softcap=30.0)  # type: ignore[arg-type]


# --- the rounding ----------------------------------------------------------------------------------------------------

NUMBERS = torch.cat([torch.linspace(-3.0, 3.0, 100_001), torch.tensor([1e-20, -3e30, 0.0])])


def ulps(values: Tensor) -> Tensor:
    """Distance of two neighbouring BF16 numbers at these."""
    return torch.exp2(values.abs().log2().floor() - 7)


def test_without_a_bias_it_is_torchs_own_rounding() -> None:
    assert torch.equal(rounded_to_bf16(NUMBERS, "up", 0.0), NUMBERS.bfloat16().float())


@pytest.mark.parametrize(("rounding", "sign"), [("truncate", None), ("up", 1.0), ("down", -1.0)])
@pytest.mark.parametrize("bias", [0.5, 4.0])
def test_the_error_has_the_mean_that_was_asked_for(rounding: Rounding, sign: float | None, bias: float) -> None:
    values = NUMBERS[NUMBERS.abs() > 0.01]
    rounded = rounded_to_bf16(values, rounding, bias)
    direction = -values.sign() if sign is None else torch.full_like(values, sign)
    error = direction * (rounded - values) / ulps(values)
    assert error[values.abs() < 4].mean().item() == pytest.approx(bias, rel=0.02)
    assert (error >= bias - 1.0).all()  # half a unit, of twice the size where the exponent changes
    assert torch.equal(rounded, rounded.bfloat16().float())


def test_what_is_not_finite_stays_so() -> None:
    values = torch.tensor([torch.nan, torch.inf, -torch.inf])
    for rounding in ("truncate", "up", "down"):
        assert not torch.isfinite(rounded_to_bf16(values, rounding, 0.5)).any()
