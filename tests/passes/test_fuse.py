"""`fuse_expect_arrive`: what is fused behaves the same, and what would not is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tilesim.arith.types import f32
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierExpectTx
from tilesim.ir.program import Program, Stmt, rewrite
from tilesim.kernels.hopper import matmul_v1, matmul_v3, matmul_v6
from tilesim.transforms.fuse_expect_arrive import fuse_expect_arrive

from .evidence import count

FUSED, EXPECT, ARRIVE = "mbarrier.arrive.expect_tx", "mbarrier.expect_tx", "mbarrier.arrive"
KERNELS = [matmul_v1.matmul, matmul_v3.matmul, matmul_v6.matmul]
IDS = ["v1", "v3", "v6"]


def split(program: Program) -> Program:
    """Every arrive.expect_tx as expect_tx and arrive."""

    def visit(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, MbarrierArriveExpectTx):
            return (stmt,)
        expect = MbarrierExpectTx(mbar=stmt.mbar, bytes=stmt.bytes, loc=stmt.loc)
        return expect, MbarrierArrive(mbar=stmt.mbar, loc=stmt.loc)

    return replace(program, body=rewrite(program.body, visit))


@pytest.mark.parametrize("built", KERNELS, ids=IDS)
def test_a_split_pair_is_fused_again(built: Any) -> None:
    program = built.build()
    parts = split(program)
    assert count(parts, EXPECT) == count(program, FUSED) > 0
    assert check(parts).verdict == "proved"
    assert fuse_expect_arrive(parts) == program
    assert check(fuse_expect_arrive(parts)).verdict == "proved"
    assert fuse_expect_arrive(program) is program


def copying(announce: Callable[[Builder, Any, Callable[[], None]], None]) -> Program:
    """One thread loads 128 bytes into a tile; ``announce`` does it on its barrier."""

    def body(k: Builder) -> None:
        X, Y = k.tensor("X", f32, (32,)), k.tensor("Y", f32, (32,))
        tile, part = k.shared("tile", f32, (32,)), k.fragment("part", f32, (32,))
        full = k.mbarriers("full", 2)
        k.shared("flag", f32, (4,))
        with k.elected():
            k.mbarrier.init(full[0], 1)
            k.mbarrier.init(full[1], 1)
            announce(k, full, lambda: k.bulk.load(tile, X, full[0]))
        k.sync_warp()
        k.mbarrier.wait(full[0], 0)
        k.tile.load(part, tile)
        k.tile.store(Y, part)

    return kernel(warps=1)(body).build()


def around_the_copy(k: Builder, full: Any, load: Callable[[], None]) -> None:
    k.mbarrier.expect_tx(full[0], 128)
    load()
    k.mbarrier.arrive(full[0])


def test_a_copy_in_between_does_not_matter() -> None:
    parts = copying(around_the_copy)
    fused = fuse_expect_arrive(parts)
    assert check(parts).verdict == check(fused).verdict == "proved"
    assert (count(fused, FUSED), count(fused, EXPECT), count(fused, ARRIVE)) == (1, 0, 0)
    assert fuse_expect_arrive(fused) is fused


def reversed_pair(k: Builder, full: Any, load: Callable[[], None]) -> None:
    k.mbarrier.arrive(full[0])
    k.mbarrier.expect_tx(full[0], 128)
    load()


def two_arrivals(k: Builder, full: Any, load: Callable[[], None]) -> None:
    k.mbarrier.expect_tx(full[0], 128)
    load()
    k.mbarrier.arrive(full[0], count=2)


def another_barrier(k: Builder, full: Any, load: Callable[[], None]) -> None:
    k.mbarrier.expect_tx(full[0], 128)
    load()
    k.mbarrier.arrive(full[1])


def a_store_between(k: Builder, full: Any, load: Callable[[], None]) -> None:
    """The arrival also publishes the store: it must stay behind it."""
    flag = next(s for s in k.finish().shared if isinstance(s, SharedTensor) and s.name == "flag")
    k.mbarrier.expect_tx(full[0], 128)
    load()
    k.mem.store(flag[0], 1.0)
    k.mbarrier.arrive(full[0])


def more_bytes_than_expected(k: Builder, full: Any, load: Callable[[], None]) -> None:
    """With the arrival first, the phase could end before the second copy was announced."""
    k.mbarrier.expect_tx(full[0], 128)
    load()
    load()
    k.mbarrier.arrive(full[0])


UNFIT = [reversed_pair, two_arrivals, another_barrier, a_store_between, more_bytes_than_expected]


@pytest.mark.parametrize("announce", UNFIT)
def test_what_is_not_equivalent_is_left_alone(announce: Any) -> None:
    program = copying(announce)
    assert fuse_expect_arrive(program) is program
