"""Where operands lie in tensor memory, against CuTe's layouts of the same instructions.

Sources: ``cute/atom/mma_traits_sm100_frag.hpp`` (D, A, scale factors) and
``cute/atom/copy_traits_sm100.hpp`` (tcgen05.ld, st, cp) of CUTLASS, whose layouts are quoted in
CuTe's ``shape : stride`` notation; PTX ISA 9.7.16.10.5 for the names of the datapath layouts.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim import Builder, bf16, ds, e4m3, f32, s32, u8
from tilesim.arith.types import DType, f16
from tilesim.checker import check
from tilesim.gpu.emit import emit
from tilesim.ir.ops.tcgen05_mma import CopyMulticast, CopyShape, LoadShape
from tilesim.ir.tensor_memory import TmemView

from .tensor_cores import (
    RNG,
    Pair,
    allocate,
    barrier,
    build,
    copied,
    dump,
    fill,
    free,
    issuing,
    outputs,
    small,
)  # fmt: skip

#: a CuTe shape or stride
Tree = int | tuple[Any, ...]
UNTOUCHED = -1


def size(shape: Tree) -> int:
    return shape if isinstance(shape, int) else prod(size(part) for part in shape)


def at(index: int, shape: Tree, stride: Tree) -> int:
    """The value of the CuTe layout ``shape : stride`` at a linear (colexicographic) index."""
    if isinstance(shape, int):
        assert isinstance(stride, int)
        return index * stride
    assert isinstance(stride, tuple)
    total = 0
    for part, step in zip(shape, stride, strict=True):
        total += at(index % size(part), part, step)
        index //= size(part)
    return total


def placed(values: NDArray[Any], shape: Tree, stride: Tree, columns: int) -> NDArray[Any]:
    """The 128 x ``columns`` cells that hold ``values``, in a layout of (row, column).

    CuTe's virtual address: lane = value % 128, column = value // 128.
    """
    rows = values.shape[0]
    cells = np.full((128, columns), UNTOUCHED, dtype=values.dtype)
    for row in range(rows):
        for column in range(values.shape[1]):
            where = at(row + rows * column, shape, stride)
            cells[where % 128, where // 128] = values[row, column]
    return cells


# ---------------------------------------------------------------------- D


def marked(k: Builder, address: Any, columns: int) -> TmemView:
    """Columns full of `UNTOUCHED`, by all warps, and a hand-over."""
    whole = k.tcgen05.tensor(address, f32, (128, columns), name="whole")
    part = k.fragment("mark", f32, (128, columns), "warpgroup")
    k.tile.fill(part, UNTOUCHED)
    k.tcgen05.st(whole, part)
    k.tcgen05.wait_st()
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    return whole


def single(k: Builder, *, rows: int, lane: int) -> None:
    k.launch(warps=4)
    a, b = copied(k, "a", bf16, (rows, 16)), copied(k, "b", bf16, (32, 16))
    done, out = barrier(k, "done"), k.tensor("out", f32, (128, 32))
    address = allocate(k)
    whole = marked(k, address, 32)
    fill(k, a, b)
    with issuing(k, done):
        d = k.tcgen05.tensor(address + (lane << 16), f32, (rows, 32), name="d")
        k.tcgen05.mma(d, a[0], b[0], accumulate=0)
    dump(k, whole, out)
    free(k, address)


# tmem_frg, N_SM = 1: layout F, once in the lower lanes and once, as the next tile, 16 higher;
# layout D
@pytest.mark.parametrize(
    ("rows", "lane", "shape", "stride"),
    [
        (64, 0, ((16, 4), 32), ((1, 32), 128)),
        (64, 16, ((16, 4), 32), ((1, 32), 128)),
        (128, 0, (128, 32), (1, 128)),
    ],
)
def test_d_of_one_cta(rows: int, lane: int, shape: Tree, stride: Tree) -> None:
    a, b = small(rows, 16), small(32, 16)
    got = outputs(single, {"ga": a, "gb": b}, rows=rows, lane=lane)
    expected = np.roll(placed(a @ b.T, shape, stride, 32), lane, axis=0)
    np.testing.assert_array_equal(got["out"], expected)


@pytest.mark.parametrize(("rows", "lane"), [(64, 8), (64, 32), (128, 16)])
def test_d_starts_at_the_lanes_of_its_layout(rows: int, lane: int) -> None:
    report = check(build(single, rows=rows, lane=lane))
    assert {f.rule for f in report.findings} == {"out-of-bounds"}


def pair(
    k: Builder, *, rows: int, n: int, tensor_a: bool = False, copies: int = 2, scaled: bool = False
) -> None:
    """A product of a pair of CTAs; all of D's lanes in each; factors as the inputs place them."""
    both = Pair(k, e4m3 if scaled else bf16, rows, n)
    address, depth = both.address, both.a.shape[1]
    whole = marked(k, address, both.columns)
    left: Any = both.a
    if tensor_a:
        left = k.tcgen05.tensor(address + 96, bf16, (rows, depth), name="left")
        part = k.fragment("part", bf16, (32, depth))
        with k.if_(k.warp_id < rows // 32 * copies):
            k.tile.load(part, ga_rows(k, both.source, rows))
            k.tcgen05.st(k.tcgen05.tensor(address + 96, bf16, (128, depth)), part)
            k.tcgen05.wait_st()
    how: dict[str, Any] = {}
    if scaled:
        how = {
            name: factors(k, name, address + at) for name, at in (("scale_a", 96), ("scale_b", 112))
        }
    k.tcgen05.fence_before_thread_sync()
    k.cluster.sync()
    both.load()
    with k.if_(k.cluster_rank.eq(0)), k.one_thread(1):
        k.mbarrier.wait(both.ready, 0, scope="cluster")
        k.tcgen05.fence_after_thread_sync()
        kind: Any = "mxf8f6f4" if scaled else "f16"
        k.tcgen05.mma(whole, left, both.b, kind=kind, accumulate=0, cta_group=2, **how)
        k.tcgen05.commit(both.done, multicast=3, cta_group=2)
    k.mbarrier.wait(both.done, 0, scope="cluster")
    k.tcgen05.fence_after_thread_sync()
    dump(k, whole, both.out[k.cluster_rank])
    both.free()


def ga_rows(k: Builder, ga: Any, rows: int) -> Any:
    """The 32 rows of A for the executing warp: warps beyond the rows begin again."""
    return ga[ds(rows * k.cluster_rank + k.warp_id % (rows // 32) * 32, 32), :]


def factors(k: Builder, name: str, address: Any) -> TmemView:
    """Copies (128, 16) bytes per CTA from global memory to the same cells of tensor memory."""
    source = k.tensor(f"g{name}", u8, (2, 128, 16))
    part = k.fragment(f"f{name}", u8, (128, 16), "warpgroup")
    k.tile.load(part, source[k.cluster_rank])
    k.tcgen05.st(k.tcgen05.tensor(address, u8, (128, 16), name=name), part)
    k.tcgen05.wait_st()
    return k.tcgen05.tensor(address, u8, (32, 16), name=name)


# tmem_frg, N_SM = 2: layouts A and B
PAIRS = [(128, 32, (128, 32), (1, 128)), (64, 64, (64, (32, 2)), (1, (128, 64)))]


@pytest.mark.parametrize("tensor_a", [False, True])
@pytest.mark.parametrize(("rows", "n", "shape", "stride"), PAIRS)
def test_d_of_a_pair(rows: int, n: int, shape: Tree, stride: Tree, tensor_a: bool) -> None:
    """A in tensor memory: `TmemAllocMode::Duplicated`, lanes 0-63 again in lanes 64-127."""
    a, b = small(2 * rows, 16), small(n, 16)
    got = outputs(pair, {"ga": a, "gb": b}, rows=rows, n=n, tensor_a=tensor_a)
    for cta in range(2):
        product = a[rows * cta : rows * (cta + 1)] @ b.T
        columns = got["out"].shape[2]
        np.testing.assert_array_equal(got["out"][cta], placed(product, shape, stride, columns))


def test_a_of_a_pair_with_64_rows_lies_in_tensor_memory_twice() -> None:
    program = build(pair, rows=64, n=64, tensor_a=True, copies=1)
    found = check(program).findings
    assert {f.rule for f in found} == {"uninitialised-read"}
    assert "lanes 64..127" in found[0].message


@pytest.mark.parametrize(("rows", "n", "shape", "stride"), PAIRS)
def test_scale_factors_of_a_pair(rows: int, n: int, shape: Tree, stride: Tree) -> None:
    """tmem_sf_frg: bytes; rows of A (and of B where D is not folded) repeat in all quarters.

    4x1: (((32, MN / 32), 4), ...) : (((1, 512), 32), ...); 2x2, for B:
    (((32, MN / 2 / 32), 2, 2), ...) : (((1, 512), 64, 32), ...).
    """
    a, b = small(2 * rows, 32), small(n, 32)
    sa, sb = RNG.integers(124, 131, 2 * rows), RNG.integers(124, 131, n)
    four = ((32, -(-128 // 32)), 4), ((1, 512), 32)
    two = ((32, n // 2 // 32), 2, 2), ((1, 512), 64, 32)
    bytes_a, bytes_b = np.zeros((2, 128, 16), dtype=int), np.zeros((2, 128, 16), dtype=int)
    for cta in range(2):
        for row in range(rows):
            for repeat in range(4):
                where = at(row + 128 * repeat, *four)
                bytes_a[cta, where % 128, where // 128] = sa[rows * cta + row]
        for row in range(n):
            for repeat in range(4 if rows == 128 else 2):
                layout = four if rows == 128 else two
                where = at(row + (128 if rows == 128 else n) * repeat, *layout)
                bytes_b[cta, where % 128, where // 128] = sb[row]
    got = outputs(
        pair, {"ga": a, "gb": b, "gscale_a": bytes_a, "gscale_b": bytes_b},
        rows=rows, n=n, scaled=True,
    )  # fmt: skip
    product = (a * 2.0 ** (sa - 127)[:, None]) @ (b * 2.0 ** (sb - 127)[:, None]).T
    for cta in range(2):
        part = product[rows * cta : rows * (cta + 1)].astype(np.float32)
        columns = got["out"].shape[2]
        np.testing.assert_array_equal(got["out"][cta], placed(part, shape, stride, columns))


def tensor_a(k: Builder, *, rows: int, lane: int, d_lane: int) -> None:
    k.launch(warps=4)
    b, source = copied(k, "b", bf16, (32, 16)), k.tensor("a", bf16, (128, 16))
    done, out = barrier(k, "done"), k.tensor("out", f32, (128, 32))
    address = allocate(k)
    whole = marked(k, address, 32)
    part = k.fragment("part", bf16, (128, 16), "warpgroup")
    k.tile.load(part, source)
    k.tcgen05.st(k.tcgen05.tensor(address + 64, bf16, (128, 16), name="a"), part)
    k.tcgen05.wait_st()
    k.tcgen05.fence_before_thread_sync()
    fill(k, b)
    with issuing(k, done):
        k.tcgen05.fence_after_thread_sync()
        left = k.tcgen05.tensor(address + 64 + (lane << 16), bf16, (rows, 16), name="a")
        d = k.tcgen05.tensor(address + (d_lane << 16), f32, (rows, 32), name="d")
        k.tcgen05.mma(d, left, b[0], accumulate=0)
    dump(k, whole, out)
    free(k, address)


# tmem_frg_1sm of A: `TmemAllocMode::NonInterleaved`, the same lanes as D
@pytest.mark.parametrize("lane", [0, 16])
def test_a_of_64_rows_in_tensor_memory_has_the_lanes_of_d(lane: int) -> None:
    cells, b = small(128, 16), small(32, 16)
    got = outputs(tensor_a, {"a": cells, "gb": b}, rows=64, lane=lane, d_lane=lane)
    lanes = np.array([at(row, (16, 4), (1, 32)) + lane for row in range(64)])
    expected = np.full((128, 32), UNTOUCHED)
    expected[lanes] = cells[lanes] @ b.T
    np.testing.assert_array_equal(got["out"], expected)


def test_a_in_other_lanes_than_d_is_reported() -> None:
    report = check(build(tensor_a, rows=64, lane=16, d_lane=0))
    assert {f.rule for f in report.findings} == {"out-of-bounds"}
    assert "A of tcgen05.mma starts at lane 16 and D at lane 0" in report.findings[0].message


# ---------------------------------------------------------------------- cp


def copy(k: Builder, *, shape: CopyShape, multicast: CopyMulticast | None, rows: int, width: int,
         lane: int = 0) -> None:  # fmt: skip
    k.launch(warps=4)
    source = copied(k, "source", s32, (rows, width), 32 if width == 8 else 0)
    done, out, address = barrier(k, "done"), k.tensor("out", s32, (128, width)), allocate(k)
    whole = k.tcgen05.tensor(address, s32, (128, width), name="whole")
    part = k.fragment("mark", s32, (128, width), "warpgroup")
    k.tile.fill(part, UNTOUCHED)
    k.tcgen05.st(whole, part)
    k.tcgen05.wait_st()
    k.tcgen05.fence_before_thread_sync()
    fill(k, source)
    with issuing(k, done):
        k.tcgen05.fence_after_thread_sync()
        d = k.tcgen05.tensor(address + (lane << 16), s32, (rows, width), name="d")
        k.tcgen05.cp(d, source[0], shape, multicast=multicast)
    dump(k, whole, out)
    free(k, address)


# the lanes that row r is copied to: (row, copies) : strides, from the ValID of each trait
@pytest.mark.parametrize(
    ("shape", "multicast", "rows", "width", "lanes", "strides", "first"),
    [
        ("128x256b", None, 128, 8, (128, 1), (1, 0), 0),  # SM100_UTCCP_128dp256bit
        ("128x128b", None, 128, 4, (128, 1), (1, 0), 0),  # SM100_UTCCP_128dp128bit
        ("4x256b", None, 4, 8, (4, 1), (32, 0), 0),  # SM100_UTCCP_4dp256bit
        ("4x256b", None, 4, 8, (4, 1), (32, 0), 31),  # which refreshes the last lanes
        ("32x128b", "warpx4", 32, 4, (32, 4), (1, 32), 0),  # SM100_UTCCP_4x32dp128bit
        ("64x128b", "warpx2::02_13", 64, 4, (64, 2), (1, 64), 0),  # ..._2x64dp128bitlw0213
        ("64x128b", "warpx2::01_23", 64, 4, ((32, 2), 2), ((1, 64), 32), 0),  # ...lw0123
    ],
)
def test_copies_go_to_the_lanes_of_their_trait(
    shape: CopyShape, multicast: CopyMulticast | None, rows: int, width: int, lanes: Tree,
    strides: Tree, first: int,
) -> None:  # fmt: skip
    source = small(rows, width)
    got = outputs(
        copy, {"gsource": source}, shape=shape, multicast=multicast, rows=rows, width=width,
        lane=first,
    )  # fmt: skip
    expected = np.full((128, width), UNTOUCHED)
    for index in range(size(lanes)):
        expected[first + at(index, lanes, strides)] = source[index % rows]
    np.testing.assert_array_equal(got["out"], expected)


# ---------------------------------------------------------------------- ld and st

#: of one .x1: the layout (thread, bit) -> bit of the accessed rows, the bits of a row, and the
#: registers of a thread (SM100_TMEM_LOAD_*1x)
TRAITS: dict[LoadShape, tuple[Tree, Tree, int, int]] = {
    "32x32b": ((32, 32), (32, 1), 32, 1),
    "16x64b": (((2, 2, 8), 32), ((512, 32, 64), 1), 64, 1),
    "16x128b": (((4, 8), (32, 2)), ((32, 128), (1, 1024)), 128, 2),
    "16x256b": (((4, 8), (64, 2)), ((64, 256), (1, 2048)), 256, 4),
    "16x32bx2": (((16, 2), 32), ((64, 32), 1), 64, 1),
}


def held(shape: LoadShape, thread: int, register: int) -> tuple[int, int]:
    """(row, 32-bit column) of the accessed cells that a register of an .x1 holds."""
    layout, stride, row_bits, _ = TRAITS[shape]
    bit = at(thread + 32 * 32 * register, layout, stride)
    return bit // row_bits, bit % row_bits // 32


def moved(k: Builder, *, shape: LoadShape, columns: int, half: int) -> None:
    k.launch(warps=4)
    rows = 32 if shape in ("32x32b", "16x32bx2") else 16
    source = k.tensor("source", s32, (4, rows, columns))
    out, address = k.tensor("out", s32, (128, 32)), allocate(k)
    whole = k.tcgen05.tensor(address, s32, (128, 32), name="whole")
    part, mark = k.fragment("part", s32, (rows, columns)), k.fragment("mark", s32, (32, 32))
    k.tile.fill(mark, UNTOUCHED)
    k.tcgen05.st(whole, mark)
    k.tcgen05.wait_st()
    k.tile.load(part, source[k.warp_id])
    k.tcgen05.st(k.tcgen05.tensor(address, s32, (128, columns)), part, shape=shape, half_split=half)
    k.tcgen05.wait_st()
    dump(k, whole, out)
    free(k, address)


@pytest.mark.parametrize("shape", [s for s in TRAITS if s != "16x32bx2"])
def test_rows_of_a_store_are_lanes(shape: LoadShape) -> None:
    rows = 32 if shape == "32x32b" else 16
    source = small(4, rows, 16)
    got = outputs(moved, {"source": source}, shape=shape, columns=16, half=0)
    expected = np.full((4, 32, 32), UNTOUCHED)
    expected[:, :rows, :16] = source
    np.testing.assert_array_equal(got["out"].reshape(4, 32, 32), expected)


@pytest.mark.parametrize("half", [4, 12])
def test_a_split_store_goes_twice_to_the_same_16_lanes(half: int) -> None:
    """PTX 9.7.16.8.3: the second access is at taddr + immHalfSplitoff; threads 16-31 make it."""
    source = small(4, 32, 4)
    got = outputs(moved, {"source": source}, shape="16x32bx2", columns=4, half=half)
    expected = np.full((4, 32, 32), UNTOUCHED)
    for thread in range(32):
        lane, second = held("16x32bx2", thread, 0)
        expected[:, lane, second * half : second * half + 4] = source[:, thread]
    np.testing.assert_array_equal(got["out"].reshape(4, 32, 32), expected)


def test_a_split_load_reads_what_the_split_store_left() -> None:
    def program(k: Builder) -> None:
        k.launch(warps=4)
        source, out = (k.tensor(n, s32, (4, 32, 4)) for n in ("source", "out"))
        part, back = (k.fragment(n, s32, (32, 4)) for n in ("part", "back"))
        address = allocate(k)
        d = k.tcgen05.tensor(address, s32, (128, 4))
        k.tile.load(part, source[k.warp_id])
        k.tcgen05.st(d, part, shape="16x32bx2", half_split=8)
        k.tcgen05.wait_st()
        k.tcgen05.ld(back, d, shape="16x32bx2", half_split=8)
        k.tcgen05.wait_ld()
        k.tile.store(out[k.warp_id], back)
        free(k, address)

    source = small(4, 32, 4)
    np.testing.assert_array_equal(outputs(program, {"source": source})["out"], source)


def loaded(k: Builder, *, shape: LoadShape, dtype: DType, rows: int, packed: bool) -> None:
    """Loads a tile of registers and stores it: the emitted code says which thread has what."""
    k.launch(warps=4)
    out, address = k.tensor("out", dtype, (rows, 32)), allocate(k)
    part = k.fragment("part", dtype, (rows, 32), "warpgroup")
    view = k.tcgen05.tensor(address, dtype, (128, 32), packed=packed)
    k.tcgen05.ld(part, view, shape=shape, half_split=32 if shape == "16x32bx2" else 0)
    k.tcgen05.wait_ld()
    k.tile.store(out, part)
    free(k, address)


def stored(text: str, lane: int) -> list[int]:
    """Where a thread of warp 0 stores its elements in order, in elements of ``out``."""
    found = re.search(r"for \(u32 i_ = 0; i_ < (\d+); \+\+i_\) {\n(.*?)\n  }", text, re.DOTALL)
    assert found is not None
    body = found[2]
    expressions = dict(re.findall(r"const s32 (\w+) = (.*);", body))
    target = re.search(r"\(out \+ (.*)\) =", body)
    assert target is not None
    result = []
    for i in range(int(found[1])):
        values = {"warp_id": 0, "lane_id": lane, "i_": i}
        for name, expression in expressions.items():
            values[name] = eval(expression, {}, values)
        first = eval(target[1].replace("(s32)", ""), {}, values)
        result += [first, first + 1] if "Pair<" in body else [first]
    return result


@pytest.mark.parametrize(
    ("shape", "dtype", "rows", "packed"),
    [
        ("32x32b", f32, 128, True),
        ("32x32b", f16, 128, True),
        ("32x32b", f16, 128, False),
        ("16x32bx2", f32, 128, True),
        ("16x256b", f32, 64, True),
        ("16x128b", f16, 64, True),
        ("16x128b", f16, 64, False),
    ],
)
def test_emitted_loads_and_tile_code_agree_on_the_registers(
    shape: LoadShape, dtype: DType, rows: int, packed: bool
) -> None:
    """Register by register: what the trait says it holds is what the tile code takes it for."""
    text = emit(build(loaded, shape=shape, dtype=dtype, rows=rows, packed=packed)).text
    text = text[text.index('extern "C"') :]
    per_register, (_, _, row_bits, registers) = 32 // dtype.bits, TRAITS[shape]
    wide = 1 if shape == "16x32bx2" else row_bits // 32
    for thread in range(32):
        expected = []
        for register in range(32 // per_register * rows // 128):
            row, column = held(shape, thread, register % registers)
            if shape == "16x32bx2":
                row, column = row + 16 * column, 0
            column += wide * (register // registers)
            expected += [row * 32 + column * per_register + e for e in range(per_register)]
        assert stored(text, thread) == expected
