"""Forms of tcgen05 instructions that the verifier refuses, and targets that lack them."""

from __future__ import annotations

from typing import Any

import pytest

from tilesim import Builder, InvalidProgram, bf16, e4m3, f16, f32, tf32, u8, u32
from tilesim.arith.types import DType
from tilesim.checker import check
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.tensor_memory import TmemView

from .tensor_cores import allocate, build


class Operands:
    """Operands to combine wrongly."""

    def __init__(self, k: Builder) -> None:
        k.launch(warps=4)
        self.k = k
        self.address = allocate(k)
        self._tiles = 0

    def shared(self, dtype: DType, rows: int, columns: int) -> SharedTensor:
        """A tile in shared memory."""
        self._tiles += 1
        return self.k.shared(f"tile{self._tiles}", dtype, (rows, columns))

    def tensor(self, dtype: DType, rows: int, columns: int, **how: Any) -> TmemView:
        """A view of tensor memory."""
        return self.k.tcgen05.tensor(self.address, dtype, (rows, columns), **how)


def f16_packed(o: Operands) -> None:
    o.k.tcgen05.mma(o.tensor(f16, 128, 32), o.shared(f16, 128, 16), o.shared(f16, 32, 16))


def f16_of_bf16(o: Operands) -> None:
    d = o.tensor(f16, 128, 32, packed=False)
    o.k.tcgen05.mma(d, o.shared(bf16, 128, 16), o.shared(bf16, 32, 16))


def turned_tf32(o: Operands) -> None:
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 32), o.shared(tf32, 8, 128), o.shared(tf32, 32, 8), a_trans=True
    )


def turned_bytes(o: Operands) -> None:
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 24), o.shared(e4m3, 128, 32), o.shared(e4m3, 32, 24), b_trans=True
    )


def scaled_bytes(o: Operands) -> None:
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 32), o.shared(e4m3, 128, 32), o.shared(e4m3, 32, 32), scale_input_d=1
    )


def scaled_too_much(o: Operands) -> None:
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 32), o.shared(bf16, 128, 16), o.shared(bf16, 32, 16), scale_input_d=16
    )


def short_mask(o: Operands) -> None:
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 32), o.shared(bf16, 128, 16), o.shared(bf16, 32, 16),
        disable_output_lane=(1, 2),
    )  # fmt: skip


def uneven_mask(o: Operands) -> None:
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 32), o.shared(bf16, 128, 16), o.shared(bf16, 16, 16), cta_group=2,
        disable_output_lane=(1, 0, 0, 0, 0, 0, 0, 0),
    )  # fmt: skip


def masked_blocks(o: Operands) -> None:
    scale = o.tensor(u8, 32, 16)
    o.k.tcgen05.mma(
        o.tensor(f32, 128, 32), o.shared(e4m3, 128, 32), o.shared(e4m3, 32, 32), kind="mxf8f6f4",
        scale_a=scale, scale_b=scale, disable_output_lane=(0, 0, 0, 0),
    )  # fmt: skip


def dense_b(o: Operands) -> None:
    o.k.tcgen05.mma_sp(
        o.tensor(f32, 128, 32), o.shared(bf16, 128, 16), o.shared(bf16, 32, 16),
        o.tensor(u32, 128, 1),
    )  # fmt: skip


def wide_metadata(o: Operands) -> None:
    o.k.tcgen05.mma_sp(
        o.tensor(f32, 128, 32), o.shared(bf16, 128, 16), o.shared(bf16, 32, 32),
        o.tensor(u32, 128, 2),
    )  # fmt: skip


def sparse_of_64_rows(o: Operands) -> None:
    o.k.tcgen05.mma_sp(
        o.tensor(f32, 64, 32), o.shared(bf16, 64, 16), o.shared(bf16, 32, 32),
        o.tensor(u32, 128, 1),
    )  # fmt: skip


def sparse_blocks(o: Operands) -> None:
    o.k.tcgen05.mma_sp(
        o.tensor(f32, 128, 32), o.shared(u8, 128, 32), o.shared(u8, 32, 64),
        o.tensor(u32, 128, 2), kind="mxf4",
    )  # fmt: skip


def narrow_ws(o: Operands) -> None:
    o.k.tcgen05.mma_ws(o.tensor(f32, 128, 16), o.shared(bf16, 64, 16), o.shared(bf16, 32, 16))


def tall_ws(o: Operands) -> None:
    o.k.tcgen05.mma_ws(o.tensor(f32, 16, 64), o.shared(bf16, 16, 16), o.shared(bf16, 64, 16))


