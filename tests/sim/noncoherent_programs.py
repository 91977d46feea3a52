"""Random grids that load through the cache for read-only data what they write, or do not (H25).

Each CTA draws a ticket in global memory; statements are executed by one CTA or by all, or by the
one with a ticket, and touch words that follow from the CTA, the lane, the ticket or a loop. The
reference goes through all orders of drawing: a program is wrong exactly if in one of them a word is
written that such a load reads, whatever the order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from tilesim import Builder, Program, s32
from tilesim.ir.expr import Expr, Var, as_expr

WORDS = 64
_LANES = 4

How = Literal["nc", "store", "atomic", "plain"]


@dataclass(frozen=True)
class Access:
    """An access of word ``base`` plus so many for each CTA, lane (of four, else one only), ticket
    and turn of a loop. ``barrier``: the CTA has met before it."""

    how: How
    base: int
    cta: int = 0
    lane: int = 0
    ticket: int = 0
    turns: int = 1
    only_cta: int | None = None
    only_ticket: int | None = None
    warp: int = 0
    barrier: bool = False


@dataclass(frozen=True)
class Grid:
    """What the CTAs execute, each after it has drawn if ``draws``."""

    ctas: int
    accesses: tuple[Access, ...]
    draws: bool


def words(access: Access, cta: int, ticket: int) -> set[int]:
    """What is accessed by a CTA with a ticket."""
    if access.only_cta not in (None, cta) or access.only_ticket not in (None, ticket):
        return set()
    first = access.base + access.cta * cta + access.ticket * ticket
    return {
        first + access.lane * lane + turn
        for lane in range(_LANES if access.lane else 1) for turn in range(access.turns)
    }  # fmt: skip


def _drawings(grid: Grid) -> list[tuple[int, ...]]:
    """By CTA, the tickets of each execution; -1 if none are drawn."""
    return list(permutations(range(grid.ctas))) if grid.draws else [(-1,) * grid.ctas]


def wrong(grid: Grid) -> bool:
    """Whether in some execution a word is loaded so that the grid writes."""
    return any(_touched(grid, t, ("nc",)) & _touched(grid, t, _WRITES) for t in _drawings(grid))


_WRITES: tuple[How, ...] = ("store", "atomic")


def _touched(grid: Grid, tickets: tuple[int, ...], hows: tuple[How, ...]) -> set[int]:
    return {
        word for access in grid.accesses if access.how in hows
        for cta, ticket in enumerate(tickets) for word in words(access, cta, ticket)
    }  # fmt: skip


def ordered(grid: Grid, *, loads: bool = False) -> bool:
    """Whether all that is accessed in conflict in some execution is by atomics, or by one thread,
    or by one CTA with a barrier between; ``loads`` of that cache, or those aside."""
    if any(a.how == "store" and 0 < a.lane < a.turns for a in grid.accesses):
        return False  # lanes of one statement store to one word, in different turns
    for tickets in _drawings(grid):
        for i, one in enumerate(grid.accesses):
            for j, other in enumerate(grid.accesses[i:], i):
                if not _conflict(one.how, other.how, loads):
                    continue
                for a, s in enumerate(tickets):
                    for b, t in enumerate(tickets):
                        same = a == b and (i == j or _between(grid, one, i, j))
                        if not same and words(one, a, s) & words(other, b, t):
                            return False
    return True


def _between(grid: Grid, one: Access, i: int, j: int) -> bool:
    """Whether two statements of a CTA are ordered."""
    return any(a.barrier for a in grid.accesses[i + 1 : j + 1]) or (
        one.warp == grid.accesses[j].warp and not one.lane and not grid.accesses[j].lane
    )


def _conflict(one: How, other: How, loads: bool) -> bool:
    """Whether the two race if they are in no order."""
    pair = {one, other}
    return bool(pair & set(_WRITES)) and pair != {"atomic"} and (loads or "nc" not in pair)


def sample(rng: random.Random) -> Grid:
    """Two to five accesses, of which writes seldom meet each other."""
    ctas, draws = rng.choice((1, 2, 2, 3)), rng.random() < 0.5
    accesses: list[Access] = []
    for _ in range(rng.randint(2, 5)):
        how: How = rng.choice(("nc", "nc", "store", "store", "atomic", "plain"))
        lane = rng.choice((0, 0, 1, 2))
        base = rng.choice((0, 0, 4, 8, 12, 16)) + rng.choice((0, 0, 1, 2, 3))
        accesses.append(
            Access(
                how, base, rng.choice((0, 1, 4, 8)), lane,
                rng.choice((0, 1, 4)) if draws else 0,
                rng.choice((1, 1, 1, 3, 5)),
                rng.choice((None, None, *range(ctas))),
                rng.choice((None, *range(ctas))) if draws else None,
                rng.choice((0, 0, 1)), rng.random() < 0.4,
            )
        )  # fmt: skip
    if all(access.how != "nc" for access in accesses):
        accesses.append(Access("nc", rng.randrange(16)))
    return Grid(ctas, tuple(accesses), draws)


def translate(grid: Grid) -> Program:
    """The program as the simulator takes it."""
    k = Builder("noncoherent", warps=2)
    k.launch(grid=grid.ctas)
    tensor, drawing = k.tensor("G", s32, (WORDS,)), k.tensor("drawing", s32, (1,))
    shared = k.shared("drawn", s32, (1,))
    ticket, got = k.var("ticket", -1), k.var("got", 0)
    if grid.draws:
        with k.one_thread():
            k.mem.atomic(drawing[0], "add", 1, result=ticket, sem="relaxed", scope="gpu")
            k.mem.store(shared[0], ticket)
        k.sync_threads()
        k.mem.load(ticket, shared[0])
    for access in grid.accesses:
        if access.barrier:
            k.sync_threads()
        executed = (k.warp_id.eq(access.warp)) & (k.lane_id < (_LANES if access.lane else 1))
        if access.only_cta is not None:
            executed &= k.cta_x.eq(access.only_cta)
        if access.only_ticket is not None:
            executed &= ticket.eq(access.only_ticket)
        first = access.base + access.cta * k.cta_x + access.lane * k.lane_id
        if access.ticket:
            first += access.ticket * ticket
        with k.if_(executed, sync=False):
            if access.turns == 1:
                _emit(k, access, tensor, as_expr(first), got)
            else:
                with k.loop(access.turns, sync=False) as turn:
                    _emit(k, access, tensor, first + turn, got)
    return k.finish()


def _emit(k: Builder, access: Access, tensor: object, place: Expr, got: Var) -> None:
    word = tensor[place]  # type: ignore[index]
    match access.how:
        case "nc":
            k.mem.load(got, word, nc=True)
        case "plain":
            k.mem.load(got, word)
        case "store":
            k.mem.store(word, 1)
        case "atomic":
            k.mem.atomic(word, "add", 1, sem="relaxed", scope="gpu")
