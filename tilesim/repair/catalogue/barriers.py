"""Barriers that are missing: of the CTA, between roles, of the cluster; where lives begin, end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesim.ir import effects as fx
from tilesim.ir.edits import Instead
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.memory import Mbar, Mbarriers
from tilesim.ir.mir import Mir
from tilesim.ir.ops.bar import BarArrive, BarSync, Setmaxnreg, SyncWarp
from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait
from tilesim.ir.ops.mbarrier import FenceMbarrierInit, MbarrierInit, MbarrierInval
from tilesim.ir.ops.tcgen05 import Tcgen05Dealloc
from tilesim.repair.catalogue.fences import inserted, near
from tilesim.repair.edit import Edit, after, at, before, family, of_places
from tilesim.repair.facts import Facts, Place, has, mbars, shared
from tilesim.repair.focus import Focus


@family("meeting")
def _meeting(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """bar.sync of all warps where no role is, of a role's warps next to what takes part."""
    close = [p for p in near(facts, focus, 1) if not p.one]
    everybody = facts.kernel.warps
    common = [p for p in facts.places if len(p.warps) == everybody and not p.within and not p.one]
    yield from inserted(facts, "meeting", (BarSync(id=Const(0)),), common)
    for size in sorted({len(p.warps) for p in close} - {0, 1}):
        named = BarSync(id=Const(free_id(facts)), threads=Const(32 * size))
        own = [p for p in close if len(p.warps) == size]
        for late in (False, True):
            yield from inserted(facts, "meeting", (named,), own, late=late)
    for places in _shared_lines(close):
        threads = Const(32 * len({w for p in places for w in p.warps}))
        named = BarSync(id=Const(free_id(facts)), threads=threads, aligned=False)
        for late in (False, True):
            yield from inserted(facts, "meeting", (named,), places, late=late)


