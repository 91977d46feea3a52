"""Tiles without work: what each role does for them, and what it must leave alone."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilesim.arith.types import bf16, f32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import ds
from tilesim.ir.expr import as_expr
from tilesim.ir.program import Strict
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case, Expected
from tilesim.lib.tensor_memory import TensorMemory

ROWS, KEYS, DEPTH = 128, 16, 16
WARPGROUP = 128
SOFTMAX, CORRECTION, MMA = range(4), range(4, 8), 8

Mistake = Literal["none", "p arrivals", "own empty", "no wait", "phase flip"]


def _output(inputs: Arrays, *, tiles: str = "work empty work", **params: Any) -> Arrays:
    q, keys, v = (inputs[name].astype(np.float32) for name in ("Q", "K", "V"))
    product = (q @ keys.T) @ v.T
    rows = product * product.shape[1]
    parts = [rows if kind == "work" else np.zeros_like(rows) for kind in tiles.split()]
    return {"Y": np.concatenate(parts)}


@kernel(target="sm_100a", warps=9, family="bugs", reference=_output)
def block_sparse(
    k: Builder, *, tiles: str = "work empty work", mistake: Mistake = "phase flip"
) -> None:
    """Dao-AILab/flash-attention #2258, fec3a6a1 (B018): tiles of block-sparse attention.

    ``tiles`` says which rows of blocks have work. For those the MMA warp computes S = Q @ K.T, the
    softmax warps turn S into P and announce it together with the correction warps, which say that
    O is free (``p_full``, 256 arrivals); the MMA warp computes O = P @ V.T (``o_full``), and the
    correction warps scale it by a row statistic of the softmax warps and write it out. In an empty
    row the MMA warp does nothing; softmax and correction only exchange the statistic. The commit
    removes these mistakes:

    * ``p arrivals``: both announce P in empty rows, too, and no warp waits for it.
    * ``own empty``: in empty rows the softmax warps arrive on the barrier that says that the
      statistic may be overwritten; they should wait for it, the correction warps arrive.
    * ``no wait``: in empty rows they neither arrive nor wait.
    * ``phase flip``: the correction warps flip their phase of ``o_full`` after empty rows, too,
      although no thread arrives. An even number of empty rows hides it.
    """
    kinds = tiles.split()
    if not kinds or set(kinds) - {"work", "empty"}:
        raise UsageError(f"{tiles=} must be words 'work' and 'empty'")
    count = len(kinds)
    Q, K, V = (k.tensor(n, bf16, (ROWS if n == "Q" else KEYS, DEPTH)) for n in "QKV")
    Y = k.tensor("Y", f32, (count * ROWS, KEYS))
    boxes = [k.tensor_map(t, t.shape, swizzle=32) for t in (Q, K, V)]
    q, keys, v = shared = [k.shared(f"s{t.name}", bf16, t.shape, swizzle=32) for t in (Q, K, V)]
    statistic = k.shared("statistic", f32, (ROWS,))
    loaded, s_full, p_full, o_full = (
        k.mbarriers(n) for n in ("loaded", "s_full", "p_full", "o_full")
    )
    stat_full, stat_empty = k.mbarriers("stat_full"), k.mbarriers("stat_empty")
    scores = k.fragment("scores", f32, (ROWS, KEYS), "warpgroup")
    p_part = k.fragment("p_part", bf16, (ROWS, KEYS), "warpgroup")
    acc = k.fragment("acc", f32, (ROWS, KEYS), "warpgroup")
    memory = TensorMemory(k, 64)
    memory.allocate()
    with k.one_thread():
        for barrier, arrivals in (
            (loaded, 1), (s_full, 1), (p_full, 2 * WARPGROUP), (o_full, 1),
            (stat_full, WARPGROUP), (stat_empty, WARPGROUP),
        ):  # fmt: skip
            k.mbarrier.init(barrier, arrivals)
    k.sync_threads()
    address = memory.address()
    s = k.tcgen05.tensor(address, f32, (ROWS, KEYS), name="s")
    p = k.tcgen05.tensor(address + KEYS, bf16, (ROWS, KEYS), name="p")
    o = k.tcgen05.tensor(address + 2 * KEYS, f32, (ROWS, KEYS), name="o")
    mask = k.scalar("mask", sum((kind == "work") << i for i, kind in enumerate(kinds)), u32)
    s_phase, p_phase, o_phase, full_phase, empty_phase = (
        k.var(f"{name}_phase", 0) for name in ("s", "p", "o", "full", "empty")
    )
    value = k.var("value", dtype=f32)

    with k.role("mma", MMA), k.elected():
        k.mbarrier.arrive_expect_tx(loaded, sum(box.box_bytes for box in boxes))
        for box, tile in zip(boxes, shared, strict=True):
            k.tma.load(box, tile, (0, 0), loaded)
        k.mbarrier.wait(loaded, 0)
        with k.loop(count, name="tile") as i, k.if_((mask >> i) & 1):
            k.tcgen05.mma(s, q, keys, accumulate=0)
            k.tcgen05.commit(s_full)
            k.mbarrier.wait(p_full, p_phase)
            k.assign(p_phase, p_phase ^ 1)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(o, p, v, accumulate=0)
            k.tcgen05.commit(o_full)

    with k.role("softmax", SOFTMAX), k.loop(count, name="tile") as i:
        with k.if_((mask >> i) & 1):
            k.mbarrier.wait(s_full, s_phase)
            k.assign(s_phase, s_phase ^ 1)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(scores, s)
            k.tcgen05.wait_ld()
            k.tile.cast(p_part, scores)
            k.tcgen05.st(p, p_part)
            k.tcgen05.wait_st()
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(p_full)
            k.mbarrier.wait(stat_empty, empty_phase ^ 1)
            k.assign(empty_phase, empty_phase ^ 1)
            k.mem.store(statistic[k.thread_id], float(KEYS))
        with k.else_():
            if mistake == "p arrivals":
                k.mbarrier.arrive(p_full)  # BUG: no mma waits in an empty row
            if mistake == "own empty":
                k.mbarrier.arrive(stat_empty)  # BUG: they should wait for it
            elif mistake != "no wait":
                k.mbarrier.wait(stat_empty, empty_phase ^ 1)
                k.assign(empty_phase, empty_phase ^ 1)
            k.mem.store(statistic[k.thread_id], 0.0)
        k.mbarrier.arrive(stat_full)

    with k.role("correction", CORRECTION), k.loop(count, name="tile") as i:
        work, always = (mask >> i) & 1, as_expr(1)
        with k.if_(always if mistake == "p arrivals" else work):
            k.mbarrier.arrive(p_full)  # O is free
        k.mbarrier.wait(stat_full, full_phase)
        k.assign(full_phase, full_phase ^ 1)
        k.mem.load(value, statistic[k.thread_id - WARPGROUP])
        k.mbarrier.arrive(stat_empty)
        k.tile.fill(acc, 0.0)
        with k.if_(work):
            k.mbarrier.wait(o_full, o_phase)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(acc, o)
            k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            k.tile.zip(acc, "mul", acc, value)
        k.tile.store(Y[ds(i * ROWS, ROWS)], acc)
        with k.if_(always if mistake == "phase flip" else work):
            k.assign(o_phase, o_phase ^ 1)  # BUG: if there was no arrival
    memory.free()


_ORDER = frozenset({"tcgen05-order"})
_RACE, _DEADLOCK = frozenset({"race"}), frozenset({"deadlock"})


def _case(tiles: str, mistake: Mistake, rule: frozenset[str] = frozenset(), note: str = "") -> Case:
    """A case that fails with ``rule``, or is proved if there is none, by the text of PTX."""
    params = {"tiles": tiles, "mistake": mistake}
    expected: Expected = "failed" if rule else "proved"
    strict: Strict = "practice" if rule else "ptx"
    return Case(block_sparse, params, "bugs", expected, rule, strict, source="B018", note=note)


_TILES, _DENSE = "work empty work", "work work"

CASES = (
    _case(_TILES, "phase flip", _DEADLOCK, "some schedules"),
    _case(_TILES, "p arrivals", _ORDER),
    _case(_TILES, "own empty", _RACE),
    _case(_TILES, "no wait", _RACE),
    _case("work empty empty work", "phase flip", note="hidden: an even number of empty rows"),
    *(
        _case(_DENSE, mistake, note="hidden: no empty row")
        for mistake in ("phase flip", "p arrivals", "own empty", "no wait")
    ),
    _case(_TILES, "none"),
    _case(_DENSE, "none"),
    _case("empty empty work", "none", note="from empty row to empty row"),
    _case("work empty empty work", "none"),
    _case("empty", "none"),
    _case("empty work empty", "none"),
)
