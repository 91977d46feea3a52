"""A ring: every CTA passes what it received on to its right neighbour, until all have seen all.

After ``ctas - 1`` steps every CTA has added every tile. Each step has an inbox and a barrier of its
own, so a fast neighbour never overwrites a tile that is still being added or sent on; all bytes
are expected before the first copy can be issued.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import ds
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

ROWS, COLUMNS = 8, 64

Arrays = dict[str, NDArray[Any]]


def total(inputs: Arrays, *, ctas: int) -> Arrays:
    """The sum of all tiles, once per CTA."""
    tiles = inputs["X"].reshape(ctas, ROWS, COLUMNS)
    return {"Y": np.concatenate([tiles.sum(axis=0)] * ctas)}


@kernel(warps=1, family="cluster", reference=total)
def ring(k: Builder, *, ctas: int = 4) -> None:
    """Y = sum of the tiles of X (8 x 64 each), in every CTA of the cluster."""
    if ctas < 2:
        raise UsageError(f"{ctas=}: a ring needs at least two CTAs")
    k.launch(grid=ctas, cluster=ctas)
    steps = ctas - 1
    X = k.tensor("X", f32, (ctas * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (ctas * ROWS, COLUMNS))
    own = k.shared("own", f32, (ROWS, COLUMNS))
    inbox = k.shared("inbox", f32, (steps, ROWS, COLUMNS))
    loaded, arrived = k.mbarriers("loaded"), k.mbarriers("arrived", steps)
    acc, part = k.fragment("acc", f32, own.shape), k.fragment("part", f32, own.shape)
    open_cluster(k, (loaded, 1), (arrived, 1))

    rows = ds(k.cluster_rank * ROWS, ROWS)
    right = (k.cluster_rank + 1) % ctas
    with k.role("ring", 0):
        with k.elected():
            for step in range(steps):
                k.mbarrier.arrive_expect_tx(arrived[step], own.nbytes)
            k.mbarrier.arrive_expect_tx(loaded, own.nbytes)
            k.bulk.load(own, X[rows], loaded)
        k.mbarrier.wait(loaded, 0)
        k.tile.load(acc, own)
        for step in range(steps):
            outgoing = own.view() if step == 0 else inbox[step - 1]
            k.tile.copy_cluster(outgoing, inbox[step], dst_cta=right, barrier=arrived[step])
            k.mbarrier.wait(arrived[step], 0, scope="cluster")
            k.tile.load(part, inbox[step])
            k.tile.zip(acc, "add", acc, part)
        k.tile.store(Y[rows], acc)
    k.cluster.sync()


CASES = (
    Case(ring, {}, "cluster", "proved"),
    Case(ring, {"ctas": 2}, "cluster", "proved"),
    Case(ring, {"ctas": 8}, "cluster", "proved", note="the largest portable cluster"),
)
