"""Arrivals, waits and the steps of a phase that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.arith.types import pred
from tilesim.ir import effects as fx
from tilesim.ir.expr import Const, Expr, Var, binary, walk
from tilesim.ir.memory import Mbar, Mbarriers
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierWait,
    Scope,
)
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.ops.tcgen05 import Tcgen05Commit
from tilesim.ir.program import If
from tilesim.ir.sites import sites
from tilesim.repair.catalogue.fences import brief
from tilesim.repair.catalogue.operands import copied, in_scope
from tilesim.repair.edit import Edit, after, before, family, of_places
from tilesim.repair.expressions import flipped, matched, numbers, numerator, parities, replaced
from tilesim.repair.facts import Facts, Place, has, is_election, mbars, shared
from tilesim.repair.focus import FAR, Focus

#: slots that are tried at one place
_SLOTS = 4


def wanted_arrays(facts: Facts, focus: Focus) -> list[Mbarriers]:
    """The arrays that the findings name, those of the first one first; all, if they name none."""
    arrays = [s for s in facts.kernel.shared if isinstance(s, Mbarriers)]
    near = [a for a in arrays if a.name in focus.names]
    return near or [a for a in arrays if focus.distance_of({a.name}) < FAR] or arrays


def slots_of(facts: Facts, array: Mbarriers, place: Place) -> tuple[Expr, ...]:
    """The slots of an array that may be meant at a place, the likeliest first."""
    if array.count == 1:
        return (Const(0),)
    found: dict[Expr, None] = {}
    for other in facts.block_of.get(place.number, ()):
        if isinstance(other.what, Op):
            found.update(dict.fromkeys(
                m.index for m in mbars(other.what)
                if isinstance(m.array, Mbarriers) and m.array.count == array.count
            ))  # fmt: skip
            found.update(dict.fromkeys(
                v.offsets[0] for _, v in shared(other.what)
                if len(v.offsets) > 1 and v.tensor.shape[0] == array.count
            ))  # fmt: skip
    for other in facts.arrays.get(array.name, ()):
        if len(other.loops) <= len(place.loops):
            pairs = matched(other.loops, place.loops)
            found.update(dict.fromkeys(replaced(m.index, pairs) for m in mbars(other.op)))
    found.update(dict.fromkeys(binary("%", n, array.count) for n in numbers(place.loops)))
    if not place.loops:
        found.update(dict.fromkeys(Const(n) for n in range(array.count)))
    return tuple(e for e in found if in_scope(facts, e, place))[:_SLOTS]


def spots_of(facts: Facts, focus: Focus) -> Iterator[tuple[Place, bool]]:
    """Where an arrival may be missing: the ends of blocks, then behind and before what
    synchronises or takes part; and whether it comes after the statement there."""
    ends = [(b[-1], True) for b in facts.blocks if b]
    inner = sorted(ends, key=lambda e: (-len(e[0].loops), not e[0].one))
    yield from inner
    for place in facts.ops:
        if has(place, fx.Waits, fx.Arrives, fx.Completes, fx.WaitsGroup, fx.JoinsBarrier):
            yield place, True
        elif focus.distance(place) <= 1:
            yield place, True
            yield place, False


@family("missing arrival")
def _arrival(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival on a barrier that a finding names, by a lane or by all."""
    remote = facts.kernel.cluster_size > 1
    for array in wanted_arrays(facts, focus):
        waiters = {p.role for p in facts.using(array.name, fx.Waits)}
        for place, late in spots_of(facts, focus):
            if place.role in waiters and len({p.role for p in facts.ops}) > 1:
                continue
            if not facts.blocks or has(place, fx.InitsMbarrier):
                continue
            for slot in slots_of(facts, array, place):
                mbar = Mbar(array, slot)
                targets: list[tuple[Mbar, Scope]] = [(mbar, "cta")]
                if remote:
                    targets += [(replace(mbar, cta=Const(0)), "cluster")]
                for barrier, scope in targets:
                    yield from _arriving(facts, place, late, barrier, scope)


def _arriving(facts: Facts, place: Place, late: bool, mbar: Mbar, scope: Scope) -> Iterator[Edit]:
    arrive = MbarrierArrive(mbar=mbar, scope=scope, loc=place.loc)
    options: list[tuple[Op, ...]] = [(arrive,)]
    options += [
        (MbarrierArriveExpectTx(mbar=mbar, bytes=Const(n), scope=scope, loc=place.loc),)
        for n in list(copied(facts, replace(place, what=arrive)))[:2]
    ]
    if scope == "cta" and any(
        isinstance(e, fx.Issues) and e.group == "tcgen05" for p in facts.ops for e in p.op.effects()
    ):
        options.append((Tcgen05Commit(mbar=mbar, loc=place.loc),))
    side = "after" if late else "before"
    for (op,) in options:
        what = f"{op.mnemonic} on {facts.shown(mbar)} {side} {brief(place)}"
        new = after(place, op) if late else before(place, op)
        yield of_places("missing arrival", what, [(place, new)], 2)
    yield from by_one_lane(facts, "missing arrival", place, late, (arrive,))


def said(facts: Facts, arrivals: tuple[MbarrierArrive, ...]) -> str:
    """Arrivals in words."""
    return " and ".join(f"{op.mnemonic} on {facts.shown(op.mbar)}" for op in arrivals)


def by_one_lane(
    facts: Facts, family: str, place: Place, late: bool, arrivals: tuple[MbarrierArrive, ...]
) -> Iterator[Edit]:
    """Arrivals of the elected lane next to a statement that all lanes execute."""
    if place.one or isinstance(facts.program, Mir):
        return
    elected = Var(facts.fresh("elected"), pred)
    elect = ElectSync(result=elected, loc=place.loc)
    region = If(cond=elected, then=arrivals, loc=place.loc)
    new = after(place, elect, region) if late else before(place, elect, region)
    what = f"{said(facts, arrivals)} by one lane {'after' if late else 'before'} {brief(place)}"
    yield replace(of_places(family, what, [(place, new)], 2), variables=(elected,))


