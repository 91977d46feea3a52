"""Shifts that are followed in all lanes together are those of each lane (`tilesim.sim.affine`)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilesim import Builder, check, s32, u32, u64
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, Var, minimum, walk
from tilesim.sim.affine.shifts import Bounds, NoShift, Shifts
from tilesim.sim.machine.expression import compile_expr
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import plain

TYPES = {"a": s32, "b": u32, "c": u64, "d": s32}
SLOTS = {name: number for number, name in enumerate(TYPES)}
CLUSTERS = 3
LANES = np.arange(32)
#: beyond so many turns the bits of a number are not followed until they repeat; masks around that
FAR = 1 << 20
CONSTANTS = (0, 1, 2, 3, 16, 64, -64, 5, 37, -16, FAR - 1, FAR, FAR - 16)


def warp(registers: list[Any], mask: int = FULL) -> Warp:
    """What expressions see of a warp."""
    return cast("Warp", SimpleNamespace(registers=registers, mask=mask))


def value_of(rng: random.Random) -> Any:
    """A number, or numbers by lane, by cluster, or by both."""
    by_lane, by_cluster = LANES * rng.choice([1, 4, 16]), np.arange(CLUSTERS)[:, None] * 64
    start = rng.choice([0, 3, 64, FAR, FAR - 237, FAR - 237, (1 << 31) - 4000])
    return rng.choice([start, start + by_lane, start + by_cluster, start + by_lane + by_cluster])


def expression(rng: random.Random, depth: int) -> Expr:
    """Some expression of the registers."""
    if not depth:
        name = rng.choice(list(TYPES))
        return rng.choice([Var(name, TYPES[name]), Const(rng.choice(CONSTANTS))])
    lhs, rhs = expression(rng, depth - 1), expression(rng, rng.randrange(depth))
    if rng.random() < 0.6:
        rhs = Const(rng.choice(CONSTANTS))
    if rng.random() < 0.2:
        lhs, rhs = rhs, lhs
    if rng.random() < 0.1:
        return Select(Binary("<", lhs, rhs), lhs, expression(rng, 0))
    if rng.random() < 0.1:
        return Unary(rng.choice(["-", "not"]), lhs)
    ops: list[BinaryOp] = ["+", "-", "*", "+", "-", "//", "%", "&", "|", "^", "<<", ">>", "&", "^"]
    ops += ["<", "==", ">=", "<=", "min", "max"]
    return Binary(rng.choice(ops), lhs, rhs)


def followed(
    expr: Expr, w: Warp, mask: int, moving: dict[int, Any], *, wide: bool, same: Any
) -> tuple[Any, Any]:
    """The shift and in how many repetitions it is that, lanes together or one by one."""
    shifts = Shifts(SLOTS, Typing(), same)
    shifts.wide = wide
    try:
        shift = shifts.of(expr, w, mask, moving)
    except NoShift as why:
        return ("none", why.period), None
    return shift, np.broadcast_to(shifts.limits, CLUSTERS).tolist()


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_lanes_together_and_one_by_one() -> None:
    """Random expressions, of registers that differ between lanes and clusters: the same shift, and
    the values of the repetitions that it holds for are what it says."""
    rng, found, together = random.Random(7), 0, 0
    for _ in range(900):
        expr = expression(rng, rng.choice([1, 1, 2, 3]))
        w = warp([value_of(rng) for _ in TYPES])
        mask = rng.choice([FULL, FULL, 0xFFFF, 0xF0, 1 << rng.randrange(32)])
        by = [0, 1, 2, 64, 64, -4, 8 * (LANES % 2)]
        moving = {slot: rng.choice(by) for slot in range(len(TYPES)) if rng.random() < 0.5}
        same = None if rng.random() < 0.7 else np.array([True, False, True])
        args = expr, w, mask, moving
        if same is not None:
            args = expr, warp([_of_clusters(v) for v in w.registers]), mask, moving
        try:
            plain(compile_expr(expr, SLOTS, Typing())(w))
            one = _followed_by(args, same, wide=False)
        except (ZeroDivisionError, ValueError, FloatingPointError):
            continue
        many = _followed_by(args, same, wide=True)
        assert repr(many) == repr(one), f"{expr} in {mask:#x} with {moving}"
        shift, limits = one
        if limits is None:
            continue
        found += 1
        together += mask == FULL and any(isinstance(v, np.ndarray) for v in w.registers)
        if same is None:
            _require_true(expr, w, mask, moving, shift, min(limits))
    assert found > 60
    assert together > 25


def _of_clusters(value: Any) -> Any:
    return value if type(value) is int or value.ndim == 2 else value[None].repeat(CLUSTERS, 0)


def _followed_by(args: Any, same: Any, *, wide: bool) -> Any:
    shift, limits = followed(*args, wide=wide, same=same)
    if limits is not None and same is not None:
        limits = limits[: int(same.sum())]
    return shift, limits


def _require_true(
    expr: Expr, w: Warp, mask: int, moving: dict[int, Any], shift: Any, limit: int
) -> None:
    """In some of the repetitions up to ``limit``, values are what the shift says."""
    evaluate = compile_expr(expr, SLOTS, Typing())
    lanes = np.flatnonzero([mask >> n & 1 for n in range(32)])
    before = np.asarray(plain(evaluate(w)), dtype=object)
    used = {SLOTS[leaf.name] for leaf in walk(expr) if isinstance(leaf, Var)}
    for many in {1, 2, min(limit, 7), min(limit, 1000), min(limit, 1 << 30)}:
        if not 0 < many <= limit:
            continue
        moved: list[Any] = [v + many * moving.get(slot, 0) for slot, v in enumerate(w.registers)]
        low = [-(1 << 31), 0, 0, -(1 << 31)]
        if any(np.max(moved[n]) >= 1 << 31 or np.min(moved[n]) < low[n] for n in used):
            continue  # registers are bounded where they are set
        after = np.asarray(plain(evaluate(warp(moved, mask))), dtype=object)
        expected = before + many * np.asarray(shift, dtype=object)
        wide = np.broadcast_arrays(after, expected, np.empty((CLUSTERS, 32)))[:2]
        got, said = (array[:, lanes].tolist() for array in wide)
        assert got == said, f"{expr} after {many} of {limit}"


@pytest.mark.parametrize("by", [1, -1])
def test_the_lane_that_ends_first(by: int) -> None:
    """A comparison of a number in each lane holds until the first lane comes to where it ends."""
    expr = Binary("<", Var("a"), Const(100)) if by > 0 else Binary(">=", Var("a"), Const(-100))
    shifts = Shifts(SLOTS, Typing())
    w = warp([LANES + CLUSTERS, 0, 0, 0] if by > 0 else [-LANES - CLUSTERS, 0, 0, 0])
    assert shifts.of(expr, w, FULL, {0: by}) == 0
    assert shifts.limit == 100 - 31 - CLUSTERS - (by > 0)


NEGATIVE: tuple[BinaryOp, ...] = ("min", "max", "//", "%", "<", ">=", "==")


@pytest.mark.parametrize("op", NEGATIVE)
def test_a_negative_number_beside_one_without_a_sign(op: BinaryOp) -> None:
    """In u64 it is another number: the greater one, the one that is met later."""
    w, c = warp([0, 0, 64, 0]), Var("c", u64)
    with pytest.raises(NoShift):
        Shifts(SLOTS, Typing()).of(Binary(op, c, Const(-5)), w, FULL, {2: 5})
    assert Shifts(SLOTS, Typing()).of(Binary(op, c, Const(5)), w, FULL, {2: 5}) in (0, 1, 5)


def test_one_of_two_numbers_in_another_type() -> None:
    """-8 is 2^64 - 8 in u64, and 0 does not come behind it by 4."""
    either = Select(Var("d"), Var("a"), Var("c", u64))
    with pytest.raises(NoShift):
        Shifts(SLOTS, Typing()).of(either, warp([-8, 0, 64, 1]), FULL, {0: 4})
    assert Shifts(SLOTS, Typing()).of(either, warp([8, 0, 64, 1]), FULL, {0: 4}) == 4


@pytest.mark.parametrize("least", [-5, 5])
def test_the_turn_in_which_the_smaller_number_is_met(least: int) -> None:
    """Right: it never is."""
    k = Builder("smaller", warps=3)
    one, other = k.mbarriers("one"), k.mbarriers("other")
    word = k.shared("word", s32, (1,))
    with k.one_thread():
        k.mbarrier.init(one, 1)
        k.mbarrier.init(other, 1)
    k.sync_threads()
    with k.role("counts", 0), k.elected():
        x = k.var("x", 0, u64)
        with k.loop(2_000) as i:
            with k.if_(minimum(x, least).eq(613)):
                k.mem.store(word[0], 1)
            k.assign(x, x + 1)
            k.mbarrier.arrive(one)
            k.mbarrier.wait(other, i & 1)
    with k.role("answers", 1), k.elected(), k.loop(2_000) as i:
        k.mbarrier.wait(one, i & 1)
        k.mbarrier.arrive(other)
    with k.role("stores", 2), k.elected():
        k.mem.store(word[0], 2)
    assert check(k.finish(), schedules=0).rules == ({"race"} if least < 0 else set())


@pytest.mark.parametrize(("numbers", "said"), [([[-1]], "-1"), ([[-1, 7]], "-1 to 7")])
def test_numbers_outside_of_a_range_are_told_as_numbers(
    numbers: list[list[int]], said: str
) -> None:
    with pytest.raises(NoShift, match=f"^{said} outside of 0..5$"):
        Bounds().bound_range(np.array(numbers), 1, 0, 5)
