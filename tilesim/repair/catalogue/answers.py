"""Cluster launch control: what depends on whether an answer has cancelled something (D19)."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.ir import effects as fx
from tilesim.ir.expr import Var, binary
from tilesim.ir.mir import Branch
from tilesim.ir.program import Break, For, If, While
from tilesim.repair.edit import Edit, after, family, of_places
from tilesim.repair.facts import Facts, Place, has, mbars
from tilesim.repair.focus import Focus


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
            held = tuple(p.op for p in unit)
            region = If(cond=binary("!=", var, 0), then=held, loc=unit[0].loc)
            what = f"{place.op.mnemonic} if {facts.shown(var)} != 0"
            new = [(unit[0], (region,)), *((p, ()) for p in unit[1:])]
            yield of_places("answer", what, new, 2, alike=True)
    for place in facts.ops:
        seen = _canceled(place)
        if seen is not None and place.loops:
            out = If(cond=binary("==", seen, 0), then=(Break(loc=place.loc),), loc=place.loc)
            what = f"out of the loop after {place.op.mnemonic} if {facts.shown(seen)} == 0"
            yield of_places("answer", what, [(place, after(place, out))], 2)


@family("request too many")
def _request_too_many(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A request whose answer nobody reads, with what is there for it."""
    for place in facts.ops:
        if has(place, fx.Cancels) and not _read(facts, place):
            unit = _request(facts, place)
            what = f"without {place.op.mnemonic}"
            yield of_places("request too many", what, [(p, ()) for p in unit], 2, alike=True)


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
    for effect in place.op.effects():
        match effect:
            case fx.Defines(var=var, value=fx.Queries(part="canceled")):
                return var
            case _:
                pass
    return None


def _asked(facts: Facts, place: Place) -> list[Var]:
    """The registers that say so of answers before a place, the latest first."""
    before = (p for p in facts.ops if p.number < place.number and p.role in ("", place.role))
    found = [var for p in before if (var := _canceled(p)) is not None]
    return list(dict.fromkeys(reversed(found)))


def _read(facts: Facts, request: Place) -> bool:
    """Whether a query may come after a request, behind it or in the next turn of a loop."""
    return any(
        p.number > request.number or _in_one_loop(facts, p, request)
        for p in facts.ops if has(p, fx.Queries)
    )  # fmt: skip


def _in_one_loop(facts: Facts, first: Place, last: Place) -> bool:
    common = set(first.within) & set(last.within)
    return any(isinstance(facts.places[n].what, For | While) for n in common) or any(
        isinstance(p.what, Branch) and p.what.target <= first.number and p.number > last.number
        for p in facts.places
    )
