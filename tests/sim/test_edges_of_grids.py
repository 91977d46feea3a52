"""One CTA of a large grid is wrong, or two of them meet: of clusters that one run stands for.

Nothing tells that CTA but what the run of another one has to be compared with: values in some of
the lanes, in later turns, at addresses; and where accesses of clusters lie that are not run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from tilesim import (
    Builder,
    Program,
    address_of,
    bf16,
    ds,
    f32,
    s32,
    select,
    u8,
    u32,
    u64,
    view_at,
)
from tilesim.checker import check
from tilesim.ir.expr import Expr

GRID, ODD = 100, 37
#: leaves 1 in a register of lane 31 of warp 1 in the CTA of which the condition holds, and else 0
Tell = Callable[[Builder, Expr, Any], None]


def _upper_lanes(k: Builder, odd: Expr, at: Any) -> None:
    """Lanes that an assignment leaves out keep what they have."""
    k.assign(at, select(odd, 1, 0))
    with k.if_(k.lane_id < 16):
        k.assign(at, 0)


def _some_lanes(k: Builder, odd: Expr, at: Any) -> None:
    with k.if_(k.lane_id >= 16):
        k.assign(at, select(odd, 1, 0))


def _both_halves(k: Builder, odd: Expr, at: Any) -> None:
    with k.if_(k.lane_id < 16):
        k.assign(at, 0)
    with k.else_():
        k.assign(at, select(odd, 1, 0))


def _later(k: Builder, odd: Expr, at: Any) -> None:
    """The same step evaluates what is the same, and then what is not."""
    seen = k.var("seen", 0)
    with k.loop(3) as i:
        k.assign(at, seen * 1)
        k.assign(seen, select(odd & i.eq(1), 1, 0))


def _later_branch(k: Builder, odd: Expr, at: Any) -> None:
    seen = k.var("seen", 0)
    with k.loop(3) as i:
        with k.if_(seen.ne(0)):
            k.assign(at, 1)
        k.assign(seen, select(odd & i.eq(1), 1, 0))


def _again(k: Builder, odd: Expr, at: Any) -> None:
    """It differs, then it does not, and then it does."""
    seen = k.var("seen", 0)
    with k.loop(5) as i:
        k.assign(seen, select(odd & i.ne(2), 1, 0))
        k.assign(at, seen & 1)


def _by_warp(k: Builder, odd: Expr, at: Any) -> None:
    k.assign(at, select(odd & k.warp_id.eq(1), 1, 0))


def _by_lane(k: Builder, odd: Expr, at: Any) -> None:
    k.assign(at, select(odd & k.lane_id.eq(31), 1, 0))


def _of_words(k: Builder, odd: Expr, at: Any) -> None:
    """One lane of one CTA has this number."""
    word = k.var("word", k.cta_x * 32 + k.lane_id)
    k.assign(at, word.eq(select(odd, ODD * 32 + 31, -1)))


def _floating(k: Builder, odd: Expr, at: Any) -> None:
    x = k.var("x", select(odd, 1.0, 0.0), f32)
    k.assign(at, select(x > 0.5, 1, 0))


def _floating_lanes(k: Builder, odd: Expr, at: Any) -> None:
    """Another register holds the same but in one lane of two CTAs."""
    last = k.lane_id.eq(31)
    k.var("x", select(k.cta_x.eq(20) & last, 1.0, 0.0), f32)
    y = k.var("y", select(odd & last, 1.0, 0.0), f32)
    k.assign(at, select(y > 0.5, 1, 0))


def _long(k: Builder, odd: Expr, at: Any) -> None:
    x = k.var("x", 0, u64)
    k.assign(x, select(odd, 1 << 63, 1 << 62))
    k.assign(at, select(x > 1 << 62, 1, 0))


def _narrow(k: Builder, odd: Expr, at: Any) -> None:
    x = k.var("x", 0, u32)
    k.assign(x, select(odd, 1 << 31, 0))
    k.assign(at, (x + x).eq(0) & x.ne(0))


def _from_above(k: Builder, odd: Expr, at: Any) -> None:
    k.mem.shuffle(at, select(odd & k.lane_id.eq(30), 1, 0), 1, "up")


def _across(k: Builder, odd: Expr, at: Any) -> None:
    k.mem.shuffle(at, select(odd & k.lane_id.eq(0), 1, 0), 31, "bfly")


def _from_a_lane(k: Builder, odd: Expr, at: Any) -> None:
    k.mem.shuffle(at, select(k.lane_id.eq(7), 1, 0), select(odd, 7, 6))


def _shuffled_twice(k: Builder, odd: Expr, at: Any) -> None:
    k.mem.shuffle(at, select(odd & k.lane_id.eq(3), 1, 0), 3)
    k.mem.shuffle(at, at, 31, "bfly")


def _word_at(k: Builder, odd: Expr, at: Any) -> None:
    """A generic address into shared memory."""
    words, g = k.shared("words", s32, (32,)), k.var("g", 0, u64)
    with k.if_(k.warp_id.eq(1)):
        k.mem.store(words[k.lane_id], k.lane_id)
        k.sync_warp()
        k.mem.cvta(g, address_of(words[0]), "shared")
        k.assign(g, g + select(odd, 4, 0))
        k.mem.load(at, view_at(g, s32, space="generic"))


def _stored_at(k: Builder, odd: Expr, at: Any) -> None:
    words, g = k.shared("words", s32, (2, 32)), k.var("g", 0, u64)
    with k.if_(k.warp_id.eq(1)):
        k.mem.store(words[1, k.lane_id], 0)
        k.mem.store(words[0, k.lane_id], 0)
        k.mem.cvta(g, address_of(words[0, k.lane_id]), "shared")
        k.assign(g, g + select(odd, 128, 0))
        k.mem.store(view_at(g, s32, space="generic"), 1)
        k.mem.load(at, words[1, k.lane_id])


def _divided(k: Builder, odd: Expr, at: Any) -> None:
    k.assign(at, (k.cta_x + select(odd, 100, 0)) // 100)


def _remainder(k: Builder, odd: Expr, at: Any) -> None:
    k.assign(at, select(((k.cta_x + 1) % 38).eq(0) & odd, 1, 0))


def _least(k: Builder, odd: Expr, at: Any) -> None:
    k.assign(at, 1 - select(odd, k.cta_x - ODD, 1))


def _in_turns(k: Builder, odd: Expr, at: Any) -> None:
    """How often a loop turns differs."""
    with k.loop(select(odd, 3, 2)) as i:
        k.assign(at, i // 2)


def _pixels(k: Builder, odd: Expr, at: Any) -> None:
    """Behind a store that names no box."""
    g, s = k.tensor("g", bf16, (2, 3, 5, 64)), k.shared("s", bf16, (3, 64), align=128)
    box = k.tensor_map(g, (3, 64), lower=(0, 0), upper=(-1, 0))
    for pixel in range(3):
        k.mem.store(s[pixel, k.thread_id], 1.0)
    k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.if_(k.thread_id.eq(0)):
        k.tma.store(box, s, (k.cta_x.eq(GRID - 1), 0, 1, 0), mode="im2col_no_offs")
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    k.assign(at, select(odd, 1, 0))


TELLS = (
    _upper_lanes, _some_lanes, _both_halves, _later, _later_branch, _again, _by_warp, _by_lane,
    _of_words, _floating, _floating_lanes, _long, _narrow, _from_above, _across, _from_a_lane,
    _shuffled_twice,
    _word_at, _stored_at, _divided, _remainder, _least, _in_turns,
)  # fmt: skip


def telling(tell: Tell, odd: Callable[[Builder], Expr], grid: Any = GRID) -> Program:
    """A barrier that nothing comes to is waited for where lane 31 of warp 1 has 1."""
    k = Builder("telling", warps=2)
    k.launch(grid=grid)
    b, at, got = k.mbarriers("b", 2), k.var("at", 0), k.var("got", 0)
    with k.one_thread():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
    k.sync_threads()
    tell(k, odd(k), at)
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mem.shuffle(got, at, 31)
        k.mbarrier.wait(b[got], 0)
    return k.finish()


@pytest.mark.parametrize("tell", TELLS)
def test_a_cta_that_hangs(tell: Tell) -> None:
    right = check(telling(tell, lambda k: k.cta_x.eq(-1)))
    assert right.verdict == "proved", right
    wrong = check(telling(tell, lambda k: k.cta_x.eq(ODD)))
    assert wrong.rules == {"deadlock"}
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}


def test_a_cta_that_hangs_behind_a_store_that_names_no_box() -> None:
    right = check(telling(_pixels, lambda k: k.cta_x.eq(-1)))
    assert right.verdict == "bounded"
    assert "was not compared between clusters" in right.reasons[0]
    wrong = check(telling(_pixels, lambda k: k.cta_x.eq(ODD)))
    assert wrong.rules == {"deadlock"}
    assert {p.cta for p in wrong.findings[0].participants} == {ODD}


#: which CTA, of what grid: beyond 256 clusters values are kept as sums
CTAS: dict[str, tuple[Callable[[Builder], Expr], Any, int]] = {
    "of three dimensions": (
        lambda k: k.cta_x.eq(2) & k.cta_y.eq(3) & k.cta_z.eq(1), (5, 5, 4), 2 + 5 * (3 + 5),
    ),
    "in the second dimension": (lambda k: k.cta_y.eq(99), (1, 100), 99),
    "of a sum": (lambda k: (k.cta_x * 7 + k.lane_id).eq(7 * 290 + 31), 300, 290),
    "of a product": (lambda k: ((k.cta_x + 3) * 5).eq(5 * 203), 300, 200),
    "of a difference": (lambda k: (1000 - 2 * k.cta_x).eq(1000 - 2 * 299), 300, 299),
    "of bits": (lambda k: ((k.cta_x & 15).eq(9)) & (k.cta_x >> 4).eq(16), 300, 265),
    "of a quotient": (lambda k: (k.cta_x // 299).eq(1), 300, 299),
}  # fmt: skip


@pytest.mark.parametrize("name", CTAS)
def test_which_cta_that_is(name: str) -> None:
    odd, grid, cta = CTAS[name]
    right = check(telling(_by_warp, lambda k: odd(k) & (k.cta_x < 0), grid))
    assert right.verdict == "proved", right
    wrong = check(telling(_by_warp, odd, grid))
    assert wrong.rules == {"deadlock"}
    assert {p.cta for p in wrong.findings[0].participants} == {cta}


# ------------------------------------------------------------------ what two of them access


#: a kernel, right or wrong
Make = Callable[[Builder, bool], None]


def _one_word(k: Builder, wrong: bool) -> None:
    """The last word of each is the first of the next."""
    C = k.tensor("C", s32, (GRID * 32,))
    k.mem.store(C[k.cta_x * (31 if wrong else 32) + k.lane_id], 1)


def _columns(k: Builder, wrong: bool) -> None:
    C = k.tensor("C", s32, (32, GRID))
    k.mem.store(C[k.lane_id, select(k.cta_x.eq(70) & wrong, ODD, k.cta_x)], 1)


def _rows_by_half(k: Builder, wrong: bool) -> None:
    """Rows of 32 that bulk copies store begin in the middle of others."""
    C, s = k.tensor("C", s32, (GRID * 32 + 16,)), k.shared("s", s32, (32,), align=128)
    _filled(k, s)
    with k.one_thread():
        at = k.cta_x * 32 + select(k.cta_x.eq(ODD) & wrong, 16, 0)
        k.bulk.store(C[ds(at, 32)], s[...])
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def _tiles_by_half(k: Builder, wrong: bool) -> None:
    C, s = k.tensor("C", s32, (GRID * 8, 64)), k.shared("s", s32, (8, 32), align=128)
    box = k.tensor_map(C, (8, 32))
    _filled(k, s)
    with k.one_thread():
        row = k.cta_x * 8 + select(k.cta_x.eq(ODD) & wrong, 4, 0)
        k.tma.store(box, s, (row, 16))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def _corner(row: int, column: int) -> Make:
    """A CTA stores into one corner of another's box, whose cells others divide; or beside it."""

    def make(k: Builder, wrong: bool) -> None:
        C = k.tensor("C", s32, (GRID * 8, 64))
        s, t = (k.shared(n, s32, size, align=128) for n, size in (("s", (8, 32)), ("t", (1, 32))))
        box, small = k.tensor_map(C, (8, 32)), k.tensor_map(C, (1, 16), name="small")
        _filled(k, s)
        _filled(k, t)
        away = k.cta_x.eq(80) & wrong
        with k.one_thread():
            k.tma.store(box, s, (k.cta_x * 8, 0))
            at = select(away, ODD * 8 + row, k.cta_x * 8), select(away, column, 48)
            k.tma.store(small, t[:, 0:16], at)
            k.bulk.commit_group()
            k.bulk.wait_group(0)

    return make


