"""The verifier: each rejection with its rule and line, and the accepted twin."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tilesim import Builder, InvalidProgram, address_of, bf16, ds, f32, pred, s32, u8, u32, view_at
from tilesim.errors import Diagnostic
from tilesim.ir.declarations import Distribution
from tilesim.ir.expr import Var
from tilesim.ir.verify import diagnose, verify

Write = Callable[[Builder], None]


@dataclass(frozen=True)
class Wrong:
    """A kernel that must be rejected: rule, part of the message; the line is marked ``# here``."""

    rule: str
    message: str
    write: Callable[[Builder, bool], None]


WRONG: list[Wrong] = []


def wrong(rule: str, message: str) -> Callable[[Callable[[Builder, bool], None]], None]:
    """Adds a row; the function gets False for the defect and True for its accepted twin."""

    def add(write: Callable[[Builder, bool], None]) -> None:
        WRONG.append(Wrong(rule, message, write))

    return add


def diagnostics(row: Wrong, *, right: bool) -> tuple[Diagnostic, ...]:
    builder = Builder(row.write.__name__)
    try:
        row.write(builder, right)
    except InvalidProgram as error:
        return error.diagnostics
    return diagnose(builder.finish())


def marked_line(row: Wrong) -> int:
    lines, first = inspect.getsourcelines(row.write)
    marked = [n for n, text in enumerate(lines) if "# here" in text]
    assert len(marked) == 1, row.write.__name__
    return first + marked[0]


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.write.__name__)
def test_defect_is_rejected_where_it_is(row: Wrong) -> None:
    found = diagnostics(row, right=False)
    assert [d.rule for d in found] == [row.rule], found
    assert row.message in found[0].message
    assert found[0].loc.line == marked_line(row)


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.write.__name__)
def test_twin_is_accepted(row: Wrong) -> None:
    assert diagnostics(row, right=True) == ()


def test_verify_raises_with_every_problem() -> None:
    k = Builder("two")
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 0)
        k.mbarrier.arrive(b, 1 << 20)
    with pytest.raises(InvalidProgram) as caught:
        verify(k.finish())
    assert len(caught.value.diagnostics) == 2
    assert "outside 1..1048575" in str(caught.value)


# ---------------------------------------------------------------- launch


def test_launch_shape_is_reported_where_it_is_said() -> None:
    for shape in ({"warps": 33}, {"warps": 0}, {"grid": (1, 65536)}, {"registers": 257}):
        k = Builder("shape")
        k.launch(**shape)
        (problem,) = diagnose(k.finish())
        assert problem.rule == "launch"
        assert problem.loc.line == k.loc.line + 1


def test_cluster_must_divide_the_grid_and_fit_the_target() -> None:
    k = Builder("cluster")
    k.launch(grid=3, cluster=2)
    assert "not a multiple of the cluster's 2" in diagnose(k.finish())[0].message
    k.launch(grid=32, cluster=32)
    assert "at most 16" in diagnose(k.finish())[0].message
    k.launch(grid=32, cluster=16)
    assert diagnose(k.finish()) == ()


def test_registers_of_all_warps_fit_the_sm() -> None:
    k = Builder("registers")
    k.launch(warps=8, registers=256)
    assert diagnose(k.finish()) == ()
    k.launch(warps=12, registers=176)
    assert "an SM has 65536" in diagnose(k.finish())[0].message
    k.launch(registers=168)
    assert diagnose(k.finish()) == ()


@wrong("out-of-bounds", "sm_90a has 232448 bytes")
def more_than_227_kib(k: Builder, right: bool) -> None:
    k.shared("stages", bf16, (7 if right else 8, 256, 64), swizzle=128)  # here


@wrong("out-of-bounds", "the launch requests smem_bytes = 4096")
def swizzle_atoms_beyond_what_was_requested(k: Builder, right: bool) -> None:
    """64 rows of 16 bytes take 8 KiB under a 128-byte swizzle: rows are padded to its width."""
    k.launch(smem_bytes=8192 if right else 4096)
    k.shared("tile", bf16, (64, 8), swizzle=128)  # here


# ---------------------------------------------------------------- declarations


