"""`inject_tcgen05_fence`: gallery kernels, and every kind of hand-over in small programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tilesim.arith.types import f32, u32
from tilesim.checker.inject_fences import inject_tcgen05_fence
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import Fragment, Mbarriers
from tilesim.ir.op import Op
from tilesim.ir.ops.tcgen05 import Tcgen05Fence
from tilesim.ir.program import For, If, Program, Role, instructions, walk
from tilesim.ir.target import TARGETS
from tilesim.ir.tensor_memory import TmemView
from tilesim.kernels.blackwell import matmul_v4
from tilesim.kernels.registry import cases

from ..kernels.evidence import verdict
from ..kernels.fewer_tiles import with_fewer_tiles
from .evidence import (
    assert_inserts_what_is_needed,
    assert_restores_what_is_needed,
    count,
    without,
)

FENCE = "tcgen05.fence"
#: kernels that hand tensor memory over; larger ones in the same ways
SMALL, LARGER = ("v0", "v2", "v3", "v4"), ("v1", "v5", "v6", "attention")


def kernel_of(name: str) -> Program:
    """The row of the gallery with its defaults."""
    target = f"blackwell.matmul_{name}::" if name != "attention" else "blackwell.attention::"
    case = next(case for case in cases("blackwell") if target in case.target and not case.params)
    return with_fewer_tiles(case).build()


def sides(program: Program) -> list[str]:
    return [op.side for op in instructions(program) if isinstance(op, Tcgen05Fence)]


@pytest.mark.parametrize("name", SMALL)
def test_the_fences_of_a_kernel_are_restored(name: str) -> None:
    program = kernel_of(name)
    assert inject_tcgen05_fence(program) is program
    assert_inserts_what_is_needed(without(program, FENCE), FENCE, inject_tcgen05_fence)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_the_fences_of_a_large_kernel_are_restored(name: str) -> None:
    program = kernel_of(name)
    assert inject_tcgen05_fence(program) is program
    assert_restores_what_is_needed(program, FENCE, inject_tcgen05_fence)


def test_a_single_lost_fence_is_restored() -> None:
    program = kernel_of("v3")
    for nth in range(count(program, FENCE)):
        assert verdict(inject_tcgen05_fence(without(program, FENCE, nth)), "ptx") == "proved"


def test_fences_in_loops_stand_where_the_accumulator_changes_hands() -> None:
    """Not around the k tiles: the TMA warp hands no access to tensor memory over."""
    fenced = inject_tcgen05_fence(without(matmul_v4.matmul.build(), FENCE))
    mma = next(s for s in fenced.body if isinstance(s, Role) and s.name == "mma")
    inner = [s for s in walk(mma.body) if isinstance(s, For) and s.var.name.startswith("kt")]
    assert inner
    assert not any(isinstance(s, Tcgen05Fence) for loop in inner for s in walk(loop.body))
    assert sum(isinstance(s, Tcgen05Fence) for s in walk(mma.body)) == 1


def test_other_targets_are_left_alone() -> None:
    program = replace(without(matmul_v4.matmul.build(), FENCE), target=TARGETS["sm_120a"])
    assert inject_tcgen05_fence(program) is program


# ---------------------------------------------------------------------- one hand-over each

HandOver = Callable[[Builder, str], None]
WRITER, READER = 1, 5  # two warps that reach the same lanes


def passing(hand_over: HandOver) -> Program:
    """Warp 1 stores 32 lanes, warp 5 loads them, warp 0 allocates and frees."""

    def body(k: Builder) -> None:
        k.launch(cluster=2, grid=2)
        slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
        k.mbarriers("ready")
        part = k.fragment("part", f32, (32, 32))
        with k.role("owner", 0):
            k.tcgen05.alloc(slot, 32)
        with k.one_thread():
            hand_over(k, "init")
        k.sync_threads()
        k.mem.load(address, slot[0])
        d = k.tcgen05.tensor(address + WRITER * 32 * 0x10000, f32, (32, 32), name="d")
        _exchange(k, part, d, hand_over)
        k.tcgen05.fence_before_thread_sync()
        k.sync_threads()
        with k.role("owner", 0):
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.dealloc(address, 32)
        k.cluster.sync()

    return kernel(target="sm_100a", warps=8)(body).build()


def _exchange(k: Builder, part: Fragment, d: TmemView, hand_over: HandOver) -> None:
    with k.role("writer", WRITER):
        k.tile.fill(part, 1.0)
        k.tcgen05.st(d, part)
        k.tcgen05.wait_st()
        hand_over(k, "give")
    hand_over(k, "all")
    with k.role("reader", READER):
        hand_over(k, "take")
        k.tcgen05.ld(part, d)
        k.tcgen05.wait_ld()


def by_cta_barrier(k: Builder, step: str) -> None:
    if step == "all":
        k.sync_threads()


def by_cluster_barrier(k: Builder, step: str) -> None:
    if step == "all":
        k.cluster.sync()


def by_named_barrier(k: Builder, step: str) -> None:
    if step == "give":
        k.bar.arrive(2, 64, aligned=False)
    if step == "take":
        k.bar.sync(2, 64, aligned=False)


def by_mbarrier(k: Builder, step: str) -> None:
    ready = next(s for s in k.finish().shared if isinstance(s, Mbarriers))
    match step:
        case "init":
            k.mbarrier.init(ready, 1)
        case "give":
            k.sync_warp()
            with k.elected():
                k.mbarrier.arrive(ready)
        case "take":
            k.mbarrier.wait(ready, 0)
        case _:
            pass


HAND_OVERS = [by_cta_barrier, by_cluster_barrier, by_named_barrier, by_mbarrier]


@pytest.mark.parametrize("hand_over", HAND_OVERS)
def test_every_kind_of_hand_over_gets_both_fences(hand_over: HandOver) -> None:
    bare = passing(hand_over)
    fenced = inject_tcgen05_fence(bare)
    assert verdict(bare, "ptx") == "failed"
    assert verdict(fenced, "ptx") == "proved"
    assert sides(fenced) == ["before_thread_sync", "after_thread_sync", *sides(bare)]
    for nth in range(2):
        assert verdict(without(fenced, FENCE, nth), "ptx") == "failed"
    assert inject_tcgen05_fence(fenced) is fenced


def test_every_storing_lane_executes_the_fence_not_only_the_elected_one() -> None:
    fenced = inject_tcgen05_fence(passing(by_mbarrier))
    writer = next(s for s in fenced.body if isinstance(s, Role) and s.name == "writer")
    order = [s.mnemonic for s in writer.body if isinstance(s, Op)]
    assert order[-3:] == ["tcgen05.fence", "bar.warp.sync", "elect.sync"]
    assert isinstance(writer.body[-1], If)
