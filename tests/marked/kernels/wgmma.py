"""What wgmma instructions may share registers, and what the four warps of a warpgroup execute."""

from __future__ import annotations

from typing import Any

from tests.litmus.notation import ones
from tilesim import Builder, bf16, e4m3, f16, f32, kernel
from tilesim.ir.declarations import SharedTensor


def tiles(into: Builder, dtype: Any = f16, *, depth: int = 16) -> tuple[SharedTensor, SharedTensor]:
    """A (64, depth) and B (16, depth) of ones, filled by warp 0 and visible to the tensor cores."""
    a = into.shared(f"a_{dtype}", dtype, (64, depth), swizzle=32)
    b = into.shared(f"b_{dtype}", dtype, (16, depth), swizzle=32)
    ones(into, a, b)
    return a, b


@kernel(warps=4)
def an_accumulator_is_read_as_a(k: Builder) -> None:
    """In flight (F6), or before a fence has ordered it (F3)."""
    r, s = (k.fragment(name, f16, (64, 16), "warpgroup") for name in "rs")
    a, b = tiles(k)
    with k.role("WG", range(4)):
        k.tile.fill(r, 1)
        k.tile.fill(s, 1)
        k.wgmma.fence()
        k.wgmma.mma_async(r, a, b)  # error 1 2 3: wgmma-order
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)  # ok 1 2
        k.wgmma.fence()  # ok 2 3
        k.wgmma.mma_async(s, r, b)  # error 1 2 3: wgmma-order
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@kernel(warps=4)
def a_is_accumulated_into(k: Builder) -> None:
    """Many products may read one A."""
    r, s = (k.fragment(name, f16, (64, 16), "warpgroup") for name in "rs")
    a, b = tiles(k)
    with k.role("WG", range(4)):
        k.tile.fill(r, 1)
        k.tile.fill(s, 1)
        k.wgmma.fence()
        k.wgmma.mma_async(s, r, b)
        k.wgmma.mma_async(s, r, b)  # error 1 2 3: wgmma-order
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)  # ok 1 2
        k.wgmma.fence()  # ok 2 3
        k.wgmma.mma_async(r, a, b)  # error 1 2 3: wgmma-order
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@kernel(warps=4)
def an_accumulator_of_two_shapes(k: Builder) -> None:
    """It goes on in the same shape."""
    r = k.fragment("r", f16, (64, 16), "warpgroup")
    a, b = tiles(k)
    a8, b8 = tiles(k, e4m3, depth=32)
    with k.role("WG", range(4)):
        k.tile.fill(r, 1)
        k.wgmma.fence()
        k.wgmma.mma_async(r, a, b)
        k.wgmma.mma_async(r, a, b)  # error 1 2 3: wgmma-order
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)  # ok 1 2
        k.wgmma.fence()  # ok 2 3
        k.wgmma.mma_async(r, a8, b8)  # error 1 2 3: wgmma-order
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@kernel(warps=4)
def registers_that_hold_nothing(k: Builder) -> None:
    r, s = (k.fragment(name, f16, (64, 16), "warpgroup") for name in "rs")
    more, (_, b) = 0, tiles(k)
    more = 1  # wrong 1
    with k.role("WG", range(4)):
        k.tile.fill(r, 1)  # ok 2
        k.wgmma.fence()
        k.wgmma.mma_async(s, r, b, accumulate=more)  # error 1 2: uninitialised-read by WG
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@kernel(warps=4)
def two_instructions_of_one_line(k: Builder) -> None:
    """A warpgroup executes one instruction."""
    acc, (a, b) = k.fragment("acc", f32, (64, 16), "warpgroup"), tiles(k)
    roles = {"all": range(4)}
    roles = {"low": range(2), "high": range(2, 4)}  # wrong
    for name, warps in roles.items():
        with k.role(name, warps):
            k.wgmma.fence()  # error: participation by low, error: participation by high
            k.wgmma.mma_async(acc, a, b, accumulate=0)
            k.wgmma.commit_group()
            k.wgmma.wait_group(0)


@kernel(warps=4)
def descriptors_are_the_same_in_all_warps(k: Builder) -> None:
    a, b = k.shared("a", bf16, (2, 64, 16), swizzle=32), k.shared("b", bf16, (16, 16), swizzle=32)
    acc, each = k.fragment("acc", f32, (64, 16), "warpgroup"), 4
    each = 2  # wrong
    rows, one = k.fragment("rows", bf16, (64, 16)), k.fragment("one", bf16, (16, 16))
    with k.if_(k.warp_id.eq(0)):
        k.tile.fill(rows, 1)
        k.tile.fill(one, 1)
        k.tile.store(a[0], rows)
        k.tile.store(a[1], rows)
        k.tile.store(b, one)
        k.fence.proxy_async()
    k.sync_threads()
    with k.role("WG", range(4)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[k.warp_id // each], b, accumulate=0)  # error: participation by WG
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@kernel(warps=4)
def fences_and_waits_are_of_the_warpgroup(k: Builder) -> None:
    acc, (a, b) = k.fragment("acc", f32, (64, 16), "warpgroup"), tiles(k)
    fencing, waiting, mma = range(4), range(4), k.wgmma.mma_async
    k.tile.fill(acc, 0)
    fencing = range(3)  # wrong 1
    waiting = range(3)  # wrong 2
    with k.role("fencing", fencing):
        k.wgmma.fence()  # error 1: participation
    mma(acc, a, b)  # error 1: participation, error 1: wgmma-order, error 2: async-at-exit
    k.wgmma.commit_group()
    with k.role("waiting", waiting):
        k.wgmma.wait_group(0)  # error 2: participation


@kernel(warps=4)
def a_product_in_flight_at_exit(k: Builder) -> None:
    acc, (a, b) = k.fragment("acc", f32, (64, 16), "warpgroup"), tiles(k)
    with k.role("WG", range(4)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a, b, accumulate=0)  # error 1 2 3: async-at-exit by WG
        k.wgmma.commit_group()  # ok 2 3
        k.wgmma.wait_group(0)  # ok 1 3


@kernel(warps=5)
def a_warpgroup_has_four_warps(k: Builder) -> None:
    """The fifth is in a warpgroup of its own, which cannot execute wgmma."""
    acc, (a, b), members = k.fragment("acc", f32, (64, 16), "warpgroup"), tiles(k), range(4)
    members = range(4, 5)  # wrong
    with k.role("WG", members):
        k.wgmma.fence()  # error: participation by WG
        k.wgmma.mma_async(acc, a, b, accumulate=0)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@kernel(warps=4)
def lanes_that_have_exited_take_no_part(k: Builder) -> None:
    acc, (a, b) = k.fragment("acc", f32, (64, 16), "warpgroup"), tiles(k)
    with k.if_(k.lane_id.eq(31)):
        k.exit()  # wrong
    with k.role("WG", range(4)):
        k.wgmma.fence()  # error: participation by WG
        k.wgmma.mma_async(acc, a, b, accumulate=0)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)
