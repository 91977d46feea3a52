"""A vector that acquires or releases races where its elements do in some order, and only there
(SEMANTICS H15)."""

from __future__ import annotations

from itertools import permutations

import pytest

from tilesim import Builder, ds, s32
from tilesim.sim.machine.simulate import simulate

#: how a vector is accessed: at once, or element by element in an order
Order = tuple[int, ...] | None


def _races(
    order: Order, flag: int, word: int, *, lanes: int, loads: bool, size: int
) -> bool:  # fmt: skip
    """Whether what W1 does with a word races. The words of each lane are a vector (and one more,
    which is data); it is stored as a whole, or else loaded, and the other side names ``flag``."""
    k = Builder("orders", "sm_90a", warps=2)
    n = size + 4
    s, done = k.shared("s", s32, (32 * n,)), k.mbarriers("done", 1)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(done, lanes)
    with k.if_(k.thread_id < 32):
        for part in range(n):
            k.mem.store(s[k.lane_id * n + part], 0)
    k.sync_threads()
    first = k.lane_id * n
    regs = [k.var(f"r{i}", 1) for i in range(size)]
    with k.if_((k.warp_id.eq(0)) & (k.lane_id < lanes)):
        if loads:
            k.mem.store(s[first + word], 7)
            k.mem.store(s[first + flag], 1, sem="release")
        else:
            k.mem.store(s[first + size], 7)
            if order is None:
                k.mem.store_vector(s[ds(first, size)], regs, sem="release")
            for i in order or ():
                k.mem.store(s[first + i], regs[i], sem="release")
        k.mbarrier.arrive(done, sem="relaxed")
    with k.if_((k.warp_id.eq(1)) & (k.lane_id < lanes)):
        k.mbarrier.wait(done, 0, sem="relaxed")
        if not loads:
            k.mem.load(regs[0], s[first + flag], sem="acquire")
        elif order is None:
            k.mem.load_vector(regs, s[ds(first, size)], sem="acquire")
        for i in order or () if loads else ():
            k.mem.load(regs[i], s[first + i], sem="acquire")
        k.mem.store(s[first + word], 3)
    found = {f.rule for f in simulate(k.finish()).findings}
    assert found <= {"race"}
    return bool(found)


@pytest.mark.parametrize("loads", [False, True], ids=["stores", "loads"])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("size", [2, 4])
def test_a_vector_races_where_some_order_of_its_elements_does(
    size: int, lanes: int, *, loads: bool
) -> None:
    seen = set()
    orders = [*permutations(range(size))] if size == 2 else [(0, 1, 2, 3), (3, 2, 1, 0)]
    for flag in range(size):
        for word in range(size + 1):
            if loads and word == flag:
                continue
            single = [_races(o, flag, word, lanes=lanes, loads=loads, size=size) for o in orders]
            at_once = _races(None, flag, word, lanes=lanes, loads=loads, size=size)
            assert at_once == any(single), (flag, word, single)
            seen.add((at_once, any(single) != all(single)))
    assert {(False, False), (True, True)} <= seen
