"""What shapes and types the forms of tcgen05.mma have (PTX 9.7.16.2.1, Table 39; SEMANTICS G15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.arith.types import DType, bf16, e4m3, e5m2, f16, f32, s8, s32, tf32, u8
from tilesim.ir.memory import View
from tilesim.ir.tmem import TmemView

CtaGroup = Literal[1, 2]
Kind = Literal["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"]
#: elements of 4 and 6 bits, of which sixteen begin each 16 bytes of shared memory
Narrow = Literal["e2m1", "e2m3", "e3m2"]
#: the kinds that have them next to 8-bit elements
NARROW_KINDS: tuple[Kind, ...] = ("f8f6f4", "mxf8f6f4")

#: bytes of one row of A that an instruction consumes, for every kind (G15)
ROW_BYTES = 32
INPUTS: dict[Kind, tuple[DType, ...]] = {
    "f16": (f16, bf16), "tf32": (tf32,), "f8f6f4": (e4m3, e5m2), "i8": (s8, u8),
    "mxf8f6f4": (e4m3, e5m2), "mxf4": (u8,), "mxf4nvf4": (u8,),
}  # fmt: skip
ACCUMULATORS: dict[Kind, tuple[DType, ...]] = {
    "f16": (f32, f16), "tf32": (f32,), "f8f6f4": (f32, f16), "i8": (s32,),
    "mxf8f6f4": (f32,), "mxf4": (f32,), "mxf4nvf4": (f32,),
}  # fmt: skip
#: scale factors per row and instruction of the block-scaled kinds (``.scale_vec``)
SCALE_VECTORS: dict[Kind, tuple[int, ...]] = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (4, 2)}
#: columns of tensor memory with the sparsity metadata of one instruction
METADATA_COLUMNS: dict[Kind, int] = {"f16": 1, "tf32": 1, "f8f6f4": 2, "i8": 2}
WS_ROWS = (32, 64, 128)
WS_COLUMNS = (64, 128, 256)
#: what ``scale-input-d`` can be
_LARGEST_SCALE = 15
#: 32-bit words of ``disable-output-lane`` per CTA
_LANE_WORDS = 4


def either(numbers: tuple[int, ...]) -> str:
    """``64 or 128``."""
    return " or ".join(map(str, numbers))


def type_problems(
    kind: Kind, d: TmemView, a: View | TmemView, b: View,
    narrow: tuple[Narrow | None, Narrow | None],
) -> Iterator[str]:  # fmt: skip
    """Element types that the kind does not combine."""
    for name, operand, type_ in (("A", a, narrow[0]), ("B", b, narrow[1])):
        if type_ is not None:
            yield from _narrow_problems(kind, name, operand, type_)
        elif operand.dtype not in INPUTS[kind]:
            yield f"kind::{kind} has no {operand.dtype} inputs ({name})"
    if kind == "f16" and a.dtype != b.dtype:
        yield f"A is {a.dtype}, B is {b.dtype}"
    if isinstance(a, TmemView) and not a.packed:
        yield f"{a.name} is not packed: an mma reads A with its elements side by side (G14)"
    if d.dtype not in ACCUMULATORS[kind]:
        yield f"kind::{kind} does not accumulate in {d.dtype}"
    elif d.dtype is f16 and bf16 in (a.dtype, b.dtype):
        yield "kind::f16 accumulates products of bf16 in f32 only (G15)"
    if d.dtype.bits < 32 and d.packed:
        yield (
            f"{d.name} packs its {d.dtype} elements, an mma leaves each alone in its column (G14): "
            "make the view with packed=False"
        )


def _narrow_problems(
    kind: Kind, name: str, operand: View | TmemView, type_: Narrow
) -> Iterator[str]:
    """An operand of 4- or 6-bit elements."""
    if kind not in NARROW_KINDS:
        yield f"kind::{kind} has no {type_} inputs ({name})"
    elif isinstance(operand, TmemView):
        yield f"{operand.name} of {type_} in tensor memory is not modelled: put it in shared memory"
    elif operand.dtype is not u8:
        yield (
            f"{name} is {operand.dtype}: of {type_}, sixteen elements share 16 bytes, which are "
            "elements of u8 (G15)"
        )


def transpose_problems(kind: Kind, *, a: bool, b: bool) -> Iterator[str]:
    """Kinds that transpose no operands, or only in a layout tilesim lacks (Tables 49-52)."""
    if not (a or b):
        return
    if kind in ("mxf4", "mxf4nvf4"):
        yield f"kind::{kind} has no transposed operands (G15)"
    if kind == "tf32":
        yield (
            "kind::tf32 transposes only operands in the 128-byte swizzle with 32-byte atomicity, "
            "which is not modelled (G15)"
        )


def row_problems(kind: Kind, rows: int, group: CtaGroup) -> Iterator[str]:
    """Rows of A in one CTA."""
    allowed = (128,) if kind in SCALE_VECTORS and group == 1 else (64, 128)
    if rows not in allowed:
        yield f"{rows} rows per CTA, kind::{kind} has {either(allowed)} (G15)"


def column_problems(kind: Kind, n: int, group: CtaGroup) -> Iterator[str]:
    """N of the whole instruction."""
    step = (16 if kind == "i8" else 8) * group
    small = kind == "i8" and group == 1 and n in (8, 24)
    if not 8 * group <= n <= 256 or (n % step and not small):
        yield f"N = {n} is not a size of kind::{kind}.cta_group::{group} (G15)"


def transposed_column_problems(
    bits: int, n: int, group: CtaGroup, transposed: bool
) -> Iterator[str]:
    """N of a transposed B of 8-bit elements (Table 50)."""
    step = 16 * group
    if transposed and bits == 8 and n % step:
        yield f"N = {n}: with a transposed 8-bit B it is a multiple of {step} (G15)"


def input_d_problems(kind: Kind, scale: int) -> Iterator[str]:
    """``scale-input-d``."""
    if scale and kind not in ("f16", "tf32"):
        yield f"kind::{kind} has no scale-input-d, the kinds f16 and tf32 have (G14)"
    if not 0 <= scale <= _LARGEST_SCALE:
        yield f"scale-input-d is {scale}, it is from 0 to {_LARGEST_SCALE} (G14)"


def lane_mask_problems(kind: Kind, words: tuple[int, ...], group: CtaGroup) -> Iterator[str]:
    """``disable-output-lane``."""
    if not words:
        return
    if kind in SCALE_VECTORS:
        yield f"kind::{kind} has no disable-output-lane (G14)"
    if len(words) != _LANE_WORDS * group or not all(0 <= w < 1 << 32 for w in words):
        yield (
            f"disable-output-lane is {words}, .cta_group::{group} has {_LANE_WORDS * group} words "
            "of 32 bits (G14)"
        )
    elif words[:_LANE_WORDS] * group != words:
        yield (
            "disable-output-lane differs between the CTAs of the pair, which is not modelled: "
            "which half is whose is not documented"
        )