@wrong("operand", "128-byte rows do not fit a 64-byte swizzle")
def rows_wider_than_the_swizzle(k: Builder, right: bool) -> None:
    k.shared("tile", bf16, (64, 32 if right else 64), swizzle=64)  # here


@wrong("operand", "repeats every 1024 bytes")
def swizzled_tensor_off_its_pattern(k: Builder, right: bool) -> None:
    k.shared("tile", bf16, (8, 64), swizzle=128, align=128, offset=1024 if right else 512)  # here


@wrong("operand", "is not 256-byte aligned")
def offset_off_its_alignment(k: Builder, right: bool) -> None:
    k.shared("tile", f32, (8,), align=256, offset=256 if right else 128)  # here


@wrong("operand", "alignment 48 is not a power of two")
def odd_alignment(k: Builder, right: bool) -> None:
    k.shared("tile", f32, (8,), align=32 if right else 48)  # here


@wrong("operand", "not 8-byte aligned")
def barrier_off_its_alignment(k: Builder, right: bool) -> None:
    k.mbarriers("b", offset=8 if right else 4)  # here


@wrong("operand", "row pitch 32 bytes cannot hold rows of 64 bytes")
def pitch_smaller_than_a_row(k: Builder, right: bool) -> None:
    k.shared("tile", f32, (4, 16), pitch=80 if right else 32)  # here


@wrong("operand", "predicates are not stored in memory")
def predicate_tensor(k: Builder, right: bool) -> None:
    k.tensor("flags", s32 if right else pred, (4,))  # here


@wrong("operand", "extents must be positive")
def empty_tensor(k: Builder, right: bool) -> None:
    k.tensor("x", f32, (4, 4 if right else 0))  # here


@wrong("operand", "row is one row, which every warp of the warpgroup would store")
def store_of_a_row_that_all_warps_hold(k: Builder, right: bool) -> None:
    row = k.fragment("row", f32, (64 if right else 1, 8), "warpgroup")
    out = k.tensor("out", f32, (64 if right else 1, 8))
    with k.role("all", range(4)):
        k.tile.fill(row, 0)
        k.tile.store(out, row)  # here


@wrong("operand", "row is one row of a warpgroup: reduce a warp fragment")
def reduction_of_a_row_that_all_warps_hold(k: Builder, right: bool) -> None:
    spread: Distribution = "warp" if right else "warpgroup"
    row, total = k.fragment("row", f32, (1, 8), spread), k.fragment("total", f32, (1, 1))
    with k.role("all", range(4)):
        k.tile.fill(row, 0)
        k.tile.reduce(total if right else row, "sum", row)  # here


@wrong("operand", "row is one row in the columns of wgmma's accumulators, x has others")
def row_of_a_warpgroup_over_a_tile_of_a_warp(k: Builder, right: bool) -> None:
    row = k.fragment("row", f32, (1, 8), "warpgroup")
    x = k.fragment("x", f32, (64, 8), "warpgroup" if right else "warp")
    with k.role("all", range(4)):
        k.tile.fill(row, 0)
        k.tile.fill(x, 0)
        k.tile.zip(x, "mul", x, row)  # here


@wrong("operand", "row is 1 x 12; on the GPU it has a multiple of 64 rows and")
def row_of_twelve_columns(k: Builder, right: bool) -> None:
    k.fragment("row", f32, (1, 8 if right else 12), "warpgroup")  # here


@wrong("operand", "a warpgroup fragment holds 64 per wgmma, or one row")
def odd_accumulator(k: Builder, right: bool) -> None:
    k.fragment("acc", f32, (64 if right else 32, 8), "warpgroup")  # here


# ---------------------------------------------------------------- tensor maps


@wrong("operand", "box extent 300 is outside 1..256")
def box_of_300_elements(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (512, 64))
    k.tensor_map(x, (256 if right else 300, 64))  # here


