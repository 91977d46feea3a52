"""`inject_proxy_fence`: gallery kernels, asynchronous writers, the two strictness levels."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tilesim.arith.types import f32, s32
from tilesim.checker import check
from tilesim.checker.inject_fences import inject_proxy_fence
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import Kernel, kernel
from tilesim.ir.ops.fence import FenceProxyAsync
from tilesim.ir.program import Program, Role, instructions
from tilesim.kernels.blackwell import matmul_v5 as stealing
from tilesim.kernels.hopper import matmul_v5
from tilesim.kernels.nvfuser import multi_role, synchronous_producer
from tilesim.kernels.registry import Case, cases

from ..kernels.evidence import verdict
from ..kernels.fewer_tiles import with_fewer_tiles
from ..kernels.mutate import inputs
from .evidence import (
    assert_inserts_what_is_needed,
    assert_restores_what_is_needed,
    count,
    without,
)


def name(case: Case) -> str:
    return case.target.removeprefix("tilesim.kernels.")


FENCE = "fence.proxy.async"
CASES = {
    name(case): with_fewer_tiles(case)
    for family in ("hopper", "blackwell", "cluster", "nvfuser")
    for case in cases(family)
    if case.expected == "proved"
}
#: kernels that write for, or read from, the async proxy in ways that others do not
FENCED = (
    "hopper.matmul_v5::matmul", "blackwell.matmul_v0::matmul", "blackwell.matmul_v3::matmul",
    "cluster.split_k::split_k", "nvfuser.multi_role::multi_role", "nvfuser.chained::chained",
    "nvfuser.synchronous_producer::dequantise",
)  # fmt: skip
#: of these one check takes so long that it is not repeated without each fence
LARGE = ("hopper.matmul_v8::matmul", "hopper.attention_v2::attention",
         "hopper.matmul_grouped::matmul", "blackwell.matmul_v5::matmul",
         "blackwell.matmul_v6::matmul", "blackwell.attention::attention")  # fmt: skip
by_the_text = partial(inject_proxy_fence, strict="ptx")


def test_the_reads_of_a_kernel_proved_in_practice_only_are_fenced() -> None:
    (program,) = (case.build() for title, case in CASES.items() if "printed" in title)
    assert inject_proxy_fence(program) is program
    assert_inserts_what_is_needed(program, FENCE, by_the_text)


@pytest.mark.parametrize("title", FENCED)
def test_the_fences_of_a_kernel_are_restored(title: str) -> None:
    program = CASES[title].build()
    fenced = assert_inserts_what_is_needed(without(program, FENCE), FENCE, by_the_text)
    assert count(fenced, FENCE) == count(program, FENCE)


@pytest.mark.slow
@pytest.mark.parametrize("title", LARGE)
def test_the_fences_of_a_large_kernel_are_restored(title: str) -> None:
    case = CASES[title]
    program = case.build()
    given = inputs(case.kernel, program, dict(case.params)) if case.kernel.inputs else None
    assert_restores_what_is_needed(program, FENCE, partial(by_the_text, inputs=given), given)


@pytest.mark.parametrize("built", [matmul_v5.matmul, synchronous_producer.scale])
def test_in_practice_writes_need_the_fence(built: Kernel) -> None:
    bare = without(built.build(), FENCE)
    assert check(bare).verdict == "failed"
    assert check(inject_proxy_fence(bare)).verdict == "proved"


def test_in_practice_reads_do_not() -> None:
    bare = without(multi_role.multi_role.build(), FENCE)
    assert check(bare).verdict == "proved"
    assert inject_proxy_fence(bare) is bare
    chunks = inject_proxy_fence(without(stealing.matmul.build(), FENCE))
    assert count(chunks, FENCE) == 2  # none for the answers that are read


def test_the_fence_stands_before_the_warp_barrier_and_the_election() -> None:
    fenced = inject_proxy_fence(without(synchronous_producer.scale.build(), FENCE))
    assert fenced == synchronous_producer.scale.build()


@kernel(warps=1)
def filled_by_cp_async(k: Builder) -> None:
    """cp.async writes 16 bytes that a bulk copy then reads."""
    X, Y = k.tensor("X", f32, (4,)), k.tensor("Y", f32, (4,))
    tile = k.shared("tile", f32, (4,))
    with k.elected():
        k.cp_async.copy(tile, X)
        k.cp_async.commit_group()
        k.cp_async.wait_group(0)
        k.bulk.store(Y, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def test_an_asynchronous_writer_is_fenced_after_its_wait() -> None:
    fenced = assert_inserts_what_is_needed(filled_by_cp_async.build(), FENCE, by_the_text)
    order = [op.mnemonic for op in instructions(fenced)]
    assert order.index("cp.async.wait_group") < order.index(FENCE)
    assert order.index(FENCE) < order.index("cp.async.bulk.store")


@kernel(warps=3)
def handed_on(k: Builder) -> None:
    """Warp 0 writes a tile, warp 1 another one and hands on both, warp 2 copies them."""
    X, Y = k.tensor("X", f32, (32, 4)), k.tensor("Y", f32, (32, 4))
    tile, other = k.shared("tile", f32, (32, 4)), k.shared("other", f32, (32, 4))
    part = k.fragment("part", f32, (32, 4))
    k.tile.fill(part, 2.0)
    with k.role("first", 0):
        k.tile.store(tile, part)
        k.bar.arrive(1, threads=64, aligned=False)
    with k.role("second", 1):
        k.bar.sync(1, threads=64, aligned=False)
        k.tile.store(other, part)
        k.bar.arrive(2, threads=64, aligned=False)
    with k.role("copier", 2):
        k.bar.sync(2, threads=64, aligned=False)
        with k.elected():
            k.bulk.store(Y, tile)
            k.bulk.store(X, other)
            k.bulk.commit_group()
            k.bulk.wait_group(0)


def test_threads_fence_what_they_wrote_whatever_others_fence() -> None:
    """The text asks for a fence on the path, wherever; all sources agree on the writer's (H11)."""
    fenced = inject_proxy_fence(handed_on.build())
    roles = {s.name: s.body for s in fenced.body if isinstance(s, Role)}
    found = {n: sum(isinstance(s, FenceProxyAsync) for s in body) for n, body in roles.items()}
    assert found == {"first": 1, "second": 1, "copier": 0}
    assert verdict(fenced, "ptx") == "proved"
    assert verdict(handed_on.build(), "ptx") == "failed"