def unfolded_ws(o: Operands) -> None:
    o.k.tcgen05.mma_ws(o.tensor(f32, 64, 64), o.shared(bf16, 64, 16), o.shared(bf16, 64, 16))


def tensor_a_ws(o: Operands) -> None:
    o.k.tcgen05.mma_ws(o.tensor(f32, 128, 32), o.tensor(bf16, 64, 16), o.shared(bf16, 64, 16))


def ws_blocks(o: Operands) -> None:
    o.k.tcgen05.mma_ws(
        o.tensor(f32, 128, 64), o.shared(u8, 128, 32), o.shared(u8, 64, 32), kind="mxf4"
    )


def pack_of_bytes(o: Operands) -> None:
    o.k.tcgen05.ld(o.k.fragment("x", u8, (128, 8), "warpgroup"), o.tensor(u8, 128, 8, packed=False))


def split_of_too_many_rows(o: Operands) -> None:
    o.k.tcgen05.ld(
        o.k.fragment("x", f32, (16, 8)), o.tensor(f32, 128, 8), shape="16x32bx2", half_split=8
    )


def split_store_that_overlaps(o: Operands) -> None:
    o.k.tcgen05.st(
        o.tensor(f32, 128, 8), o.k.fragment("x", f32, (32, 8)), shape="16x32bx2", half_split=4
    )


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (f16_packed, "packs its f16 elements"),
        (f16_of_bf16, "accumulates products of bf16 in f32 only"),
        (turned_tf32, "128-byte swizzle with 32-byte atomicity"),
        (turned_bytes, "with a transposed 8-bit B it is a multiple of 16"),
        (scaled_bytes, "kind::f8f6f4 has no scale-input-d"),
        (scaled_too_much, "scale-input-d is 16, it is from 0 to 15"),
        (short_mask, "has 4 words of 32 bits"),
        (uneven_mask, "differs between the CTAs of the pair"),
        (masked_blocks, "kind::mxf8f6f4 has no disable-output-lane"),
        (dense_b, "A has K = 16, B 16, kind::f16 needs 16 and 32"),
        (wide_metadata, "the metadata of kind::f16 is 128 lanes x 1 columns"),
        (sparse_of_64_rows, "64 rows per CTA is not modelled"),
        (sparse_blocks, "mma.sp.kind::mxf4 is not modelled"),
        (narrow_ws, "N = 32, tcgen05.mma.ws has 64 or 128 or 256"),
        (tall_ws, "16 rows, tcgen05.mma.ws has 32 or 64 or 128"),
        (unfolded_ws, r"D is \(64, 64\), M = 64 and N = 64 need \(128, 32\)"),
        (tensor_a_ws, "64 rows of A in tensor memory is not modelled"),
        (ws_blocks, "tcgen05.mma.ws has no kind::mxf4"),
        (pack_of_bytes, "only 16-bit elements"),
        (split_of_too_many_rows, r"needs a warp's part of \(32, 8\)"),
        (split_store_that_overlaps, "both would be stored to the same columns"),
    ],
)
def test_illegal_forms_are_refused(wrong: Any, text: str) -> None:
    def program(k: Builder) -> None:
        operands = Operands(k)
        with k.one_thread():
            wrong(operands)

    with pytest.raises(InvalidProgram, match=text):
        check(build(program))


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("form", ["mma", "mma_sp", "mma_ws", "shift", "ld"])
def test_targets_without_tensor_memory_refuse_every_instruction(form: str, target: str) -> None:
    k = Builder("kernel", target=target)
    k.launch(warps=4)
    d = k.tcgen05.tensor(0, f32, (128, 64), name="d")
    a, b = k.shared("a", f16, (128, 16)), k.shared("b", f16, (64, 16))
    match form:
        case "mma":
            k.tcgen05.mma(d, a, b)
        case "mma_sp":
            twice = k.shared("twice", f16, (64, 32))
            k.tcgen05.mma_sp(d, a, twice, k.tcgen05.tensor(0, u32, (128, 1)))
        case "mma_ws":
            k.tcgen05.mma_ws(d, a, b)
        case "shift":
            k.tcgen05.shift(d[0:32, 0:8])
        case "ld":
            k.tcgen05.ld(k.fragment("x", f32, (128, 64), "warpgroup"), d)
    with pytest.raises(InvalidProgram) as caught:
        check(k.finish())
    assert {d.rule for d in caught.value.diagnostics} == {"target"}
    assert f"{target} has no tcgen05.{form.replace('_', '.')}" in str(caught.value)
