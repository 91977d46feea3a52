"""``setmaxnreg`` that asks for more registers than the CTA was launched with: ``inc`` waits for
ever.

Both kernels copy Y = 2 X through a ring of stages, a producer warpgroup feeding consumer
warpgroups.
"""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

STAGES = 2
#: registers of an SM
REGISTERS = 65536


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] * 2}


@kernel(warps=16, family="bugs", reference=_doubled)
def too_many_consumers(
    k: Builder, *, tiles: int = 4, decrease: bool = True, fixed: bool = False
) -> None:
    """tilelang #2406; NVIDIA/cutlass #2007; pytorch/helion #3620 (B110).

    512 threads have 128 registers each at launch. The compiler uses 24 and 240 for every layout,
    but 24 * 128 + 240 * 384 = 95232 registers are more than the 65536 of the SM. Helion raised the
    consumers' and lowered no others' (``decrease`` off): 128 + 3 * 160 > 4 * 128.

    Fix: 24 + 3 * 160 <= 4 * 128.
    """
    consumer = 160 if fixed or not decrease else 240  # BUG: 24 + 3 * 240 > 4 * 128
    _pipeline(k, tiles, launch=REGISTERS // 512, groups=3, consumer=consumer, decrease=decrease)


@kernel(warps=8, family="bugs", reference=_doubled)
def two_ctas_per_sm(k: Builder, *, tiles: int = 4, fixed: bool = False) -> None:
    """tilelang #2559 (B112).

    ``__launch_bounds__(256, 2)`` asks for two CTAs per SM and so leaves 128 registers per thread,
    while 24 and 240 were chosen for one CTA: 24 + 240 > 2 * 128.

    Fix: clamp to what the bound leaves, 24 + 232 = 2 * 128.
    """
    consumer = 232 if fixed else 240  # BUG: 24 + 240 > 2 * 128
    _pipeline(k, tiles, launch=REGISTERS // 2 // 256, groups=1, consumer=consumer)


def _pipeline(
    k: Builder, tiles: int, *, launch: int, groups: int, consumer: int, decrease: bool = True
) -> None:
    """A producer warpgroup and ``groups`` consumer warpgroups, one value per consumer thread."""
    first = 4
    threads = 128 * groups
    k.launch(registers=launch)
    X = k.tensor("X", f32, (tiles, threads))
    Y = k.tensor("Y", f32, (tiles, threads))
    buffer = k.shared("buffer", f32, (STAGES, threads))
    pipe = Pipeline(k, STAGES, consumers=threads)
    value = k.var("value", dtype=f32)

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", range(first)):
        if decrease:
            k.setmaxnreg("dec", 24)
        with k.one_thread(), k.loop(tiles) as i:
            slot = pipe[i]
            slot.acquire()
            slot.commit(buffer[0].nbytes)
            k.bulk.load(buffer[slot.stage], X[i], slot.full)

    with k.role("consumer", range(first, first + 4 * groups)):
        k.setmaxnreg("inc", consumer)
        element = k.thread_id - 32 * first
        with k.loop(tiles) as i:
            slot = pipe[i]
            slot.wait()
            k.mem.load(value, buffer[slot.stage, element])
            slot.release()
            k.mem.store(Y[i, element], value * 2.0)


_POOL = frozenset({"register-pool"})

CASES = (
    Case(too_many_consumers, {}, "bugs", "failed", _POOL, source="B110"),
    Case(
        too_many_consumers, {"decrease": False}, "bugs", "failed", _POOL, source="B110",
        note="no warp gives registers back",
    ),
    Case(too_many_consumers, {"fixed": True}, "bugs", "proved", source="B110"),
    Case(two_ctas_per_sm, {}, "bugs", "failed", _POOL, source="B112"),
    Case(two_ctas_per_sm, {"fixed": True}, "bugs", "proved", source="B112"),
)  # fmt: skip
