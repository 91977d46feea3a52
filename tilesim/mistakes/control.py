"""Control flow: loops, conditions, elected lanes; what is in the wrong place, or superfluous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from tilesim.arith.types import pred
from tilesim.ir import effects as fx
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
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.mir import Branch, Control
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.program import Break, For, If, Role, While
from tilesim.mistakes.context import (
    DATA,
    Facts,
    Focus,
    Place,
    has,
    is_election,
    mbars,
    synchronises,
    units_of,
    variables,
)
from tilesim.mistakes.edits import (
    Edit,
    after,
    before,
    by_line,
    family,
    of_places,
)
from tilesim.records import replace
from tilesim.transforms.rewrite import Instead


@family("trips")
def _trips(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """How often a loop goes around: as often as others, once more, once less."""
    bounds = dict.fromkeys(loop.stop for _, loop in facts.of(For))
    scalars = [s for s in facts.kernel.params if isinstance(s, ScalarParam)]
    for place, loop in facts.of(For):
        known = [binary("+", loop.stop, loop.step), binary("-", loop.stop, loop.step)]
        known += [b for b in bounds if b != loop.stop and not variables([b])]
        known += [minimum(loop.stop, s) for s in scalars]
        for stop in dict.fromkeys(known):
            known_stop, now = constant(stop), constant(loop.stop)
            if known_stop is None or known_stop > 0:
                fewer = known_stop is not None and now is not None and known_stop < now
                what = (
                    f"{loop.var.name} up to {facts.shown(stop)} instead of {facts.shown(loop.stop)}"
                )
                yield of_places(what, [(place, (replace(loop, stop=stop),))], 1 + fewer)


@family("condition")
def _condition(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Conditions: always true, the other one's, the comparison of one lane, the neighbouring
    comparison."""
    conditions = dict.fromkeys(r.cond for _, r in facts.of(If) if constant(r.cond) is None)
    for place, region in facts.of(If):
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
                yield of_places(what, [(place, (replace(region, cond=cond),))], 1)


