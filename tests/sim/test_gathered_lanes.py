"""What one lane has waited for: no instruction that gathers lanes tells the others (E19, E20)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilesim as ts
from tilesim import Builder, f32, kernel, u32
from tilesim.dsl.kernel import Kernel
from tilesim.ir.expr import Var
from tilesim.lib.opening import open_cta

Gathering = Callable[[Builder, Var], None]
GATHERING: dict[str, Gathering] = {
    "any": lambda k, seen: k.warp.vote(seen, k.lane_id > 3, "any"),
    "ballot": lambda k, seen: k.warp.ballot(seen, k.lane_id > 3),
    "match any": lambda k, seen: k.warp.match_any(seen, k.lane_id),
    "redux": lambda k, seen: k.warp.redux(seen, "add", k.lane_id),
    "shuffle": lambda k, seen: k.mem.shuffle(seen, k.lane_id, 0),
    "activemask": lambda k, seen: k.warp.activemask(seen),
}


def waits_for_others(gathers: Gathering, *, needed: bool) -> Kernel:
    """The first lane waits for a tile that all of them read; ``needed``: the result decides."""

    @kernel(warps=1)
    def waits(k: Builder, *, meets: bool = True) -> None:
        X, Y, Z = (k.tensor(name, f32, (32,)) for name in "XYZ")
        tile, x, full = k.shared("tile", f32, (32,)), k.var("x", dtype=f32), k.mbarriers("full")
        seen = k.var("seen", 0, dtype=u32)
        open_cta(k, (full, 1))
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.arrive_expect_tx(full, 128)
            k.bulk.load(tile, X, full)
            k.mbarrier.wait(full, 0)
        gathers(k, seen)
        if meets:
            k.sync_warp()
        k.mem.load(x, tile[k.lane_id])
        k.mem.store(Y[k.lane_id], x)
        if needed:
            with k.if_(seen.eq(77)):
                k.mem.store(Z[k.lane_id], x)

    return waits


@pytest.mark.parametrize("needed", [False, True])
@pytest.mark.parametrize("gathers", GATHERING)
def test_only_a_meeting_hands_it_on(gathers: str, needed: bool) -> None:
    waits = waits_for_others(GATHERING[gathers], needed=needed)
    right = ts.check(waits.build(), strict="ptx")
    assert right.findings == ()
    assert right.verdict == ("bounded" if needed and gathers == "activemask" else "proved")
    assert ts.check(waits.build(meets=False)).rules == {"race"}