@family("other arm")
def _other_arm(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival where a condition does not hold, if there is one where it does."""
    wanted = {array.name for array in wanted_arrays(facts, focus)}
    for place in facts.places:
        region = place.what
        if not isinstance(region, If) or region.orelse or is_election(facts, region.cond):
            continue
        inside = [p.op for p in facts.ops if place.number in p.within]
        found = [e for op in inside for e in op.effects() if isinstance(e, fx.Arrives)]
        for effect in {e.mbar: e for e in found if e.mbar.array.name in wanted}.values():
            arrive = MbarrierArrive(mbar=effect.mbar, loc=place.loc)
            what = (
                f"{arrive.mnemonic} on {facts.shown(effect.mbar)} also where "
                f"{facts.shown(region.cond)} does not hold"
            )
            new = replace(region, orelse=(arrive,))
            yield of_places("other arm", what, [(place, (new,))], 1)


@family("missing wait")
def _wait(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A wait before an instruction that takes part, on any barrier."""
    arrays = [s for s in facts.kernel.shared if isinstance(s, Mbarriers)]
    unwaited = [a for a in arrays if not any(facts.using(a.name, fx.Waits))]
    arrays.sort(key=lambda a: (a not in unwaited, focus.distance_of({a.name})))
    for place in facts.ops:
        first = facts.block_of.get(place.number, (place,))[0].number == place.number
        if focus.distance(place) > (1 if not first else 4) or has(place, fx.InitsMbarrier):
            continue
        for array in arrays:
            for slot in slots_of(facts, array, place)[:2]:
                for phase in _parities(facts, slot, array, place):
                    for wait, said in waiting(facts, Mbar(array, slot), phase, place):
                        what = f"{said} before {brief(place)}"
                        yield of_places("missing wait", what, [(place, before(place, *wait))], 2)


def waiting(
    facts: Facts, mbar: Mbar, phase: Expr, place: Place
) -> Iterator[tuple[tuple[Op, ...], str]]:
    """A wait, and in words what it is: with the step of the register that its parity is made of,
    if there is one, then without."""
    wait = MbarrierWait(mbar=mbar, phase=phase, loc=place.loc)
    what = f"{wait.mnemonic} on {facts.shown(mbar)} parity {facts.shown(phase)}"
    for var in _registers(facts, phase):
        step = Assign(var=var, value=binary("^", var, 1), loc=place.loc)
        yield (wait, step), f"{what} and {var.name} ^= 1"
    yield (wait,), what


def _parities(facts: Facts, slot: Expr, array: Mbarriers, place: Place) -> tuple[Expr, ...]:
    found: dict[Expr, None] = {}
    here = [p for p in facts.using(array.name, fx.Waits) if p.role == place.role]
    number = numerator(slot)
    if number is not None:
        found.update(dict.fromkeys(parities(number, array.count)))
    for other in (*here, *facts.ops):
        if other.role == place.role or array.name in {m.array.name for m in mbars(other.op)}:
            for site in sites(other.op):
                if site.kind == "phase" and getattr(other.op, "parity", True):
                    theirs = replaced(site.value, matched(other.loops, place.loops))
                    found.update(dict.fromkeys((theirs, flipped(theirs))))
    if place.loops:
        for turn in numbers(place.loops):
            found.update(dict.fromkeys(parities(turn, array.count)))
    else:
        found.update(dict.fromkeys((Const(0), Const(1))))
    return tuple(e for e in found if in_scope(facts, e, place))[:6]


@family("wait, not arrival")
def _wait_instead(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A wait where a role arrives on a barrier for which it waits elsewhere."""
    for place in facts.ops:
        if not has(place, fx.Arrives) or has(place, fx.Issues, fx.Completes):
            continue
        for mbar in mbars(place.op):
            array = mbar.array
            if not isinstance(array, Mbarriers) or mbar.remote:
                continue
            if not any(p.role == place.role for p in facts.using(array.name, fx.Waits)):
                continue
            for phase in _parities(facts, mbar.index, array, place):
                for wait, said in waiting(facts, mbar, phase, place):
                    what = f"{said} instead of {brief(place)}"
                    yield of_places("wait, not arrival", what, [(place, wait)], 2)


@family("missing step")
def _step(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A register with a parity that is not turned behind the wait that it is for."""
    for place in facts.ops:
        for site in sites(place.op):
            if site.kind != "phase":
                continue
            for var in _registers(facts, site.value):
                turned = Assign(var=var, value=binary("^", var, 1), loc=place.loc)
                block = facts.block_of.get(place.number, (place,))
                for spot in dict.fromkeys((place.number, block[-1].number)):
                    target = facts.places[spot]
                    what = f"{var.name} ^= 1 after {brief(target)}"
                    yield of_places("missing step", what, [(target, after(target, turned))], 2)
    for place in facts.ops:
        op = place.op
        if isinstance(op, Assign) and isinstance(op.value, Expr):
            for value in (flipped(op.value), flipped(op.var)):
                if value != op.value:
                    what = (
                        f"{op.var.name} = {facts.shown(value)} instead of {facts.shown(op.value)}"
                    )
                    new = (replace(op, value=value),)
                    yield of_places("missing step", what, [(place, new)], 1)


def _registers(facts: Facts, phase: Expr) -> Iterator[Var]:
    loops = {loop.var.name for p in facts.places for loop in p.loops}
    for expr in walk(phase):
        if isinstance(expr, Var) and expr.name not in loops:
            yield expr
