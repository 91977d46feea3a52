"""From the shared memory of one CTA to that of another, completing on the receiver's barrier.

`push` copies a contiguous tile. `push_2d` and `push_3d` copy slices out of a larger tensor into a
slice of another, which no single bulk copy can do: one bulk copy per contiguous row, or stores of
single elements where rows do not fit bulk copies. Which path was taken is in the `CopyPlan`, from
which the receiver arms its barrier.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.copy_cluster import Path
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, SharedTensor, View
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

#: cluster ranks
SENDER, RECEIVER = 0, 1
ROWS, COLUMNS = 16, 64
#: the slices that are copied, and where they land
FROM_2D, TO_2D = (slice(4, 12), slice(16, 48)), (slice(2, 10), slice(0, 32))
FROM_3D = (slice(1, 3), slice(2, 6), slice(8, 24))
TO_3D = (slice(0, 2), slice(4, 8), slice(16, 32))

Arrays = dict[str, NDArray[Any]]


def whole(inputs: Arrays, *, path: Path | None) -> Arrays:
    """The tile as it was."""
    return {"Y": inputs["X"]}


def slice_2d(inputs: Arrays, *, path: Path | None) -> Arrays:
    """The rows and columns that were sent."""
    return {"Y": inputs["X"][FROM_2D]}


def slice_3d(inputs: Arrays, *, path: Path | None) -> Arrays:
    """The box that was sent."""
    return {"Y": inputs["X"][FROM_3D]}


@kernel(warps=1, family="cluster", reference=whole)
def push(k: Builder, *, path: Path | None = None) -> None:
    """Rank 0 loads X and sends it to rank 1, which writes Y."""
    X = k.tensor("X", f32, (ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (ROWS, COLUMNS))
    mine, theirs = k.shared("mine", f32, X.shape), k.shared("theirs", f32, X.shape)
    _send(k, X, mine, mine.view(), theirs.view(), [(theirs.view(), Y.view())], path)


@kernel(warps=1, family="cluster", reference=slice_2d)
def push_2d(k: Builder, *, path: Path | None = None) -> None:
    """Rank 0 sends 8 x 32 elements out of 16 x 64 into a 16 x 32 tensor of rank 1."""
    X = k.tensor("X", f32, (ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (8, 32))
    mine, theirs = k.shared("mine", f32, X.shape), k.shared("theirs", f32, (ROWS, 40))
    _send(k, X, mine, mine[FROM_2D], theirs[TO_2D], [(theirs[TO_2D], Y.view())], path)


@kernel(warps=1, family="cluster", reference=slice_3d)
def push_3d(k: Builder, *, path: Path | None = None) -> None:
    """Rank 0 sends a 2 x 4 x 16 box out of a 4 x 8 x 32 tensor."""
    X = k.tensor("X", f32, (4, 8, 32))
    Y = k.tensor("Y", f32, (2, 4, 16))
    mine, theirs = k.shared("mine", f32, X.shape), k.shared("theirs", f32, (2, 8, 32))
    box = theirs[TO_3D]
    _send(k, X, mine, mine[FROM_3D], box, [(box[i], Y[i]) for i in range(2)], path)


def _send(
    k: Builder, X: GlobalTensor, mine: SharedTensor, src: View, dst: View,
    results: list[tuple[View, View]], path: Path | None,
) -> None:  # fmt: skip
    """``mine`` = X and ``dst`` = ``src`` across two CTAs; the receiver stores ``results``."""
    k.launch(grid=2, cluster=2)
    loaded, arrived = k.mbarriers("loaded"), k.mbarriers("arrived")
    part = k.fragment("part", f32, results[0][0].shape)
    plan = k.tile.plan_cluster_copy(src, dst, dst_cta=RECEIVER, barrier=arrived, path=path)
    open_cluster(k, (loaded, 1), (arrived, 1 + plan.arrivals))

    with k.if_(k.cluster_rank.eq(SENDER)), k.role("sender", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, X.nbytes)
            k.bulk.load(mine, X, loaded)
        k.mbarrier.wait(loaded, 0)
        k.tile.copy_cluster(src, dst, dst_cta=RECEIVER, barrier=arrived, path=path)
    with k.if_(k.cluster_rank.eq(RECEIVER)), k.role("receiver", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(arrived, plan.bytes)
        k.mbarrier.wait(arrived, 0, scope="cluster")
        for got, result in results:
            k.tile.load(part, got)
            k.tile.store(result, part)
    k.cluster.sync()


CASES = (
    Case(push, {}, "cluster", "proved", note="one bulk copy"),
    Case(push, {"path": "rows"}, "cluster", "proved"),
    Case(push, {"path": "elements"}, "cluster", "proved"),
    Case(push_2d, {}, "cluster", "proved", note="a bulk copy per row"),
    Case(push_2d, {"path": "elements"}, "cluster", "proved"),
    Case(push_3d, {}, "cluster", "proved", note="a bulk copy per row"),
    Case(push_3d, {"path": "elements"}, "cluster", "proved"),
)
