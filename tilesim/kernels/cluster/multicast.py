"""One load for several CTAs: the multicast demonstration of tilelang #1908.

Four CTAs, mask ``0b0011``: rank 0 loads its tile once and it lands in the shared memory of ranks 0
and 1, at the same offset, and completes on the barrier of each. Rank 1 issues nothing, it only
expects the bytes. Ranks 2 and 3 load their own tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

CTAS, ROWS, COLUMNS = 4, 16, 64

Arrays = dict[str, NDArray[Any]]


def received(inputs: Arrays, *, mask: int, tensor_map: bool) -> Arrays:
    """Masked CTAs have the tile of the lowest masked rank, the others their own."""
    tiles = inputs["X"].reshape(CTAS, ROWS, COLUMNS)
    lowest = (mask & -mask).bit_length() - 1
    got = [tiles[lowest if mask >> rank & 1 else rank] for rank in range(CTAS)]
    return {"Y": np.concatenate(got)}


@kernel(warps=1, family="cluster", reference=received)
def multicast(k: Builder, *, mask: int = 0b0011, tensor_map: bool = True) -> None:
    """Y = X per CTA, except that the CTAs of ``mask`` share the tile of the lowest of them."""
    k.launch(grid=CTAS, cluster=CTAS)
    X = k.tensor("X", f32, (CTAS * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (CTAS * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile = k.shared("tile", f32, (ROWS, COLUMNS))
    loaded = k.mbarriers("loaded")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (loaded, 1))

    own = ds(k.cluster_rank * ROWS, ROWS)
    with k.role("copy", 0):
        plan = k.tile.copy_cluster(
            X[own], tile, cluster_mask=mask, barrier=loaded, map=x_map if tensor_map else None
        )
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, plan.bytes)
        k.mbarrier.wait(loaded, 0, scope="cluster")
        k.tile.load(part, tile)
        k.tile.store(Y[own], part)
    k.cluster.sync()


CASES = (
    Case(multicast, {}, "cluster", "proved"),
    Case(multicast, {"tensor_map": False}, "cluster", "proved", note="bulk copy, no tensor map"),
    Case(multicast, {"mask": 0b1111}, "cluster", "proved", note="no CTA loads for itself"),
    Case(multicast, {"mask": 0b1010}, "cluster", "proved", note="rank 1 issues"),
)
