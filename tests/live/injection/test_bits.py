from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rmetric.errors import UserError
from rmetric.live.injection.bits import FORMATS, bit_like_float32, flip_bit, float_format, read_bit, write_bit

SINGLE = FORMATS[torch.float32]


@pytest.mark.parametrize("dtype", list(FORMATS))
def test_the_layout_adds_up_to_the_width_of_the_type(dtype: torch.dtype) -> None:
    layout = float_format(dtype)
    assert layout.bits == torch.finfo(dtype).bits == torch.iinfo(layout.integer).bits
    assert torch.finfo(dtype).eps == 2.0**-layout.mantissa
    assert str(dtype) == f"torch.{layout.name}"


@pytest.mark.parametrize("dtype", list(FORMATS))
def test_what_each_kind_of_bit_does_to_one(dtype: torch.dtype) -> None:
    layout = float_format(dtype)
    sign, top, lowest_exponent = layout.bits - 1, layout.bits - 2, layout.mantissa
    # The exponent of 1 is all ones below its top bit.
    expected = {
        sign: -1.0,
        top: math.inf,
        lowest_exponent: 0.5,
        layout.mantissa - 1: 1.5,
        0: 1.0 + 2.0**-layout.mantissa,
    }
    parts = {sign: "sign", top: "exponent", lowest_exponent: "exponent", layout.mantissa - 1: "mantissa", 0: "mantissa"}
    for bit, after in expected.items():
        ones = torch.ones(3, 2, dtype=dtype)
        flip = flip_bit(ones, (1, 1), bit)
        assert (flip.bit, flip.part, flip.before, flip.after) == (bit, parts[bit], 1.0, after)
        assert ones[1, 1].item() == after
        assert (ones == 1.0).sum() == 5


@given(st.floats(width=32, allow_nan=False), st.integers(0, 31))
def test_a_flip_changes_that_bit_alone_and_a_second_one_takes_it_back(value: float, bit: int) -> None:
    tensor = torch.tensor([value], dtype=torch.float32)
    flip_bit(tensor, (0,), bit)
    changed = tensor.numpy().view(np.uint32)[0] ^ np.array([value], dtype=np.float32).view(np.uint32)[0]
    assert int(changed) == 1 << bit
    flip_bit(tensor, (0,), bit)
    assert tensor.numpy().tobytes() == np.array([value], dtype=np.float32).tobytes()


def test_the_right_element_is_hit_whatever_the_strides() -> None:
    base = torch.zeros(4, 6)
    flip_bit(base.t()[1:, ::2], (2, 1), 30)
    assert torch.nonzero(base).tolist() == [[2, 3]]
    assert base[2, 3] == 2.0
    single = torch.tensor(1.0)
    flip_bit(single, (), 31)
    assert single == -1.0


def test_a_parameter_is_changed_out_of_sight_of_autograd() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    flip_bit(parameter, (1,), 31)
    assert parameter.tolist() == [1.0, -1.0]
    assert parameter.is_leaf
    assert parameter.grad_fn is None


def test_a_bit_is_written_only_where_it_has_another_value() -> None:
    tensor = torch.tensor([1.0, -1.0])
    assert [read_bit(tensor, (index,), 31) for index in (0, 1)] == [False, True]
    assert write_bit(tensor, (1,), 31, True) is None
    flip = write_bit(tensor, (0,), 31, True)
    assert (flip.before, flip.after) == (1.0, -1.0)
    assert tensor.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("bit", [-1, 16])
def test_a_bit_beyond_the_width_is_refused(bit: int) -> None:
    with pytest.raises(UserError, match=f"bfloat16 numbers have no bit {bit}; choose 0 to 15"):
        flip_bit(torch.ones(1, dtype=torch.bfloat16), (0,), bit)


def test_integers_have_no_such_bits() -> None:
    with pytest.raises(UserError, match="int64 numbers cannot be flipped; choose one of float64, float32"):
        flip_bit(torch.ones(1, dtype=torch.int64), (0,), 3)


# --- the same bit in another type ------------------------------------------------------------------------------------


def test_a_bfloat16_number_is_the_upper_half_of_a_float32_number() -> None:
    assert [bit_like_float32(bit, torch.bfloat16) for bit in range(16, 32)] == list(range(16))
    for bit in range(16):
        with pytest.raises(UserError, match=f"bfloat16 numbers have no mantissa bit as low as {bit}; choose bit 16"):
            bit_like_float32(bit, torch.bfloat16)


def test_a_float32_number_has_its_own_bits() -> None:
    assert [bit_like_float32(bit, torch.float32) for bit in range(32)] == list(range(32))


@pytest.mark.parametrize("dtype", list(FORMATS))
@pytest.mark.parametrize("bit", range(32))
def test_the_counterpart_does_the_same(bit: int, dtype: torch.dtype) -> None:
    try:
        own = bit_like_float32(bit, dtype)
    except UserError:
        layout = float_format(dtype)
        from_top = 22 - bit if bit < 23 else 30 - bit
        assert from_top >= (layout.mantissa if bit < 23 else layout.exponent)
        return
    assert float_format(dtype).part(own) == SINGLE.part(bit)
    if bit < 23:  # the same share of the number
        changed, like = torch.ones(1, dtype=dtype), torch.ones(1)
        flip_bit(changed, (0,), own)
        flip_bit(like, (0,), bit)
        assert changed.item() == like.item()


@pytest.mark.parametrize(("bit", "lowest"), [(3, 13), (24, 26)])
def test_float16_says_which_bits_it_has(bit: int, lowest: int) -> None:
    with pytest.raises(UserError, match=f"float16 numbers have no .* as low as {bit}; choose bit {lowest} or above"):
        bit_like_float32(bit, torch.float16)
    assert bit_like_float32(lowest, torch.float16) in (0, 10)


@pytest.mark.parametrize("bit", [-1, 32])
def test_no_float32_number_has_that_bit(bit: int) -> None:
    with pytest.raises(UserError, match=f"a float32 number has no bit {bit}"):
        bit_like_float32(bit, torch.float32)
