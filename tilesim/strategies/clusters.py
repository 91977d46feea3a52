"""Multicast pipelines of a cluster, and CTAs that steal work, correct by construction."""

from __future__ import annotations

from tilesim.arith.types import f32, u32
from tilesim.dsl.builder import Builder
from tilesim.ir.declarations import ds
from tilesim.ir.program import Program
from tilesim.records import dataclass

ROWS, COLUMNS = 8, 32


@dataclass(frozen=True)
class Multicast:
    """Every CTA loads its share of each item into all CTAs of the cluster.

    The empty barrier of a CTA collects arrivals from the consumers of every CTA it writes (B10).
    """

    stages: int = 2
    trips: int = 3
    ctas: int = 2
    consumers: int = 1

    def build(self) -> Program:
        """The program."""
        k = Builder("multicast", "sm_90a", 1 + self.consumers)
        k.launch(grid=self.ctas, cluster=self.ctas)
        rows = self.ctas * ROWS
        source = k.tensor("source", f32, (max(1, self.trips) * rows, COLUMNS))
        total = self.ctas * self.consumers
        out = k.tensor("out", f32, (total, max(1, self.trips) * rows, COLUMNS))
        source_map = k.tensor_map(source, (ROWS, COLUMNS))
        stage = k.shared("stage", f32, (self.stages, rows, COLUMNS))
        full, empty = k.mbarriers("full", self.stages), k.mbarriers("empty", self.stages)
        part = k.fragment("part", f32, (rows, COLUMNS))
        with k.one_thread():
            for index in range(self.stages):
                k.mbarrier.init(full[index], 1)
                k.mbarrier.init(empty[index], total)
            k.fence.mbarrier_init()
        k.cluster.arrive(sem="relaxed")
        k.cluster.wait()
        with k.role("producer", 0), k.elected(), k.loop(self.trips) as i:
            s, own = i % self.stages, k.cluster_rank * ROWS
            k.mbarrier.wait(empty[s], ((i // self.stages) & 1) ^ 1, scope="cluster")
            k.mbarrier.arrive_expect_tx(full[s], stage[0].nbytes)
            k.tma.load(
                source_map, stage[s, ds(own, ROWS)], (i * rows + own, 0), full[s],
                multicast=(1 << self.ctas) - 1,
            )  # fmt: skip
        with k.role("consumer", range(1, 1 + self.consumers)), k.loop(self.trips) as i:
            s = i % self.stages
            reader = k.cluster_rank * self.consumers + k.warp_id - 1
            k.mbarrier.wait(full[s], (i // self.stages) & 1, scope="cluster")
            k.tile.load(part, stage[s])
            k.sync_warp()
            with k.elected():
                for rank in range(self.ctas):
                    k.mbarrier.arrive(empty[s].at(rank), scope="cluster")
            k.tile.store(out[reader, ds(i * rows, rows), :], part)
        k.cluster.sync()
        return k.finish()


@dataclass(frozen=True)
class Stealing:
    """Persistent CTAs that ask for the next tile with clusterlaunchcontrol.try_cancel."""

    ctas: int = 3
    pair: bool = False

    def build(self) -> Program:
        """The program."""
        k = Builder("stealing", "sm_100a", 2)
        k.launch(grid=self.ctas)
        out = k.tensor("out", u32, (self.ctas,))
        response, answered = k.shared("response", u32, (4,)), k.mbarriers("answered")
        tile = k.var("tile", k.cta_x, u32)
        found, parity = k.var("found", 1), k.var("parity", 0)
        with k.one_thread():
            k.mbarrier.init(answered, 1)
        k.sync_threads()
        with k.while_(found.ne(0)):
            with k.role("scheduler", 0), k.elected():
                if self.pair:
                    k.fence.proxy_async_generic("acquire")
                k.clc.try_cancel(response, answered)
                k.mbarrier.arrive_expect_tx(answered, 16)
            with k.role("worker", 1), k.elected():
                k.mem.store(out[tile], tile + 1)
            k.mbarrier.wait(answered, parity)
            k.assign(parity, parity ^ 1)
            k.clc.query_is_canceled(found, response)
            with k.if_(found.ne(0)):
                k.clc.query_first_ctaid(tile, response)
            if self.pair:
                k.fence.proxy_async_generic("release")
            else:
                k.fence.proxy_async()
            k.sync_threads()
        return k.finish()