@kernel(warps=2)
def own_tiles(k: Builder, *, shared_tile: bool = True) -> None:
    """Warp 0 writes a tile and copies it out; warp 1 reads another, or nothing is copied."""
    Y = k.tensor("Y", f32, (32, 4))
    tile, other = k.shared("tile", f32, (32, 4)), k.shared("other", f32, (32, 4))
    part = k.fragment("part", f32, (32, 4))
    with k.role("writer", 0):
        k.tile.fill(part, 2.0)
        k.tile.store(tile if shared_tile else other, part)
        with k.elected():
            k.bulk.store(Y, tile)
            k.bulk.commit_group()
            k.bulk.wait_group(0)


def test_a_thread_that_copies_its_own_writes_needs_the_fence_without_any_hand_over() -> None:
    fenced = inject_proxy_fence(own_tiles.build())
    assert "proxy-fence" in check(own_tiles.build()).rules
    assert "proxy-fence" not in check(fenced).rules
    (fence,) = [s for s in body_of(fenced) if isinstance(s, FenceProxyAsync)]
    assert fence.space == "shared::cta"


def test_writes_to_another_tile_need_none() -> None:
    program = own_tiles.build(shared_tile=False)
    assert inject_proxy_fence(program) is program


@kernel(warps=1)
def copied_if_told(k: Builder) -> None:
    """A warp writes a tile, and copies it out where a word of a tensor says so."""
    told, Y = k.tensor("told", s32, (1,)), k.tensor("Y", f32, (32, 4))
    tile, part = k.shared("tile", f32, (32, 4)), k.fragment("part", f32, (32, 4))
    word = k.var("word", 0)
    k.mem.load(word, told[0])
    k.tile.fill(part, 2.0)
    k.tile.store(tile, part)
    with k.if_(word.ne(0)), k.elected():
        k.bulk.store(Y, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def test_what_tensors_hold_decides_which_copies_there_are() -> None:
    program = copied_if_told.build()
    assert inject_proxy_fence(program) is program
    given = {"told": np.ones(1, np.int32)}
    assert check(program, inputs=given).rules == {"proxy-fence"}
    fenced = inject_proxy_fence(program, inputs=given)
    assert count(fenced, FENCE) == 1
    assert check(fenced, inputs=given).verdict == "proved"


@kernel(warps=1)
def prefetched(k: Builder, *, tensor: bool = True) -> None:
    """A warp writes a tensor and asks for it to be brought into the cache."""
    Y, part = k.tensor("Y", f32, (32, 32)), k.fragment("part", f32, (32, 32))
    y_map = k.tensor_map(Y, (32, 32))
    k.tile.fill(part, 2.0)
    k.tile.store(Y, part)
    with k.elected():
        if tensor:
            k.tma.prefetch(y_map, (0, 0))
        else:
            k.bulk.prefetch(Y)


@pytest.mark.parametrize("tensor", [True, False])
def test_a_prefetch_needs_none(tensor: bool) -> None:
    program = prefetched.build(tensor=tensor)
    assert check(program, strict="ptx").verdict == "proved"
    assert inject_proxy_fence(program, strict="ptx") is program


def body_of(program: Program) -> tuple[object, ...]:
    (role,) = [s for s in program.body if isinstance(s, Role)]
    return role.body
