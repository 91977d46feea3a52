"""The kernel that NVIDIA/Fuser #5076 prints, with its faults selectable.

T4 = T0 * T1 for f32 matrices, row by row, through a ring of two stages per operand. 384 threads in
a (128, 3) block: warps 0-7 (``threadIdx.y`` 0 and 1) compute; of the padded third warpgroup, warp 8
copies rows of T0 and warp 9 rows of T1, one bulk copy per row. Two *full* barriers (count 2: one
``arrive.expect_tx`` from each copying warp) and two *empty* barriers (count 256: every computing
thread) serve both operands; the compute threads open the stages by one arrival before the loop.

The pull request reports that the kernel hangs, and that it runs when debug output slows it down. As
printed it has these faults:

* ``open_twice`` (B001): the prologue that opens the stages is emitted once per asynchronous warp,
  so every computing thread arrives twice on every *empty* barrier.
* ``leaf_predicate`` (B002): the branches are ``threadIdx.y == 2 && warp == 0``, else
  ``threadIdx.y == 2 && warp == 1``, else compute, so the padding warps 10 and 11 compute, too. They
  arrive on *empty* (320 arrivals instead of 256) and execute ``setmaxnreg.inc`` while the rest of
  their warpgroup executes ``dec``.
* ``dead_role`` (B003): inside the branch of warp 1 the copy is predicated with
  ``threadIdx.x / 32 == 0``, so T1 is never copied and *full* never gets its second arrival.
* ``early_inval``: one thread of warp 0 ends with ``mbarrier.inval`` of all barriers, and nothing
  makes it wait for the other compute warps, which may still wait and arrive on them (SEMANTICS A6).

Without the faults the kernel is correct, although both copying warps share a *full* barrier: with
count 2, no phase can complete before both have announced their bytes. `multi_role` has one pair of
barriers per asynchronous warp, which is what the author concludes with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, Mbarriers, SharedTensor
from tilesim.ir.expr import Expr, all_of, as_expr
from tilesim.kernels.hopper.operands import Arrays, tiles
from tilesim.kernels.registry import Case

STAGES = 2
COMPUTE = (0, 1, 2, 3, 4, 5, 6, 7)
LOAD_T0, LOAD_T1, *PADDING = (8, 9, 10, 11)
COMPUTE_THREADS = 32 * len(COMPUTE)
ASYNC_REGISTERS, COMPUTE_REGISTERS = 152, 176


def multiply_reference(inputs: Arrays, **params: Any) -> Arrays:
    """T4 = T0 * T1."""
    return {"T4": inputs["T0"] * inputs["T1"]}


@dataclass(frozen=True)
class _Buffers:
    """What the branches share: the barriers (``T5`` in the print) and the operands' stages."""

    full: Mbarriers
    empty: Mbarriers
    T2: SharedTensor
    T3: SharedTensor


