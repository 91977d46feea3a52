"""Lanes of one warp: what orders them, which are elected, barriers of parts of a warp."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilesim import Builder, s32, u32
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.expr import Var

from .trial import trial

LOW, HIGH = 0xFFFF, 0xFFFF0000


def seen(out: NDArray[Any]) -> str:
    """How many lanes saw what others stored."""
    return f"{int(out.sum())} of {out.size} see it"


def _delay(k: Builder) -> Var:
    """How long this lane is to sleep."""
    d = k.var("d")
    k.mem.load(d, k.tensor("delay", s32, (32,))[k.lane_id])
    return d


def _zeroed(k: Builder, name: str = "s") -> SharedTensor:
    s = k.shared(name, s32, (32,))
    k.mem.store(s[k.lane_id], 0)
    k.sync_threads()
    return s


@trial("order-branches", "Does one half of a warp see what the other half stores?", "E11, H6",
       read=seen, sync="")  # fmt: skip
@trial("order-branches-vote", "The same, with an election in each half", "E11, E12", read=seen,
       sync="elect")  # fmt: skip
@trial("order-branches-sync", "The same, with `bar.warp.sync` in both halves", "E11", read=seen,
       sync="warp")  # fmt: skip
def halves_of_a_warp(k: Builder, *, sync: str) -> None:
    k.launch(warps=1)
    d, r, out = _delay(k), k.var("r", 0), k.tensor("out", s32, (16,))
    s, other = _zeroed(k), k.lane_id - 16
    with k.if_(k.lane_id < 16):
        k.time.sleep(d)
        k.mem.store(s[k.lane_id], 1)
        if sync == "warp":
            k.sync_warp()
        if sync == "elect":
            k.elect("low", LOW, warp_sync=False)
    with k.else_():
        if sync == "warp":
            k.sync_warp()
        if sync == "elect":
            k.elect("high", HIGH, warp_sync=False)
        k.mem.load(r, s[other])
        k.mem.store(out[other], r)


@trial("order-readers-first", "Does the half that a branch names first run first?", "E11, H6",
       read=seen)  # fmt: skip
def readers_first(k: Builder) -> None:
    k.launch(warps=1)
    d, r, out = _delay(k), k.var("r", 0), k.tensor("out", s32, (16,))
    s = _zeroed(k)
    with k.if_(k.lane_id < 16):
        k.time.sleep(d)
        k.mem.load(r, s[16 + k.lane_id])
        k.mem.store(out[k.lane_id], r)
    with k.else_():
        k.mem.store(s[k.lane_id], 1)


@trial("order-straight", "Lanes store, then read what another stored; nothing between", "E11, H6",
       read=seen, sync="")  # fmt: skip
@trial("order-straight-vote", "The same, with `vote.sync` between", "E19", read=seen, sync="vote")
@trial("order-straight-sync", "The same, with `bar.warp.sync` between", "E11", read=seen,
       sync="warp")  # fmt: skip
def one_after_another(k: Builder, *, sync: str) -> None:
    k.launch(warps=1)
    d, r, out = _delay(k), k.var("r", 0), k.tensor("out", s32, (32,))
    s, votes = _zeroed(k), k.var("votes", 0, u32)
    k.time.sleep(d)
    k.mem.store(s[k.lane_id], 1)
    if sync == "vote":
        k.warp.ballot(votes, k.lane_id < 7)
    if sync == "warp":
        k.sync_warp()
    k.mem.load(r, s[31 - k.lane_id])
    k.mem.store(out[k.lane_id], r)


@trial("poll-own-warp", "Does a lane make progress that polls what another of its warp sets?",
       "H2, H4", read=seen, strong=True)  # fmt: skip
@trial("poll-own-warp-relaxed", "The same without acquire: is the data there?", "H2, H6", read=seen,
       strong=False)  # fmt: skip
def a_lane_polls_another(k: Builder, *, strong: bool) -> None:
    k.launch(warps=1)
    d, r, out = _delay(k), k.var("r", 0), k.tensor("out", s32, (16,))
    s, flags, f = _zeroed(k), _zeroed(k, "flags"), k.var("f", 0)
    with k.if_(k.lane_id >= 16):
        with k.while_(f.eq(0)):
            k.mem.load(
                f, flags[k.lane_id - 16], sem="acquire" if strong else "relaxed", scope="cta"
            )
        k.mem.load(r, s[k.lane_id - 16])
        k.mem.store(out[k.lane_id - 16], r)
    with k.else_():
        k.time.sleep(d)
        k.mem.store(s[k.lane_id], 1)
        k.mem.store(flags[k.lane_id], 1, sem="release" if strong else "relaxed", scope="cta")


@trial("wait-own-warp", "Half a warp waits for a phase that the other half ends", "A20", read=seen)
def halves_and_an_mbarrier(k: Builder) -> None:
    k.launch(warps=1)
    d, r, out, b = _delay(k), k.var("r", 0), k.tensor("out", s32, (16,)), k.mbarriers("b")
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.init(b, 16)
    s = _zeroed(k)
    with k.if_(k.lane_id >= 16):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, s[k.lane_id - 16])
        k.mem.store(out[k.lane_id - 16], r)
    with k.else_():
        k.time.sleep(d)
        k.mem.store(s[k.lane_id], 1)
        k.mbarrier.arrive(b)


# ------------------------------------------------------------------ barriers


@trial("halves-meet", "Two halves of a warp at two `barrier.sync` of 32 threads", "E1, U16",
       read=seen, threads=32)  # fmt: skip
@trial("halves-meet-warp", "The same with a second warp, 64 threads", "E1, U16", read=seen,
       threads=64)  # fmt: skip
def halves_meet(k: Builder, *, threads: int) -> None:
    k.launch(warps=threads // 32)
    d, r, out = _delay(k), k.var("r", 0), k.tensor("out", s32, (threads,))
    s = k.shared("s", s32, (threads,))
    k.mem.store(s[k.thread_id], 0)
    k.sync_threads()
    k.time.sleep(d)
    with k.if_(k.thread_id < 16):
        k.mem.store(s[k.thread_id], 1)
        k.bar.sync(1, threads, aligned=False)
        k.mem.load(r, s[threads - 1 - k.thread_id])
    with k.else_():
        k.mem.store(s[k.thread_id], 1)
        k.bar.sync(1, threads, aligned=False)
        k.mem.load(r, s[threads - 1 - k.thread_id])
    k.mem.store(out[k.thread_id], r)


@trial("halves-sync-own", "Halves at `bar.warp.sync` of their own masks", "E11", read=seen)
def halves_apart(k: Builder) -> None:
    k.launch(warps=1)
    d, r, out = _delay(k), k.var("r", 0), k.tensor("out", s32, (32,))
    s = _zeroed(k)
    with k.if_(k.lane_id < 16):
        k.time.sleep(d)
        k.mem.store(s[k.lane_id], 1)
        k.sync_warp(LOW)
        k.mem.load(r, s[15 - k.lane_id])
    with k.else_():
        k.mem.store(s[k.lane_id], 1)
        k.sync_warp(HIGH)
        k.mem.load(r, s[47 - k.lane_id])
    k.mem.store(out[k.lane_id], r)


@trial("exit-default", "Half a warp exits; `barrier.sync` of all threads", "E1, U22", read=seen,
       threads=None)  # fmt: skip
@trial("exit-count", "Half a warp exits; `barrier.sync` of 64 threads", "E1, U22", read=seen,
       threads=64)  # fmt: skip
@trial("exit-fewer", "Half a warp exits; `barrier.sync` of 32 threads", "E1, U22", read=seen,
       threads=32)  # fmt: skip
def half_a_warp_exits(k: Builder, *, threads: int | None) -> None:
    k.launch(warps=2)
    d, out = _delay(k), k.tensor("out", s32, (48,))
    k.sync_threads()
    with k.if_(k.thread_id < 16):
        k.time.sleep(d)
        k.exit()
    k.bar.sync(1, threads, aligned=False)
    k.mem.store(out[k.thread_id - 16], 1)


@trial("exit-warp-sync", "Half a warp exits; `bar.warp.sync` of all lanes", "E11, U22", read=seen,
       mask=0xFFFFFFFF)  # fmt: skip
@trial("exit-warp-sync-left", "Half a warp exits; `bar.warp.sync` of the others", "E11", read=seen,
       mask=HIGH)  # fmt: skip
def half_exits_before_warp_sync(k: Builder, *, mask: int) -> None:
    k.launch(warps=1)
    d, out = _delay(k), k.tensor("out", s32, (16,))
    with k.if_(k.lane_id < 16):
        k.time.sleep(d)
        k.exit()
    k.sync_warp(mask)
    k.mem.store(out[k.lane_id - 16], 1)


@trial("exit-warp", "A warp exits; `barrier.sync` of its count and another's", "E1, U22",
       read=seen)  # fmt: skip
def a_warp_exits(k: Builder) -> None:
    k.launch(warps=2)
    d, out = _delay(k), k.tensor("out", s32, (32,))
    with k.role("leaves", 0):
        k.time.sleep(d)
        k.exit()
    with k.role("waits", 1):
        k.bar.sync(1, 64, aligned=False)
        k.mem.store(out[k.lane_id], 1)


# ------------------------------------------------------------------ elections


def elected(out: NDArray[Any]) -> str:
    """The lane."""
    return f"lane {int(out[0])}"


@trial("elect-all", "Which lane does `elect.sync` choose of a warp?", "E12", read=elected, first=0,
       stop=32)  # fmt: skip
@trial("elect-high", "Which of lanes 7 to 31, in a branch?", "E12", read=elected, first=7, stop=32)
@trial("elect-middle", "Which of lanes 9 to 20, in a branch?", "E12", read=elected, first=9,
       stop=21)  # fmt: skip
def who_is_elected(k: Builder, *, first: int, stop: int) -> None:
    k.launch(warps=1)
    d, out = _delay(k), k.tensor("out", s32, (1,))
    k.time.sleep(d)
    mask = (1 << stop) - (1 << first)
    if (first, stop) == (0, 32):
        with k.if_(k.elect()):
            k.mem.store(out[0], k.lane_id)
        return
    with k.if_((k.lane_id >= first) & (k.lane_id < stop)), k.if_(k.elect("chosen", mask)):
        k.mem.store(out[0], k.lane_id)
