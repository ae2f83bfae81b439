"""Single bits of the numbers in a tensor: what they mean, reading them, and flipping them in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rmetric.errors import UserError

Part = Literal["mantissa", "exponent", "sign"]


@dataclass(frozen=True)
class FloatFormat:
    """Layout of a floating-point type: mantissa from bit 0 on, exponent above it, sign on top."""

    name: str
    """Name of the type in torch."""
    mantissa: int
    """Stored bits of the mantissa."""
    exponent: int
    """Bits of the exponent."""
    integer: torch.dtype
    """Signed integer type of the same width."""

    @property
    def bits(self) -> int:
        return self.mantissa + self.exponent + 1

    def part(self, bit: int) -> Part:
        """The part that a bit belongs to."""
        if bit < self.mantissa:
            return "mantissa"
        return "exponent" if bit < self.bits - 1 else "sign"


FORMATS: dict[torch.dtype, FloatFormat] = {
    torch.float64: FloatFormat("float64", 52, 11, torch.int64),
    torch.float32: FloatFormat("float32", 23, 8, torch.int32),
    torch.float16: FloatFormat("float16", 10, 5, torch.int16),
    torch.bfloat16: FloatFormat("bfloat16", 7, 8, torch.int16),
}
"""The types whose bits can be flipped."""


@dataclass(frozen=True)
class Flip:
    """One bit that was changed in one number."""

    bit: int
    """Position in the tensor's own type, 0 is the lowest of the mantissa."""
    part: Part
    before: float
    after: float
    """The number before and after; both may be infinite or NaN."""


def float_format(dtype: torch.dtype) -> FloatFormat:
    """The layout of a type; raises :class:`UserError` for one that is not among :data:`FORMATS`."""
    if dtype not in FORMATS:
        known = ", ".join(known.name for known in FORMATS.values())
        raise UserError(f"bits of {str(dtype).removeprefix('torch.')} numbers cannot be flipped; choose one of {known}")
    return FORMATS[dtype]


def bit_like_float32(bit: int, dtype: torch.dtype) -> int:
    """The bit of a type that does what a bit of a float32 number does.

    The sign is the sign; bits of the exponent and of the mantissa are counted from their highest down. So bit 30, the
    top of the exponent, is bit 14 of both 16-bit types, and of bfloat16 numbers, which are the upper half of float32
    numbers, bit ``b`` is ``b − 16``.

    Parameters
    ----------
    bit
        In a float32 number: 0 to 22 mantissa, 23 to 30 exponent, 31 sign.
    dtype
        One of :data:`FORMATS`.

    Raises
    ------
    UserError
        For a bit that no float32 number has, or that the smaller type has no counterpart of.

    Examples
    --------
    >>> [bit_like_float32(bit, torch.float16) for bit in (31, 30, 22, 13)]
    [15, 14, 9, 0]
    """
    single, own = FORMATS[torch.float32], float_format(dtype)
    if not 0 <= bit < single.bits:
        raise UserError(
            f"a float32 number has no bit {bit}; choose 0 to 22 (mantissa), 23 to 30 (exponent) or 31 (sign)"
        )
    part = single.part(bit)
    if part == "sign":
        return own.bits - 1
    if part == "exponent":
        below_top, size, top = single.bits - 2 - bit, own.exponent, own.bits - 2
    else:
        below_top, size, top = single.mantissa - 1 - bit, own.mantissa, own.mantissa - 1
    if below_top >= size:
        lowest = bit + below_top - size + 1
        raise UserError(f"{own.name} numbers have no {part} bit as low as {bit}; choose bit {lowest} or above")
    return top - below_top


def _mask(bit: int, layout: FloatFormat) -> int:
    """The integer with this bit alone; that of the sign is negative, as signed integers have it."""
    if not 0 <= bit < layout.bits:
        raise UserError(f"{layout.name} numbers have no bit {bit}; choose 0 to {layout.bits - 1}")
    return 1 << bit if bit < layout.bits - 1 else -(1 << bit)


def read_bit(tensor: Tensor, index: tuple[int, ...], bit: int) -> bool:
    """Return whether a bit of one element is set."""
    layout = float_format(tensor.dtype)
    return bool(int(tensor.detach().view(layout.integer)[index]) & _mask(bit, layout))


def flip_bit(tensor: Tensor, index: tuple[int, ...], bit: int) -> Flip:
    """Flip one bit of one element, in place and out of sight of autograd.

    Parameters
    ----------
    tensor
        Of a type of :data:`FORMATS`, of any strides.
    index
        One number a dimension.
    bit
        Position in the tensor's own type, 0 is the lowest of the mantissa.

    Examples
    --------
    >>> ones = torch.ones(2, 3)
    >>> flip_bit(ones, (1, 2), 30)
    Flip(bit=30, part='exponent', before=1.0, after=inf)
    """
    layout = float_format(tensor.dtype)
    data = tensor.detach()
    before = float(data[index])
    data.view(layout.integer)[index] ^= _mask(bit, layout)
    return Flip(bit, layout.part(bit), before, float(data[index]))


def write_bit(tensor: Tensor, index: tuple[int, ...], bit: int, value: bool) -> Flip | None:
    """Set one bit of one element to a value, in place; what changed, or None where the bit had that value."""
    return None if read_bit(tensor, index, bit) == value else flip_bit(tensor, index, bit)