def _row_of_a_box(k: Builder, wrong: bool) -> None:
    """A CTA stores to an address in the middle of another's box, which is told by bytes."""
    C, s = k.tensor("C", s32, (GRID * 8, 64)), k.shared("s", s32, (8, 32), align=128)
    box = k.tensor_map(C, (8, 32))
    _filled(k, s)
    row = select(k.cta_x.eq(80) & wrong, ODD * 8 + 3, k.cta_x * 8)
    g = k.var("g", address_of(C[row, select(k.cta_x.eq(80) & wrong, 7, 48)]), u64)
    with k.one_thread():
        k.tma.store(box, s, (k.cta_x * 8, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
        k.mem.store(view_at(g, s32, space="global"), 1)


def _tiles_at_the_end(k: Builder, wrong: bool) -> None:
    """Boxes of one dimension, of which the last one is cut off."""
    C, s = k.tensor("C", s32, (GRID * 32 - 16,)), k.shared("s", s32, (32,), align=128)
    box = k.tensor_map(C, (32,))
    _filled(k, s)
    with k.one_thread():
        k.tma.store(box, s, (k.cta_x * 32 - select(k.cta_x.eq(ODD) & wrong, 16, 0),))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def _filled(k: Builder, s: Any) -> None:
    """Shared memory that has been written, and may be copied."""
    if len(s.shape) == 1:
        k.mem.store(s[k.lane_id], 1)
    else:
        for row in range(s.shape[0]):
            k.mem.store(s[row, k.lane_id], 1)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()


def _before_others_leave(k: Builder, wrong: bool) -> None:
    """They store, and then most others do something else."""
    C, b = k.tensor("C", s32, (GRID, 32)), k.mbarriers("b")
    k.mem.store(C[select(k.cta_x.eq(5) & wrong, 3, k.cta_x), k.lane_id], 1)
    _something_else(k, b, k.cta_x >= 30)


def _before_they_leave(k: Builder, wrong: bool) -> None:
    """One of the two does something else afterwards."""
    C, b = k.tensor("C", s32, (GRID, 32)), k.mbarriers("b")
    k.mem.store(C[select(k.cta_x.eq(80) & wrong, 3, k.cta_x), k.lane_id], 1)
    _something_else(k, b, k.cta_x >= 30)


def _after_others_left(k: Builder, wrong: bool) -> None:
    C, b = k.tensor("C", s32, (GRID, 32)), k.mbarriers("b")
    _something_else(k, b, k.cta_x >= 30)
    k.mem.store(C[select(k.cta_x.eq(80) & wrong, 90, k.cta_x), k.lane_id], 1)


def _something_else(k: Builder, b: Any, other: Expr) -> None:
    at = k.var("at", 0)
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.sync_warp()
    with k.if_(other), k.one_thread(0):
        k.mbarrier.arrive(b)
    with k.loop(4) as i:
        k.assign(at, at + i)
        k.sync_warp()


def _read(k: Builder, wrong: bool) -> None:
    C, got = k.tensor("C", s32, (GRID + 1, 32)), k.var("got", 0)
    k.mem.store(C[k.cta_x, k.lane_id], 1)
    k.mem.load(got, C[k.cta_x + select(k.cta_x.eq(ODD) & wrong, 1, 0), k.lane_id])


def _atomic(k: Builder, wrong: bool) -> None:
    """All add to one word, which one of them also stores."""
    C = k.tensor("C", s32, (32,))
    with k.one_thread():
        k.mem.atomic(C[0], "add", 1)
    with k.if_(k.cta_x.eq(ODD)), k.one_thread():
        k.mem.store(C[1 - int(wrong)], 1)


def _far(k: Builder, wrong: bool) -> None:
    """At addresses."""
    C, g = k.tensor("C", s32, (GRID * 32,)), k.var("g", 0, u64)
    k.assign(g, address_of(C[k.cta_x * (31 if wrong else 32) + k.lane_id]))
    k.mem.store(view_at(g, s32, space="global"), 1)


def _far_and_near(k: Builder, wrong: bool) -> None:
    C, g = k.tensor("C", s32, (2 * GRID, 32)), k.var("g", 0, u64)
    k.mem.store(C[k.cta_x, k.lane_id], 1)
    k.assign(g, address_of(C[k.cta_x + (GRID - 1 if wrong else GRID), k.lane_id]))
    k.mem.store(view_at(g, s32, space="global"), 1)


def _far_generic(k: Builder, wrong: bool) -> None:
    C, g = k.tensor("C", s32, (GRID, 32)), k.var("g", 0, u64)
    row = select(k.cta_x.eq(ODD) & wrong, 99, k.cta_x)
    k.mem.cvta(g, address_of(C[row, k.lane_id]), "global")
    k.mem.store(view_at(g, s32, space="generic"), 1)


MEETINGS = (
    _one_word, _columns, _rows_by_half, _tiles_by_half, _tiles_at_the_end, _before_others_leave,
    _before_they_leave, _after_others_left, _read, _atomic, _far, _far_and_near, _far_generic,
    _corner(0, 16), _corner(7, 0),
)  # fmt: skip


def meeting(make: Make, *, wrong: bool) -> Program:
    k = Builder("meeting", warps=1)
    k.launch(grid=GRID)
    make(k, wrong)
    return k.finish()


@pytest.mark.parametrize("make", MEETINGS)
def test_two_ctas_that_meet(make: Make) -> None:
    right = check(meeting(make, wrong=False))
    assert right.verdict == "proved", right
    wrong = check(meeting(make, wrong=True))
    assert wrong.rules == {"race"}
    assert len({p.cta for p in wrong.findings[0].participants}) == 2


@pytest.mark.parametrize("wrong", [False, True])
def test_a_row_of_a_box(wrong: bool) -> None:
    """Two that meet are named where no run is made of both."""
    report = check(meeting(_row_of_a_box, wrong=wrong))
    assert report.verdict == ("bounded" if wrong else "proved")
    named = f"clusters {ODD} and 80 access the same bytes"
    assert any(reason.startswith(named) for reason in report.reasons) is wrong


# ------------------------------------------------------------------ other numbers of turns


#: CTAs, and tiles: the first two CTAs have one more than the others
AT_ONCE, TURNS = 70, 60
TILES = AT_ONCE * TURNS + 2
#: of a CTA, its tile, and which of its tiles that is
Of = Callable[[Builder, Expr, Expr], Expr]


def _nothing(k: Builder, tile: Expr, count: Expr) -> Expr:
    return tile < 0


def tiles(at: Of, behind: Of = _nothing, *, by_rest: bool = False) -> Program:
    """Persistent CTAs store rows; one stores another row behind its last one, if ``behind`` holds
    of it (``by_rest``: of what the tile before leaves divided by 13)."""
    k = Builder("tiles", warps=1)
    k.launch(grid=AT_ONCE)
    out = k.tensor("out", s32, (2 * TILES + AT_ONCE, 32))
    last, count = k.var("last", k.cta_x), k.var("count", 0)
    rest, old = k.var("rest", 0), k.var("old", 0)
    with k.loop(k.cta_x, TILES, AT_ONCE) as tile:
        k.mem.store(out[at(k, tile, count), k.lane_id], 1)
        k.bar.sync(1, 32)
        k.assign(last, tile)
        k.assign(count, count + 1)
        k.assign(old, rest)
        k.assign(rest, tile % 13)
    with k.if_(behind(k, old if by_rest else last, count)):
        k.mem.store(out[0, k.lane_id], 3)
    return k.finish()


def _own(k: Builder, tile: Expr, count: Expr) -> Expr:
    return tile


BEHIND: dict[str, tuple[Of, bool]] = {
    "the last tile": (lambda k, last, count: last.eq(TILES - 1), True),
    "that of a CTA with a tile less": (lambda k, last, count: last.eq(TILES - 3), True),
    "a tile that is none": (lambda k, last, count: last.eq(TILES), False),
    "a tile more": (lambda k, last, count: k.cta_x.eq(1) & count.eq(TURNS + 1), True),
    "no tile more": (lambda k, last, count: k.cta_x.eq(1) & count.eq(TURNS), False),
    "no tile more of another": (lambda k, last, count: k.cta_x.eq(33) & count.eq(TURNS), True),
    "a tile more of another": (lambda k, last, count: k.cta_x.eq(33) & (count > TURNS), False),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_a_cta_does_behind_its_last_tile(name: str) -> None:
    behind, wrong = BEHIND[name]
    report = check(tiles(_own, behind))
    assert report.verdict == ("failed" if wrong else "proved")
    assert report.rules == ({"race"} if wrong else set())


@pytest.mark.parametrize("cta", [1, 33, 69])
def test_what_a_remainder_is_behind_the_last_tile(cta: int) -> None:
    """It does not differ by the same from turn to turn."""
    last = cta + AT_ONCE * (TURNS if cta < 2 else TURNS - 1)
    for wrong in (False, True):
        rest = (last - AT_ONCE if wrong else last) % 13

        def behind(k: Builder, left: Expr, count: Expr, rest: int = rest) -> Expr:
            return k.cta_x.eq(cta) & left.eq(rest)

        report = check(tiles(_own, behind, by_rest=True))
        assert report.rules == ({"race"} if wrong else set())


#: of the right program, of the wrong one
PLACES: dict[str, tuple[Of, Of]] = {
    "a tile of all": (_own, lambda k, tile, count: tile + select(tile.eq(70 * 30 + 40), 1, 0)),
    "all of a CTA": (_own, lambda k, tile, count: tile + select(k.cta_x.eq(40), 1, 0)),
    "the last ones": (_own, lambda k, tile, count: tile - select(tile.eq(TILES - 1), 1, 0)),
    "rows of a CTA": (
        lambda k, tile, count: k.cta_x * (TURNS + 1) + count,
        lambda k, tile, count: k.cta_x * TURNS + count,
    ),
    "backwards": (
        lambda k, tile, count: k.cta_x * (TURNS + 1) + TURNS - count,
        lambda k, tile, count: k.cta_x * TURNS + TURNS - count,
    ),
    "columns": (
        lambda k, tile, count: tile // 8 + tile % 8 * (TILES // 8 + 1),
        lambda k, tile, count: tile // 8 + tile % 8 * (TILES // 8),
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_tiles_of_other_ctas(name: str) -> None:
    right, wrong = PLACES[name]
    assert check(tiles(right)).verdict == "proved"
    report = check(tiles(wrong))
    assert report.rules == {"race"}
    assert len({p.cta for p in report.findings[0].participants}) == 2


def test_a_word_at_an_address_decides() -> None:
    """A table says where each CTA waits, and one entry is wrong."""
    for wrong in (False, True):
        k = Builder("table", warps=2)
        k.launch(grid=GRID)
        X, at, got = k.tensor("X", s32, (GRID,)), k.var("at", 0), k.var("got", 0)
        g, b = k.var("g", 0, u64), k.mbarriers("b", 2)
        with k.one_thread():
            k.mbarrier.init(b[0], 1)
            k.mbarrier.init(b[1], 1)
        k.sync_threads()
        k.assign(g, address_of(X[k.cta_x]))
        k.mem.load(at, view_at(g, s32, space="global"))
        with k.role("first", 0), k.one_thread(0):
            k.mbarrier.arrive(b[0])
        with k.role("second", 1):
            k.mem.shuffle(got, at, 31)
            k.mbarrier.wait(b[got], 0)
        contents = np.zeros(GRID, np.int32)
        contents[ODD] = wrong
        report = check(k.finish(), inputs={"X": contents})
        assert report.rules == ({"deadlock"} if wrong else set())


# ------------------------------------------------------------------ the same data


#: what two warps add to a word that is not known, before both store the sum to one place
Adds = Callable[[Builder, Any], None]

ADDS: dict[str, tuple[Adds, bool]] = {
    "one in a CTA": (lambda k, by: k.assign(by, select(k.cta_x.eq(ODD), 1, 0)), True),
    "a number of each CTA": (lambda k, by: k.assign(by, k.cta_x * 3), True),
    "a number of each lane": (lambda k, by: k.assign(by, k.cta_x * 3 + k.lane_id), True),
    "that of another lane": (
        lambda k, by: k.mem.shuffle(by, k.cta_x * 3 + k.lane_id, 31, "bfly"), True,
    ),
    "one in a warp of a CTA": (
        lambda k, by: k.assign(by, select(k.cta_x.eq(ODD) & k.warp_id.eq(1), 1, 0)), False,
    ),
    "a number of each warp": (lambda k, by: k.assign(by, k.cta_x * 3 + k.warp_id), False),
    "the same in the first CTA": (lambda k, by: k.assign(by, k.cta_x * k.warp_id), False),
    "one in a lane": (
        lambda k, by: k.assign(
            by, k.cta_x * 3 + select(k.lane_id.eq(31) & k.warp_id.eq(1), 1, 0)
        ),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("grid", [GRID, 300])
@pytest.mark.parametrize("name", ADDS)
def test_whether_two_warps_store_the_same(name: str, grid: int) -> None:
    """In all CTAs; a store of the warp's number races in any case."""
    adds, same = ADDS[name]
    for number in (False, True):
        k = Builder("same", warps=2)
        k.launch(grid=grid)
        X, s, t = k.tensor("X", s32, (32,)), k.shared("s", s32, (32,)), k.shared("t", s32, (32,))
        x, by = k.var("x", 0), k.var("by", 0)
        k.mem.load(x, X[k.lane_id])
        adds(k, by)
        k.mem.store(s[k.lane_id], x + by)
        if number:
            k.mem.store(t[k.lane_id], k.warp_id)
        report = check(k.finish())
        assert len(report.findings) == (not same) + number
        assert report.rules == ({"race"} if number or not same else set())


def _where(k: Builder, at: Any) -> None:
    """A barrier that nothing comes to is waited for where lane 31 has 1."""
    b, got = k.mbarriers("b", 2), k.var("got", 0)
    with k.one_thread():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
    k.sync_threads()
    with k.role("first", 0), k.one_thread(0):
        k.mbarrier.arrive(b[0])
    with k.role("second", 1):
        k.mem.shuffle(got, at, 31)
        k.mbarrier.wait(b[got & 1], 0)


@pytest.mark.parametrize("last", [GRID, 50])
def test_only_the_first_elements_of_a_tensor_are_known(last: int) -> None:
    for odd in (GRID, ODD):
        k = Builder("begins", warps=2)
        k.launch(grid=GRID)
        words = np.zeros(last, np.int32)
        words[odd:][:1] = 1
        # as a launch description tells, of which a builder knows nothing
        X = replace(k.tensor("X", s32, (GRID,)), contents=words.tobytes().hex())
        k._params[-1] = X
        at = k.var("at", 0)
        k.mem.load(at, X[k.cta_x])
        _where(k, at)
        report = check(k.finish())
        assert report.rules == ({"deadlock"} if odd < last else set())
        if odd == GRID:
            assert report.verdict == ("proved" if last == GRID else "bounded")


@pytest.mark.parametrize("fill", ["zero", "nan"])
def test_what_lies_outside_of_a_tensor_is_read(fill: Literal["zero", "nan"]) -> None:
    """By pixels, of which no box is compared between clusters; the tensor's contents are zeros."""
    k = Builder("filled", warps=2)
    k.launch(grid=GRID)
    g, s = k.tensor("g", f32, (2, 3, 5, 64)), k.shared("s", f32, (3, 32), align=128)
    box = k.tensor_map(g, (3, 32), lower=(0, 0), upper=(-1, 0), fill=fill)
    came, x, at = k.mbarriers("came"), k.var("x", 0.0, f32), k.var("at", 0)
    with k.one_thread():
        k.mbarrier.init(came, 1)
    k.sync_threads()
    with k.role("loads", 0), k.one_thread(0):
        k.mbarrier.arrive_expect_tx(came, 3 * 32 * 4)
        image = select(k.cta_x.eq(ODD), 2, 0)
        k.tma.load(box, s, (image, 0, 0, 0), came, mode="im2col", info=(0, 0))
    k.mbarrier.wait(came, 0)
    k.mem.load(x, s[0, k.lane_id])
    k.assign(at, select(x.eq(0.0), 0, 1))
    _where(k, at)
    report = check(k.finish())
    assert report.verdict == ("bounded" if fill == "zero" else "failed")
    assert [p.cta for f in report.findings for p in f.participants] == [ODD] * (fill == "nan")


@pytest.mark.parametrize("odd", [-1, ODD])
def test_a_cta_reads_by_another_map_of_its_own(odd: int) -> None:
    """What a copy reads of a map in memory is not compared where contents that decide are copied:
    by the second one, the last rows are zeros."""
    k = Builder("maps", warps=2)
    k.launch(grid=GRID)
    g, maps = k.tensor("g", s32, (4, 32)), k.tensor("maps", u8, (GRID, 2, 128))
    d, full, at = k.shared("d", s32, (4, 32)), k.mbarriers("full"), k.var("at", 0)
    box, which = k.tensor_map(g, (4, 32)), k.var("which", 0)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("loads", 0), k.one_thread(0):
        k.assign(which, select(k.cta_x.eq(odd), 1, 0))
        for n in range(2):
            k.tensormap.copy(maps[k.cta_x, n], box)
            k.tensormap.replace(maps[k.cta_x, n], "global_dim", 4 - 2 * n, 1)
        k.fence.proxy_tensormap_release("gpu")
        for n in range(2):
            k.fence.proxy_tensormap_acquire(maps[k.cta_x, n], "gpu")
        k.mbarrier.arrive_expect_tx(full, 512)
        k.tma.load(box, d, (0, 0), full, at=maps[k.cta_x, which])
    k.mbarrier.wait(full, 0)
    k.mem.load(at, d[3, k.lane_id])
    k.assign(at, 1 - at)
    _where(k, at)
    report = check(k.finish(), inputs={"g": np.ones((4, 32), np.int32)})
    assert report.verdict == "bounded"
    assert "in maps" in report.reasons[0]
    assert "was not compared between clusters" in report.reasons[0]


# ------------------------------------------------------------------ more clusters than one by one


#: of so many, what registers hold is kept as sums
MANY = 300


@pytest.mark.parametrize("cta", [1, 150, MANY - 1])
def test_each_of_many_ctas_names_a_word_of_its_own(cta: int) -> None:
    """Another warp stores the word of one of them."""
    for word, rules in ((MANY, set()), (cta, {"race"})):
        k = Builder("words", warps=2)
        k.launch(grid=MANY)
        s = k.shared("s", s32, (MANY + 1,))
        with k.role("first", 0), k.if_(k.lane_id.eq(0)):
            k.mem.store(s[k.cta_x], 1)
        with k.role("second", 1), k.if_(k.lane_id.eq(0)):
            k.mem.store(s[word], 1)
        report = check(k.finish())
        assert report.rules == rules
        assert {p.cta for f in report.findings for p in f.participants} == (
            {cta} if rules else set()
        )
        assert report.verdict == ("failed" if rules else "proved")


def _store_at(k: Builder, address: Expr) -> None:
    g = k.var("g", 0, u64)
    k.assign(g, address)
    k.mem.store(view_at(g, s32, space="global"), 1)


def _by_words(k: Builder, wrong: bool) -> None:
    C = k.tensor("C", s32, (MANY * 32,))
    _store_at(k, address_of(C[k.cta_x * (31 if wrong else 32) + k.lane_id]))


def _behind(k: Builder, wrong: bool) -> None:
    """The last one stores a word too many."""
    C = k.tensor("C", s32, (MANY * 32 - wrong,))
    _store_at(k, address_of(C[0]) + (k.cta_x * 32 + k.lane_id) * 4)


def _before(k: Builder, wrong: bool) -> None:
    """From the end; the last one stores a word before the first."""
    C = k.tensor("C", s32, (MANY * 32,))
    _store_at(k, address_of(C[MANY * 32 - 32 - wrong]) + k.lane_id * 4 - k.cta_x * 128)


def _unaligned(k: Builder, wrong: bool) -> None:
    C = k.tensor("C", s32, (MANY * 64,))
    _store_at(k, address_of(C[0]) + k.cta_x * (130 if wrong else 132) + k.lane_id * 4)


def _of_two(k: Builder, wrong: bool) -> None:
    """The last one stores into another tensor, to which all store."""
    C, D = k.tensor("C", s32, (MANY * 32,)), k.tensor("D", s32, (MANY * 32,))
    k.mem.store(D[k.cta_x * 32 + k.lane_id], 1)
    own = address_of(C[0]) + (k.cta_x * 32 + k.lane_id) * 4
    _store_at(k, select(k.cta_x.eq(MANY - 1), address_of(D[0]), own) if wrong else own)


def _from_both_ends(k: Builder, wrong: bool) -> None:
    C, last = k.tensor("C", s32, (MANY * 32,)), MANY - 1 - k.cta_x
    _store_at(k, address_of(C[last * 32 + k.lane_id]))
    with k.if_(k.lane_id.eq(0)):
        k.mem.store(C[(k.cta_x if wrong else last) * 32], 2)


#: of the wrong one, the rule and the CTAs that the first finding names
ADDRESSES: dict[Make, tuple[str, set[int]]] = {
    _by_words: ("race", {0, 1}),
    _behind: ("out-of-bounds", {MANY - 1}),
    _before: ("out-of-bounds", {MANY - 1}),
    _unaligned: ("out-of-bounds", {1}),
    _of_two: ("race", {0, MANY - 1}),
    _from_both_ends: ("race", {0, MANY - 1}),
}


@pytest.mark.parametrize("make", ADDRESSES)
def test_addresses_of_many_ctas(make: Make) -> None:
    rule, ctas = ADDRESSES[make]
    for wrong in (False, True):
        k = Builder("many", warps=1)
        k.launch(grid=MANY)
        make(k, wrong)
        report = check(k.finish())
        assert report.verdict == ("failed" if wrong else "proved")
        if wrong:
            assert report.rules == {rule}
            assert {p.cta for p in report.findings[0].participants} == ctas


def test_the_last_of_ctas_that_do_the_work_of_others() -> None:
    """They are not followed: some are run, the first and the last one among them."""
    for odd in (-1, GRID - 1):
        k = Builder("stealing", warps=2)
        k.launch(grid=GRID, target="sm_100a")
        r, came, at = k.shared("r", u32, (4,)), k.mbarriers("came"), k.var("at", 0)
        with k.one_thread():
            k.mbarrier.init(came, 1)
        k.sync_threads()
        with k.role("asks", 0), k.one_thread(0):
            k.mbarrier.arrive_expect_tx(came, 16)
            k.clc.try_cancel(r, came)
        k.mbarrier.wait(came, 0)
        k.assign(at, select(k.cta_x.eq(odd), 1, 0))
        _where(k, at)
        report = check(k.finish())
        assert report.verdict == ("bounded" if odd < 0 else "failed")
        assert "65 of 100 CTAs" in (report.reasons[0] if odd < 0 else report.covers)
        assert {p.cta for f in report.findings for p in f.participants} == {odd} - {-1}


# ------------------------------------------------------------------ lanes of many CTAs, by turns


def stepping(*, wrong: bool) -> Program:
    """Lanes of all CTAs move by different steps, from turn to turn, beside what differs between
    CTAs and moves alike: an arrival is missing once the sum is too great."""
    k = Builder("stepping", warps=1)
    k.launch(grid=GRID)
    own, alike = k.var("own", k.lane_id), k.var("alike", k.cta_x & 15)
    never = k.mbarriers("never")
    with k.one_thread():
        k.mbarrier.init(never, 1)
    k.sync_threads()
    with k.loop(160):
        with k.if_(own + (alike + 1) >= (480 if wrong else 4800)):
            k.mbarrier.wait(never, 0)
        k.assign(own, own + 1 + (k.lane_id & 1))
        k.assign(alike, alike + 1)
        k.bar.sync(1, 32)
    return k.finish()


def test_lanes_of_many_ctas_that_move_by_different_steps() -> None:
    assert check(stepping(wrong=False)).verdict == "proved"
    report = check(stepping(wrong=True))
    assert report.rules == {"deadlock"}
    # lane 31 adds 31, twice the turn, the turn and one; CTAs that are no multiple of 16 are earlier
    assert "iteration 151 " in str(report)


@pytest.mark.parametrize("wrong", [False, True])
def test_bytes_that_a_mask_leaves_out(wrong: bool) -> None:
    """Each CTA stores half of the bytes of a row, and one of them the same half of another's."""
    k = Builder("masked", "sm_100a", warps=1)
    k.launch(grid=GRID)
    out, data = k.tensor("out", u8, (GRID, 16)), k.shared("data", u8, (16,))
    with k.if_(k.lane_id < 16):
        k.mem.store(data[k.lane_id], 1)
    k.fence.proxy_async()
    k.sync_warp()
    row = select(k.cta_x.eq(ODD), ODD + 1, k.cta_x) if wrong else k.cta_x
    with k.one_thread():
        k.bulk.store(out[row], data, mask=0x5555)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    report = check(k.finish())
    assert report.verdict == ("failed" if wrong else "proved"), report.reasons
    assert report.rules == ({"race"} if wrong else set())
    if not wrong:
        assert f"all {GRID} CTAs, of which 1 were run" in report.covers


@pytest.mark.parametrize("further", [1, 33])
@pytest.mark.parametrize("at_address", [False, True])
def test_one_lane_of_one_cta_stores_further_on(further: int, at_address: bool) -> None:
    """Where lanes of a CTA do not move alike, it is run: it may meet the next one."""
    k = Builder("further", warps=1)
    k.launch(grid=GRID)
    out = k.tensor("out", u32, (64 * GRID + 64,))
    odd = k.cta_x.eq(ODD) & k.lane_id.eq(31)
    place = k.var("place", 64 * k.cta_x + k.lane_id + select(odd, further, 0))
    if at_address:
        at = k.var("at", address_of(out[place]), u64)
        k.mem.store(view_at(at, u32, space="global"), 1)
    else:
        k.mem.store(out[place], 1)
    report = check(k.finish())
    assert report.rules == ({"race"} if further == 33 else set()), report
    assert report.verdict == ("failed" if further == 33 else "proved")


@pytest.mark.parametrize("wrong", [False, True])
def test_boxes_of_which_the_first_is_cut_off(wrong: bool) -> None:
    """CTA 0 loads the lower half of a box, and the others all of theirs: one stores to the upper
    half of another's."""
    k = Builder("cut", warps=1)
    k.launch(grid=GRID)
    out, data = k.tensor("out", s32, (16 * GRID, 64)), k.shared("data", s32, (8, 32), align=128)
    box, bar = k.tensor_map(out, (8, 32)), k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    k.fence.mbarrier_init()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(bar, data.nbytes)
        k.tma.load(box, data, (16 * k.cta_x - 4, 0), bar)
    k.mbarrier.wait(bar, 0)
    row = select(k.cta_x.eq(80) & wrong, 16 * ODD + 2, 16 * k.cta_x + 8)
    k.mem.store(out[row, k.lane_id], 1)
    report = check(k.finish())
    assert report.rules == ({"race"} if wrong else set()), report
    assert report.verdict == ("failed" if wrong else "proved"), report.reasons


@pytest.mark.parametrize("wrong", [False, True])
def test_every_second_element_of_a_row(wrong: bool) -> None:
    """Lanes store to elements that are no box, and those of one CTA to some of another's."""
    k = Builder("second", warps=1)
    k.launch(grid=GRID)
    out, odd = k.tensor("out", s32, (GRID, 128)), k.cta_x.eq(80) & wrong
    row, first = select(odd, ODD, k.cta_x), select(odd, 4, 0)
    k.mem.store(out[row, 2 * k.lane_id + first], 1)
    report = check(k.finish())
    assert report.rules == ({"race"} if wrong else set()), report
    assert report.verdict == ("failed" if wrong else "proved"), report.reasons


@pytest.mark.parametrize("wrong", [False, True])
def test_every_second_row_of_a_box(wrong: bool) -> None:
    """A copy writes rows two apart, the last one of which is that of a box of another CTA."""
    k = Builder("rows", warps=1)
    k.launch(grid=GRID)
    out, data = k.tensor("out", s32, (16 * GRID, 32)), k.shared("data", s32, (4, 32), align=128)
    rows = k.tensor_map(out, (8, 32), element_strides=(2, 1))
    _filled(k, data)
    with k.one_thread():
        k.tma.store(rows, data, (16 * k.cta_x, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    row = select(k.cta_x.eq(80) & wrong, 16 * ODD + 6, 16 * k.cta_x + 1)
    k.mem.store(out[row, k.lane_id], 1)
    report = check(k.finish())
    assert report.rules == ({"race"} if wrong else set()), report
    assert report.verdict == ("failed" if wrong else "proved"), report.reasons
