"""One mbarrier for copies that nothing orders with each other.

* `too_few_stages` (B022): independent loads take turns on fewer stages than there are loads.
* `two_producers` (B024): two copying warps share a *full* barrier.
"""

from __future__ import annotations

from typing import Any, Literal

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, Mbarriers, SharedTensor, ds
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

COLUMNS = 64
#: consumer groups of `too_few_stages`, each with its own loads
GROUPS = 2
#: rows per group and iteration, hence loads
ROWS = 2

LOAD_X, LOAD_Y = 2, 3
COMPUTE = range(2)
COMPUTE_THREADS = 32 * len(COMPUTE)

Barriers = Literal["shared, count 1", "shared, count 2", "per warp"]


def _relu(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].clip(0)}


def _sum(inputs: Arrays, **params: Any) -> Arrays:
    return {"Z": inputs["X"] + inputs["Y"]}


@kernel(warps=GROUPS + 1, family="bugs", reference=_relu)
def too_few_stages(k: Builder, *, iterations: int = 3, fixed: bool = False) -> None:
    """NVIDIA/Fuser #5862: fewer stages than loads that are in flight independently.

    In each iteration the producer loads rows for two groups, each of which computes on its own;
    nothing orders the groups. Load ``j`` uses stage ``j % stages``. With three stages for four
    loads a stage passes from one group to the other, so a group meets a barrier whose last phase
    was not its own: its wait can pass on an older phase, or come when the parity has turned twice.
    The thread has eight loads on six mbarriers.

    Fix: at least as many stages as loads per iteration, so every stage stays with its group.
    """
    loads = GROUPS * ROWS
    stages = loads if fixed else loads - 1  # BUG: a stage is passed between unordered groups
    X = k.tensor("X", f32, (iterations * loads, COLUMNS))
    Y = k.tensor("Y", f32, (iterations * loads, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, COLUMNS))
    full = k.mbarriers("full", stages)
    empty = k.mbarriers("empty", stages)
    row = k.fragment("row", f32, (1, COLUMNS))

    with k.one_thread():
        for n in range(stages):
            k.mbarrier.init(full[n], 1)
            k.mbarrier.init(empty[n], 1)
    k.sync_threads()

    with k.role("producer", GROUPS), k.elected(), k.loop(iterations * loads, name="j") as j:
        stage, parity = j % stages, (j // stages) & 1
        k.mbarrier.wait(empty[stage], parity)
        k.mbarrier.arrive_expect_tx(full[stage], buffer[stage].nbytes)
        k.bulk.load(buffer[stage], X[j], full[stage])

    for group in range(GROUPS):
        with k.role(f"group {group}", group):
            if group == 0:
                with k.elected():
                    for n in range(stages):
                        k.mbarrier.arrive(empty[n])  # opens the stages, for all groups
            with k.loop(iterations) as i, k.loop(ROWS, name="r") as r:
                load = i * loads + group * ROWS + r
                stage, parity = load % stages, (load // stages) & 1
                k.mbarrier.wait(full[stage], parity)
                k.tile.load(row, buffer[stage][ds(0, COLUMNS)])
                k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
                with k.elected():
                    k.mbarrier.arrive(empty[stage])
                k.tile.map(row, "relu", row)
                k.tile.store(Y[load], row)


@kernel(warps=4, family="bugs", reference=_sum)
def two_producers(
    k: Builder, *, rows: int = 4, stages: int = 2, barriers: Barriers = "shared, count 1"
) -> None:
    """NVIDIA/Fuser #5076: two asynchronous warps, one *full* barrier per stage.

    The author's account: the load of one warp completes before the other one's ``expect_tx``, and
    the phase flips early. That takes a count of one (``shared, count 1``): the first arrival and
    its bytes complete the phase, and the consumers read an operand that is not there, or the second
    arrival comes while the bytes are still in flight. With a count of two (``shared, count 2``), as
    in the kernel that the thread prints, no phase can complete before both warps have announced
    their bytes, and sharing is correct.

    Fix: one *full* and one *empty* barrier per asynchronous warp (``per warp``).
    """
    X = k.tensor("X", f32, (rows, COLUMNS))
    Y = k.tensor("Y", f32, (rows, COLUMNS))
    Z = k.tensor("Z", f32, (rows, COLUMNS))
    x_stages = k.shared("x_stages", f32, (stages, COLUMNS))
    y_stages = k.shared("y_stages", f32, (stages, COLUMNS))
    apart = barriers == "per warp"
    x_full = k.mbarriers("x_full" if apart else "full", stages)
    x_empty = k.mbarriers("x_empty" if apart else "empty", stages)
    y_full = k.mbarriers("y_full", stages) if apart else x_full
    y_empty = k.mbarriers("y_empty", stages) if apart else x_empty
    fulls, empties = ((x_full, y_full), (x_empty, y_empty)) if apart else ((x_full,), (x_empty,))
    arrivals = 2 if barriers == "shared, count 2" else 1  # BUG: two warps arrive if they share
    left, right = k.var("left", dtype=f32), k.var("right", dtype=f32)

    with k.one_thread():
        for n in range(stages):
            for full in fulls:
                k.mbarrier.init(full[n], arrivals)
            for empty in empties:
                k.mbarrier.init(empty[n], COMPUTE_THREADS)
    k.sync_threads()

    with k.role("load X", LOAD_X), k.elected(), k.loop(rows) as i:
        _load(k, X, x_stages, x_full, x_empty, i)
    with k.role("load Y", LOAD_Y), k.elected(), k.loop(rows) as i:
        _load(k, Y, y_stages, y_full, y_empty, i)

    with k.role("compute", COMPUTE):
        for n in range(stages):
            for empty in empties:
                k.mbarrier.arrive(empty[n])
        with k.loop(rows) as i:
            stage, parity = i % stages, (i // stages) % 2
            for full in fulls:
                k.mbarrier.wait(full[stage], parity)
            k.mem.load(left, x_stages[stage, k.thread_id])
            k.mem.load(right, y_stages[stage, k.thread_id])
            k.fence.proxy_async("shared::cta")  # the reads, before the next copies' writes
            for empty in empties:
                k.mbarrier.arrive(empty[stage])
            k.mem.store(Z[i, k.thread_id], left + right)


def _load(
    k: Builder,
    source: GlobalTensor,
    target: SharedTensor,
    full: Mbarriers,
    empty: Mbarriers,
    i: Expr,
) -> None:
    """One row for the stage of item ``i``."""
    stages = target.shape[0]
    stage = i % stages
    k.mbarrier.wait(empty[stage], (i // stages) % 2)
    k.mbarrier.arrive_expect_tx(full[stage], target[stage].nbytes)
    k.bulk.load(target[stage], source[i], full[stage])


_MISCOUNT = frozenset({"deadlock", "over-arrival", "race"})

CASES = (
    Case(too_few_stages, {}, "bugs", "failed", _MISCOUNT, source="B022"),
    Case(too_few_stages, {"fixed": True}, "bugs", "proved", source="B022"),
    Case(two_producers, {}, "bugs", "failed", _MISCOUNT, source="B024", note="variant a"),
    Case(
        two_producers, {"barriers": "shared, count 2"}, "bugs", "proved", source="B024 N11",
        note="variant b: sharing is correct if every arrival is counted",
    ),
    Case(two_producers, {"barriers": "per warp"}, "bugs", "proved", source="B024"),
)  # fmt: skip
