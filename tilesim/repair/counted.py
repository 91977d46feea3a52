"""An edit after which others arrive on a barrier, and the count that goes with it.

Whose barrier it is, who arrives on it and how many that are is one decision, which a program says
at two lines: at the arrival and at the init. One of them alone never mends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.ir import effects as fx
from tilesim.ir.edits import Instead
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.ir.program import If, children, walk
from tilesim.ir.sites import sites
from tilesim.repair.edit import Edit, changed
from tilesim.repair.expressions import at_rank
from tilesim.repair.facts import Facts, Place

#: families that change who arrives
COUNTED = frozenset({
    "rank", "slot", "condition", "participants", "one lane", "missing arrival", "arrival too many",
    "repeated", "other arm", "peer arrival",
})  # fmt: skip


def arriving(facts: Facts, array: str) -> dict[tuple[Loc, str, str], tuple[int, tuple[int, ...]]]:
    """By line, role and CTA that is named, how many arrivals of a CTA a phase of a barrier of an
    array may have; and how many of those the barrier of each CTA of the cluster gets."""
    size = facts.kernel.cluster_size
    found: dict[tuple[Loc, str, str], tuple[int, tuple[int, ...]]] = {}
    for place in facts.using(array, fx.Arrives):
        for effect in place.op.effects():
            if isinstance(effect, fx.Arrives) and effect.mbar.array.name == array:
                lanes = 1 if effect.group == "tcgen05" else place.arrivals
                made = (constant(effect.count) or 1) * lanes
                got = [0] * size
                for rank in range(size):
                    there = reached(effect.mbar.cta, effect.multicast, rank, size)
                    if executes(facts, place, rank):
                        for cta in {rank} if there is None else there:
                            got[cta] += made
                found[place.loc, place.role, str(effect.mbar.cta)] = made, tuple(got)
    return found


def reached(
    cta: Expr | None, multicast: Expr | None, rank: int, size: int
) -> frozenset[int] | None:
    """The CTAs whose memory or barrier an instruction of CTA ``rank`` names, by the operand that
    says which (None: its own) and the mask of a multicast; None if that is not known."""
    if multicast is not None:
        mask = constant(at_rank(multicast, rank))
        return None if mask is None else frozenset(n for n in range(size) if mask >> n & 1)
    known = rank if cta is None else constant(at_rank(cta, rank))
    return frozenset({known}) if known is not None and 0 <= known < size else None


def executes(facts: Facts, place: Place, rank: int) -> bool:
    """Whether CTA ``rank`` may execute a statement: no condition on the rank around it excludes
    it."""
    for number in place.within:
        region = facts.places[number].what
        if isinstance(region, If):
            holds = constant(at_rank(region.cond, rank))
            other = place.number > number + sum(1 for _ in walk(region.then))
            if holds is not None and bool(holds) == other:
                return False
    return True


def counted(facts: Facts, edit: Edit) -> Edit | None:
    """An edit with the counts of the barriers on which others arrive after it; None if these stay:
    those that it changes by as many, or what then arrives if nobody can tell how many it changes.
    """
    arrays = {
        e.mbar.array.name
        for number, new in edit.instead.items()
        for op in (*_ops(facts, number), *_new(new))
        for e in op.effects() if isinstance(e, fx.Arrives)
    }  # fmt: skip
    if not arrays:
        return None
    after = Facts(edit.of(facts.program))
    inits: list[tuple[Place, int, int]] = []
    for array in sorted(arrays):
        by = total(after, array) - total(facts, array)
        for place in facts.using(array, fx.InitsMbarrier):
            counts = [constant(s.value) for s in sites(place.op) if s.kind == "count"]
            known = counts[0] if counts else None
            if known is None or place.number in edit.instead:
                return None
            inits.append((place, known, known + by if by else total(after, array)))
    wrong = [(place, known, count) for place, known, count in inits if count not in (0, known)]
    if not wrong or any(count < 0 for _, _, count in wrong):
        return None
    instead = {p.number: (changed(p.op, count=Const(count)),) for p, _, count in wrong}
    lines = dict.fromkeys(p.loc for p, _, _ in wrong)
    said = dict.fromkeys(
        f"count {count} instead of {known} in {p.op.mnemonic}" for p, known, count in wrong
    )
    return replace(
        edit, what="; ".join((edit.what, *said)), instead={**edit.instead, **instead},
        size=edit.size + len(lines), lines=tuple(dict.fromkeys((*edit.lines, *lines))),
    )  # fmt: skip


def total(facts: Facts, array: str) -> int:
    """How many arrivals a phase of a barrier of an array has, in the CTA where it has most."""
    each = [got for _, got in arriving(facts, array).values()]
    return max(map(sum, zip(*each, strict=True)), default=0)


def _ops(facts: Facts, number: int) -> Iterator[Op]:
    """The instructions at a statement: itself, or those in a region."""
    what = facts.places[number].what
    if isinstance(what, Op):
        yield what
    yield from (p.op for p in facts.inside(number) if isinstance(p.what, Op))


def _new(block: Instead) -> Iterator[Op]:
    for what in block:
        if isinstance(what, Op):
            yield what
        elif not isinstance(what, Control):
            for region in children(what):
                yield from _new(region)
