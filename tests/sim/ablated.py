"""Kernels that need one condition of the certificate, and are not in the reference's language."""

from __future__ import annotations

from collections.abc import Callable

from tilesim import Builder, Program, kernel, u32
from tilesim.ir.expr import Var
from tilesim.ir.ops.mbarrier import MAX_COUNT

#: two roles of a program with a barrier that one branch waits for in vain
Roles = Callable[[Builder, Callable[[Var, int], None], bool], None]


def decided(roles: Roles, *, warps: int = 2, target: str = "sm_90a", swapped: bool) -> Program:
    """A program that hangs if a variable gets a value that only some schedules give it."""
    k = Builder("decides", target, warps)
    never = k.mbarriers("never")
    with k.one_thread():
        k.mbarrier.init(never, 1)
    k.sync_threads()

    def hang_if(var: Var, value: int) -> None:
        with k.if_(var.eq(value)):
            k.mbarrier.wait(never, 0)
        with k.if_(var.eq(1 << 20)):
            k.mbarrier.arrive(never)

    roles(k, hang_if, swapped)
    return k.finish()


def _wait_a_while(k: Builder, cycles: bool) -> None:
    if cycles:
        with k.loop(200):
            k.fence.proxy_async()


def _counts(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """pending_count tells which of two arrivals came first."""
    b, token, pending = k.mbarriers("b"), k.var("token"), k.var("pending")
    with k.one_thread():
        k.mbarrier.init(b, 3)
    k.sync_threads()
    with k.role("asks", 0), k.elected():
        _wait_a_while(k, swapped)
        k.mbarrier.arrive(b, token=token, no_complete=True)
        k.mbarrier.pending_count(pending, token)
        hang_if(pending, 2)
    with k.role("arrives", 1), k.elected():
        _wait_a_while(k, not swapped)
        k.mbarrier.arrive(b)


def _atomics(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """An atomic tells which lane came first: any may."""
    place, old = k.tensor("place", u32, (1,)), k.var("old", dtype=u32)
    with k.role("asks", 0):
        k.mem.atomic(place[0], "add", 1, result=old)
        with k.if_(k.lane_id.eq(0 if swapped else 1)):
            hang_if(old, 0)


def _flags(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """A relaxed load sees a relaxed store or not."""
    place, seen = k.tensor("place", u32, (1,)), k.var("seen", dtype=u32)
    with k.role("looks", 0), k.elected():
        _wait_a_while(k, swapped)
        k.mem.load(seen, place[0], sem="relaxed")
        hang_if(seen, 1)
    with k.role("sets", 1), k.elected():
        _wait_a_while(k, not swapped)
        k.mem.store(place[0], 1, sem="relaxed")


def _columns(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """The columns of an allocation tell which of two came first."""
    at, columns = k.shared("at", u32, (2,)), k.var("columns", dtype=u32)
    for warp in (0, 1):
        with k.role(f"w{warp}", warp):
            _wait_a_while(k, swapped == (warp == 0))
            k.tcgen05.alloc(at[warp], 32)
            k.mem.load(columns, at[warp])
            if warp == 0:
                hang_if(columns, 2 << 10)
            k.bar.sync(1, 64)
            k.tcgen05.dealloc(columns, 32)


def _permits(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """Nothing may be allocated once the permit is given up."""
    at, columns = k.shared("at", u32, (1,)), k.var("columns", dtype=u32)
    with k.role("allocates", 0):
        _wait_a_while(k, swapped)
        k.tcgen05.alloc(at[0], 32)
        k.mem.load(columns, at[0])
        k.tcgen05.dealloc(columns, 32)
    with k.role("gives up", 1):
        _wait_a_while(k, not swapped)
        k.tcgen05.relinquish_alloc_permit()


def _registers(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """Two warpgroups want the registers that are there, and one of them makes room for both."""
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 4)
    k.sync_threads()
    with k.role("gives", range(4)):
        k.setmaxnreg("dec", 24)
    with k.role("takes and tells", range(4, 8)):
        _wait_a_while(k, swapped)
        k.setmaxnreg("inc", 232)
        with k.elected():
            k.mbarrier.arrive(b)
    with k.role("takes", range(8, 12)):
        _wait_a_while(k, not swapped)
        k.setmaxnreg("inc", 232)
    with k.role("waits and gives", range(12, 16)):
        k.mbarrier.wait(b, 0)
        k.setmaxnreg("dec", 24)


def _inputs(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """An input that decides, taken as zero."""
    place, given = k.tensor("place", u32, (1,)), k.var("given", dtype=u32)
    with k.role("asks", 0), k.elected():
        k.mem.load(given, place[0])
        hang_if(given, 0 if swapped else 1)


def _stores(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """Of lanes that store to one word one stays: any may."""
    place, seen = k.tensor("place", u32, (1,)), k.var("seen", dtype=u32)
    with k.role("asks", 0):
        k.mem.store(place[0], k.lane_id)
        k.sync_warp()
        k.mem.load(seen, place[0])
        hang_if(seen, 31 if swapped else 0)


def _lends(k: Builder, hang_if: Callable[[Var, int], None], swapped: bool) -> None:
    """A barrier cannot count what two warps add to it before either has arrived."""
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, MAX_COUNT - 63)
    k.sync_threads()
    with k.role("lends", 0):
        k.cp_async.mbarrier_arrive(b)
    with k.role("lends more", 1):
        _wait_a_while(k, not swapped)
        k.cp_async.mbarrier_arrive(b)
    k.sync_threads()
    with k.role("ends", 0):
        with k.elected():
            k.mbarrier.arrive(b, MAX_COUNT - 63)
        k.mbarrier.wait(b, 0)


ROLES: dict[str, tuple[Roles, int, str]] = {
    "D of counts": (_counts, 2, "sm_90a"),
    "D of atomics": (_atomics, 1, "sm_90a"),
    "D of flags": (_flags, 2, "sm_90a"),
    "D of columns": (_columns, 2, "sm_100a"),
    "D of permits": (_permits, 2, "sm_100a"),
    "D of registers": (_registers, 16, "sm_90a"),
    "D of lanes": (_stores, 1, "sm_90a"),
    "D of inputs": (_inputs, 1, "sm_90a"),
    "R": (_lends, 2, "sm_90a"),
}


@kernel(warps=1)
def one_waits(k: Builder, *, who: int = 70) -> None:
    """One CTA of a large grid waits for what nobody does."""
    k.launch(grid=100)
    never = k.mbarriers("never")
    with k.one_thread():
        k.mbarrier.init(never, 1)
    k.sync_threads()
    with k.if_(k.cta_x.eq(who)):
        k.mbarrier.wait(never, 0)
    with k.if_(k.cta_x.eq(100)):
        k.mbarrier.arrive(never)


@kernel(warps=1)
def one_place(k: Builder, *, places: int = 99) -> None:
    """As many places as CTAs, or less."""
    k.launch(grid=100)
    y = k.tensor("y", u32, (100,))
    with k.one_thread():
        k.mem.store(y[k.cta_x % places], 1)


@kernel(warps=2)
def drawn(k: Builder, *, warp: int = 0) -> None:
    """Two warps draw a number; one that draws the second waits for what nobody does."""
    counter, number = k.tensor("counter", u32, (1,)), k.var("number")
    never = k.mbarriers("never")
    with k.one_thread():
        k.mbarrier.init(never, 1)
    k.sync_threads()
    with k.elected():
        k.mem.atomic(counter[0], "add", 1, result=number)
        with k.if_(number.eq(1) & k.warp_id.eq(warp)):
            k.mbarrier.wait(never, 0)
        with k.if_(number.eq(2)):
            k.mbarrier.arrive(never)


@kernel(warps=1)
def drawn_once(k: Builder, *, who: int = 0) -> None:
    """Each of three CTAs draws a number; the last one makes one of them wait for ever."""
    k.launch(grid=3)
    counter, number = k.tensor("counter", u32, (1,)), k.var("number")
    never = k.mbarriers("never")
    with k.elected():
        k.mbarrier.init(never, 1)
        k.mem.atomic(counter[0], "add", 1, result=number)
        with k.if_(number.eq(2) & k.cta_x.eq(who)):
            k.mbarrier.wait(never, 0)
        with k.if_(number.eq(100)):
            k.mbarrier.arrive(never)


@kernel(warps=1)
def counted_for_others(k: Builder, *, word: int = 1) -> None:
    """Four CTAs count, and four others; the last of each adds up what they wrote. One of the former
    counts once more, in a word that may be that of the latter."""
    k.launch(grid=8)
    count, parts = k.tensor("count", u32, (2,)), k.tensor("parts", u32, (8,))
    other, number, part = k.tensor("other", u32, (1,)), k.var("number"), k.var("part", dtype=u32)
    group = k.cta_x // 4
    with k.elected():
        k.mem.store(parts[k.cta_x], 1)
        k.mem.atomic(count[group], "add", 1, result=number, sem="acq_rel", scope="gpu")
        with k.if_(number.eq(3)):
            for i in range(4):
                k.mem.load(part, parts[4 * group + i])
            with k.if_(k.cta_x.eq(1)):
                k.mem.atomic(count[word] if word < 2 else other[0], "add", 1, scope="gpu")


@kernel(warps=1)
def waits_for_less(k: Builder, *, who: int = 1) -> None:
    """Six CTAs count, and wait until two of them have met; one of them, if it is the last to count,
    only for one of these two. It reads what the other one writes. In the timed run CTA 5 is last,
    and then that one is late."""
    k.launch(grid=6, cooperative=True)
    count, met = k.tensor("count", u32, (1,)), k.tensor("met", u32, (1,))
    data = k.tensor("data", u32, (1,))
    number, seen = k.var("number"), k.var("seen", dtype=u32)
    one, both = k.var("one", 0), k.var("both", 0)
    with k.elected():
        k.mem.atomic(count[0], "add", 1, result=number, scope="gpu")
        with k.if_(k.cta_x.eq(0)):
            k.mem.atomic(met[0], "add", 1, result=seen, sem="release", scope="gpu")
        with k.if_(k.cta_x.eq(4)):
            _wait_a_while(k, cycles=who == 5)
            k.mem.store(data[0], 1)
            k.mem.atomic(met[0], "add", 1, result=seen, sem="release", scope="gpu")
        with k.if_(number.eq(5) & k.cta_x.eq(who)):
            _wait_a_while(k, cycles=who != 5)
            with k.while_(one < 1):
                k.mem.load(one, met[0], sem="acquire", scope="gpu")
        with k.if_(number.ne(5) | k.cta_x.ne(who)), k.while_(both < 2):
            k.mem.load(both, met[0], sem="acquire", scope="gpu")
        k.mem.load(seen, data[0])


@kernel(warps=1)
def drawn_tiles(k: Builder, *, who: int = 0) -> None:
    """Two CTAs draw five tiles; one of them waits for ever if it gets none."""
    k.launch(grid=2)
    counter, number, tiles = k.tensor("counter", u32, (1,)), k.var("number", 0), k.var("tiles", 0)
    never = k.mbarriers("never")
    with k.elected():
        k.mbarrier.init(never, 1)
        k.mem.atomic(counter[0], "add", 1, result=number)
        with k.while_(number < 5):
            k.assign(tiles, tiles + 1)
            k.mem.atomic(counter[0], "add", 1, result=number)
        with k.if_(tiles.eq(0) & k.cta_x.eq(who)):
            k.mbarrier.wait(never, 0)
        with k.if_(tiles.eq(100)):
            k.mbarrier.arrive(never)


@kernel(warps=1)
def drawn_remainder(k: Builder, *, remainder: bool = True) -> None:
    """Each of six CTAs draws a number; the remainder of it makes one of them wait for ever."""
    k.launch(grid=6)
    counter, number = k.tensor("counter", u32, (1,)), k.var("number")
    never = k.mbarriers("never")
    with k.elected():
        k.mbarrier.init(never, 1)
        k.mem.atomic(counter[0], "add", 1, result=number)
        with k.if_(((number % 4).eq(2) if remainder else number.eq(6)) & k.cta_x.eq(0)):
            k.mbarrier.wait(never, 0)
        with k.if_(number.eq(100)):
            k.mbarrier.arrive(never)


@kernel(warps=2)
def handed_back(k: Builder, *, first: int = 0) -> None:
    """A copy out has read 64 bytes when a load of 32 of them is issued, which was expected before;
    who waits for the load writes 32 bytes from word ``first`` on."""
    x, y = k.tensor("x", u32, (8,)), k.tensor("y", u32, (16,))
    tile, full = k.shared("tile", u32, (16,)), k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    with k.if_((k.warp_id.eq(0)) & (k.lane_id < 16)):
        k.mem.store(tile[k.lane_id], 0)
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.role("copies", 0), k.elected():
        k.mbarrier.arrive_expect_tx(full, 32)
        k.bulk.store(y, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)
        k.bulk.load(tile[:8], x, full)
        k.bulk.wait_group(0)
    with k.role("writes", 1):
        k.mbarrier.wait(full, 0)
        with k.if_(k.lane_id < 8):
            k.mem.store(tile[k.lane_id + first], 1)


@kernel(warps=2)
def flag_of_each(k: Builder, *, learned: bool = True) -> None:
    """Two lanes raise a flag each when they have written, and two lanes wait for one each: that
    those meet is enough."""
    flags, words = k.shared("flags", u32, (2,)), k.shared("words", u32, (2,))
    seen = k.var("seen", 0, dtype=u32)
    with k.one_thread():
        k.mem.store(flags[0], 0)
        k.mem.store(flags[1], 0)
    k.sync_threads()
    with k.role("tells", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)
        k.mem.store(flags[k.lane_id], 1, sem="release", scope="cta")
    with k.role("learns", 1), k.if_(k.lane_id < 2):
        k.assign(seen, 0)
        with k.while_(seen < 1):
            k.mem.load(seen, flags[k.lane_id], sem="acquire", scope="cta")
        if learned:
            k.sync_warp(3)
        with k.if_(k.lane_id.eq(0)):
            k.mem.load(seen, words[1])


#: kernels that the reference does not have: the right one, and the wrong one
KERNELS: dict[str, tuple[Program, Program]] = {
    "lanes: words of their own": (
        flag_of_each.build(), flag_of_each.build(learned=False)
    ),
    "completions": (handed_back.build(first=0), handed_back.build(first=8)),
    "orders: all": (drawn.build(warp=2), drawn.build(warp=0)),
    "orders: last": (drawn_once.build(who=9), drawn_once.build(who=0)),
    "orders: meeting": (counted_for_others.build(word=2), counted_for_others.build()),
    "orders: bounds": (drawn_remainder.build(remainder=False), drawn_remainder.build()),
    "orders: tiles": (drawn_tiles.build(who=9), drawn_tiles.build(who=0)),
    "grids: classes": (one_waits.build(who=200), one_waits.build(who=70)),
    "grids: contacts": (one_place.build(places=100), one_place.build(places=99)),
}  # fmt: skip