@wrong("operand", "8 bytes, not a multiple of 16")
def box_rows_of_8_bytes(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    k.tensor_map(x, (64, 8 if right else 4))  # here


@wrong("operand", "more than the 32-byte swizzle")
def box_rows_wider_than_the_swizzle(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    k.tensor_map(x, (64, 16 if right else 32), swizzle=32)  # here


@wrong("operand", "a stride of 20 bytes, not a multiple of 16")
def rows_not_padded_to_16_bytes(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 16 if right else 10))
    k.tensor_map(x, (64, 8))  # here


@wrong("operand", "has 3 dimensions")
def box_of_another_rank(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    k.tensor_map(x, (64, 64) if right else (1, 64, 64))  # here


@wrong("operand", "1 to 5 dimensions")
def six_dimensions(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (8,) * (5 if right else 6))
    k.tensor_map(x, (8,) * (5 if right else 6))  # here


@wrong("operand", "innermost element stride is 2")
def strided_innermost_dimension(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    k.tensor_map(x, (64, 64), element_strides=(2, 1) if right else (1, 2))  # here


@wrong("operand", "element strides (0, 1) are not 2 numbers in 1..8")
def rows_at_no_distance(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    k.tensor_map(x, (64, 64), element_strides=(2 if right else 0, 1))  # here


@wrong("operand", "element strides (1,) are not 2 numbers in 1..8")
def one_element_stride_of_two(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    k.tensor_map(x, (64, 64), element_strides=(1, 1) if right else (1,))  # here


@wrong("operand", "NaN fill of s32")
def nan_fill_of_integers(k: Builder, right: bool) -> None:
    x = k.tensor("x", f32 if right else s32, (64, 64))
    k.tensor_map(x, (64, 32), fill="nan")  # here


# ---------------------------------------------------------------- structure and names


@wrong("role", "names warp 1 twice")
def role_that_names_a_warp_twice(k: Builder, right: bool) -> None:
    with k.role("producer", [0, 1] if right else [0, 1, 1]):  # here
        k.sync_warp()


@wrong("role", "names warp 4, the CTA has 0..3")
def role_outside_the_cta(k: Builder, right: bool) -> None:
    with k.role("producer", 3 if right else 4):  # here
        k.sync_warp()


@wrong("role", "role consumer has 0, 1")
def nested_role_outside_its_parent(k: Builder, right: bool) -> None:
    with k.role("consumer", [0, 1]), k.role("leader", 1 if right else 2):  # here
        k.sync_warp()


@wrong("operand", "break outside a loop")
def stray_break(k: Builder, right: bool) -> None:
    with k.loop(3) if right else k.if_(k.warp_id < 2):
        k.break_()  # here


@wrong("operand", "step is zero")
def loop_that_never_advances(k: Builder, right: bool) -> None:
    with k.loop(0, 4, 1 if right else 0):  # here
        k.sync_warp()


@wrong("out-of-bounds", "x[0:+68] has 68 elements in dimension 0, of which there are 64")
def box_of_more_than_there_is(k: Builder, right: bool) -> None:
    x = k.tensor("x", f32, (64,))
    k.bulk.prefetch(x[ds(0, 64 if right else 68)])  # here


@wrong("out-of-bounds", "has 0 elements in dimension 0, of which there are 64")
def box_of_nothing(k: Builder, right: bool) -> None:
    x = k.tensor("x", f32, (64,))
    k.bulk.prefetch(x[ds(4 * k.cta_x, 4 if right else 0)])  # here


@wrong("out-of-bounds", "has 32 elements in dimension 0, of which there are 4")
def box_of_more_than_is_at_an_address(k: Builder, right: bool) -> None:
    x = k.tensor("x", f32, (64,))
    there = view_at(address_of(x), f32, (4,), space="global")
    k.bulk.prefetch(there[ds(0, 4 if right else 32)])  # here


@wrong("operand", "bytes beyond its address, at most 64 MiB")
def box_of_all_memory(k: Builder, right: bool) -> None:
    size, x = 1 << (20 if right else 32), k.tensor("x", u8, (1 << 20,))
    k.bulk.prefetch(view_at(address_of(x), u8, (size,), space="global")[ds(0, size)])  # here


@wrong("operand", "has 2 dimensions and strides")
def box_of_one_stride_too_many(k: Builder, right: bool) -> None:
    there = address_of(k.tensor("x", f32, (64,)))
    strides = (4, 1) if right else (16, 4, 1)
    k.bulk.prefetch(view_at(there, f32, (4, 4), space="global", strides=strides))  # here


@wrong("operand", "has 1 dimensions and strides (-1,)")
def box_that_lies_before_its_address(k: Builder, right: bool) -> None:
    there, step = address_of(k.tensor("x", f32, (64,))), 1 if right else -1
    k.bulk.prefetch(view_at(there, f32, (4,), space="global", strides=(step,)))  # here


@wrong("tmem-lifetime", "48 columns are not a power of two from 32 to 512")
def columns_that_no_allocation_has(k: Builder, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.tcgen05.alloc(slot, 64)
    k.mem.load(address, slot[0])
    k.tcgen05.dealloc(address, 64 if right else 48)  # here


@wrong("operand", "unknown barrier other")
def barrier_of_another_kernel(k: Builder, right: bool) -> None:
    b = (k if right else Builder("elsewhere")).mbarriers("other")
    with k.one_thread():
        if right:
            k.mbarrier.init(b, 1)
        k.mbarrier.wait(b, 1)  # here


@wrong("operand", "unknown variable x")
def variable_of_another_kernel(k: Builder, right: bool) -> None:
    y = k.var("y", 0)
    x = k.var("x", 1) if right else Var("x")
    k.assign(y, x)  # here


@wrong("operand", "used but never assigned")
def variable_without_a_value(k: Builder, right: bool) -> None:
    x, y = k.var("x", 1 if right else None), k.var("y", 0)
    k.assign(y, x + 1)  # here


# ---------------------------------------------------------------- instructions


@wrong("operand", "arrival count 0 is outside 1..1048575")
def barrier_of_no_arrivals(k: Builder, right: bool) -> None:
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1 if right else 0)  # here


@wrong("operand", "arrival count 1048576 is outside 1..1048575")
def barrier_of_too_many_arrivals(k: Builder, right: bool) -> None:
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, (1 << 20) - (1 if right else 0))  # here


@wrong("named-barrier", "id 16 is outside 0..15")
def seventeenth_named_barrier(k: Builder, right: bool) -> None:
    k.bar.sync(15 if right else 16)  # here


@wrong("out-of-bounds", "not 128-byte aligned")
def unaligned_box(k: Builder, right: bool) -> None:
    x = k.tensor("x", bf16, (64, 64))
    x_map = k.tensor_map(x, (8, 64))
    tile, b = k.shared("tile", bf16, (16, 64), align=64, offset=128 if right else 64), None
    b = k.mbarriers("b", offset=4096)
    with k.one_thread():
        k.mbarrier.init(b, 1)
        k.tma.load(x_map, tile[0:8], (0, 0), b)  # here


@wrong("out-of-bounds", "not 128-byte aligned")
def unaligned_box_of_one_dimension(k: Builder, right: bool) -> None:
    x = k.tensor("x", f32, (32,))
    tile, b = k.shared("tile", f32, (4, 32 if right else 4), align=16), k.mbarriers("b")
    x_map = k.tensor_map(x, (32 if right else 4,))
    k.tma.load(x_map, tile[1], (0,), b)  # here


@wrong("operand", "atom.xor exists for u32, s32, u64, s64, not f32")
def atomic_without_an_instruction(k: Builder, right: bool) -> None:
    x = k.tensor("x", s32 if right else f32, (1,))
    k.mem.atomic(x[0], "xor", 1)  # here


@wrong("operand", "the max reduction exists for u32, s32, u64, s64, f16, bf16, not f32")
def bulk_reduction_without_an_instruction(k: Builder, right: bool) -> None:
    dtype = bf16 if right else f32
    x, tile = k.tensor("x", dtype, (8,)), k.shared("tile", dtype, (8,))
    k.bulk.reduce(x, tile, "max")  # here


@wrong("operand", "the or reduction exists for u32, s32, u64, s64, not f32")
def tensor_reduction_without_an_instruction(k: Builder, right: bool) -> None:
    dtype = s32 if right else f32
    x, tile = k.tensor("x", dtype, (8, 32)), k.shared("tile", dtype, (8, 32))
    k.tma.reduce(k.tensor_map(x, (8, 32)), tile, (0, 0), "or")  # here


@wrong("operand", "must be in the executing CTA's shared memory")
def a_peers_tile_is_stored(k: Builder, right: bool) -> None:
    k.launch(grid=2, cluster=2)
    y, tile = k.tensor("Y", f32, (8, 32)), k.shared("tile", f32, (8, 32))
    source = tile if right else tile.at(1)
    k.tma.store(k.tensor_map(y, (8, 32)), source, (0, 0))  # here


@wrong("operand", "must be in the executing CTA's shared memory")
def a_peers_tile_is_reduced(k: Builder, right: bool) -> None:
    k.launch(grid=2, cluster=2)
    y, tile = k.tensor("Y", f32, (8, 32)), k.shared("tile", f32, (8, 32))
    k.tma.reduce(k.tensor_map(y, (8, 32)), tile if right else tile.at(0), (0, 0))  # here


@wrong("operand", "must be in the executing CTA's shared memory")
def a_peers_bytes_are_stored(k: Builder, right: bool) -> None:
    k.launch(grid=2, cluster=2)
    y, tile = k.tensor("Y", f32, (32,)), k.shared("tile", f32, (32,))
    k.bulk.store(y, tile if right else tile.at(k.cluster_rank))  # here


@wrong("operand", "must be in the executing CTA's shared memory")
def a_peers_bytes_are_reduced(k: Builder, right: bool) -> None:
    k.launch(grid=2, cluster=2)
    y, tile = k.tensor("Y", f32, (32,)), k.shared("tile", f32, (32,))
    k.bulk.reduce(y, tile if right else tile.at(1))  # here


@wrong("operand", "a box is dense in shared memory")
def a_box_lands_in_columns_of_a_wider_tile(k: Builder, right: bool) -> None:
    x, b = k.tensor("X", f32, (8, 32)), k.mbarriers("b")
    tile = k.shared("tile", f32, (2, 8, 32) if right else (8, 64))
    x_map = k.tensor_map(x, (8, 32))
    k.tma.load(x_map, tile[1] if right else tile[:, 32:64], (0, 0), b)  # here


@wrong("operand", "a box is dense in shared memory")
def a_box_comes_from_padded_rows(k: Builder, right: bool) -> None:
    y = k.tensor("Y", f32, (8, 32))
    tile = k.shared("tile", f32, (8, 32), pitch=128 if right else 144)
    k.tma.store(k.tensor_map(y, (8, 32)), tile, (0, 0))  # here


@wrong("operand", "a box is dense in shared memory")
def a_box_of_every_second_row_of_a_tile(k: Builder, right: bool) -> None:
    y = k.tensor("Y", f32, (8, 32))
    tile = k.shared("tile", f32, (4, 2, 32))
    y_map = k.tensor_map(y, (2, 32) if right else (4, 32))
    k.tma.store(y_map, tile[0] if right else tile[:, 0], (0, 0))  # here


@wrong("target", "sm_100a has no wgmma.fence")
def wgmma_on_blackwell(k: Builder, right: bool) -> None:
    k.launch(target="sm_90a" if right else "sm_100a")
    k.wgmma.fence()  # here


@wrong("deadlock", "no instruction of the kernel arrives on b")
def wait_nobody_ends(k: Builder, right: bool) -> None:
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
        if right:
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)  # here


def test_unknown_target_names_the_targets_there_are() -> None:
    with pytest.raises(InvalidProgram) as caught:
        Builder("x", target="sm_89")
    (problem,) = caught.value.diagnostics
    assert problem.rule == "target"
    assert "sm_90a" in problem.fix


@wrong("operand", "noComplete exists as .release.cta only")
def no_complete_has_no_other_semantics(k: Builder, right: bool) -> None:
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive(b, sem="release" if right else "relaxed", no_complete=True)  # here


@wrong("operand", "noComplete reaches barriers of its own CTA only")
def no_complete_is_local(k: Builder, right: bool) -> None:
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
    k.fence.mbarrier_init()
    k.cluster.sync()
    with k.one_thread():
        k.mbarrier.arrive(b[0] if right else b[0].at(1), no_complete=True)  # here
