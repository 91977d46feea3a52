"""Ranks, masks, numbers of groups, threads, registers and columns, and qualifiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.ir import effects as fx
from tilesim.ir.expr import Const, Expr, binary, constant
from tilesim.ir.memory import Mbar, Mbarriers
from tilesim.ir.op import Op
from tilesim.ir.sites import Site, sites
from tilesim.repair.catalogue.operands import Value, changes, each, places_of, to
from tilesim.repair.edit import Edit, family
from tilesim.repair.expressions import simple
from tilesim.repair.facts import Facts, Place, has
from tilesim.repair.focus import Focus

# ------------------------------------------------------------------ clusters


@family("rank")
def _rank(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Whose barrier: that of CTA 0, of each rank, or the own one."""
    size = facts.kernel.cluster_size
    if size == 1:
        return
    for group in places_of(facts, "barrier"):
        values = [_ranked(Const(n)) for n in range(min(size, 8))]
        yield from each(facts, "rank", group, [*values, _ranked(None)])
    for group in _copies_of_one_barrier(facts):
        for n in range(min(size, 8)):
            yield from changes(facts, "rank", group, _ranked(Const(n)), alike=True)


def _copies_of_one_barrier(facts: Facts) -> Iterator[list[tuple[Place, Site]]]:
    """The barriers of copies in one block that complete their bytes on the same one."""
    for block in facts.blocks:
        found: dict[str, list[tuple[Place, Site]]] = {}
        for place in block:
            if has(place, fx.Completes):
                for site in sites(place.op):
                    if isinstance(site.value, Mbar):
                        found.setdefault(repr(site.value), []).append((place, site))
        yield from (group for group in found.values() if len({p.loc for p, _ in group}) > 1)


def _ranked(cta: Expr | None) -> Value:
    def value(place: Place, site: Site) -> Mbar | None:
        mbar = site.value
        if not isinstance(mbar, Mbar) or not isinstance(mbar.array, Mbarriers):
            return None
        return replace(mbar, cta=cta)

    return value


