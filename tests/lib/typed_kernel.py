"""A kernel as a user with types writes it: mypy and pyright accept every line of it in strict mode.

Every idiom of the documentation that an annotation could get wrong is here once.
"""

from __future__ import annotations

from typing import assert_type

import tilesim as ts
from tilesim.ir.expr import Expr, Var
from tilesim.lib import Pipeline, Striding, TensorMemory, open_cta

STAGES = 2


@ts.kernel(target="sm_100a", warps=8)
def typed(k: ts.Builder, *, items: int = 5, tiles: int = 2, ctas: int = 2) -> None:
    """Numbers of stages and phases by hand and by the library."""
    k.launch(grid=ctas)
    n = 3
    X = k.tensor("X", ts.f32, (tiles, items, 32))
    slots, own = (k.shared(name, "f32", (STAGES, 32)) for name in ("slots", "own"))
    row = k.fragment("row", ts.f32, (1, 32))
    full, empty = k.mbarriers("full", n), k.mbarriers("empty", n)
    pipe = Pipeline(k, STAGES, name="ring")
    schedule = Striding(k, tiles, ctas)
    memory = TensorMemory(k, 32)
    phase, seen = k.var("phase", 0), k.var("seen", 0, ts.u32)
    open_cta(k, pipe, (full, 1), (empty, 1))

    with memory.allocated() as address:
        left = k.tcgen05.tensor(address, ts.f32, (128, 32))
        assert left.shape == (128, 32)

    with k.role("load", 0), k.elected():
        filling = pipe.cursor("load")
        with schedule.each() as tile, k.loop(items, name="i") as i:
            slot = filling.slot
            slot.acquire()
            slot.commit(slots[0].nbytes)
            k.bulk.load(slots[slot.stage], X[tile, i], slot.full)
            filling.advance()
            assert_type(i, Var)

    with k.warpgroup(1, "use") as warps:
        reading = pipe.cursor("use")
        with schedule.each() as tile, k.loop(items) as i:
            first, turn = i % n, i // n & 1
            assert_type((first, turn), tuple[Expr, Expr])
            again = 1 - turn if items > n else turn
            last = ts.select(i.eq(items - 1), 1, 0) + -again * 0
            slot = reading.slot
            slot.wait()
            with k.role("reads", 4):
                k.tile.load(row, slots[slot.stage])
                with k.elected():
                    slot.release()
            reading.advance()
            with warps.one_thread():
                k.mbarrier.arrive(full[first])
            k.mbarrier.wait(full[first], turn ^ schedule.turn(tile) & 0)
            warps.sync()
            phase ^= 1
            seen += 1
            with k.if_(ts.all_of(i > 0, phase.ne(0), last <= 1)):
                k.assign(seen, ts.minimum(seen, 7))
            with k.else_():
                k.mem.store(own[0, k.lane_id], ts.maximum(seen, i))
            with k.while_(seen > 100):
                k.break_()


def verdict() -> str:
    """What a user does with it."""
    program: ts.Program = typed.build(items=3, tiles=1, ctas=1)
    report = ts.check(program, strict="practice", budget=100_000)
    finding = report.findings[0] if report.findings else None
    return report.verdict if finding is None else f"{finding.rule} {finding.locations[0].line}"
