"""Synchronisation that stands too early, too late, or in the wrong region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesim.ir.edits import Instead
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.op import Op
from tilesim.repair.edit import Edit, after, before, family, of_places
from tilesim.repair.facts import Facts, Place, synchronises
from tilesim.repair.focus import Focus

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
    for alike in _lines(facts, focus):
        ways = [[*_targets(facts, unit)] for unit in alike]
        if len(alike) > 1:
            for there in zip(*ways, strict=False):
                yield from _moved(alike, there)
        for unit, way in zip(alike, ways, strict=True):
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
    edit = of_places("move", said, new, 3)
    yield Edit("move", said, edit.instead, 3, edit.lines)
