"""Arrivals on barriers of other CTAs of the cluster.

A warp that writes into a peer's memory waits until that has been read, on a barrier of its own CTA:
the peer has to arrive there (``mapa`` and ``mbarrier.arrive.release.cluster.shared::cluster``, PTX
9.7.13.15.13), and with a multicast every CTA of its mask on the barrier of every CTA that issues
one. Which CTAs that are is read off the memory that the waiting role accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import mentioned
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import mbar_at, peer_address
from tilesim.ir.declarations import Mbar, Mbarriers, View
from tilesim.ir.expr import Const, Expr, Special, binary, constant
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierInit
from tilesim.ir.program import If
from tilesim.ir.sites import sites
from tilesim.mistakes.arrivals import by_one_lane, said, spots_of, wanted_arrays
from tilesim.mistakes.barrier_use import executes, reached
from tilesim.mistakes.context import Facts, Focus, Place, is_election, is_own_address
from tilesim.mistakes.edits import Edit, after, beside, changed, family, of_places
from tilesim.mistakes.fences import brief
from tilesim.mistakes.operands import slots_at, to_its_scope
from tilesim.transforms.rewrite import Instead

RANK = Special("cluster_rank")
#: clusters of more CTAs are told of by nothing that a source line spells out
_MOST = 8

#: the barriers to arrive on, each by its CTA; None: that of the executing CTA
Targets = tuple[Expr | None, ...]


@family("peer arrival")
def _peer(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival on the barriers of the CTAs that wait for this one: in the place of one on the own
    barrier, beside it, where a condition lets only some CTAs arrive, or where there is none."""
    if not 1 < facts.kernel.cluster_size <= _MOST:
        return
    for array in wanted_arrays(facts, focus):
        for targets in _targets(facts, array):
            plain = (p for p in facts.arrays.get(array.name, ()) if any(_mbars(p.op)))
            for places in _by_line(plain, lambda place: (place.loc, place.role)):
                yield from _instead(facts, places, targets)
                yield from _by_all(facts, places, targets)
            waiters = {p.role for p in facts.using(array.name, fx.Waits)}
            for place, late in spots_of(facts, focus):
                if place.role not in waiters:
                    for slot in slots_at(facts, place, array)[:4]:
                        yield from _added(facts, Mbar(array, slot), place, late, targets)
    if isinstance(facts.program, Mir):
        yield from _at_addresses(facts, facts.program)


def _at_addresses(facts: Facts, mir: Mir) -> Iterator[Edit]:
    """The same of barriers at addresses, as compiled code has them: in the place of an arrival on
    the own one, and beside it; with the count of the inits of that barrier, where it has more."""
    own = (p for p in facts.ops if any(map(is_own_address, _mbars(p.op))))
    for places in _by_line(own, lambda place: place.loc.written_places):
        inits = _inits(facts, mir, places)
        counts = {constant(s.value) for p in inits for s in sites(p.op) if s.kind == "count"}
        for targets in _any(facts.kernel.cluster_size):
            for edit in _instead(facts, places, targets):
                yield edit
                for known in counts - {None} if len(counts) == 1 else ():
                    count = Const((known or 0) * facts.kernel.cluster_size)
                    raised = {p.number: (changed(p.op, count=count),) for p in inits}
                    what = f"{edit.what}; count {count} in {inits[0].op.mnemonic}"
                    lines = dict.fromkeys((*edit.lines, *(p.loc for p in inits)))
                    yield replace(edit, what=what, instead={**edit.instead, **raised}, size=2,
                                  lines=tuple(lines))  # fmt: skip


def _mbars(op: Op) -> Iterator[Mbar]:
    """The barriers of a plain arrival."""
    if isinstance(op, MbarrierArrive) and op.token is None:
        yield op.mbar


def _by_line(places: Iterable[Place], line: Callable[[Place], object]) -> Iterable[list[Place]]:
    found: dict[object, list[Place]] = {}
    for place in places:
        found.setdefault(line(place), []).append(place)
    return found.values()


def _any(size: int) -> Iterator[Targets]:
    """The CTAs that an arrival may have been meant for: the peer (as well), all, each CTA."""
    if size == 2:
        yield (binary("^", RANK, 1),)
        yield None, binary("^", RANK, 1)
    else:
        yield tuple(Const(n) for n in range(size))
    yield from ((Const(n),) for n in range(size))


def _inits(facts: Facts, mir: Mir, places: list[Place]) -> list[Place]:
    """The inits of the barriers on which some arrivals may be: at the same address, else those of
    what their addresses are made of."""
    inits = [p for p in facts.ops if isinstance(p.what, MbarrierInit)]
    wanted = {m for p in places for m in _addresses(p.op)}
    same = [p for p in inits if wanted & set(_addresses(p.op))]
    if same:
        return same
    names = frozenset(n for p in places for e in _addresses(p.op) for n in _bases(mir, e))
    return [p for p in inits if any(names & _bases(mir, e) for e in _addresses(p.op))]


def _addresses(op: Op) -> Iterator[Expr]:
    mbar = getattr(op, "mbar", None)
    if isinstance(mbar, Mbar) and isinstance(mbar.array, AddressedMbarriers):
        yield mbar.array.address


def _bases(mir: Mir, address: Expr) -> frozenset[str]:
    """The declarations that an address is made of, through the registers in it."""

    def made_of(name: str) -> Iterator[str]:
        for number in mir.setters.get(name, ()):
            value = getattr(mir.code[number].what, "value", None)
            yield from mentioned(value) if isinstance(value, Expr) else ()

    return frozenset(name for name in closure(mentioned(address), made_of) if name[0] == "&")


# ------------------------------------------------------------------ CTAs to arrive in