@kernel(warps=12, family="nvfuser", reference=multiply_reference)
def printed(
    k: Builder,
    *,
    rows: int = 8,
    columns: int = 512,
    ctas: int = 1,
    open_twice: bool = True,
    leaf_predicate: bool = True,
    dead_role: bool = True,
    early_inval: bool = True,
    register_sharing: bool = True,
) -> None:
    """T4 (rows, columns) = T0 * T1 as printed; each flag up to ``early_inval`` keeps one fault.

    Without ``register_sharing`` there is no ``setmaxnreg``, whose misuse under ``leaf_predicate``
    otherwise stops the kernel before the miscounted arrivals can.
    """
    row_count = tiles(rows, ctas, "rows")
    k.launch(grid=ctas, registers=168)
    T0 = k.tensor("T0", f32, (rows, columns))
    T1 = k.tensor("T1", f32, (rows, columns))
    T4 = k.tensor("T4", f32, (rows, columns))
    full = k.mbarriers("full", STAGES, offset=0)
    empty = k.mbarriers("empty", STAGES, offset=8 * STAGES)
    T2 = k.shared("T2", f32, (STAGES, columns), offset=128)
    T3 = k.shared("T3", f32, (STAGES, columns), offset=128 + T2.nbytes)
    buffers = _Buffers(full, empty, T2, T3)

    with k.one_thread():
        for stage in range(STAGES):
            k.mbarrier.init(full[stage], 2)
        for stage in range(STAGES):
            k.mbarrier.init(empty[stage], COMPUTE_THREADS)
    k.sync_threads()

    # threadIdx.x / 32 == 0, which no thread of warp 9 satisfies
    predicate = ((k.thread_id % 128) // 32).eq(0) if dead_role else as_expr(True)
    if leaf_predicate:
        compute: tuple[int, ...] = (*COMPUTE, *PADDING)
        with k.role("load T0", LOAD_T0):
            if register_sharing:
                k.setmaxnreg("dec", ASYNC_REGISTERS)
            _load(k, buffers, T0, T2, row_count, as_expr(True))
        with k.role("load T1", LOAD_T1):
            if register_sharing:
                k.setmaxnreg("dec", ASYNC_REGISTERS)
            _load(k, buffers, T1, T3, row_count, predicate)
    else:
        compute = COMPUTE
        with k.role("async", (LOAD_T0, LOAD_T1, *PADDING)):
            if register_sharing:
                k.setmaxnreg("dec", ASYNC_REGISTERS)
            with k.role("load T0", LOAD_T0):
                _load(k, buffers, T0, T2, row_count, as_expr(True))
            with k.role("load T1", LOAD_T1):
                _load(k, buffers, T1, T3, row_count, predicate)

    with k.role("compute", compute):
        for _ in range(2 if open_twice else 1):
            if register_sharing:
                k.setmaxnreg("inc", COMPUTE_REGISTERS)
            for stage in range(STAGES):
                k.mbarrier.arrive(empty[stage])
        _multiply(k, buffers, T4, row_count)
        if not early_inval:
            k.bar.sync(1, 32 * len(compute), aligned=False)
        with k.one_thread():
            for stage in range(STAGES):
                k.mbarrier.inval(empty[stage])
            for stage in range(STAGES):
                k.mbarrier.inval(full[stage])


def _load(
    k: Builder,
    buffers: _Buffers,
    source: GlobalTensor,
    target: SharedTensor,
    row_count: int,
    predicate: Expr,
) -> None:
    """The branch of an asynchronous warp: one bulk copy per row."""
    with k.loop(row_count) as i, k.if_(predicate), k.elected():
        stage = i % STAGES
        k.mbarrier.wait(buffers.empty[stage], (i // STAGES) % 2)
        k.mbarrier.arrive_expect_tx(buffers.full[stage], target[stage].nbytes)
        k.bulk.load(target[stage], source[k.cta_x * row_count + i], buffers.full[stage])


def _multiply(k: Builder, buffers: _Buffers, T4: GlobalTensor, row_count: int) -> None:
    """The compute loop: one row at a time, one element per thread at a time."""
    columns = T4.shape[1]
    left, right = k.var("left", dtype=f32), k.var("right", dtype=f32)
    with k.loop(row_count) as i:
        stage = i % STAGES
        k.mbarrier.wait(buffers.full[stage], (i // STAGES) % 2)
        with k.loop(-(-columns // COMPUTE_THREADS), name="j") as j:
            column = k.thread_id + j * COMPUTE_THREADS
            with k.if_(all_of(k.thread_id < COMPUTE_THREADS, column < columns)):
                k.mem.load(left, buffers.T2[stage, column])
                k.mem.load(right, buffers.T3[stage, column])
                k.mem.store(T4[k.cta_x * row_count + i, column], left * right)
        k.mbarrier.arrive(buffers.empty[stage])


def only(*faults: str) -> dict[str, bool]:
    """Parameters that keep these faults and remove the others."""
    names = ("open_twice", "leaf_predicate", "dead_role", "early_inval")
    return {name: name in faults for name in names}


_TWICE = frozenset({"deadlock", "race", "over-arrival", "phase-ambiguity", "phase-alias"})
_LEAF = frozenset({"participation", "over-arrival"})
_MISCOUNT = frozenset({"race", "over-arrival", "phase-ambiguity", "phase-alias", "deadlock"})
_DEAD = frozenset({"deadlock"})
_INVAL = frozenset({"barrier-lifetime"})

CASES = (
    Case(
        printed, {}, "nvfuser", "failed", _TWICE | _LEAF, source="B001 B002 B003", note="as printed"
    ),
    Case(printed, only("open_twice"), "nvfuser", "failed", _TWICE, source="B001"),
    Case(printed, only("leaf_predicate"), "nvfuser", "failed", _LEAF, source="B002"),
    Case(
        printed,
        {**only("leaf_predicate"), "register_sharing": False},
        "nvfuser",
        "failed",
        _MISCOUNT,
        source="B002",
        note="the padding warps' arrivals open stages that are still read",
    ),
    Case(printed, only("dead_role"), "nvfuser", "failed", _DEAD, source="B003"),
    Case(printed, only("early_inval"), "nvfuser", "failed", _INVAL),
    Case(
        printed,
        only(),
        "nvfuser",
        "proved",
        source="B001 B002 B003",
        note="all four faults removed",
    ),
    Case(
        printed,
        only(),
        "nvfuser",
        "failed",
        frozenset({"proxy-fence"}),
        strict="ptx",
        source="B036",
        note="by the text of PTX, generic reads need a proxy fence before the next copy's writes",
    ),
)
