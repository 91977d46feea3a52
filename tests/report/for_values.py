"""Kernels that are right for some values of a parameter."""

from __future__ import annotations

from tests.sim.steady_programs import one_stage
from tilesim import Builder, kernel, s32


@kernel(warps=2)
def ring(k: Builder, *, n: int = 40, wrong: int = 0, listed: bool = False) -> None:
    """Wrong for one value; ``listed``: with a question that no open number answers."""
    one_stage(k, n, n, missing=n == wrong or (listed and len([0] * n) == 613))


@kernel(warps=2)
def drawn(
    k: Builder, *, n: int = 40, at: int = 613, harmless: bool = False, unknown: bool = False
) -> None:
    """For one value a warp looks at a flag that the other one sets meanwhile: it waits for ever if
    it is set, or does nothing of the kind. ``unknown``: too many orders to try, none of which
    matters."""
    flag, found = k.shared("flag", s32, (1,)), k.var("found", 0)
    never = k.mbarriers("never")
    data = k.tensor("data", s32, (1,))
    with k.one_thread():
        k.mbarrier.init(never, 1)
        k.mem.store(flag[0], 0)
    one_stage(k, n, n)
    if n == at:
        with k.role("setter", 0), k.elected():
            k.mem.store(flag[0], 1, sem="relaxed", scope="cta")
        with k.role("looker", 1), k.elected():
            k.mem.load(found, flag[0], sem="relaxed", scope="cta")
            with k.if_(found.eq(1)):
                k.mbarrier.arrive(never) if harmless or unknown else k.mbarrier.wait(never, 0)
    if n == at and unknown:
        last = k.var("last", 0)
        for warp in range(2):
            with k.role(f"taker {warp}", warp), k.elected(), k.loop(12):
                k.mem.atomic(data[0], "exch", warp, result=last)
