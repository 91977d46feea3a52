"""Building blocks of the tests of tcgen05: allocation, operands in shared memory, running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim import Builder, Program, bf16, f32, u32
from tilesim.arith.types import DType
from tilesim.checker import check
from tilesim.ir.declarations import GlobalTensor, Mbarriers, SharedTensor, TensorMap, View
from tilesim.ir.expr import Operand, Var
from tilesim.ir.ops.tcgen05_mma import CtaGroup, LoadShape
from tilesim.ir.tensor_memory import TmemView
from tilesim.sim.machine.simulate import simulate

RNG = np.random.default_rng(7)


def build(function: Callable[..., None], **params: Any) -> Program:
    builder = Builder("kernel", target="sm_100a")
    function(builder, **params)
    return builder.finish()


def small(*shape: int) -> NDArray[Any]:
    return RNG.integers(-3, 4, shape)


def outputs(
    function: Callable[..., None], inputs: Mapping[str, Any], **params: Any
) -> dict[str, NDArray[Any]]:
    """The outputs of a kernel that is right at both strictness levels."""
    program = build(function, **params)
    for strict in ("practice", "ptx"):
        report = check(program, strict=strict)
        assert (report.verdict, report.findings) == ("proved", ()), report
    run = simulate(program, inputs, strict="ptx")
    assert run.findings == ()
    return run.outputs


def zeros(k: Builder) -> tuple[SharedTensor, SharedTensor, Mbarriers]:
    """Operands A and B of a product of 128 x 32 x 16, which warp 0 fills, and an mbarrier."""
    a, b = k.shared("a", bf16, (128, 16), swizzle=32), k.shared("b", bf16, (32, 16), swizzle=32)
    done = k.mbarriers("done")
    for tensor, rows in ((a, 128), (b, 32)):
        zero = k.fragment(f"zero{rows}", bf16, (rows, 16))
        k.tile.fill(zero, 0)
        with k.role("T", 0):
            k.tile.store(tensor, zero)
    k.fence.proxy_async()
    with k.one_thread():
        k.mbarrier.init(done, 1)
    return a, b, done


def allocate(k: Builder, columns: int = 128, *, cta_group: CtaGroup = 1) -> Var:
    """Warp 0 allocates; every warp gets the address."""
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, columns, cta_group=cta_group)
    k.sync_threads()
    k.mem.load(address, slot[0])
    return address


def free(k: Builder, address: Operand, columns: int = 128) -> None:
    """Warp 0 frees after everybody."""
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, columns)


def copied(
    k: Builder, name: str, dtype: DType, shape: tuple[int, int], swizzle: Any = 32
) -> tuple[SharedTensor, TensorMap]:
    """A shared tensor and the map of the input it is filled from."""
    source = k.tensor(f"g{name}", dtype, shape)
    tile = k.shared(name, dtype, shape, swizzle=swizzle)
    return tile, k.tensor_map(source, shape, swizzle=swizzle)


def fill(k: Builder, *tiles: tuple[SharedTensor, TensorMap]) -> None:
    """Loads whole tiles and waits for them in every warp."""
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, sum(m.box_bytes for _, m in tiles))
        for tile, tensor_map in tiles:
            k.tma.load(tensor_map, tile, (0,) * len(tensor_map.box), full)
    k.mbarrier.wait(full, 0)


def barrier(k: Builder, name: str, count: int = 1) -> Any:
    """An initialised, visible mbarrier."""
    b = k.mbarriers(name)
    with k.one_thread():
        k.mbarrier.init(b, count)
    k.sync_threads()
    return b


@contextmanager
def issuing(k: Builder, done: Any) -> Iterator[None]:
    """One thread issues what stands in the block, and commits it; then every warp waits for it."""
    with k.one_thread():
        yield
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()


def dump(
    k: Builder, view: TmemView, out: GlobalTensor | View, shape: LoadShape = "32x32b",
    name: str = "dumped",
) -> None:  # fmt: skip
    """The warpgroup loads as many rows as ``out`` has, and stores them there."""
    part = k.fragment(name, view.dtype, out.shape, "warpgroup")
    k.tcgen05.ld(part, view, shape=shape)
    k.tcgen05.wait_ld()
    k.tile.store(out, part)


class Pair:
    """What a product of a pair of CTAs begins and ends with: ``rows`` of A and half of ``n`` rows
    of B in each, by tensor copies; D's columns in all lanes of both; three mbarriers."""

    def __init__(self, k: Builder, dtype: DType, rows: int, n: int) -> None:
        self._k, self._rows, self._n = k, rows, n
        k.launch(warps=4, grid=2, cluster=2)
        depth = 256 // dtype.bits
        self.source = k.tensor("ga", dtype, (2 * rows, depth))
        sources = self.source, k.tensor("gb", dtype, (n, depth))
        self.a = k.shared("a", dtype, (rows, depth), swizzle=32)
        self.b = k.shared("b", dtype, (n // 2, depth), swizzle=32)
        self._maps = [
            k.tensor_map(source, (count, depth), swizzle=32)
            for source, count in zip(sources, (rows, n // 2), strict=True)
        ]
        self.columns = n if rows == 128 else n // 2
        self.out = k.tensor("out", f32, (2, 128, self.columns))
        self.full, self.ready, self.done = (k.mbarriers(x) for x in ("full", "ready", "done"))
        with k.one_thread():
            k.mbarrier.init(self.full, 1)
            k.mbarrier.init(self.ready, 2)
            k.mbarrier.init(self.done, 1)
            k.fence.mbarrier_init()
        k.cluster.sync()
        self.address = allocate(k, cta_group=2)

    def load(self) -> None:
        """Each CTA loads its parts, and tells the first one."""
        k, first = self._k, (self._rows, self._n // 2)
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(self.full, sum(m.box_bytes for m in self._maps))
            for map_, tile, rows in zip(self._maps, (self.a, self.b), first, strict=True):
                k.tma.load(map_, tile, (rows * k.cluster_rank, 0), self.full)
            k.mbarrier.wait(self.full, 0)
            k.mbarrier.arrive(self.ready[0].at(0), scope="cluster")

    def free(self, *, rendezvous: bool = True) -> None:
        """Warp 0 of each CTA frees after everybody, or (no ``rendezvous``) after its own CTA."""
        k = self._k
        k.tcgen05.fence_before_thread_sync()
        if rendezvous:
            k.cluster.sync()
        else:
            k.sync_threads()
        with k.if_(k.warp_id.eq(0)):
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.dealloc(self.address, 128, cta_group=2)
        k.cluster.sync()
