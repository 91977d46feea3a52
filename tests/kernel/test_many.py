"""What the proof kernel computes of a warp and its shadows at once is what it computes of each."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest

from tests.kernel.pairs import PAIRS
from tilesim.arith.types import pred, s32, s64, u8, u32, u64
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Select, Special, Unary, Var
from tilesim.ir.mir import Mir
from tilesim.proof.effects import execute
from tilesim.proof.machine import Machine, Warp
from tilesim.proof.operands import LANES, Address, Drawn, Operands, Value, exactly, value_in

OPERATORS: tuple[BinaryOp, ...] = get_args(BinaryOp)
NUMBERS = (0, 1, 2, 3, 5, 31, 32, 63, 64, 65, -1, -7, 1 << 31, (1 << 31) - 1, (1 << 32) - 1,
           1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1)  # fmt: skip
VARIABLES = (Var("a", s32), Var("b", u32), Var("c", s64), Var("d", u64), Var("p", s64),
             Var("q", u64), Var("n", s32), Var("m", u64))  # fmt: skip
#: registers that mostly some lanes only have set
SET_BY = {"a": range(1), "c": range(5, 20), "q": range(1)}


def a_warp(clusters: int) -> tuple[Operands, Warp]:
    """A warp that stands for some clusters."""
    (pair,) = (p for p in PAIRS if p.program.__name__ == "a_load_beyond_its_tensor")
    mir: Mir = pair.mir(right=True)
    v = Operands(mir)
    return v, Machine(v, range(clusters), execute).warps[0]


def a_number(draw: random.Random, var: Var) -> Any:
    """What a register of the type may hold."""
    low = -(1 << var.dtype.bits - 1) if var.dtype.kind == "int" else 0
    high = low + (1 << var.dtype.bits) - 1
    if draw.random() < 0.8:
        return draw.randrange(max(low, -50), min(high, 100))
    return min(max(draw.choice(NUMBERS) + draw.randrange(-3, 4), low), high)


def a_value(draw: random.Random, var: Var) -> Value:
    """The same, in all lanes; or an address; or data."""
    if var.name in "nm" and draw.random() < 0.3:
        return None
    made = [a_number(draw, var) for _ in range(draw.choice((1, LANES)))]
    if var.name in "pq":
        made = [Address(draw.randrange(1 << 41), "g" if var.name == "p" else "h") for _ in made]
    if (some := SET_BY.get(var.name)) and draw.random() < 0.9:
        made = [made[i % len(made)] if i in some else None for i in range(LANES)]
    if draw.random() < 0.03:
        made = [None if draw.random() < 0.2 else x for x in made]
    return made if len(made) > 1 else made[0]


def an_expression(draw: random.Random, depth: int) -> Expr:
    """Some operators of registers, literals, and what tells clusters and lanes apart."""
    if depth == 0 or draw.random() < 0.2:
        special = Special(draw.choice(("cta_x", "lane_id", "thread_id", "warp_id", "cluster_id")))
        return draw.choice((Const(draw.choice(NUMBERS)), special, *VARIABLES * 2))
    parts = [an_expression(draw, depth - 1) for _ in range(3)]
    match draw.randrange(8):
        case 0:
            return Unary(draw.choice(("-", "~", "not")), parts[0])
        case 1 | 2:
            return Select(*parts)
    return Binary(draw.choice(OPERATORS), parts[0], parts[1])


@pytest.mark.parametrize("seed", range(40))
def test_an_operand_is_in_all_clusters_what_it_is_in_each(seed: int) -> None:
    draw, known = random.Random(seed), 0
    for _ in range(30):
        v, w = a_warp(3)
        for var in VARIABLES:
            same = draw.random() < 0.3
            values = [a_value(draw, var) for _ in w.each]
            w.hold(var.name, values[:1] * 3 if same else values)
        before = {var.name: [exactly(x) for x in w.held(var.name)] for var in VARIABLES}
        e = an_expression(draw, draw.randrange(1, 4))
        many, each = v.in_all(e, w), [v.value(e, one) for one in w.each]
        assert {n: [exactly(x) for x in w.held(n)] for n in before} == before
        if many is None:
            continue
        known += 1
        assert [exactly(value_in(many, n)) for n in range(3)] == [*map(uniformly, each)]
        assert not any(isinstance(x, Drawn) and not isinstance(x, Address) for x in each)
        var = Var("r", draw.choice((s32, u32, s64, u64, u8, pred)))
        lanes = sorted(draw.sample(range(LANES), draw.choice((LANES, LANES, 7))))
        old = [a_value(draw, var) for _ in w.each]
        w.hold("r", old)
        found = v.assigned(w, var, many, lanes)
        for one, value in zip(w.each[::-1], each[::-1], strict=True):
            v.assign(one, var, value, lanes)
        if found is not None:
            now = [one.registers.get("r") for one in w.each]
            assert [exactly(value_in(found, n)) for n in range(3)] == [*map(uniformly, now)]
            w.hold("r", old)
            w.hold_many("r", found)
            assert [*map(uniformly, w.held("r"))] == [*map(uniformly, now)]
    assert known


def uniformly(value: Value) -> object:
    """A value that is one number, if all lanes have it."""
    row = value if isinstance(value, list) else [value]
    one = all(exactly(x) == exactly(row[0]) for x in row)
    return exactly(row[0] if one else value)
