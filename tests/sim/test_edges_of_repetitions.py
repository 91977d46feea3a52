"""A turn late in a loop is wrong, told by each kind of state that a loop can have.

Each program is one warp or two, and right but for one turn. What leaves out repetitions has to see
that turn come: from what registers, lanes, memory and barriers hold that moves from turn to turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.timed import timed
from tilesim import Builder, Program, s32, s64, select, u8, u16, u32, u64
from tilesim.checker import check
from tilesim.ir.expr import Expr, Var, all_of, any_of, as_expr, maximum, minimum

#: turns, so many that the search for repetitions is worth it early; and of what is not left out
TURNS, FEW = 4000, 400
#: the turn that is wrong, of which no kind of state knows but by how it moves; another one
ODD, EARLY = 237, 97
#: an expression before the loop; what is done in each turn; what tells the turn
State = Callable[[Builder], Callable[[Expr], Expr]]


def _of_turn(holds: Callable[[Expr], Expr]) -> State:
    return lambda k: holds


def _register(
    first: int, step: Callable[[Var, Builder], Expr | int], holds: Callable[[Var, Expr], Expr],
    dtype: Any = s32,
) -> State:  # fmt: skip
    """A register that ``step`` sets anew in each turn."""

    def state(k: Builder) -> Callable[[Expr], Expr]:
        v = k.var("v", first, dtype)

        def turn(i: Expr) -> Expr:
            found = k.var("found", holds(v, i))
            k.assign(v, step(v, k))
            return found.ne(0)

        return turn

    return state


def _lanes(k: Builder) -> Callable[[Expr], Expr]:
    """Another step in each lane, the greatest in lane 31; that of lane 0 is none."""
    v, got = k.var("v", 0), k.var("got", 0)

    def turn(i: Expr) -> Expr:
        k.mem.shuffle(got, v, 31)
        k.assign(v, v + k.lane_id)
        return got.eq(31 * ODD)

    return turn


def _set_in_some_lanes(k: Builder) -> Callable[[Expr], Expr]:
    """A number that lanes from 16 on go on with by steps of their own."""
    v = k.var("v", 0)

    def turn(i: Expr) -> Expr:
        k.assign(v, i)
        with k.if_(k.lane_id > 15):
            k.assign(v, 64 * i)
        return v.eq(ODD)

    return turn


def _rotated(k: Builder) -> Callable[[Expr], Expr]:
    """A number that goes round the lanes."""
    v, got = k.var("v", k.lane_id), k.var("got", 0)

    def turn(i: Expr) -> Expr:
        k.mem.shuffle(v, v, (k.lane_id + 1) % 32)
        k.mem.shuffle(got, v, 0)
        return got.eq((ODD + 1) % 32) & (i > ODD - 20)

    return turn


def _table(k: Builder) -> Callable[[Expr], Expr]:
    """A word in shared memory that was filled before."""
    words, got = k.shared("words", s32, (FEW,)), k.var("got", 0)
    with k.loop(FEW // 16) as j, k.if_(k.lane_id < 16):
        k.mem.store(words[j * 16 + k.lane_id], (j * 16 + k.lane_id).eq(ODD))
    k.sync_warp()

    def turn(i: Expr) -> Expr:
        k.mem.load(got, words[i])
        return got.ne(0)

    return turn


def _counted_in_memory(k: Builder) -> Callable[[Expr], Expr]:
    """A counter in shared memory, one for each lane."""
    words, got = k.shared("words", s32, (32,)), k.var("got", 0)
    k.mem.store(words[k.lane_id], 0)

    def turn(i: Expr) -> Expr:
        k.mem.load(got, words[k.lane_id])
        k.mem.store(words[k.lane_id], got + 1)
        return got.eq(ODD)

    return turn


def _passed_on_in_memory(k: Builder) -> Callable[[Expr], Expr]:
    """What a turn stores is what another one loads, eight turns later."""
    words, got = k.shared("words", s32, (8, 32)), k.var("got", 0)
    with k.loop(8) as j:
        k.mem.store(words[j, k.lane_id], 0)

    def turn(i: Expr) -> Expr:
        k.mem.load(got, words[i % 8, k.lane_id])
        k.mem.store(words[i % 8, k.lane_id], select(i.eq(ODD - 8), 1, 0))
        return got.ne(0)

    return turn


def _late(k: Builder) -> Callable[[Expr], Expr]:
    """Registers that hand on what one of them got."""
    a, b, c = (k.var(n, 0) for n in "abc")

    def turn(i: Expr) -> Expr:
        k.assign(c, b)
        k.assign(b, a)
        k.assign(a, select(i.eq(ODD - 2), 1, 0))
        return c.ne(0)

    return turn


def _near(i: Expr, by: int) -> Expr:
    """Whether a turn is the odd one, or less than ``by`` before or behind it."""
    return (i > ODD - by) & (i < ODD + by)


#: what else expressions of the turn may be is in `EDGES`, and in `test_shifts`
STATES: dict[str, State] = {
    "the turn": _of_turn(lambda i: i.eq(ODD)),
    "square": _of_turn(lambda i: (i * i).eq(ODD * ODD)),
    "low bits": _of_turn(lambda i: (i & 15).eq(ODD & 15) & (i >> 4).eq(ODD >> 4)),
    "remainders": _of_turn(lambda i: (i % 3).eq(ODD % 3) & (i % 7).eq(ODD % 7) & _near(i, 21)),
    "negative quotient": _of_turn(lambda i: ((i - 300) // 4).eq((ODD - 300) // 4) & _near(i, 1)),
    "shifted by": _of_turn(lambda i: (1 << i % 8).eq(1 << ODD % 8) & _near(i, 8)),
    "a counter": _register(0, lambda v, k: v + 3, lambda v, i: v.eq(3 * ODD)),
    "from below": _register(-7 * ODD, lambda v, k: v + 7, lambda v, i: (v >= 0) & (v < 7)),
    "downwards": _register(5 * ODD, lambda v, k: v - 5, lambda v, i: v.eq(0)),
    "8 bits": _register(256 - ODD, lambda v, k: v + 1, lambda v, i: v.eq(0), u8),
    "16 bits": _register(
        65536 - 200 * ODD, lambda v, k: v + 200, lambda v, i: (v < 200) & (i > 9), u16
    ),
    "32 bits": _register((1 << 32) - 9 * ODD, lambda v, k: v + 9, lambda v, i: v < 9, u32),
    "wraps back": _register(ODD - 1, lambda v, k: v - 1, lambda v, i: v.eq((1 << 32) - 1), u32),
    "doubled": _register(
        1, lambda v, k: v * 2 % 17, lambda v, i: v.eq(pow(2, ODD, 17)) & _near(i, 8)
    ),
    "mixed": _register(
        0, lambda v, k: (v * 5 + 3) & 15, lambda v, i: v.eq(_mixed(ODD)) & _near(i, 16)
    ),
    "two steps": _register(0, lambda v, k: select(v > 99, v + 2, v + 1), lambda v, i: v.eq(374)),
    "toggled": _register(0, lambda v, k: v ^ 1, lambda v, i: v.ne(0) & _near(i, 2)),
    "lanes": _lanes, "rotated lanes": _rotated, "a table": _table,
    "counted in memory": _counted_in_memory, "passed on in memory": _passed_on_in_memory,
    "registers in a row": _late,
}  # fmt: skip


#: nothing of these is left out: how they move is not followed
NEVER = {
    "square",
    "doubled",
    "lanes",
    "rotated lanes",
    "a table",
    "counted in memory",
}


def _mixed(turn: int) -> int:
    v = 0
    for _ in range(turn):
        v = v * 5 + 3 & 15
    return v


def arriving(state: State, *, wrong: bool, turns: int = TURNS) -> Program:
    """An arrival in each turn, but for the one that the state tells."""
    k = Builder("watched", warps=1)
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    turn = state(k)
    with k.loop(turns) as i:
        odd = turn(i)
        if not wrong:
            odd = odd & (i < 0)
        with k.if_(odd.eq(0)), k.one_thread(0):
            k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, i & 1)
        k.sync_warp()
    return k.finish()


def require_found(state: State, *, left_out: bool = True) -> None:
    """The turn is found, and turns of the right program are left out."""
    turns = TURNS if left_out else FEW
    right = timed(arriving(state, wrong=False, turns=turns))
    assert not right.findings
    assert bool(right.stats.skipped) is left_out
    wrong = check(arriving(state, wrong=True, turns=turns))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}


@pytest.mark.parametrize("name", STATES)
def test_a_turn_without_its_arrival(name: str) -> None:
    require_found(STATES[name], left_out=name not in NEVER)


def test_a_register_that_some_lanes_set() -> None:
    """The others go on with what they have: one of them misses a turn that has been left out."""
    right = timed(arriving(_set_in_some_lanes, wrong=False))
    assert not right.findings
    assert right.stats.skipped
    assert check(arriving(_set_in_some_lanes, wrong=True)).verdict == "failed"


#: beyond so many turns the bits of a number are not followed until they repeat
FAR = 1 << 20
BEFORE = FAR - ODD
#: turns that are told by where a comparison, a quotient or a bit turns, and by nothing else
EDGES: dict[str, State] = {
    "below": _of_turn(lambda i: (i < ODD + 1) & (i >= ODD)),
    "not above": _of_turn(lambda i: (i <= ODD) & (i > ODD - 1)),
    "from the other side": _of_turn(lambda i: (as_expr(ODD + 1) > i) & (as_expr(ODD) <= i)),
    "two that move": _register(3 * ODD, lambda v, k: v - 2, lambda v, i: (v <= i) & (v + 3 > i)),
    "downwards, below": _register(ODD, lambda v, k: v - 1, lambda v, i: (v < 1) & (v >= 0)),
    "downwards, not above": _register(
        2 * ODD, lambda v, k: v - 2, lambda v, i: (v <= 0) & (v > -2)
    ),
    "not met": _register(2 * ODD + 1, lambda v, k: v - 2, lambda v, i: v.eq(0) | i.eq(ODD)),
    "least of two": _of_turn(
        lambda i: (minimum(i, ODD) + 1).eq(minimum(i, ODD + 1)) & (i < ODD + 2) & (i > ODD)
    ),
    "least": _of_turn(lambda i: (i - minimum(i, ODD)).eq(1)),
    "greatest": _of_turn(lambda i: (maximum(i, ODD) - ODD).eq(1)),
    "least that goes down": _register(
        ODD, lambda v, k: v - 1, lambda v, i: (minimum(v, 0) + 1).eq(0)
    ),
    "a far quotient": _of_turn(lambda i: ((i + BEFORE) // FAR).ne((i + BEFORE - 1) // FAR)),
    "a far quotient downwards": _of_turn(
        lambda i: ((FAR + ODD - i) // FAR).ne((FAR + ODD + 1 - i) // FAR)
    ),
    "a far remainder": _of_turn(lambda i: ((i + BEFORE) % FAR).eq(0)),
    "a far remainder downwards": _of_turn(lambda i: ((ODD - 1 - i + FAR) % FAR).eq(FAR - 1)),
    "a far shift": _of_turn(lambda i: ((i + BEFORE) >> 20).ne((i + BEFORE - 1) >> 20)),
    "many bits": _of_turn(lambda i: ((i + BEFORE) & (FAR - 1)).eq(0)),
    "many bits by 16": _of_turn(lambda i: ((16 * i + FAR - 16 * ODD) & (FAR - 16)).eq(0)),
    "upper bits": _of_turn(lambda i: ((16 * i - 16 * ODD) & -16).eq(0)),
    "bits that turn": _of_turn(lambda i: ((i + BEFORE) ^ FAR).eq(0)),
    "a bit that is set": _of_turn(lambda i: ((i + BEFORE) | FAR).eq(FAR) & (i > 0)),
    "a bit above": _of_turn(lambda i: ((i & 1) + (i ^ 2) - (i & 3)).eq((ODD ^ 2) - (ODD & 2))),
    "bits below a shift": _of_turn(lambda i: ((8 * i) | 5).eq(8 * ODD + 5)),
    "chosen": _of_turn(lambda i: select(i < ODD, i, 2 * ODD - i).eq(ODD)),
    "chosen downwards": _register(ODD, lambda v, k: v - 1, lambda v, i: select(v, 0, 1).ne(0)),
    "negated": _of_turn(lambda i: (-i).eq(-ODD)),
    "truth": _of_turn(lambda i: ~((i - ODD).ne(0) & (i >= 0)) & 1),
    "either": _of_turn(lambda i: any_of(i.eq(ODD), i < 0)),
    "both": _of_turn(lambda i: all_of(i >= ODD, i <= ODD)),
    "long": _register((1 << 33) - 5 * ODD, lambda v, k: v + 5, lambda v, i: v.eq(1 << 33), u64),
    "16 bits downwards": _register(3 * ODD - 1, lambda v, k: v - 3, lambda v, i: v > 65532, u16),
    "another way round": _register(
        0, lambda v, k: v + 2, lambda v, i: (as_expr(2 * ODD) - v).eq(0)
    ),
}


def _far_lanes(k: Builder) -> Callable[[Expr], Expr]:
    """Each lane's number of 64 bits comes from the end of what these hold down past another one:
    their difference is none of 64 bits."""
    first, least = (1 << 63) - 100, 1 - (1 << 61)
    step = (first - least) // ODD + 2
    v = k.var("v", k.lane_id + first, s64)

    def turn(i: Expr) -> Expr:
        found = k.var("found", (v < least) & (v >= least - step) & (i < 2 * ODD))
        k.assign(v, v - step)
        return found.ne(0)

    return turn


EDGES["far apart, of lanes"] = _far_lanes


@pytest.mark.parametrize("wrong", [False, True])
def test_numbers_of_clusters_that_come_far(wrong: bool) -> None:
    """The same where CTAs that take the same steps hold different numbers."""
    k = Builder("far", warps=1)
    k.launch(grid=100)
    never, v = k.mbarriers("never"), k.var("v", (1 << 63) - 200 + k.cta_x, s64)
    with k.one_thread():
        k.mbarrier.init(never, 1)
    k.sync_warp()
    with k.loop(FEW):
        k.assign(v, v - (1 << 55))
        k.bar.sync(1, 32)
    ends = (1 << 63) - 200 - FEW * (1 << 55)
    with k.if_((v - k.cta_x).eq(ends) if wrong else (v - k.cta_x).ne(ends)):
        k.mbarrier.wait(never, 0)
    report = check(k.finish())
    assert report.verdict == ("failed" if wrong else "proved")
    assert report.rules == ({"deadlock"} if wrong else set())


@pytest.mark.parametrize("name", EDGES)
def test_a_turn_at_an_edge(name: str) -> None:
    require_found(EDGES[name])


#: what comes of turns, some of which are left out: what is done before them, in each of them, and
#: what holds behind them
Comes = Callable[[Builder], tuple[Callable[[Expr], None], Callable[[], Expr]]]


def _holds(
    first: Any, step: Callable[[Expr, Expr, Builder], Any], ends: Any, dtype: Any = s32
) -> Comes:
    """A register, and what it holds in the end."""

    def comes(k: Builder) -> tuple[Callable[[Expr], None], Callable[[], Expr]]:
        v = k.var("v", first(k) if callable(first) else first, dtype)
        return (
            lambda i: k.assign(v, step(v, i, k)),
            lambda: v.eq(ends(k) if callable(ends) else ends),
        )

    return comes


def _held_by_a_lane(k: Builder) -> tuple[Callable[[Expr], None], Callable[[], Expr]]:
    """Lanes of which each counts in its own steps."""
    v, got = k.var("v", 0), k.var("got", 0)

    def ends() -> Expr:
        k.mem.shuffle(got, v, 21)
        return got.eq(21 * FEW)

    return lambda i: k.assign(v, v + k.lane_id), ends


def _held_in_memory(k: Builder) -> tuple[Callable[[Expr], None], Callable[[], Expr]]:
    words, got = k.shared("words", s32, (32,)), k.var("got", 0)
    k.mem.store(words[k.lane_id], 0)

    def turn(i: Expr) -> None:
        k.mem.store(words[k.lane_id], i)

    def ends() -> Expr:
        k.mem.load(got, words[k.lane_id])
        return got.eq(FEW - 1)

    return turn, ends


def _two_of_them(k: Builder) -> tuple[Callable[[Expr], None], Callable[[], Expr]]:
    a, b = k.var("a", 5), k.var("b", -3)

    def turn(i: Expr) -> None:
        k.assign(a, a + 2)
        k.assign(b, a - i)

    return turn, lambda: a.eq(5 + 2 * FEW) & b.eq(5 + FEW + 1)


COMES: dict[str, Comes] = {
    "a counter": _holds(0, lambda v, i, k: v + 3, 3 * FEW),
    "downwards": _holds(7, lambda v, i, k: v - 5, 7 - 5 * FEW),
    "8 bits": _holds(0, lambda v, i, k: v + 1, FEW % 256, u8),
    "16 bits": _holds(0, lambda v, i, k: v + 1000, FEW * 1000 % 65536, u16),
    "32 bits": _holds(9, lambda v, i, k: v - 1, (1 << 32) + 9 - FEW, u32),
    "64 bits": _holds(0, lambda v, i, k: v + (1 << 30), FEW << 30, u64),
    "the turn": _holds(0, lambda v, i, k: i, FEW - 1),
    "a multiple of it": _holds(0, lambda v, i, k: 7 * i - 3, 7 * FEW - 10),
    "a remainder": _holds(0, lambda v, i, k: (v + 3) % 7, FEW * 3 % 7),
    "a remainder of the turn": _holds(0, lambda v, i, k: i % 13, (FEW - 1) % 13),
    "a quotient of the turn": _holds(0, lambda v, i, k: i // 16, (FEW - 1) // 16),
    "bits": _holds(0, lambda v, i, k: i & 37, FEW - 1 & 37),
    "toggled": _holds(1, lambda v, i, k: v ^ 3, 1),
    "of lanes": _holds(lambda k: k.lane_id, lambda v, i, k: v + 2, lambda k: k.lane_id + 2 * FEW),
    "downwards, of lanes": _holds(
        lambda k: 5 * k.lane_id, lambda v, i, k: v - 1, lambda k: 5 * k.lane_id - FEW
    ),
    "that of a lane": _held_by_a_lane,
    "in memory": _held_in_memory,
    "two of them": _two_of_them,
}


@pytest.mark.parametrize("name", COMES)
def test_what_a_register_holds_behind_turns(name: str) -> None:
    """A barrier that nothing comes to is waited for if it does not hold that; or if it does."""
    for wrong in (False, True):
        k = Builder("held", warps=1)
        bar, never = k.mbarriers("bar"), k.mbarriers("never")
        with k.one_thread():
            k.mbarrier.init(bar, 1)
            k.mbarrier.init(never, 1)
        k.sync_warp()
        turn, ends = COMES[name](k)
        with k.loop(FEW) as i:
            turn(i)
            with k.one_thread(0):
                k.mbarrier.arrive(bar)
            k.mbarrier.wait(bar, i & 1)
            k.sync_warp()
        found = k.var("found", ends())
        with k.if_(found.ne(0) if wrong else found.eq(0)):
            k.mbarrier.wait(never, 0)
        report = check(k.finish())
        assert report.verdict == ("failed" if wrong else "proved")
        assert report.rules == ({"deadlock"} if wrong else set())


@pytest.mark.parametrize(
    ("arrivals", "phases"), [(1, FEW), (3, FEW // 3), (150, 2), (399, 1), (401, 0)]
)
def test_how_far_a_barrier_is_behind_turns(arrivals: int, phases: int) -> None:
    """So many phases are over: a wait for the last one returns, and one for the next does not."""
    for wrong in (False, True):
        k = Builder("phases", warps=1)
        own, slow = k.mbarriers("own"), k.mbarriers("slow")
        with k.one_thread():
            k.mbarrier.init(own, 1)
            k.mbarrier.init(slow, arrivals)
        k.sync_warp()
        with k.loop(FEW) as i:
            with k.one_thread(0):
                k.mbarrier.arrive(own)
                k.mbarrier.arrive(slow)
            k.mbarrier.wait(own, i & 1)
            k.sync_warp()
        k.mbarrier.wait(slow, (phases + (0 if wrong else 1)) % 2)
        report = check(k.finish())
        assert report.rules == ({"deadlock"} if wrong else set())


class Ring:
    """Two warps hand rows of shared memory to each other, in turns; what one of them does in a
    turn it does but in the odd one, if it is named ``without``."""

    def __init__(self, k: Builder, without: str) -> None:
        self.k = k
        self._without = without

    def but(self, what: str, i: Expr) -> Any:
        """The lanes that do it: all, but in the odd turn."""
        return self.k.if_(i.ne(EARLY if what == self._without else -1))


def _by_mbarriers(k: Builder, ring: Ring) -> None:
    data, got = k.shared("data", s32, (2, 32)), k.var("got", 0)
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for bar in (*full, *empty):
            k.mbarrier.init(bar, 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(FEW) as i:
        with ring.but("a wait for room", i):
            k.mbarrier.wait(empty[i % 2], (i // 2 & 1) ^ 1)
        k.mem.store(data[i % 2, k.lane_id], 7)
        with ring.but("an arrival", i):
            k.mbarrier.arrive(full[i % 2])
    with k.role("consumer", 1), k.loop(FEW) as i:
        with ring.but("a wait", i):
            k.mbarrier.wait(full[i % 2], i // 2 & 1)
        k.mem.load(got, data[i % 2, 31 - k.lane_id])
        with ring.but("an arrival behind", i):
            k.mbarrier.arrive(empty[i % 2])


def _by_named_barriers(k: Builder, ring: Ring) -> None:
    data, got = k.shared("data", s32, (32,)), k.var("got", 0)
    with k.role("producer", 0), k.loop(FEW) as i:
        k.mem.store(data[k.lane_id], 7)
        with ring.but("an arrival", i):
            k.bar.arrive(1, 64)
        with ring.but("a wait for room", i):
            k.bar.sync(2, 64)
    with k.role("consumer", 1), k.loop(FEW) as i:
        with ring.but("a wait", i):
            k.bar.sync(1, 64)
        k.mem.load(got, data[31 - k.lane_id])
        with ring.but("an arrival behind", i):
            k.bar.arrive(2, 64)


def _by_copies(k: Builder, ring: Ring) -> None:
    source, data = k.tensor("source", s32, (32,)), k.shared("data", s32, (32,), align=128)
    full, empty, got = k.mbarriers("full"), k.mbarriers("empty"), k.var("got", 0)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(FEW) as i, k.one_thread(0):
        with ring.but("a wait for room", i):
            k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full, 128)
        with ring.but("an arrival", i):
            k.bulk.load(data[...], source[...], full)
    with k.role("consumer", 1), k.loop(FEW) as i:
        with ring.but("a wait", i):
            k.mbarrier.wait(full, i & 1)
        k.mem.load(got, data[k.lane_id])
        with ring.but("an arrival behind", i):
            k.mbarrier.arrive(empty)


RINGS = {"mbarriers": _by_mbarriers, "named barriers": _by_named_barriers, "copies": _by_copies}
#: what is left out, and what comes of it
WITHOUT = {
    "an arrival": {"deadlock"}, "an arrival behind": {"deadlock"}, "a wait": {"race"},
    "a wait for room": {"race", "over-arrival"},
}  # fmt: skip


@pytest.mark.parametrize("without", [*WITHOUT, "nothing"])
@pytest.mark.parametrize("name", RINGS)
def test_two_warps_of_which_one_leaves_something_out(name: str, without: str) -> None:
    k = Builder("ring", warps=2)
    RINGS[name](k, Ring(k, without))
    report = check(k.finish())
    if without == "nothing":
        assert report.verdict == "proved"
    else:
        assert WITHOUT[without] & report.rules


@pytest.mark.parametrize(
    ("tiles", "turns", "late"),
    [
        (40, 8, (-1, -1)), (40, 8, (30, 0)), (40, 8, (30, 3)), (40, 8, (31, 7)), (40, 8, (39, 7)),
        # turns of the inner loop are left out in those of the outer one, and of both together
        (120, 50, (-1, -1)), (120, 50, (80, 27)), (120, 50, (119, 49)),
    ],
)  # fmt: skip
def test_a_turn_of_two_loops(tiles: int, turns: int, late: tuple[int, int]) -> None:
    """The arrival that is left out is that of one turn of both."""
    k = Builder("nested", warps=1)
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    with k.loop(tiles) as tile, k.loop(turns) as i:
        with k.if_(tile.ne(late[0]) | i.ne(late[1])), k.one_thread(0):
            k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, i & 1)
        k.sync_warp()
    report = check(k.finish())
    assert report.rules == (set() if late[0] < 0 else {"deadlock"})


#: CTAs that take the same steps, and the turns that those make which make fewer
CTAS, FEWER = 100, 200


def ends(turns: int) -> Program:
    """CTAs of which every second one makes four turns more than ``FEWER``. A warp waits in vain in
    those that made so many ``turns``, if another one came first; in the timed run it does not."""
    k = Builder("ends", warps=2)
    k.launch(grid=CTAS)
    never, bar, count = k.mbarriers("never"), k.mbarriers("bar"), k.var("count", 0)
    token, pending = k.var("token"), k.var("pending", 0)
    with k.one_thread():
        k.mbarrier.init(never, 1)
        k.mbarrier.init(bar, 3)
    k.sync_threads()
    stop = CTAS * (FEWER + 4 * (k.cta_x % 2))
    with k.loop(k.cta_x, stop, CTAS) as tile:
        k.sync_threads()
        k.assign(count, tile // CTAS + 1)
    with k.role("asking", 0), k.elected():
        k.mbarrier.arrive(bar, token=token, no_complete=True)
        k.mbarrier.pending_count(pending, token)
        with k.if_(pending.eq(2) & count.eq(turns)):
            k.mbarrier.wait(never, 0)
    with k.role("arriving", 1), k.elected():
        for _ in range(3):
            k.fence.proxy_async()
        k.mbarrier.arrive(bar)
    return k.finish()


def test_clusters_that_made_other_numbers_of_turns() -> None:
    """Those stand for themselves in other schedules, although one run stood for all."""
    report = check(ends(FEWER + 5))
    assert report.verdict == "exhausted"
    assert "of which 2 were run" in report.covers
    for turns in (FEWER, FEWER + 4):
        report = check(ends(turns))
        assert report.verdict == "failed"
        (finding,) = report.findings
        assert finding.rule == "deadlock"
        assert "never" in finding.participants[0].action
