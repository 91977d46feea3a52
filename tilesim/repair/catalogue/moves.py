"""Synchronisation that stands too early, too late, or in the wrong region."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.ir.edits import Instead
from tilesim.ir.op import Op
from tilesim.repair.edit import Edit, after, before, family, of_places
from tilesim.repair.facts import Facts, Place, synchronises
from tilesim.repair.focus import Focus

#: how far
_STEPS = 8


@family("move")
def _move(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An instruction that synchronises, to another place of its block, or the block's of the region
    around it."""
    for unit in _units(facts):
        if focus.of_edit([p.number for p in unit]) > 3:
            continue
        yield from _along(facts, unit)
        yield from _out(facts, unit)


def _units(facts: Facts) -> Iterator[tuple[Place, ...]]:
    """What is moved as one: an instruction, or an election with the region that it guards."""
    for block in facts.blocks:
        for here, place in enumerate(block):
            following = block[here + 1] if here + 1 < len(block) else None
            if not isinstance(place.what, Op):
                continue
            if following is not None and _elects(place) and not isinstance(following.what, Op):
                inner = list(facts.inside(following.number))
                if inner and all(isinstance(p.what, Op) and synchronises(p) for p in inner):
                    yield place, following
            elif synchronises(place) and not _elects(place):
                yield (place,)


def _elects(place: Place) -> bool:
    return isinstance(place.what, Op) and place.what.mnemonic == "elect.sync"


def _along(facts: Facts, unit: tuple[Place, ...]) -> Iterator[Edit]:
    block = facts.block_of[unit[0].number]
    here = block.index(unit[0])
    for step in range(1, _STEPS + 1):
        for target, late in ((here + len(unit) - 1 + step, True), (here - step, False)):
            if 0 <= target < len(block):
                yield _moved(unit, block[target], late)


def _out(facts: Facts, unit: tuple[Place, ...]) -> Iterator[Edit]:
    """Behind and before the regions around it, and those before and behind it in its block."""
    for number in reversed(unit[0].within[-2:]):
        region = facts.places[number]
        yield _moved(unit, region, True)
        yield _moved(unit, region, False)
    block = facts.block_of[unit[0].number]
    here = block.index(unit[0])
    for region in (*block[max(0, here - 1) : here], *block[here + len(unit) :][:1]):
        inner = [p for p in facts.inside(region.number) if p.within[-1] == region.number]
        if inner:
            yield _moved(unit, inner[0], False)
            yield _moved(unit, inner[-1], True)


def _moved(unit: tuple[Place, ...], target: Place, late: bool) -> Edit:
    what = tuple(p.what for p in unit)
    new: list[tuple[Place, Instead]] = [(p, ()) for p in unit]
    new.append((target, after(target, *what) if late else before(target, *what)))
    side = "after" if late else "before"
    names = [p.op.mnemonic for p in unit if isinstance(p.what, Op)]
    there = target.what
    other = there.mnemonic if isinstance(there, Op) else f"the {type(there).__name__.lower()}"
    said = f"{names[-1]} {side} {other} at line {target.loc.line}"
    edit = of_places("move", said, new, 3)
    return Edit("move", said, edit.instead, 3, edit.lines)
