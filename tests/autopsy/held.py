"""All that is read out of a dump."""

from __future__ import annotations

from typing import Any

from tilesim.autopsy.core_dump import CoreDump, Warp


def held(dump: CoreDump) -> dict[str, Any]:
    """All that is read out of a dump, but for handles."""
    grids = [g._replace(module=0, context=0) for g in dump.grids]
    images = [(i.device, i.relocated, i.data) for i in dump.images]
    of_grids = [(i and i.data) for i in map(dump.image_of, dump.grids)]
    ctas = [
        (
            c.grid.id, c.index, c.sm, c.cluster, c.cluster_size, c.rank, c.shared,
            len(dump.cluster_of(c)), [_warp(w) for w in c.warps],
        )
        for c in dump.ctas
    ]  # fmt: skip
    memory = [(m.address, bytes(m.data)) for m in dump.memory]
    return {
        "driver": dump.driver, "devices": dump.devices, "grids": grids, "images": images,
        "of grids": of_grids, "ctas": ctas, "memory": memory, "faults": dump.faults,
        "absent": [dump.absent(g) for g in dump.grids],
    }  # fmt: skip


def _warp(warp: Warp) -> tuple[Any, ...]:
    numbers = [lane.number for lane in warp.lanes]
    return (
        warp.number, warp.valid, warp.exited, warp.broken, warp.barrier, warp.lanes,
        warp.uniform_predicates(),
        [warp.uniform_register(n) for n in range(70)],
        [warp.convergence_barrier(n) for n in range(20)],
        [[warp.register(n, r) for r in range(34)] for n in numbers],
        [warp.predicates(n) for n in numbers],
    )  # fmt: skip
