"""Copies through shared memory: one thread, the TMA engine, no register ever holds the data.

A load is tracked by an mbarrier, a store by the issuing thread's bulk groups. Before a stage is
loaded again, ``wait_group.read`` makes sure that the store which leaves from it has *read* it;
whether that store has reached global memory does not matter for the stage.
"""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays, tiles
from tilesim.kernels.registry import Case


def _same(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].copy()}


@kernel(warps=1, family="hopper", reference=_same)
def vector(k: Builder, *, n: int = 4096, chunk: int = 256, stages: int = 2, ctas: int = 2) -> None:
    """Y = X for n f32 values with non-tensor bulk copies of ``chunk`` values; no tensor map."""
    chunks = tiles(n, chunk * ctas, "n")
    k.launch(grid=ctas)
    X = k.tensor("X", f32, (n,))
    Y = k.tensor("Y", f32, (n,))
    buffer = k.shared("buffer", f32, (stages, chunk))
    loaded = k.mbarriers("loaded", stages)

    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(loaded[s], 1)

        with k.loop(chunks) as i:
            stage = i % stages
            part = ds((k.cta_x * chunks + i) * chunk, chunk)
            k.bulk.wait_group(stages - 1, read=True)  # the stage's previous store has read it
            k.mbarrier.arrive_expect_tx(loaded[stage], buffer[stage].nbytes)
            k.bulk.load(buffer[stage], X[part], loaded[stage])
            k.mbarrier.wait(loaded[stage], (i // stages) & 1)
            k.bulk.store(Y[part], buffer[stage])
            k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)


@kernel(warps=2, family="hopper", reference=_same)
def tensor(
    k: Builder, *, rows: int = 100, columns: int = 72, box: int = 32, stages: int = 2
) -> None:
    """Y = X for a matrix of any size: a load warp and a store warp share a ring of boxes.

    Boxes at the right and lower edge stick out of the matrix. Loads fill the outside with zeros
    and complete the bytes of the whole box, so the expected count is always ``box_bytes``; stores
    skip the outside.
    """
    down, across = -(-rows // box), -(-columns // box)
    X = k.tensor("X", bf16, (rows, columns))
    Y = k.tensor("Y", bf16, (rows, columns))
    x_map = k.tensor_map(X, (box, box), swizzle=64)
    y_map = k.tensor_map(Y, (box, box), swizzle=64)
    buffer = k.shared("buffer", bf16, (stages, box, box), swizzle=64)
    full = k.mbarriers("full", stages)
    empty = k.mbarriers("empty", stages)

    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(full[s], 1)
            k.mbarrier.init(empty[s], 1)
    k.sync_threads()

    with k.role("load", 0), k.elected(), k.loop(down * across) as i:
        stage, row, column = i % stages, i // across * box, i % across * box
        k.mbarrier.wait(empty[stage], ((i // stages) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[stage], x_map.box_bytes)
        k.tma.load(x_map, buffer[stage], (row, column), full[stage])

    with k.role("store", 1), k.elected(), k.loop(down * across) as i:
        stage, row, column = i % stages, i // across * box, i % across * box
        k.mbarrier.wait(full[stage], (i // stages) & 1)
        k.tma.store(y_map, buffer[stage], (row, column))
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)
        k.mbarrier.arrive(empty[stage])


CASES = (
    Case(vector, {}, "hopper", "proved"),
    Case(vector, {"stages": 1, "n": 1024, "ctas": 1}, "hopper", "proved"),
    Case(tensor, {}, "hopper", "proved"),
    Case(tensor, {"rows": 5, "columns": 8}, "hopper", "proved", note="less than one box"),
)