@family("one condition")
def _one_condition(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Branches past something that two conditions decide: by one of them alone."""
    for place, branch in facts.of(Branch):
        match branch.cond:
            case Binary("|" | "&", lhs, rhs) if place.number < branch.target:
                for cond, other in ((lhs, rhs), (rhs, lhs)):
                    what = f"without {facts.shown(other)} in if {facts.shown(branch.cond)}"
                    yield of_places(what, [(place, (replace(branch, cond=cond),))], 1)
            case _:
                pass


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
        case _:
            pass


@family("one lane")
def _one_lane(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """What every lane does, by one; what one lane does, by all."""
    for place in facts.places:
        if has(place, fx.Elects) and isinstance(place.what, ElectSync):
            block = facts.block_of.get(place.number, (place,))
            yield from _behind(place.what, place, block[block.index(place) + 1 :])
        elif isinstance(place.what, If) and is_election(facts, place.what.cond):
            inner = list(facts.inside(place.number))
            if any(has(p, fx.Arrives, fx.JoinsBarrier) for p in inner):
                what = "by all lanes what one elected lane does"
                yield of_places(what, [(place, place.what.then)], 2)
        elif has(place, fx.Arrives, fx.Expects, fx.Completes) and not place.one and place.warps:
            elected = Var("elected_r", pred)
            elect = ElectSync(result=elected, loc=place.loc)
            region = If(cond=elected, then=(place.op,), loc=place.loc)
            what = f"{place.op.mnemonic} by one elected lane"
            edit = of_places(what, [(place, (elect, region))], 2)
            yield replace(edit, variables=(elected,))


def _behind(elect: ElectSync, place: Place, following: tuple[Place, ...]) -> Iterator[Edit]:
    """The statements behind an election whose result is not used, in a region of its lane."""
    if following and isinstance(following[0].what, If):
        return
    for count in range(len(following), 0, -1):
        inner = following[:count]
        body = tuple(p.what for p in inner if not isinstance(p.what, Control))
        region = If(cond=elect.result, then=body, loc=place.loc)
        new: list[tuple[Place, Instead]] = [(inner[0], (region,)), *((p, ()) for p in inner[1:])]
        what = f"{count} statements behind elect.sync by the elected lane"
        yield of_places(what, new, 2, as_one=True)


@family("participants")
def _participants(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The warps of a role: one more, one fewer, those that no role has."""
    every = set(range(facts.kernel.warps))
    taken = {w for _, role in facts.of(Role) for w in role.warps}
    for place, role in facts.of(Role):
        own = set(role.warps)
        last, first = max(own, default=0), min(own, default=0)
        options = [own | (every - taken), own | {last + 1}, own - {last}, own | {first - 1},
                   own - {first}]  # fmt: skip
        for warps in dict.fromkeys(tuple(sorted(w & every)) for w in options):
            if warps and warps != role.warps:
                what = f"{role.name}: warps {', '.join(map(str, warps))}"
                yield of_places(what, [(place, (replace(role, warps=warps),))], 1)


#: how far, and how far from the finding what is moved may be
_STEPS, _NEAR = 8, 3

#: what is moved as one
Unit = tuple[Place, ...]
#: behind (True) or before which statement; None: there is none so far away
Target = tuple[Place, bool] | None


@family("move")
def _move(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An instruction that synchronises, to another place of its block, or the block's of the region
    around it: wherever its line makes it, as in roles of one Python loop, then by itself."""
    for same in _lines(facts, focus):
        targets = [[*_targets(facts, unit)] for unit in same]
        if len(same) > 1:
            for there in zip(*targets, strict=False):
                yield from _moved(same, there)
        for unit, way in zip(same, targets, strict=True):
            for target in way:
                yield from _moved([unit], [target])


def _lines(facts: Facts, focus: Focus) -> Iterator[list[Unit]]:
    """The units near to the finding, those of one line together."""
    lines: dict[object, list[Unit]] = {}
    for unit in _units(facts):
        if focus.of_edit([p.number for p in unit]) <= _NEAR:
            first = unit[0]
            own = first.number if first.loc == UNKNOWN else None
            lines.setdefault((first.loc, type(first.what), own), []).append(unit)
    yield from lines.values()


def _units(facts: Facts) -> Iterator[Unit]:
    """The units that do nothing but synchronise."""
    for unit in (u for block in facts.blocks for u in units_of(block)):
        inner = facts.inside(unit[1].number) if len(unit) > 1 else unit
        does = [isinstance(p.what, Op) and synchronises(p) for p in inner]
        if does and all(does) and (len(unit) > 1 or not has(unit[0], fx.Elects)):
            yield unit


def _targets(facts: Facts, unit: Unit) -> Iterator[Target]:
    """Where a unit may go: along its block, the nearest places first; behind and before the regions
    around it, and into those before and behind it in its block."""
    block = facts.block_of[unit[0].number]
    here = block.index(unit[0])
    for step in range(1, _STEPS + 1):
        for target, late in ((here + len(unit) - 1 + step, True), (here - step, False)):
            yield (block[target], late) if 0 <= target < len(block) else None
    for number in reversed(unit[0].within[-2:]):
        region = facts.places[number]
        yield region, True
        yield region, False
    for region in (*block[max(0, here - 1) : here], *block[here + len(unit) :][:1]):
        inner = [p for p in facts.inside(region.number) if p.within[-1] == region.number]
        if inner:
            yield inner[0], False
            yield inner[-1], True


def _moved(units: Sequence[Unit], there: Sequence[Target]) -> Iterator[Edit]:
    """The edit that moves units of one line, each to its place; none if one has none, or if these
    are not of one line as well."""
    targets = [t for t in there if t is not None]
    if len(targets) < len(units) or len({(t.loc, type(t.what), late) for t, late in targets}) > 1:
        return
    new: list[tuple[Place, Instead]] = []
    for unit, (target, late) in zip(units, targets, strict=True):
        what = tuple(p.what for p in unit)
        new += [(p, ()) for p in unit]
        new.append((target, after(target, *what) if late else before(target, *what)))
    target, late = targets[0]
    side = "after" if late else "before"
    names = [p.op.mnemonic for p in units[0] if isinstance(p.what, Op)]
    there_ = target.what
    other = there_.mnemonic if isinstance(there_, Op) else f"the {type(there_).__name__.lower()}"
    said = f"{names[-1]} {side} {other} at line {target.loc.line}"
    yield of_places(said, new, 3, as_one=True)


_ARRIVES = (fx.Arrives, fx.Expects)


def _taken_out(name: str, kinds: tuple[type, ...], facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Instructions with such an effect, those of one line together."""
    for places in by_line(p for p in facts.ops if has(p, *kinds) and not has(p, *DATA)):
        what = f"without {places[0].op.mnemonic}"
        yield of_places(what, [(place, ()) for place in places], 2)
        if 1 < len(places) <= 4:
            for place in places:
                yield of_places(what, [(place, ())], 3)


for _family, _kinds in (
    ("arrival too many", _ARRIVES),
    ("meeting too many", (fx.JoinsBarrier, fx.JoinsCluster)),
):
    family(_family)(partial(_taken_out, _family, _kinds))


@family("repeated")
def _repeated(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival that is made twice."""
    for block in facts.blocks:
        for one, again in pairwise(block):
            if one.what == again.what and has(again, *_ARRIVES) and not has(again, *DATA):
                what = f"{again.op.mnemonic} once, not twice"
                yield of_places(what, [(again, ())], 1)


@family("answer")
def _answer(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Decoding an answer, and asking again, only where the last one has cancelled something; out of
    the loop where it has not."""
    for place in facts.ops:
        if has(place, fx.Cancels):
            unit = _request(facts, place)
        elif has(place, fx.Queries) and _canceled(place) is None:
            unit = [place]
        else:
            continue
        for var in _asked(facts, place):
            inner = tuple(p.op for p in unit)
            region = If(cond=binary("!=", var, 0), then=inner, loc=unit[0].loc)
            what = f"{place.op.mnemonic} if {facts.shown(var)} != 0"
            new = [(unit[0], (region,)), *((p, ()) for p in unit[1:])]
            yield of_places(what, new, 2, as_one=True)
    for place in facts.ops:
        seen = _canceled(place)
        if seen is not None and place.loops:
            out = If(cond=binary("==", seen, 0), then=(Break(loc=place.loc),), loc=place.loc)
            what = f"out of the loop after {place.op.mnemonic} if {facts.shown(seen)} == 0"
            yield of_places(what, [(place, after(place, out))], 2)


@family("request too many")
def _request_too_many(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A request whose answer is not read, with what is there for it."""
    for place in facts.ops:
        if has(place, fx.Cancels) and not _read(facts, place):
            unit = _request(facts, place)
            what = f"without {place.op.mnemonic}"
            yield of_places(what, [(p, ()) for p in unit], 2, as_one=True)


def _request(facts: Facts, place: Place) -> list[Place]:
    """A request, what expects its answer right before it, and the wait for that right behind."""
    block = facts.block_of[place.number]
    here = block.index(place)
    own = set(mbars(place.op))

    def is_for_it(p: Place, *kinds: type) -> bool:
        return has(p, *kinds) and bool(own & set(mbars(p.op)))

    unit = [place]
    unit += [p for p in block[max(0, here - 1) : here] if is_for_it(p, fx.Arrives, fx.Expects)]
    unit += [p for p in block[here + 1 : here + 2] if is_for_it(p, fx.Waits)]
    return sorted(unit, key=lambda p: p.number)


def _canceled(place: Place) -> Var | None:
    """The register that a query says in whether a request has cancelled something."""
    found = (e for e in place.op.effects() if isinstance(e, fx.Defines))
    said = ((e.var, e.value) for e in found if isinstance(e.value, fx.Queries))
    return next((var for var, query in said if query.part == "canceled"), None)


def _asked(facts: Facts, place: Place) -> list[Var]:
    """The registers that say so of answers before a place, the latest first."""
    before = (p for p in facts.ops if p.number < place.number and p.role in ("", place.role))
    found = [var for p in before if (var := _canceled(p)) is not None]
    return list(dict.fromkeys(reversed(found)))


def _read(facts: Facts, request: Place) -> bool:
    """Whether a query may come after a request, behind it or in the next turn of a loop."""
    around = {n for n in request.within if isinstance(facts.places[n].what, For | While)}
    targets = [b.target for p, b in facts.of(Branch) if b.target <= request.number < p.number]
    first = min(targets, default=request.number + 1)
    queries = (p for p in facts.ops if has(p, fx.Queries))
    return any(p.number >= first or not around.isdisjoint(p.within) for p in queries)
