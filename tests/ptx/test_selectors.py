"""Selectors of products by warps: which lanes and bytes hold metadata of a sparse A, and scales."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.ptx.test_check import HEAD
from tilesim.checker import check
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

#: registers of A and B, those of D with its type, and how many selectors a shape has
SPARSE = {
    "m16n8k16.row.col.f32.f16.f16.f32": (2, "%f", 4),
    "m16n8k32.row.col.f32.bf16.bf16.f32": (4, "%f", 2),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (2, "%f", 4),
    "m16n8k16.row.col.f32.tf32.tf32.f32": (4, "%f", 2),
    "m16n8k32.row.col.s32.s8.u8.s32": (2, "%r", 2),
    "m16n8k64.row.col.s32.u8.u8.s32": (4, "%r", 1),
    "m16n8k64.row.col.s32.s4.s4.s32": (2, "%r", 2),
    "m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32": (4, "%f", 1),
}
#: by kind and number of scales: the selectors of bytes
SCALED = {
    "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0": (0, 1, 2, 3),
    "m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0": (0, 2),
    "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3": (0,),
}
SET = "mov.u32 %r1, 0x44444444; mov.f32 %f1, 0f00000000; mov.u32 %r2, 1; shl.b32 %r3, %r2, 1;\n"


def verdict(product: str) -> str:
    text = f"{HEAD.format(params='').replace('sm_90a', 'sm_120a')}{SET}{product}\nret;\n}}\n"
    module = read(text, "k.ptx")
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0)
    return check(lower(module, module.entries[0], launch)).verdict


def _allowed(product: str, selectors: Sequence[int], most: int) -> None:
    """``product`` is proved with these selectors, and with no others."""
    for selector in range(most + 1):
        if selector in selectors:
            assert verdict(product.format(selector)) == "proved"
        else:
            with pytest.raises(Unsupported, match=f"a selector of {selector} is not defined"):
                verdict(product.format(selector))


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("opcode", ["mma.sp", "mma.sp::ordered_metadata"])
def test_lanes_that_hold_metadata(form: str, opcode: str) -> None:
    count, kind, number = SPARSE[form]
    inputs, sums = ",".join(["%r1"] * count), ",".join([f"{kind}1"] * 4)
    product = f"{opcode}.sync.aligned.{form} {{{sums}}}, {{{inputs}}}, {{{inputs}}}, {{{sums}}}, "
    _allowed(product.replace("{", "{{").replace("}", "}}") + "%r1, {};", range(number), 4)


@pytest.mark.parametrize("form", SCALED)
def test_lanes_and_bytes_that_hold_scales(form: str) -> None:
    sums = "{%f1,%f1,%f1,%f1}"
    product = f"mma.sync.aligned.{form} {sums}, {{%r1,%r1,%r1,%r1}}, {{%r1,%r1}}, {sums}, "
    bytes_ = SCALED[form]
    for place, allowed in enumerate((bytes_, range(2), bytes_, range(4))):
        chosen = ["{}" if place == at else "0" for at in range(4)]
        scales = f"%r1, [{chosen[0]},{chosen[1]}], %r1, [{chosen[2]},{chosen[3]}];"
        text = product.replace("{", "{{").replace("}", "}}") + scales
        _allowed(text.replace("[", "{{").replace("]", "}}"), allowed, 4)


def test_a_selector_that_is_not_known_before_it_runs() -> None:
    product = (
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f1,%f1,%f1}, {%r1,%r1}, "
        "{%r1,%r1}, {%f1,%f1,%f1,%f1}, %r1, "
    )
    assert verdict(f"{product}%r3;") == "proved"
    with pytest.raises(Unsupported, match="a selector is not a constant"):
        verdict(f"mov.u32 %r5, %tid.x;\n{product}%r5;")
