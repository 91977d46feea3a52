"""Operands with another value: counts, bytes, parities, slots, masks, ids, threads, scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilesim.analysis.uses_defs import replaced
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbar, Mbarriers, SharedTensor
from tilesim.ir.expr import Const, Expr, Var, binary, constant
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.op import Op
from tilesim.ir.program import For
from tilesim.ir.sites import Kind, Site, sites
from tilesim.mistakes.barrier_use import arriving, total
from tilesim.mistakes.context import (
    LANES,
    Facts,
    Focus,
    Place,
    flipped,
    has,
    matched,
    mbars,
    numbers,
    numerator,
    parities,
    shared,
    shifted,
    simple,
    variables,
)
from tilesim.mistakes.edits import Edit, changed, family, of_places
from tilesim.transforms.rewrite import Instead

#: a new value of an operand; None: the value stays
Value = Callable[[Place, Site], Any]


def places_of(facts: Facts, kind: Kind) -> Iterator[list[tuple[Place, Site]]]:
    """The operands of a kind, those together that one line has on barriers of one array."""
    found: dict[object, list[tuple[Place, Site]]] = {}
    for place in facts.ops:
        for site in sites(place.op):
            if site.kind == kind:
                arrays = tuple(m.array.name for m in mbars(place.op))
                key = place.loc, type(place.op), arrays, site.name
                # what has no line, or is a line of a list, stands for itself
                own = place.number if place.loc == UNKNOWN else None
                found.setdefault((key, own), []).append((place, site))
    yield from found.values()


def changes(
    facts: Facts,
    name: str,
    group: list[tuple[Place, Site]],
    value: Value,
    size: int = 1,
    *,
    alike: bool = False,
) -> Iterator[Edit]:
    """The edit that gives the operands of a group new values; none if nothing changes."""
    new: list[tuple[Place, Instead]] = []
    said: list[str] = []
    for place, site in group:
        worth = value(place, site)
        if worth is None or _same(worth, site.value):
            continue
        new.append((place, (to_its_scope(changed(place.op, **{site.name: worth})),)))
        said.append(f"{facts.shown(worth)} instead of {facts.shown(site.value)}")
    if new:
        what = " and ".join(dict.fromkeys(said))
        yield of_places(
            name, f"{group[0][1].kind} {what} in {group[0][0].op.mnemonic}", new, size, alike=alike
        )


def to_its_scope(op: Op) -> Op:
    """An arrival on a barrier of another CTA releases to the cluster: to its own CTA alone it hands
    nothing on there. Others stay."""
    far = any(isinstance(e, fx.Arrives) and e.mbar.cta is not None for e in op.effects())
    return changed(op, scope="cluster") if far and getattr(op, "scope", "") == "cta" else op


def each(
    facts: Facts, name: str, group: list[tuple[Place, Site]], values: list[Value], size: int = 1
) -> Iterator[Edit]:
    """Every value for all operands of a line; then, if there are several, for each by itself."""
    for value in values:
        yield from changes(facts, name, group, value, size)
    if 1 < len(group) <= _ALONE:
        for single in group:
            for value in values:
                yield from changes(facts, name, [single], value, size + 1)


#: operands of one line that are also changed one by one
_ALONE = 8


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Expr) or isinstance(other, Expr):
        return type(one) is type(other) and bool(one == other)
    return bool(one == other)


def to(value: Any) -> Value:
    return lambda place, site: value


# ------------------------------------------------------------------ counts and bytes


@family("count")
def _count(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Init counts: what arrives in a phase, one more or less, what other barriers have."""
    for group in places_of(facts, "count"):
        place, site = group[0]
        known = constant(site.value)
        if known is None:
            deltas = [binary("+", site.value, 1), binary("-", site.value, 1)]
            yield from each(facts, "count", group, [to(value) for value in deltas])
            continue
        counts = [*_arriving(facts, place), *focus.arrivals, known - 1, known + 1]
        counts += [known * 2, known // 2, 1, *(len(p.warps) for p in facts.ops)]
        wanted = [n for n in dict.fromkeys(counts) if n > 0 and n != known]
        yield from each(facts, "count", group, [to(Const(n)) for n in wanted])


def _arriving(facts: Facts, init: Place) -> Iterator[int]:
    """How many arrivals a phase of a barrier may have, by the warps that arrive on it."""
    for mbar in mbars(init.op):
        by_role = [n for n, _ in arriving(facts, mbar.array.name).values()]
        yield total(facts, mbar.array.name)
        yield sum(by_role)
        yield from sorted(set(by_role))
        size = facts.kernel.cluster_size
        if size > 1:
            yield sum(by_role) * size
            yield from sorted({n * size for n in by_role})


def _plain(kind: Kind, options: Callable[[Any], Iterable[Any]]) -> None:
    """Registers the family of a kind of operands whose new values follow from the old one alone."""

    @family(kind)
    def changed_alone(facts: Facts, focus: Focus) -> Iterator[Edit]:
        for group in places_of(facts, kind):
            values = [to(value) for value in dict.fromkeys(options(group[0][1].value))]
            yield from each(facts, kind, group, values)


def _arrivals(old: Expr) -> Iterable[Expr]:
    known = constant(old)
    return [] if known is None else [Const(n) for n in (known - 1, known + 1, 1, LANES) if n > 0]


_plain("arrivals", _arrivals)
#: how many groups may stay unfinished; whether only a store's source is waited for
_plain("pending", lambda n: [m for m in (n - 1, n + 1, 0, n - 2) if m >= 0])
_plain("read", lambda read: [not read])
#: registers per thread: what fits
_plain("registers", lambda n: [m for m in (*range(n - 8, n - 97, -8), *range(n + 8, n + 33, 8))
                               if 24 <= m <= 256])  # fmt: skip


@family("bytes")
def _bytes(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Expected bytes: those of the copies that complete on the barrier, and what was counted."""
    for group in places_of(facts, "bytes"):
        place, site = group[0]
        if site.value is None:
            continue
        known = constant(site.value)
        sums = list(copied(facts, place))
        if known is None:
            values: list[Value] = [to(Const(n)) for n in sums]
            values += [to(site.value - 16), to(site.value + 16)]
        else:
            sums += [*focus.bytes, *(known + n for n in focus.bytes), known * 2, known // 2]
            sums += [known - n for n in focus.bytes]
            values = [to(Const(n)) for n in dict.fromkeys(sums) if n > 0 and n != known]
        yield from each(facts, "bytes", group, values)


def copied(facts: Facts, place: Place) -> Iterator[int]:
    """The bytes that may complete on the barrier of an instruction in a phase: all copies of its
    block, those of its role, each, all, and those of all CTAs of the cluster."""
    arrays = {m.array.name for m in mbars(place.op)}
    copies = [
        (p, constant(effect.bytes) or 0)
        for name in sorted(arrays)
        for p in facts.using(name, fx.Completes)
        for effect in p.op.effects()
        if isinstance(effect, fx.Completes) and effect.bytes is not None and effect.asynchronous
    ]
    block = {p.number for p in facts.block_of.get(place.number, ())}
    groups = [
        [n for p, n in copies if p.number in block],
        [n for p, n in copies if p.within == place.within],
        [n for p, n in copies if p.role == place.role],
        [n for _, n in copies],
        *([n] for _, n in copies),
    ]
    found = dict.fromkeys(sum(group) for group in groups)
    size = facts.kernel.cluster_size
    for factor in (1, size) if size > 1 else (1,):
        yield from (n * factor for n in found if n)


# ------------------------------------------------------------------ parities and slots


@family("phase")
def _phase(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Parities: the other one, one that never or always turns, those that may be meant there; waits
    of one line have registers of their own."""
    for group in places_of(facts, "phase"):
        parity = [(p, s) for p, s in group if getattr(p.op, "parity", True)]
        meant = {p.number: parities_at(facts, p, mbars(p.op)) for p, _ in parity}
        values = [lambda p, s: flipped(s.value), to(Const(0)), to(Const(1))]
        values += [_of(meant, n) for n in range(max(map(len, meant.values()), default=0))]
        yield from each(facts, "phase", parity, values)


def _of(options: Mapping[int, Sequence[Expr]], which: int) -> Value:
    """The option of this number that an instruction has of its own."""
    return lambda place, site: next(iter(options[place.number][which:]), None)


def parities_at(facts: Facts, place: Place, barriers: Iterable[Mbar]) -> tuple[Expr, ...]:
    """Parities that a wait at a place on some barriers may be for: those of the use whose number
    their slot is made of, of waits on their arrays in its role, of the loops around (of none:
    both), of other waits of its role or on these arrays."""
    found: list[Expr] = []
    arrays = {mbar.array.name: mbar.array.count for mbar in barriers
              if isinstance(mbar.array, Mbarriers)}  # fmt: skip
    for mbar in barriers:
        number = numerator(mbar.index)
        if number is not None:
            found += parities(number, arrays.get(mbar.array.name, 1))
    near: tuple[list[Expr], list[Expr]] = [], []
    for other in facts.waits:
        there = any(m.array.name in arrays for m in mbars(other.op))
        apart = (other.role != place.role) + (not there)
        if other.number != place.number and apart < len(near):
            for site in sites(other.op):
                if site.kind == "phase" and getattr(other.op, "parity", True):
                    theirs = replaced(site.value, matched(other.loops, place.loops))
                    near[apart].extend((theirs, flipped(theirs)))
    found += near[0]
    for iteration in numbers(place.loops):
        for count in arrays.values() or (1,):
            found += parities(iteration, count)
    found += near[1] if place.loops else (Const(0), Const(1), *near[1])
    return tuple(e for e in dict.fromkeys(found) if in_scope(facts, e, place))


def in_scope(facts: Facts, expr: Expr, place: Place) -> bool:
    """Whether a value means something at a place: counters of its own loops, and registers that
    its role sets."""
    own = {loop.var.name for loop in place.loops}
    counters = {loop.var.name for _, loop in facts.of(For)}
    used = variables([expr])
    set_here = {
        e.var.name
        for p in facts.ops
        if p.role == place.role or not p.role
        for e in p.op.effects()
        if isinstance(e, fx.Defines)
    }
    return all(name in own or (name in set_here and name not in counters - own) for name in used)


def slots_at(facts: Facts, place: Place, array: Mbarriers) -> tuple[Expr, ...]:
    """The slots of an array that may be meant at a place, the likeliest first: those that other
    instructions of its block name, that the array has elsewhere, that loops count; all."""
    if array.count == 1:
        return (Const(0),)
    found: list[Expr] = []
    for other in facts.block_of.get(place.number, ()):
        if isinstance(other.what, Op):
            found += (m.index for m in mbars(other.what) if m.array.count == array.count)
            found += (
                v.offsets[0] for _, v in shared(other.what)
                if len(v.offsets) > 1 and v.tensor.shape[0] == array.count
            )  # fmt: skip
    for other in facts.arrays.get(array.name, ()):
        if len(other.loops) <= len(place.loops):
            pairs = matched(other.loops, place.loops)
            found += (replaced(m.index, pairs) for m in mbars(other.op) if m.array is array)
    found += (binary("%", n, array.count) for n in numbers(place.loops))
    if not place.loops:
        found += map(Const, range(min(array.count, 8)))
    return tuple(e for e in dict.fromkeys(found) if in_scope(facts, e, place))


@family("slot")
def _slot(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The barrier: of another slot, of another array, as the instructions around have it."""
    for group in places_of(facts, "barrier"):
        values = [_indexed(facts, index) for index in _indices(facts, group[0][0])]
        values += [_moved(-1), _moved(1)]
        values += [_in(array) for array in facts.kernel.shared if isinstance(array, Mbarriers)]
        yield from each(facts, "slot", group, values)
        for place, site in group[1:_ALONE]:  # in another role the same line has other registers
            for index in _indices(facts, place):
                yield from changes(facts, "slot", [(place, site)], _indexed(facts, index), 2)


def _indices(facts: Facts, place: Place) -> tuple[Expr, ...]:
    """Slots that the barriers of an instruction may be meant to have."""
    arrays = [m.array for m in mbars(place.op) if isinstance(m.array, Mbarriers)]
    return tuple(e for a in arrays if a.count > 1 for e in slots_at(facts, place, a))


def _of_mbar(change: Callable[[Place, Mbar, Mbarriers], Mbar | None]) -> Value:
    """The value of an operand that is a barrier of an array, by what it becomes."""

    def value(place: Place, site: Site) -> Mbar | None:
        mbar = site.value
        known = isinstance(mbar, Mbar) and isinstance(mbar.array, Mbarriers)
        return change(place, mbar, mbar.array) if known else None

    return value


def _indexed(facts: Facts, index: Expr) -> Value:
    known = constant(index)

    def change(place: Place, mbar: Mbar, array: Mbarriers) -> Mbar | None:
        inside = array.count > 1 and (known is None or 0 <= known < array.count)
        return replace(mbar, index=index) if inside and in_scope(facts, index, place) else None

    return _of_mbar(change)


def _moved(by: int) -> Value:
    return _of_mbar(
        lambda place, mbar, array: None if array.count < 2
        else replace(mbar, index=shifted(mbar.index, by, array.count))
    )  # fmt: skip


def _in(other: Mbarriers) -> Value:
    def change(place: Place, mbar: Mbar, array: Mbarriers) -> Mbar | None:
        known = constant(mbar.index)
        fits = other.count == array.count if known is None else known < other.count
        return replace(mbar, array=other) if fits else None

    return _of_mbar(change)


@family("data slot")
def _data(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The stage whose data is meant: the slot of a barrier of the same block, or its neighbour."""
    for place in facts.ops:
        for name, view in shared(place.op):
            tensor = view.tensor
            if not isinstance(tensor, SharedTensor) or view.extents[0] != 1:
                continue
            slots, words = tensor.shape[0], len(tensor.shape) == 1
            if slots < 2:
                continue
            first = view.offsets[0]
            near = facts.block_of.get(place.number, ())
            found = {
                m.index: None for p in near if isinstance(p.what, Op) for m in mbars(p.what)
                if not words or (isinstance(m.array, Mbarriers) and m.array.count == slots)
            }  # fmt: skip
            found |= {shifted(first, by, slots): None for by in (() if words else (-1, 1))}
            for index in found:
                if index == first or (constant(index) or 0) >= slots:
                    continue
                moved = replace(view, offsets=(index, *view.offsets[1:]))
                what = f"{tensor.name}[{facts.shown(index)}] instead of [{facts.shown(first)}]"
                new = changed(place.op, **{name: moved})
                yield of_places("data slot", f"{what} in {place.op.mnemonic}", [(place, (new,))], 1)


@family("number")
def _number(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Slots and parities of a role by a number that runs on over all loops around, where they
    count one loop's turns; in one role, then in all."""
    what = "slots and parities by a number that runs on over all loops"
    of_all: list[tuple[Place, Instead]] = []
    for role in dict.fromkeys(p.role for p in facts.ops):
        inner = (p for p in facts.ops if p.role == role and len(p.loops) > 1)
        of_role: list[tuple[Place, Instead]] = [
            (place, (new,)) for place in inner if (new := _counted_on(place)) is not None
        ]
        if of_role:
            where = f"{what} in {role or 'the kernel'}"
            yield of_places("number", where, of_role, 2, alike=True)
            of_all += of_role
    if of_all:
        yield of_places("number", f"{what}, in every role", of_all, 2, alike=True)


def _counted_on(place: Place) -> Op | None:
    """An instruction whose slots and parities take the number of the turn of all loops around."""
    inner = place.loops[-1].var
    whole = next(e for e in numbers(place.loops) if not isinstance(e, Var))
    swap = {inner.name: whole}
    other: dict[str, Any] = {}
    for site in sites(place.op):
        if site.kind == "phase" and inner.name in variables([site.value]):
            if len(variables([site.value])) == 1:
                other[site.name] = replaced(site.value, swap)
        elif isinstance(site.value, Mbar) and variables([site.value.index]) == {inner.name}:
            other[site.name] = replace(site.value, index=replaced(site.value.index, swap))
    for name, view in shared(place.op):
        if len(view.offsets) > 1 and variables(view.offsets[:1]) == {inner.name}:
            first = replaced(view.offsets[0], swap)
            other[name] = replace(view, offsets=(first, *view.offsets[1:]))
    return changed(place.op, **other) if other else None


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
    return _of_mbar(lambda place, mbar, array: replace(mbar, cta=cta))


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
        by_iteration = _by_iteration(free - (constant(value) or 0))
        yield from changes(facts, "id", users, by_iteration, alike=True)
    if free is not None:
        for group in groups:
            yield from changes(facts, "id", group, to(Const(free)))


def _by_iteration(apart: int) -> Value:
    def value(place: Place, site: Site) -> Expr | None:
        if not place.loops:
            return None
        iteration = binary("%", place.loops[-1].var, 2)
        return binary("+", site.value, binary("*", iteration, apart))

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
    takes = has(op, fx.Waits, fx.Reads)
    gives = has(op, fx.Writes, fx.Arrives, fx.JoinsCluster)
    if takes and gives:
        return ("acq_rel", "release", "acquire")
    return ("acquire",) if takes else ("release",)


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
