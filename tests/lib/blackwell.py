"""Kernels with tensor memory and with tiles that are taken over; and how to get them wrong."""

from __future__ import annotations

import tilesim as ts
from tilesim.lib import Pipeline, Stealing, TensorMemory

LANES = 128


@ts.kernel(target="sm_100a", warps=4)
def stored(k: ts.Builder, *, columns: int = 64, warp: int = 0, fault: str = "") -> None:
    """Every warp stores to its lanes of tensor memory and loads them again."""
    Y = k.tensor("Y", ts.f32, (LANES, 32))
    x, y = (k.fragment(name, ts.f32, (LANES, 32), "warpgroup") for name in "xy")
    if fault == "size":
        columns = 48
    memory = TensorMemory(k, columns, warp=warp)
    k.tile.fill(x, 1.0)
    with memory.allocated(publish=fault != "publish") as address:  # @allocated
        d = k.tcgen05.tensor(address + columns - 32, ts.f32, (LANES, 32))
        k.tcgen05.st(d, x)  # @stores
        if fault != "wait":
            k.tcgen05.wait_st()
        k.tcgen05.ld(y, d)  # @loads
        k.tcgen05.wait_ld()  # @waits
    if fault == "outside":
        k.tcgen05.ld(y, d)  # @outside
        k.tcgen05.wait_ld()  # @after
    k.tile.store(Y.view(), y)


@ts.kernel(target="sm_100a", warps=4)
def in_parts(k: ts.Builder, *, fault: str = "") -> None:
    """The parts of the protocol by hand; ``fault``: the address is read before all have met."""
    memory = TensorMemory(k, 32, warp=2)
    memory.allocate()  # @allocate
    if fault != "early":
        k.sync_threads()
    memory.address()  # @address
    memory.free()


@ts.kernel(target="sm_100a", warps=3)
def stolen(
    k: ts.Builder, *, tiles: int = 4, slots: int = 2, readers: int = 3, fault: str = ""
) -> None:
    """A scheduler, a warp that copies a row of each tile in, and one that stores it."""
    k.launch(grid=tiles)
    X, Y = (k.tensor(name, ts.f32, (tiles, 32)) for name in "XY")
    ring = k.shared("ring", ts.f32, (2, 32))
    row = k.fragment("row", ts.f32, (1, 32))
    pipe = Pipeline(k, 2)
    answers = Pipeline(k, slots, name="answer", consumers=readers)
    schedule = Stealing(k, answers, k.shared("response", ts.u32, (slots, 4)))
    with k.one_thread():
        pipe.init()
        answers.init()  # @init
        k.fence.mbarrier_init()
    k.sync_threads()

    with k.role("scheduler", 0):
        if fault == "unasked":
            with schedule.each("scheduler"):  # @each
                pass
        else:
            schedule.ask("scheduler")  # @ask

    with k.role("load", 1):
        filling = pipe.cursor("load")
        with schedule.each("load") as tile, k.elected():  # @load
            slot = filling.slot
            slot.acquire()
            slot.commit(ring[0].nbytes)
            k.bulk.load(ring[slot.stage], X[tile], slot.full)
            filling.advance()

    with k.role("store", 2):
        reading = pipe.cursor("store")
        with schedule.each("store") as tile:  # @store
            slot = reading.slot
            slot.wait()
            k.tile.load(row, ring[slot.stage])
            with k.elected():
                slot.release()
            reading.advance()
            k.tile.store(Y[tile], row)
