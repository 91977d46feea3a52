"""Control flow: trips of loops, conditions, elected lanes, who takes part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.arith.types import pred
from tilesim.ir import effects as fx
from tilesim.ir.edits import Instead
from tilesim.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    ScalarParam,
    Var,
    binary,
    constant,
    minimum,
)
from tilesim.ir.mir import Control
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.program import For, If, Role
from tilesim.repair.edit import Edit, family, of_places
from tilesim.repair.facts import Facts, Place, has, is_election
from tilesim.repair.focus import Focus


@family("trips")
def _trips(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """How often a loop goes around: as often as others, once more, once less."""
    loops = [p for p in facts.places if isinstance(p.what, For)]
    bounds = dict.fromkeys(p.what.stop for p in loops if isinstance(p.what, For))
    scalars = [s for s in facts.kernel.params if isinstance(s, ScalarParam)]
    for place in loops:
        loop = place.what
        assert isinstance(loop, For)
        known = [binary("+", loop.stop, loop.step), binary("-", loop.stop, loop.step)]
        known += [b for b in bounds if b != loop.stop and _plain(b)]
        known += [minimum(loop.stop, s) for s in scalars]
        for stop in dict.fromkeys(known):
            known_stop, now = constant(stop), constant(loop.stop)
            if known_stop is None or known_stop > 0:
                fewer = known_stop is not None and now is not None and known_stop < now
                what = (
                    f"{loop.var.name} up to {facts.shown(stop)} instead of {facts.shown(loop.stop)}"
                )
                yield of_places("trips", what, [(place, (replace(loop, stop=stop),))], 1 + fewer)


def _plain(expr: Expr) -> bool:
    return not isinstance(expr, Var) and not any(isinstance(e, Var) for e in _parts(expr))


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    if isinstance(expr, Binary):
        yield from _parts(expr.lhs)
        yield from _parts(expr.rhs)


@family("condition")
def _condition(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Conditions: always true, the other one's, the comparison of one lane, the neighbouring
    comparison."""
    regions = [p for p in facts.places if isinstance(p.what, If)]
    conditions = dict.fromkeys(
        p.what.cond for p in regions if isinstance(p.what, If) and constant(p.what.cond) is None
    )
    for place in regions:
        region = place.what
        assert isinstance(region, If)
        if is_election(facts, region.cond):
            continue
        options: list[Expr] = [Const(True), *_neighbours(region.cond)]
        if constant(region.cond) is not None:
            block = facts.block_of.get(place.number, ())
            options += [
                p.what.result for p in block if isinstance(p.what, ElectSync)
                and p.number < place.number
            ]  # fmt: skip
            scalars = [s for s in facts.kernel.params if isinstance(s, ScalarParam)]
            for loop in place.loops[-1:]:
                options += [binary("&", binary(">>", s, loop.var), 1) for s in scalars]
        options += [c for c in conditions if c != region.cond and not is_election(facts, c)]
        for cond in dict.fromkeys(options):
            if cond != region.cond:
                what = f"if {facts.shown(cond)} instead of if {facts.shown(region.cond)}"
                yield of_places("condition", what, [(place, (replace(region, cond=cond),))], 1)


#: comparisons that differ where both sides are equal
_OTHER: dict[str, BinaryOp] = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _neighbours(cond: Expr) -> Iterator[Expr]:
    match cond:
        case Binary("<" | "<=" | ">" | ">=" as op, lhs, rhs):
            yield Binary(_OTHER[op], lhs, rhs)
            for delta in (1, -1):
                yield Binary(op, lhs, binary("+", rhs, delta))
        case Binary("==", Binary("%", lhs, Const()), rhs):
            yield Binary("==", lhs, rhs)
        case Binary("==", lhs, Const(value)):
            for delta in (1, -1):
                yield Binary("==", lhs, Const(int(value) + delta))
        case Binary("and", lhs, rhs):
            yield lhs
            yield rhs
        case _:
            pass


@family("one lane")
def _one_lane(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """What every lane does, by one; what one lane does, by all."""
    for place in facts.places:
        following = _following(facts, place)
        if has(place, fx.Elects) and isinstance(place.what, ElectSync):
            yield from _behind(place.what, place, following)
        elif isinstance(place.what, If) and is_election(facts, place.what.cond):
            inner = list(facts.inside(place.number))
            if any(has(p, fx.Arrives, fx.JoinsBarrier) for p in inner):
                what = "by all lanes what one elected lane does"
                yield of_places("one lane", what, [(place, place.what.then)], 2)
        elif has(place, fx.Arrives, fx.Expects, fx.Completes) and not place.one and place.warps:
            elected = Var("elected_r", pred)
            elect = ElectSync(result=elected, loc=place.loc)
            region = If(cond=elected, then=(place.op,), loc=place.loc)
            what = f"{place.op.mnemonic} by one elected lane"
            edit = of_places("one lane", what, [(place, (elect, region))], 2)
            yield replace(edit, variables=(elected,))


def _following(facts: Facts, place: Place) -> tuple[Place, ...]:
    block = facts.block_of.get(place.number, (place,))
    return block[block.index(place) + 1 :]


def _behind(elect: ElectSync, place: Place, following: tuple[Place, ...]) -> Iterator[Edit]:
    """The statements behind an election whose result nobody asks for, in a region of its lane."""
    if following and isinstance(following[0].what, If):
        return
    for count in range(len(following), 0, -1):
        held = following[:count]
        body = tuple(p.what for p in held if not isinstance(p.what, Control))
        region = If(cond=elect.result, then=body, loc=place.loc)
        new: list[tuple[Place, Instead]] = [(held[0], (region,)), *((p, ()) for p in held[1:])]
        what = f"{count} statements behind elect.sync by the elected lane"
        edit = of_places("one lane", what, new, 2)
        yield Edit(edit.family, edit.what, edit.instead, 2, edit.lines)


@family("participants")
def _participants(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The warps of a role: one more, one fewer, those that no role has."""
    roles = [p for p in facts.places if isinstance(p.what, Role)]
    every = set(range(facts.kernel.warps))
    taken = {w for p in roles if isinstance(p.what, Role) for w in p.what.warps}
    for place in roles:
        role = place.what
        assert isinstance(role, Role)
        own = set(role.warps)
        options = [
            own | (every - taken),
            own | {max(own, default=-1) + 1},
            own - {max(own, default=0)},
        ]
        options += [own | {min(own, default=1) - 1}, own - {min(own, default=0)}]
        for warps in dict.fromkeys(tuple(sorted(w & every)) for w in options):
            if warps and warps != role.warps:
                what = f"{role.name}: warps {', '.join(map(str, warps))}"
                yield of_places("participants", what, [(place, (replace(role, warps=warps),))], 1)
