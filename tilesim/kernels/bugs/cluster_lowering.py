"""What a compiler got wrong while it lowered cluster copies (tilelang #1908, review).

* `aliased_barriers` (B100): two lists of barriers that both start at barrier 0.
* `barrier_ids` (B101): ids of named barriers from the size of a map that holds reserved ones.
* `flattened_region` (B115): a strided region copied as if it were contiguous.
"""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

ROWS, COLUMNS = 8, 32
TILE_BYTES = ROWS * COLUMNS * f32.bytes
#: tilelang's reserved ids of named barriers, and the first that it hands out
RESERVED, FIRST = {"producer": 3, "consumer": 4}, 5


def _sum(inputs: Arrays, **params: Any) -> Arrays:
    return {"Z": inputs["X"] + inputs["Y"]}


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"]}


def _right_half(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"][:, COLUMNS:]}


@kernel(warps=2, family="bugs", reference=_sum)
def aliased_barriers(k: Builder, *, fixed: bool = False) -> None:
    """tilelang #1908: every list of barriers starts at ``get_mbarrier(0)``.

    The loads of X and of Y have a barrier each, from two lists; both are barrier 0. The arrival for
    Y meets a phase whose only arrival was that for X, or, if X has landed in between, Y's load
    counts for a phase that no thread waits for.

    Fix: every list continues where the one before ended.
    """
    X, Y, Z = (k.tensor(name, f32, (ROWS, COLUMNS)) for name in ("X", "Y", "Z"))
    left, right = (k.shared(name, f32, (ROWS, COLUMNS)) for name in ("left", "right"))
    barriers = k.mbarriers("barriers", 2 if fixed else 1)
    x_loaded, y_loaded = barriers[0], barriers[1 if fixed else 0]
    a, b = (k.fragment(name, f32, (ROWS, COLUMNS)) for name in ("a", "b"))
    open_cluster(k, (barriers, 1))

    with k.role("producer", 1), k.elected():
        k.mbarrier.arrive_expect_tx(x_loaded, TILE_BYTES)
        k.bulk.load(left, X, x_loaded)
        k.mbarrier.arrive_expect_tx(y_loaded, TILE_BYTES)  # BUG: the same barrier
        k.bulk.load(right, Y, y_loaded)
    with k.role("consumer", 0):
        k.mbarrier.wait(x_loaded, 0)
        k.tile.load(a, left)
        k.mbarrier.wait(y_loaded, 0)
        k.tile.load(b, right)
        k.tile.zip(a, "add", a, b)
        k.tile.store(Z, a)


@kernel(warps=4, family="bugs", reference=_copy)
def barrier_ids(k: Builder, *, syncs: int = 10, fixed: bool = False) -> None:
    """tilelang #1908: a named barrier's id is derived from the size of the map of ids.

    Reserved ids are entered into the map as well, so the ids that are handed out have gaps; ten
    partial barriers would fit after id 4, with the gaps the last one has id 16.

    Fix: count the ids that were handed out, and check that they end at 15.
    """
    X, Y = (k.tensor(name, f32, (syncs, 32)) for name in ("X", "Y"))
    row, part = k.shared("row", f32, (syncs, 32)), k.fragment("part", f32, (1, 32))
    ids = dict(RESERVED)

    for n in range(syncs):
        name = f"sync{n}"
        ids[name] = FIRST + (n if fixed else len(ids))
        first = 2 * (n % 2)
        with k.role(f"write{n}", first):
            k.tile.load(part, X[n])
            k.tile.store(row[n], part)
        with k.role(name, (first, first + 1)):
            k.bar.sync(ids[name], 64, aligned=False)  # BUG: id 16 for the tenth
        with k.role(f"read{n}", first + 1):
            k.tile.load(part, row[n])
            k.tile.store(Y[n], part)


@kernel(warps=1, family="bugs", reference=_right_half)
def flattened_region(k: Builder, *, fixed: bool = False) -> None:
    """tilelang #1908: the fast path of a cluster copy flattens a strided region.

    The right half of an 8 x 64 tile goes to a peer. The address of its first element and the number
    of its elements are right, but its rows are not adjacent: one bulk copy takes whole rows of the
    tile and ends beyond it.

    Fix: check that both regions are contiguous, else copy row by row (``k.tile.copy_cluster``).
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (ROWS, 2 * COLUMNS))
    Y = k.tensor("Y", f32, (ROWS, COLUMNS))
    tile, theirs = k.shared("tile", f32, X.shape), k.shared("theirs", f32, Y.shape)
    loaded, arrived = k.mbarriers("loaded"), k.mbarriers("arrived")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (loaded, 1), (arrived, 1))

    with k.if_(k.cluster_rank.eq(0)), k.role("sender", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, X.nbytes)
            k.bulk.load(tile, X, loaded)
        k.mbarrier.wait(loaded, 0)
        half = tile[:, COLUMNS:]
        if fixed:
            k.tile.copy_cluster(half, theirs, dst_cta=1, barrier=arrived)
        else:
            with k.elected():
                k.bulk.copy(theirs.view().at(1), half, arrived[0].at(1))  # BUG: not contiguous
    with k.if_(k.cluster_rank.eq(1)), k.role("receiver", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(arrived, theirs.nbytes)
        k.mbarrier.wait(arrived, 0, scope="cluster")
        k.tile.load(part, theirs)
        k.tile.store(Y, part)
    k.cluster.sync()


_ALIAS = frozenset({"over-arrival", "deadlock", "race"})

CASES = (
    Case(aliased_barriers, {}, "bugs", "failed", rule=_ALIAS, source="B100"),
    Case(aliased_barriers, {"fixed": True}, "bugs", "proved", source="B100"),
    Case(
        barrier_ids, {}, "bugs", "rejected", rule=frozenset({"named-barrier"}), source="B101"
    ),
    Case(barrier_ids, {"fixed": True}, "bugs", "proved", source="B101"),
    Case(barrier_ids, {"syncs": 9}, "bugs", "proved", source="B101", note="the last id is 15"),
    Case(
        flattened_region, {}, "bugs", "failed", rule=frozenset({"out-of-bounds"}), source="B115"
    ),
    Case(flattened_region, {"fixed": True}, "bugs", "proved", source="B115"),
)  # fmt: skip
