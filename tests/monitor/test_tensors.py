"""Tensors compared bit for bit."""

from __future__ import annotations

import pytest
import torch

from rmetric.monitor.tensors import bits, differing, relative_difference


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_nan_equals_itself_and_zeros_of_different_signs_differ(dtype: torch.dtype) -> None:
    nan, zero = torch.tensor([1.0, torch.nan], dtype=dtype), torch.tensor([0.0, 1.0], dtype=dtype)
    assert differing([nan, zero], [nan.clone(), zero.clone()]) == []
    assert differing([nan, zero], [nan.clone(), -zero]) == [1]


def test_one_bit_is_enough() -> None:
    one = torch.randn(50)
    other = one.clone()
    bits(other)[17] ^= 1
    assert differing([one, one], [one, other]) == [1]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_whole_numbers_of_every_kind_are_integers_that_can_be_worked_with(dtype: torch.dtype) -> None:
    tensor = torch.tensor([0, 1], dtype=dtype)
    changed = bits(tensor)
    changed[0] ^= 1
    assert (changed & (changed - 1)).tolist() == [0, 0]
    assert tensor.tolist() == [1, 1]


def test_another_shape_or_type_differs() -> None:
    one = torch.ones(4)
    assert differing([one, one, one], [torch.ones(2, 2), one.double(), one]) == [0, 1]


def test_a_transposed_and_a_sparse_tensor() -> None:
    turned = torch.randn(3, 4).t()
    sparse = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([2.0]), (3,), check_invariants=True)
    assert differing([turned, sparse], [turned.clone(), sparse.clone()]) == []


def test_the_relative_difference() -> None:
    assert relative_difference(torch.tensor([3.0, 4.4]), torch.tensor([3.0, 4.0])) == pytest.approx(0.08)
    assert relative_difference(torch.tensor([torch.nan]), torch.tensor([1.0])) == float("inf")
