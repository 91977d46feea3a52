"""A turn late in a loop is wrong, told by each kind of state that a loop can have.

Each program is one warp or two, and right but for one turn. What leaves out repetitions has to see
that turn come: from what registers, lanes, memory and barriers hold that moves from turn to turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilesim import Builder, Program, s32, select, u8, u16, u32, u64
from tilesim.checker import check
from tilesim.ir.expr import Expr, Var, all_of, any_of, as_expr, maximum, minimum
from tilesim.sim.simulate import Run, Simulation

#: turns, so many that the search for repetitions is worth it early; and of what is not left out
TURNS, FEW = 4000, 400
#: the turn that is wrong, of which no kind of state knows but by how it moves
ODD = 237
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


STATES: dict[str, State] = {
    "the turn": _of_turn(lambda i: i.eq(ODD)),
    "a multiple": _of_turn(lambda i: (3 * i + 5).eq(3 * ODD + 5)),
    "negative": _of_turn(lambda i: (5 - i).eq(5 - ODD)),
    "square": _of_turn(lambda i: (i * i).eq(ODD * ODD)),
    "mask": _of_turn(lambda i: (i & 31).eq(ODD & 31) & _near(i, 16)),
    "low bits": _of_turn(lambda i: (i & 15).eq(ODD & 15) & (i >> 4).eq(ODD >> 4)),
    "or": _of_turn(lambda i: (i | 7).eq(ODD | 7) & (i % 8).eq(ODD % 8)),
    "xor": _of_turn(lambda i: ((i ^ 21) & 31).eq((ODD ^ 21) & 31) & _near(i, 16)),
    "remainder": _of_turn(lambda i: (i % 13).eq(ODD % 13) & _near(i, 13)),
    "remainders": _of_turn(lambda i: (i % 3).eq(ODD % 3) & (i % 7).eq(ODD % 7) & _near(i, 21)),
    "quotient": _of_turn(lambda i: (i // 8).eq(ODD // 8) & (i % 8).eq(ODD % 8)),
    "negative quotient": _of_turn(lambda i: ((i - 300) // 4).eq((ODD - 300) // 4) & _near(i, 1)),
    "negative remainder": _of_turn(lambda i: ((i - 500) % 12).eq((ODD - 500) % 12) & _near(i, 12)),
    "least": _of_turn(lambda i: _least(i, ODD).eq(ODD) & (i < ODD + 1)),
    "greatest": _of_turn(lambda i: _greatest(i, ODD).eq(ODD) & (i > ODD - 1)),
    "chosen": _of_turn(lambda i: select(i < ODD, 0, i - ODD + 1).eq(1)),
    "shifted": _of_turn(lambda i: (i << 3).eq(ODD << 3)),
    "shifted by": _of_turn(lambda i: (1 << i % 8).eq(1 << ODD % 8) & _near(i, 8)),
    "complement": _of_turn(lambda i: (~i).eq(~ODD)),
    "not": _of_turn(lambda i: (i - ODD).eq(0)),
    "product wraps": _of_turn(lambda i: (i * (1 << 28) < 0) & (i % 16).eq(ODD % 16) & _near(i, 16)),
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
    "product wraps",
    "doubled",
    "lanes",
    "rotated lanes",
    "a table",
    "counted in memory",
}


def _least(a: Expr, b: int) -> Expr:
    return select(a < b, a, b)


def _greatest(a: Expr, b: int) -> Expr:
    return select(a > b, a, b)


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


def timed(program: Program) -> Run:
    """The timed run of the first cluster, and of those that follow it."""
    simulation = Simulation(program, numbers=False, strict="practice")
    simulation.skips = True
    return simulation.run({}, lambda cluster: None, [0])


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


@pytest.mark.parametrize("name", EDGES)
def test_a_turn_at_an_edge(name: str) -> None:
    require_found(EDGES[name])
