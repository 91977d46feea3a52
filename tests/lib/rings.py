"""Kernels around one ring: a warp copies rows in, another stores them; and how to get it wrong."""

from __future__ import annotations

import tilesim as ts
from tilesim.ir.expr import Expr
from tilesim.lib import Pipeline, Slot, Striding, open_cta

ROW = 32


@ts.kernel(warps=2)
def by_item(
    k: ts.Builder, *, stages: int = 2, items: int = 5, consumers: int = 1, fault: str = ""
) -> None:
    """Slots by the number of the item. ``fault``: what the kernel does wrong."""
    X, Y = k.tensor("X", ts.f32, (items, ROW)), k.tensor("Y", ts.f32, (items, ROW))
    ring = k.shared("ring", ts.f32, (stages, ROW))
    row = k.fragment("row", ts.f32, (1, ROW))
    pipe = Pipeline(k, stages, consumers=consumers)  # @pipe
    if fault == "init":
        k.sync_threads()
    else:
        open_cta(k, pipe)  # @init

    with k.role("load", 0), k.elected(), k.loop(items) as i:
        slot = pipe[i]
        if fault != "acquire":
            slot.acquire()  # @acquire
        slot.commit(ring[0].nbytes // 2 if fault == "bytes" else ring[0].nbytes)  # @commit
        k.bulk.load(ring[slot.stage], X[i], slot.full)  # @copy

    with k.role("use", 1), k.loop(items) as i:
        slot = pipe[i]
        if fault != "wait":
            slot.wait()  # @wait
        if fault == "early":
            with k.elected():
                slot.release()  # @early
        k.tile.load(row, ring[slot.stage])  # @read
        if fault not in ("early", "release"):
            with k.elected():
                slot.release()  # @release
        k.tile.store(Y[i], row)  # @store


@ts.kernel(warps=2)
def by_cursor(
    k: ts.Builder,
    *,
    stages: int = 2,
    items: int = 5,
    tiles: int = 2,
    ctas: int = 2,
    fault: str = "",
) -> None:
    """Persistent CTAs; each role has a place of its own in the ring. ``fault`` as above."""
    k.launch(grid=ctas)
    X, Y = (k.tensor(name, ts.f32, (tiles, items, ROW)) for name in "XY")
    ring = k.shared("ring", ts.f32, (stages, ROW))
    row = k.fragment("row", ts.f32, (1, ROW))
    pipe = Pipeline(k, stages)
    schedule = Striding(k, tiles, ctas)
    open_cta(k, pipe)  # @init

    with k.role("load", 0), k.elected():
        filling = pipe.cursor("load")
        with schedule.each() as tile, k.loop(items) as i:
            slot = filling.slot
            slot.acquire()  # @acquire
            slot.commit(ring[0].nbytes)  # @commit
            k.bulk.load(ring[slot.stage], X[tile, i], slot.full)  # @copy
            filling.advance()

    with k.role("use", 1):
        reading = pipe.cursor("use")
        with schedule.each() as tile, k.loop(items) as i:
            slot = reading.slot
            slot.wait()  # @wait
            k.tile.load(row, ring[slot.stage])  # @read
            with k.elected():
                slot.release()  # @release
            if fault != "advance":
                reading.advance()
            k.tile.store(Y[tile, i], row)


@ts.kernel(warps=2)
def counted(
    k: ts.Builder, *, stages: int = 2, items: int = 3, tiles: int = 4, ctas: int = 2,
    fault: str = "",
) -> None:  # fmt: skip
    """Persistent CTAs that count items on from tile to tile; ``fault``: start again at 0."""
    k.launch(grid=ctas)
    X, Y = (k.tensor(name, ts.f32, (tiles, items, ROW)) for name in "XY")
    ring = k.shared("ring", ts.f32, (stages, ROW))
    row = k.fragment("row", ts.f32, (1, ROW))
    pipe = Pipeline(k, stages)
    schedule = Striding(k, tiles, ctas)
    open_cta(k, pipe)  # @init

    def use(tile: Expr, i: Expr) -> Slot:
        return pipe[i] if fault == "restart" else pipe[schedule.turn(tile) * items + i]

    with k.role("load", 0), k.elected(), schedule.each() as tile, k.loop(items) as i:  # @tiles
        slot = use(tile, i)
        slot.acquire()  # @acquire
        slot.commit(ring[0].nbytes)  # @commit
        k.bulk.load(ring[slot.stage], X[tile, i], slot.full)  # @copy

    with k.role("use", 1), schedule.each() as tile, k.loop(items) as i:
        slot = use(tile, i)
        slot.wait()  # @wait
        k.tile.load(row, ring[slot.stage])  # @read
        with k.elected():
            slot.release()  # @release
        k.tile.store(Y[tile, i], row)