@family("lanes")
def _lanes(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """bar.warp.sync next to what takes part."""
    close = [p for p in near(facts, focus, 1) if not p.one]
    for late in (False, True):
        yield from inserted(facts, "lanes", (SyncWarp(),), close, late=late)


def _shared_lines(places: list[Place]) -> Iterator[list[Place]]:
    """The statements of each line that several roles execute, as a Python loop over them makes."""
    lines: dict[object, list[Place]] = {}
    for place in places:
        lines.setdefault((place.loc, type(place.what)), []).append(place)
    return (own for own in lines.values() if len({p.role for p in own}) > 1)


def free_id(facts: Facts) -> int:
    """The first named barrier, of 1 to 15, that nobody uses."""
    used = {
        constant(e.id) for p in facts.ops for e in p.op.effects() if isinstance(e, fx.JoinsBarrier)
    }
    return next((n for n in range(1, 16) if n not in used), 15)


@family("hand-over")
def _hand_over(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A named barrier between two roles: one arrives behind its access, the other waits before its
    own; or both wait."""
    close = [p for p in facts.ops if focus.distance(p) == 0 and not p.one]
    if isinstance(facts.program, Mir):  # copies of one line stand for each other
        close = [*{(p.loc, type(p.what), p.warps): p for p in reversed(close)}.values()][::-1]
    number = Const(free_id(facts))
    for first in close:
        for second in close:
            if set(first.warps) & set(second.warps) or not first.warps or not second.warps:
                continue
            threads = Const(32 * (len(first.warps) + len(second.warps)))
            wait = BarSync(id=number, threads=threads, aligned=False)
            for early in (BarArrive(id=number, threads=threads, aligned=False), wait):
                for behind in _ends(facts, first):
                    new: list[tuple[Place, Instead]] = [
                        (behind, after(behind, at(early, behind.loc))),
                        (second, before(second, at(wait, second.loc))),
                    ]
                    what = f"{early.mnemonic} after {first.op.mnemonic} of {first.role or 'others'}"
                    what += f", {wait.mnemonic} before {second.op.mnemonic}"
                    yield of_places("hand-over", f"{what} of {second.role or 'others'}", new, 2)


def _ends(facts: Facts, place: Place) -> Iterator[Place]:
    """An instruction and the regions around it, up to its role."""
    yield place
    for number in reversed(place.within):
        region = facts.places[number]
        if region.role:
            yield region


@family("cluster barrier")
def _cluster(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The cluster barrier behind all roles, or behind the inits."""
    if facts.kernel.cluster_size == 1:
        return
    ends = _top(facts)
    both = (ClusterArrive(), ClusterWait())
    for place in reversed(ends):
        here = tuple(at(op, place.loc) for op in both)
        what = "barrier.cluster.arrive and wait"
        last = place is ends[-1]
        new = before(place, *here) if has(place, fx.Exits) else after(place, *here)
        yield of_places("cluster barrier", f"{what} at the end" if last else what,
                        [(place, new)], 2)  # fmt: skip
    inits = [p for p in facts.ops if has(p, fx.InitsMbarrier)]
    machine = isinstance(facts.program, Mir)
    for place in [p for p in ends if p.number > inits[-1].number][:2] if machine and inits else (
        ends[:2]
    ):  # fmt: skip
        fence = at(FenceMbarrierInit(), place.loc)
        here = tuple(at(op, place.loc) for op in both)
        what = "fence.mbarrier_init, barrier.cluster.arrive and wait"
        yield of_places("cluster barrier", what, [(place, after(place, fence, *here))], 3)
    halves = [sum(isinstance(p.what, type(op)) for p in facts.ops) for op in both]
    if halves[0] != halves[1]:  # one of a pair is missing
        close = near(facts, focus, 1)
        missing = both[halves[0] > halves[1]]
        yield from inserted(facts, "cluster barrier", (missing,), close)
        yield from inserted(facts, "cluster barrier", (missing,), close, late=True)


def _top(facts: Facts) -> list[Place]:
    """The statements that all warps come to."""
    if isinstance(facts.program, Mir):  # the first of each line, and where the warps end
        every = tuple(range(facts.kernel.warps))
        common = [p for p in facts.ops if p.warps == every and not p.one]
        return [*{p.loc: p for p in reversed(common)}.values()][::-1]
    return [p for p in facts.places if not p.within]


@family("missing init")
def _init(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """mbarrier.init, behind others, of slots that have none: of all arrays that lack some, the ones
    that a finding names first."""
    inits = [p for p in facts.ops if isinstance(p.what, MbarrierInit)]
    slots = {p.number: (m.array, constant(m.index)) for p in inits for m in mbars(p.op)}
    used = {m.array for p in facts.ops for m in mbars(p.op)}
    arrays = [a for a in facts.kernel.shared if isinstance(a, Mbarriers)]
    for array in sorted(arrays, key=lambda a: a.name not in focus.names):
        own = {slot for owner, slot in slots.values() if owner == array}
        missing = [n for n in range(array.count) if n not in own]
        if None in own or not missing or array not in used:
            continue
        for count in _counts(facts, array, inits):
            what = f"mbarrier.init of {array.name} with count {facts.shown(count)}"
            for places in _behind(inits, slots, missing):
                new = [
                    (p, after(p, *(
                        MbarrierInit(mbar=Mbar(array, Const(n)), count=count, loc=p.loc) for n in ns
                    )))
                    for p, ns in places
                ]  # fmt: skip
                yield of_places("missing init", what, new, 2)


def _behind(
    inits: list[Place], slots: Mapping[int, tuple[object, int | None]], missing: list[int]
) -> Iterator[list[tuple[Place, list[int]]]]:
    """Inits, and the slots that are initialised behind each: the same ones of another array, as a
    line of Python in a loop makes them, or all behind the last init of a block."""
    lines: dict[object, list[Place]] = {}
    for place in inits:
        if place.number in slots and slots[place.number][1] in missing:
            lines.setdefault((place.loc, slots[place.number][0]), []).append(place)
    for places in reversed(lines.values()):
        found = {slots[p.number][1] for p in places}
        if found.issuperset(missing) and len(places) == len(missing):
            yield [(p, [n for n in missing if n == slots[p.number][1]]) for p in places]
    for place in inits[-1:]:
        yield [(place, missing)]


def _counts(facts: Facts, array: Mbarriers, inits: list[Place]) -> Iterator[Expr]:
    """The counts that an array may be meant to have: that of its other slots, the number of those
    who arrive, counts of others."""
    arrive = dict.fromkeys((p.loc, p.role, p.arrivals) for p in facts.using(array.name, fx.Arrives))
    counts = [(p.op.mbar.array, p.op.count) for p in inits if isinstance(p.op, MbarrierInit)]
    own = [count for owner, count in counts if owner == array]
    numbers = [sum(n for _, _, n in arrive), *(n for _, _, n in arrive), 1]
    others = [count for _, count in counts]
    yield from dict.fromkeys((*own, *(Const(n) for n in numbers if n), *others))


@family("invalidate")
def _invalidate(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """mbarrier.inval before what reuses the bytes of a barrier."""
    arrays = [s for s in facts.kernel.shared if isinstance(s, Mbarriers)]
    ends: dict[str, list[Mbar]] = {}
    for array in arrays:
        ends[array.name] = [Mbar(array, Const(n)) for n in range(array.count)]
    for place in facts.ops:
        if focus.distance(place) > 2:
            continue
        for name in sorted(focus.names & ends.keys()):
            ops = tuple(at(MbarrierInval(mbar=m), place.loc) for m in ends[name])
            for late, new in ((False, before(place, *ops)), (True, after(place, *ops))):
                side = "after" if late else "before"
                what = f"mbarrier.inval of {name} {side} {place.op.mnemonic}"
                yield of_places("invalidate", what, [(place, new)], 2)


@family("allocation")
def _allocation(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Registers given back before others take them, columns freed at the end."""
    roles: dict[str, Place] = {}
    for place in facts.ops:
        if place.role and len(place.within) == 1:
            roles.setdefault(place.role, place)
    if any(has(p, fx.Registers) for p in facts.ops):
        for role, first in roles.items():
            if any(has(p, fx.Registers) and p.role == role for p in facts.ops):
                continue
            for n in (24, 40):
                op = at(Setmaxnreg(count=n, action="dec"), first.loc)
                what = f"setmaxnreg {n}, dec at the start of {role}"
                yield of_places("allocation", what, [(first, before(first, op))], 2)
    freed = {e.columns for p in facts.ops for e in p.op.effects() if isinstance(e, fx.FreesTmem)}
    for place in facts.ops:
        for effect in place.op.effects():
            if isinstance(effect, fx.AllocatesTmem) and effect.columns not in freed:
                yield from _freed(facts, place, effect)


def _freed(facts: Facts, owner: Place, effect: fx.AllocatesTmem) -> Iterator[Edit]:
    """The columns of an allocation given back by a register that has been loaded from where their
    address is, at the end of a block of the role that has allocated them or has that register."""
    slots = {v.tensor.name for _, v in shared(owner.op)}
    known = [
        (p, e.var)
        for p in facts.ops if slots.intersection(v.tensor.name for _, v in shared(p.op))
        for e in p.op.effects() if isinstance(e, fx.Defines)
    ]  # fmt: skip
    for first, var in known:
        for block in facts.blocks:
            if not block or block[-1].role not in (first.role, owner.role) or block[-1].one:
                continue
            last = block[-1]
            op = Tcgen05Dealloc(
                address=var, columns=effect.columns, cta_group=2 if effect.pair else 1,
                loc=last.loc,
            )  # fmt: skip
            what = f"{op.mnemonic} of {effect.columns} columns"
            yield of_places("allocation", what, [(last, after(last, op))], 2)