def _targets(facts: Facts, array: Mbarriers) -> list[Targets]:
    """Whose barriers of an array a CTA has to arrive on, the likeliest first: those of the CTAs
    whose waiting role accesses its memory; if that cannot be told, one peer, all, each CTA's."""
    own = _accessing(facts, array)
    if own is None:
        return [*_any(facts.kernel.cluster_size)]
    told = _spelled(own)
    return [] if told is None else [told]


def _accessing(facts: Facts, array: Mbarriers) -> list[frozenset[int]] | None:
    """By rank of a CTA, the ranks of those whose warps that wait on an array access its memory;
    None if a rank is not known."""
    size = facts.kernel.cluster_size
    found: list[set[int]] = [set() for _ in range(size)]
    roles = {p.role for p in facts.using(array.name, fx.Waits)}
    for place in facts.ops:
        if place.role not in roles:
            continue
        for rank in range(size):
            if not executes(facts, place, rank):
                continue
            for reach in _memories(place.op):
                there = reached(*reach, rank, size)
                if there is None:
                    return None
                for cta in there:
                    found[cta].add(rank)
    return [frozenset(ranks) for ranks in found]


def _memories(op: Op) -> Iterator[tuple[Expr | None, Expr | None]]:
    """The shared memories that an instruction accesses: of which CTA (None: the own one), with
    the mask of a multicast."""
    mask = next((s.value for s in sites(op) if s.kind == "mask" and s.value is not None), None)
    for effect in op.effects():
        view = getattr(effect, "view", None)
        if isinstance(view, View) and view.space.startswith("shared"):
            written = isinstance(effect, fx.Writes | fx.RemoteStore)
            yield view.cta, mask if written else None


def _spelled(ranks: list[frozenset[int]]) -> Targets | None:
    """CTAs by rank as expressions that every CTA has alike; None if there are none such, or each
    has to tell itself alone."""
    size = len(ranks)
    told = {r: own for r, own in enumerate(ranks) if own}
    if not told or all(own == {r} for r, own in told.items()):
        return None
    if len(set(told.values())) == 1:
        return tuple(Const(n) for n in sorted(next(iter(told.values()))))
    for by in ("^", "+"):
        steps = [
            {n ^ r if by == "^" else (n - r) % size for n in own} for r, own in told.items()
        ]  # fmt: skip
        if all(step == steps[0] and max(step) < size for step in steps):
            return tuple(_stepped(by, n, size) for n in sorted(steps[0]))
    return None


def _stepped(by: str, step: int, size: int) -> Expr | None:
    if not step:
        return None
    return binary("^", RANK, step) if by == "^" else binary("%", binary("+", RANK, step), size)


# ------------------------------------------------------------------ the edits


def _on(mbar: Mbar, cta: Expr | None, like: MbarrierArrive) -> MbarrierArrive:
    """An arrival like another one, on the barrier of a CTA: of one at an address, as ``mapa`` has
    it."""
    if isinstance(mbar.array, AddressedMbarriers) and cta is not None:
        there = mbar_at(peer_address(mbar.array.address, cta), space="shared::cluster")
        return replace(like, mbar=there, scope="cluster")
    new = to_its_scope(changed(like, mbar=replace(mbar, cta=cta)))
    assert isinstance(new, MbarrierArrive)
    return new


def _instead(facts: Facts, places: list[Place], targets: Targets) -> Iterator[Edit]:
    """Arrivals on all targets in the place of those of a line, which keep their own target if it
    is one of them."""
    arrivals = [place.op for place in places if isinstance(place.op, MbarrierArrive)]
    there = {repr(op.mbar.cta) for op in arrivals}
    missing = [cta for cta in targets if repr(cta) not in there]
    if not missing:
        return
    stays = len(missing) < len(targets)
    further = [tuple(_on(op.mbar, cta, op) for cta in missing) for op in arrivals]
    new: list[tuple[Place, Instead]] = [
        (place, after(place, *more) if stays else more)
        for place, more in zip(places, further, strict=True)
    ]
    side = "as well" if stays else f"instead of {facts.shown(arrivals[0].mbar)}"
    yield of_places(
        "peer arrival", f"{said(facts, further[0])} {side}", new, 2 if stays else 1
    )  # fmt: skip


def _by_all(facts: Facts, places: list[Place], targets: Targets) -> Iterator[Edit]:
    """Where only some CTAs arrive, the others do so as well, all on the targets."""
    for place in places:
        if not place.within:
            continue
        region = facts.places[place.within[-1]]
        cond = region.what
        if not isinstance(cond, If) or cond.orelse or is_election(facts, cond.cond):
            continue
        ranks = [executes(facts, place, n) for n in range(facts.kernel.cluster_size)]
        op = place.op
        if all(ranks) or not any(ranks) or not isinstance(op, MbarrierArrive):
            continue
        arrivals = tuple(_on(op.mbar, cta, op) for cta in targets)
        what = f"{said(facts, arrivals)} where {facts.shown(cond.cond)} does not hold"
        new = replace(cond, orelse=arrivals)
        yield of_places("peer arrival", what, [(region, (new,))], 1)


def _added(facts: Facts, mbar: Mbar, place: Place, late: bool, targets: Targets) -> Iterator[Edit]:
    """Arrivals on all targets next to a statement; by one lane, too, where all execute it."""
    like = MbarrierArrive(mbar=mbar, loc=place.loc)
    arrivals = tuple(_on(mbar, cta, like) for cta in targets)
    new, side = beside(place, late, *arrivals)
    what = f"{said(facts, arrivals)} {side} {brief(place)}"
    yield of_places("peer arrival", what, [(place, new)], 2)
    yield from by_one_lane(facts, "peer arrival", place, late, arrivals)