@family("mask")
def _mask(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Which CTAs a multicast reaches: all, fewer or more, or the own one."""
    size = facts.kernel.cluster_size
    if size == 1:
        return
    whole = (1 << size) - 1
    for group in places_of(facts, "mask"):
        old = group[0][1].value
        values: list[Value] = [to(Const(whole))]
        if isinstance(old, Expr):
            values += [to(simple(binary("^", old, 1 << n))) for n in range(min(size, 8))]
            values += [to(binary("&", old, whole)), to(None)]
        donors = dict.fromkeys(g[0][1].value for g in places_of(facts, "mask"))
        values += [to(d) for d in donors if isinstance(d, Expr)]
        yield from each(facts, "mask", group, values)


# ------------------------------------------------------------------ small numbers and names


@family("pending")
def _pending(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """How many groups may stay unfinished."""
    for group in places_of(facts, "pending"):
        known = group[0][1].value
        wanted = [known - 1, known + 1, 0, known - 2]
        yield from each(facts, "pending", group, [to(n) for n in dict.fromkeys(wanted) if n >= 0])


@family("read")
def _read(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Whether only a store's source is waited for."""
    for group in places_of(facts, "read"):
        yield from each(facts, "read", group, [lambda p, s: not s.value])


@family("threads")
def _threads(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """How many threads a named barrier waits for: those of the roles that name it."""
    groups = list(places_of(facts, "threads"))
    by_id: dict[object, list[tuple[Place, Site]]] = {}
    for group in groups:
        for place, site in group:
            by_id.setdefault(getattr(place.op, "id", None), []).append((place, site))
    for users in by_id.values():
        warps = {w for p, _ in users for w in p.warps}
        counts = [32 * len(warps), *(32 * n for n in sorted({len(p.warps) for p, _ in users}))]
        said = [n for _, s in users if (n := _said(s))]
        counts += [n * 2 for n in said]
        counts += [n // 2 for n in said]
        counts += said
        for n in dict.fromkeys(counts):
            if n >= 32 and not n % 32:
                yield from changes(facts, "threads", users, to(Const(n)), alike=True)
    every = [pair for group in groups for pair in group]
    sizes = dict.fromkeys(n for _, s in every if (n := _said(s)))
    for n in dict.fromkeys([*(32 * len(p.warps) for p, _ in every), *(s * 2 for s in sizes)]):
        if n and len(by_id) > 1:
            given = [(p, s) for p, s in every if _said(s)]
            yield from changes(facts, "threads", given, to(Const(n)), 2, alike=True)
    for group in groups:
        if len(group) < len(every):
            for n in dict.fromkeys([*sizes, *(32 * len(p.warps) for p, _ in group)]):
                yield from changes(facts, "threads", group, to(Const(n)))


def _said(site: Site) -> int | None:
    """The number of threads that an operand says; None: all of the CTA, or the run says it."""
    return None if site.value is None else constant(site.value)


@family("id")
def _id(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Which named barrier: one that others use, a free one, one for every other turn."""
    groups = list(places_of(facts, "id"))
    used = dict.fromkeys(s.value for g in groups for _, s in g)
    known = {constant(e) for e in used}
    free = next((n for n in range(1, 16) if n not in known), None)
    for group in groups:
        yield from each(facts, "id", group, [to(e) for e in used])
    for value in used:
        if free is None:
            break
        users = [(p, s) for g in groups for p, s in g if s.value == value]
        by_turn = _by_turn(free - (constant(value) or 0))
        yield from changes(facts, "id", users, by_turn, alike=True)
    if free is not None:
        for group in groups:
            yield from changes(facts, "id", group, to(Const(free)))


def _by_turn(apart: int) -> Value:
    def value(place: Place, site: Site) -> Expr | None:
        if not place.loops:
            return None
        turn = binary("%", place.loops[-1].var, 2)
        return binary("+", site.value, binary("*", turn, apart))

    return value


@family("names")
def _names(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Qualifiers: release and acquire where an operation is relaxed, the scope of the cluster."""
    for group in places_of(facts, "sem"):
        if group[0][1].value == "relaxed":
            yield from each(facts, "names", group, [to(sem) for sem in _strong(group[0][0].op)])
    for group in places_of(facts, "scope"):
        for scope in ("cluster", "gpu", "cta") if facts.kernel.cluster_size > 1 else ("gpu", "cta"):
            yield from each(facts, "names", group, [to(scope)])
    for group in places_of(facts, "aligned"):
        yield from each(facts, "names", group, [lambda p, s: not s.value])


def _strong(op: Op) -> tuple[str, ...]:
    """What an operation may be that is relaxed: it takes, hands over, or both."""
    takes = any(isinstance(e, fx.Waits | fx.Reads) for e in op.effects())
    gives = any(isinstance(e, fx.Writes | fx.Arrives | fx.JoinsCluster) for e in op.effects())
    if takes and gives:
        return ("acq_rel", "release", "acquire")
    return ("acquire",) if takes else ("release",)


@family("registers")
def _registers(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Registers per thread: what fits."""
    for group in places_of(facts, "registers"):
        known = group[0][1].value
        wanted = [known - 8 * n for n in range(1, 13)] + [known + 8 * n for n in range(1, 5)]
        yield from each(facts, "registers", group, [to(n) for n in wanted if 24 <= n <= 256])


@family("columns")
def _columns(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Columns of tensor memory, in the allocation and where they are freed."""
    groups = list(places_of(facts, "columns"))
    sizes = dict.fromkeys(s.value for g in groups for _, s in g)
    for old in sizes:
        users = [(p, s) for g in groups for p, s in g if s.value == old]
        powers = [1 << n for n in range(5, 10)]
        for new in sorted(powers, key=lambda n: abs(n - old)):
            yield from changes(facts, "columns", users, to(new), alike=True)
    for group in groups:
        yield from each(facts, "columns", group, [to(n) for n in sizes])
