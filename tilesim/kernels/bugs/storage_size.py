"""Storage size and logical size of a swizzled tensor, one taken for the other (B032)."""

from __future__ import annotations

from typing import Any, Literal

from tilesim.arith.types import bf16
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

WARPS = 2
#: rows per consuming warp
ROWS = 16
HEIGHT = WARPS * ROWS
#: 32 bf16 fill half of a row of the 128-byte swizzle
COLUMNS = 32

Mistake = Literal["expects storage", "allocates logical", "none"]


def _sum(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["A"] + inputs["B"]}


@kernel(warps=WARPS + 1, family="bugs", reference=_sum)
def narrow_rows(k: Builder, *, mistake: Mistake = "expects storage") -> None:
    """NVIDIA/tilus #88: a swizzled row takes 128 bytes of storage, 64 of them are copied.

    A copy completes the *logical* size of the box on its barrier, while the allocation must have
    the size of the *storage*. A compiler with one notion of size gets one of them wrong: expecting
    the storage size waits for bytes that no copy brings (``expects storage``); allocating the
    logical size puts the next buffer into the second half of this one (``allocates logical``), and
    the two copies overwrite each other.

    Fix: two quantities, the box's bytes for the barrier and the layout's bytes for the allocation.
    """
    A = k.tensor("A", bf16, (HEIGHT, COLUMNS))
    B = k.tensor("B", bf16, (HEIGHT, COLUMNS))
    Y = k.tensor("Y", bf16, (HEIGHT, COLUMNS))
    a_map = k.tensor_map(A, (HEIGHT, COLUMNS), swizzle=128)
    b_map = k.tensor_map(B, (HEIGHT, COLUMNS), swizzle=128)
    sA = k.shared("sA", bf16, (HEIGHT, COLUMNS), swizzle=128, offset=1024)
    size = sA[:, :].nbytes if mistake == "allocates logical" else sA.nbytes  # BUG: if logical
    sB = k.shared("sB", bf16, (HEIGHT, COLUMNS), swizzle=128, offset=1024 + size)
    full = k.mbarriers("full", offset=0)
    a = k.fragment("a", bf16, (ROWS, COLUMNS))
    b = k.fragment("b", bf16, (ROWS, COLUMNS))

    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()

    with k.role("producer", WARPS), k.elected():
        if mistake == "expects storage":
            k.mbarrier.arrive_expect_tx(full, sA.nbytes + sB.nbytes)  # BUG: more than is copied
        else:
            k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA, (0, 0), full)
        k.tma.load(b_map, sB, (0, 0), full)

    with k.role("consumer", range(WARPS)):
        mine = ds(k.warp_id * ROWS, ROWS)
        k.mbarrier.wait(full, 0)
        k.tile.load(a, sA[mine, :])
        k.tile.load(b, sB[mine, :])
        k.tile.zip(a, "add", a, b)
        k.tile.store(Y[mine, :], a)


CASES = (
    Case(narrow_rows, {}, "bugs", "failed", frozenset({"deadlock"}), source="B032", note="swap 1"),
    Case(
        narrow_rows, {"mistake": "allocates logical"}, "bugs", "failed", frozenset({"race"}),
        source="B032", note="swap 2",
    ),
    Case(narrow_rows, {"mistake": "none"}, "bugs", "proved", source="B032"),
)  # fmt: skip
