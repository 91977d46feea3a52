"""The tiles that matrix descriptors name, against the layouts of the ISA, element by element."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ptx.test_check import ARRIVE, WAIT, lines, report
from tilesim.checker import Report
from tilesim.ptx.descriptor import Descriptor, Layout, Swizzle, layout_of
from tilesim.ptx.launch import Scalar

START = 4096


def placed(layout: Layout, bits: int, rows: int, k: int, *, trans: bool) -> NDArray[np.int64]:
    """The address of every element, (rows, k), of a layout at `START`."""
    grid = np.meshgrid(*(np.arange(n) for n in layout.shape), indexing="ij")
    places = (g * s for g, s in zip(grid, layout.strides, strict=True))
    linear: NDArray[np.int64] = np.sum(list(places), axis=0) * (bits // 8) + START
    mask = layout.swizzle // 16 - 1 if layout.swizzle else 0
    swizzled = linear ^ ((linear >> 7 & mask) << 4)
    if len(layout.shape) == 4:
        a, b, c, d = layout.shape
        matrix = swizzled.reshape(a * b, c * d)
    elif len(layout.shape) == 3:
        matrix = np.swapaxes(swizzled, 0, 1).reshape(layout.shape[1], -1)
    else:
        matrix = swizzled
    return matrix.T if trans else matrix


def addresses(form: Descriptor, bits: int, rows: int, k: int, *, trans: bool) -> NDArray[np.int64]:
    """The address of every element, (rows, k), straight from the ISA's canonical layouts.

    Core matrices of 8 rows by 16 bytes; K-major: 8-row groups are ``stride`` apart, and without
    swizzle the 16-byte columns ``leading``. MN-major: see `layout_of`; without swizzle the 16-byte
    columns along MN are ``stride`` apart and 8-row groups along K ``leading``.
    """
    size = bits // 8
    r, c = np.meshgrid(np.arange(rows), np.arange(k), indexing="ij")
    mn, kk = r.astype(np.int64), c.astype(np.int64)
    if not trans:
        group, row, byte = mn // 8, mn % 8, kk * size
        if form.swizzle:
            linear = group * form.stride + row * form.swizzle + byte
        else:
            linear = group * form.stride + row * 16 + byte // 16 * form.leading + byte % 16
    else:
        byte, group, row = mn * size, kk // 8, kk % 8
        if form.swizzle:
            block, inside = byte // form.swizzle, byte % form.swizzle
            linear = block * form.leading + group * form.stride + row * form.swizzle + inside
        else:
            linear = byte // 16 * form.stride + group * form.leading + row * 16 + byte % 16
    return _swizzled(form.start + linear, form.swizzle)


def _swizzled(address: NDArray[np.int64], swizzle: int) -> NDArray[np.int64]:
    mask = swizzle // 16 - 1 if swizzle else 0
    return address ^ ((address >> 7 & mask) << 4)


FORMS: tuple[tuple[Swizzle, int], ...] = (
    (0, 128), (0, 256), (32, 256), (64, 512), (128, 1024), (128, 2048), (32, 1024),
)  # fmt: skip


@pytest.mark.parametrize(("swizzle", "stride"), FORMS)
@pytest.mark.parametrize("leading", [128, 2048])
def test_every_element_lies_where_the_isa_says(swizzle: Swizzle, stride: int, leading: int) -> None:
    for (bits, k), rows, trans in product(((16, 16), (8, 32), (32, 8)), (8, 64, 128), (0, 1)):
        if trans and (bits != 16 or rows * 2 % (swizzle or 16)):
            continue
        form = Descriptor(START, leading, stride, 0, swizzle)
        layout = layout_of(form, bits, rows, k, trans=bool(trans))
        assert isinstance(layout, Layout), layout
        found = placed(layout, bits, rows, k, trans=bool(trans))
        np.testing.assert_array_equal(found, addresses(form, bits, rows, k, trans=bool(trans)))


#: B has two core matrices, 256 bytes apart; A is dense from byte 1024 on; neither is swizzled
PRODUCT = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.s32 %r4, %r1, %r3;\n"
    "st.shared.v4.b32 [%r4], {0,0,0,0}; st.shared.v4.b32 [%r4+2048], {0,0,0,0};\n"
    "fence.proxy.async.shared::cta; bar.sync 0; shr.u32 %r5, %r1, 4; and.b32 %r6, %r5, 16383;\n"
    "cvt.u64.u32 %rd1, %r6; add.s64 %rd5, %rd1, 64; and.b64 %rd2, %rd5, 16383;\n"
    f"or.b64 %rd3, %rd1, {16 << 16 | 8 << 32}; or.b64 %rd4, %rd2, {8 << 16 | 16 << 32};\n"
    "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
    "wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f5,%f6,%f7,%f8}, %rd4, %rd3, 0, 1, 1, 0, "
    "0;\nwgmma.commit_group.sync.aligned;\n@%p1 st.shared.b32 [%r1+{place}], 0;\n"
    "wgmma.wait_group.sync.aligned 0;"
)


@pytest.mark.parametrize(("inside", "outside"), [(256, 252), (124, 128), (380, 384)])
def test_a_product_reads_the_core_matrices_and_nothing_between(inside: int, outside: int) -> None:
    body = PRODUCT.replace("fence.proxy", "setp.eq.u32 %p1, %r2, 0; fence.proxy")
    wrong = report(body.replace("{place}", str(inside)), warps=4)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [7, 9]
    assert report(body.replace("{place}", str(outside)), warps=4).verdict == "proved"


#: adds a number to the lower half of B's descriptor, in a register that two instructions set: what
#: it holds is known when it runs
ADDED = (
    "ld.param.u32 %r20, [n]; add.s32 %r20, %r20, 0; mov.b64 {%r21, %r22}, %rd3;\n"
    "add.s32 %r23, %r21, %r20; "
    "mov.b64 %rd6, {%r23, %r22}; wgmma.fence"
)


def added(number: int) -> Report:
    """The report on a product after this was added to the lower half of a descriptor."""
    body = PRODUCT.replace("wgmma.fence", ADDED, 1).replace("%rd4, %rd3", "%rd4, %rd6")
    body = body.replace("@%p1 st.shared.b32 [%r1+{place}], 0;\n", "")
    values = (Scalar("n", "u32", number),)
    return report(body, warps=4, params=(".param .u32 n",), values=values)


def test_the_form_of_a_descriptor_that_is_added_to_is_looked_at_when_it_runs() -> None:
    assert added(8).verdict == "proved"
    other = added(1 << 16)
    assert other.verdict == "bounded"
    assert any("the form of a matrix descriptor" in reason for reason in other.reasons)


def test_halves_of_a_number_that_is_known_are_told_apart() -> None:
    body = (
        "mov.b64 %rd1, {number}; mov.b64 {{%r7, %r8}}, %rd1; mov.u32 %r1, smem; elect.sync "
        "_|%p0, -1;\n@%p0 mbarrier.init.shared::cta.b64 [%r1], %r8; bar.warp.sync -1;\n"
        f"{ARRIVE}{WAIT}"
    )
    assert report(body.format(number=1 << 32 | 2)).verdict == "proved"
    wrong = report(body.format(number=2 << 32 | 1))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}


def test_both_results_of_a_comparison_are_told_apart() -> None:
    body = (
        "setp.eq.and.u32 %p1|%p2, 1, {number}, 1; selp.u32 %r8, 1, 2, %p2; mov.u32 %r1, smem;\n"
        "elect.sync _|%p0, -1; @%p0 mbarrier.init.shared::cta.b64 [%r1], %r8; bar.warp.sync -1;\n"
        f"{ARRIVE}{WAIT}"
    )
    assert report(body.format(number=2)).verdict == "proved"
    assert report(body.format(number=1)).rules == {"deadlock"}
