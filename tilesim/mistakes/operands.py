"""Operands with another value; instructions that should be another one of their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from tilesim.analysis.uses_defs import replaced
from tilesim.arith.types import s32
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.expr import Const, Expr, Var, all_of, binary, constant
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.op import Op, operand_names
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierExpectTx
from tilesim.ir.ops.tcgen05 import Tcgen05Commit
from tilesim.ir.program import For, If, Stmt
from tilesim.ir.sites import Kind, Site, sites
from tilesim.mistakes.barrier_use import arriving, total
from tilesim.mistakes.context import (
    LANES,
    Facts,
    Focus,
    Place,
    effects_of,
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
from tilesim.mistakes.edits import Edit, by_line, changed, family, of_places
from tilesim.records import replace
from tilesim.transforms.rewrite import Instead

#: operands that are changed together
Group = Sequence[tuple[Place, Site]]
#: a new value of an operand, or what makes it of each (None: the value stays)
Value = Any


def groups_of(
    facts: Facts, kind: Kind, key: Callable[[Place, Site], object] | None = None
) -> Iterable[Group]:
    """The operands of a kind, those together of which ``key`` is one; by itself, those that one
    line has on barriers of one array."""
    found: dict[object, list[tuple[Place, Site]]] = {}
    for place in facts.ops:
        for site in sites(place.op):
            if site.kind == kind and (kind != "phase" or getattr(place.op, "parity", True)):
                own = _line(place, site) if key is None else key(place, site)
                found.setdefault(own, []).append((place, site))
    return found.values()


def _line(place: Place, site: Site) -> object:
    """What has no line, or is a line of a list, stands for itself."""
    arrays = tuple(m.array.name for m in mbars(place.op))
    own = place.number if place.loc == UNKNOWN else None
    return place.loc, type(place.op), arrays, site.name, own


def changes(
    facts: Facts, group: Group, value: Value, size: int = 1, *, as_one: bool = False
) -> Iterator[Edit]:
    """The edit that gives the operands of a group new values; none if nothing changes."""
    new: list[tuple[Place, Instead]] = []
    said: list[str] = []
    for place, site in group:
        worth = value(place, site) if callable(value) else value
        if worth is None or worth == site.value:
            continue
        new.append((place, (to_its_scope(changed(place.op, **{site.name: worth})),)))
        said.append(f"{facts.shown(worth)} instead of {facts.shown(site.value)}")
    if new:
        place, site = group[0]
        what = f"{site.kind} {' and '.join(dict.fromkeys(said))} in {place.op.mnemonic}"
        yield of_places(what, new, size, as_one=as_one)


def to_its_scope(op: Op) -> Op:
    """An arrival on a barrier of another CTA releases to the cluster: to its own CTA alone it hands
    nothing on there. Others stay."""
    far = any(isinstance(e, fx.Arrives) and e.mbar.cta is not None for e in op.effects())
    return changed(op, scope="cluster") if far and getattr(op, "scope", "") == "cta" else op


def each(facts: Facts, group: Group, values: Iterable[Value]) -> Iterator[Edit]:
    """Every value for all operands of a line; then, if there are several, for each by itself."""
    values = list(dict.fromkeys(values))
    for value in values:
        yield from changes(facts, group, value)
    for single in group if 1 < len(group) <= _ALONE else ():
        for value in values:
            yield from changes(facts, [single], value, 2)


#: operands of one line that are also changed one by one
_ALONE = 8


#: the values that an operand of a line may have been meant to have, the likeliest first
Meant = Callable[[Facts, Focus, Group], Iterable[Value]]


def operand(kind: Kind) -> Callable[[Meant], Meant]:
    """Registers the family of a kind of operands."""

    def register(meant: Meant) -> Meant:
        @family(kind)
        def edits(facts: Facts, focus: Focus) -> Iterator[Edit]:
            for group in groups_of(facts, kind):
                yield from each(facts, group, meant(facts, focus, group))

        return meant

    return register


def _plain(kind: Kind, options: Callable[[Any], Iterable[Any]]) -> None:
    """Registers the family of operands whose new values follow from the old one alone."""
    operand(kind)(lambda facts, focus, group: options(group[0][1].value))


# ------------------------------------------------------------------ counts and bytes


@operand("count")
def _count(facts: Facts, focus: Focus, group: Group) -> Iterable[Value]:
    """Init counts: what arrives in a phase, one more or less, what other barriers have."""
    place, site = group[0]
    known = constant(site.value)
    if known is None:
        return []
    counts = [*_arriving(facts, place), *focus.arrivals, known - 1, known + 1]
    counts += [known * 2, known // 2, 1, *(len(p.warps) for p in facts.ops)]
    return [Const(n) for n in counts if n > 0]


def _arriving(facts: Facts, init: Place) -> Iterator[int]:
    """How many arrivals a phase of a barrier may have, by the warps that arrive on it."""
    for mbar in mbars(init.op):
        by_role = [n for n, _ in arriving(facts, mbar.array.name).values()]
        yield total(facts, mbar.array.name)
        size = facts.kernel.cluster_size
        for factor in (1, size) if size > 1 else (1,):
            yield sum(by_role) * factor
            yield from sorted({n * factor for n in by_role})


def _numbers(old: Expr, *others: int) -> Iterable[Expr]:
    known = constant(old)
    return [] if known is None else [Const(n) for n in (known - 1, known + 1, *others) if n > 0]


_plain("arrivals", lambda old: _numbers(old, 1, LANES))
#: how many groups may stay unfinished; whether only a store's source is waited for
_plain("pending", lambda n: [m for m in (n - 1, n + 1, 0, n - 2) if m >= 0])
_plain("read", lambda read: [not read])
#: registers per thread: what fits
_plain("registers", lambda n: [m for m in (*range(n - 8, n - 97, -8), *range(n + 8, n + 33, 8))
                               if 24 <= m <= 256])  # fmt: skip


@operand("bytes")
def _bytes(facts: Facts, focus: Focus, group: Group) -> Iterable[Value]:
    """Expected bytes: those of the copies that complete on the barrier, and what was counted."""
    place, site = group[0]
    if site.value is None:
        return []
    known, sums = constant(site.value), list(copied(facts, place))
    if known is None:
        return map(Const, sums)
    sums += [*focus.bytes, *(known + n for n in focus.bytes), known * 2, known // 2]
    sums += [known - n for n in focus.bytes]
    return [Const(n) for n in sums if n > 0]


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


@operand("phase")
def _phase(facts: Facts, focus: Focus, group: Group) -> Iterable[Value]:
    """Parities: the other one, one that never or always turns, those that may be meant there; waits
    of one line have registers of their own."""
    meant = {p.number: parities_at(facts, p, mbars(p.op)) for p, _ in group}

    def nth(n: int) -> Value:
        return lambda place, site: next(iter(meant[place.number][n:]), None)

    longest = max(map(len, meant.values()))
    return [lambda p, s: flipped(s.value), Const(0), Const(1), *map(nth, range(longest))]


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
    for group in groups_of(facts, "barrier"):
        values = [_indexed(facts, index) for index in _indices(facts, group[0][0])]
        values += [_moved(-1), _moved(1)]
        values += [_in(array) for array in facts.kernel.shared if isinstance(array, Mbarriers)]
        yield from each(facts, group, values)
        for place, site in group[1:_ALONE]:  # in another role the same line has other registers
            for index in _indices(facts, place):
                yield from changes(facts, [(place, site)], _indexed(facts, index), 2)


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
                yield of_places(f"{what} in {place.op.mnemonic}", [(place, (new,))], 1)


@family("number")
def _number(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Slots and parities by a number that runs on over all loops around, where they count one
    loop's turns."""
    inner = (p for p in facts.ops if len(p.loops) > 1)
    new: list[tuple[Place, Instead]] = [
        (place, (op,)) for place in inner if (op := _counted_on(place)) is not None
    ]
    if new:
        what = "slots and parities by a number that runs on over all loops, in every role"
        yield of_places(what, new, 2, as_one=True)


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
    ranks = [_ranked(Const(n)) for n in range(min(size, 8))]
    for group in groups_of(facts, "barrier"):
        yield from each(facts, group, [*ranks, _ranked(None)])
    # copies in one block that complete their bytes on the same barrier
    blocks = {p.number: n for n, block in enumerate(facts.blocks) for p in block}
    for group in groups_of(facts, "barrier", lambda p, s: (blocks[p.number], repr(s.value))):
        copies = [(p, s) for p, s in group if has(p, fx.Completes)]
        if len({p.loc for p, _ in copies}) > 1:
            for rank in ranks:
                yield from changes(facts, copies, rank, as_one=True)


def _ranked(cta: Expr | None) -> Value:
    return _of_mbar(lambda place, mbar, array: replace(mbar, cta=cta))


@operand("mask")
def _mask(facts: Facts, focus: Focus, group: Group) -> Iterable[Value]:
    """Which CTAs a multicast reaches: all, fewer or more, those of others."""
    size, old = facts.kernel.cluster_size, group[0][1].value
    if size == 1:
        return
    whole = (1 << size) - 1
    yield Const(whole)
    if isinstance(old, Expr):
        yield from (simple(binary("^", old, 1 << n)) for n in range(min(size, 8)))
        yield binary("&", old, whole)
    yield from (g[0][1].value for g in groups_of(facts, "mask") if g[0][1].value is not None)


# ------------------------------------------------------------------ small numbers and names


@family("threads")
def _threads(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """How many threads a named barrier waits for: of all users of a barrier, of all barriers, of
    one line."""
    by_id = [*groups_of(facts, "threads", lambda p, s: getattr(p.op, "id", None))]
    every = [pair for users in by_id for pair in users]
    given = [(p, s) for p, s in every if _said(s)]
    levels = [(users, 1, True) for users in by_id]
    levels += [(given, 2, True)] if len(by_id) > 1 else []
    levels += [(g, 1, False) for g in groups_of(facts, "threads") if len(g) < len(every)]
    for users, size, as_one in levels:
        for n in _counts(users, every):
            yield from changes(facts, users, Const(n), size, as_one=as_one)


def _counts(users: Group, every: Group) -> Iterable[int]:
    """How many threads may be meant: those of the warps that come, twice or half of what is said,
    what others say."""
    counts = [LANES * len({w for p, _ in users for w in p.warps})]
    counts += sorted(LANES * len(p.warps) for p, _ in users)
    said = [n for _, s in users if (n := _said(s))]
    counts += [*(n * 2 for n in said), *(n // 2 for n in said)]
    counts += [n for _, s in every if (n := _said(s))]
    return dict.fromkeys(n for n in counts if n and not n % LANES)


def _said(site: Site) -> int | None:
    """The number of threads that an operand says; None: all of the CTA, or the run says it."""
    return None if site.value is None else constant(site.value)


@family("id")
def _id(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Which named barrier: one that others use, a free one, one for every other turn."""
    used = [*groups_of(facts, "id", lambda p, s: s.value)]
    values = [users[0][1].value for users in used]
    free = free_id(facts)
    for group in groups_of(facts, "id"):
        yield from each(facts, group, values)
    for users in used:
        apart = free - (constant(users[0][1].value) or 0)
        yield from changes(facts, users, _by_iteration(apart), as_one=True)
    for group in groups_of(facts, "id"):
        yield from changes(facts, group, Const(free))


def free_id(facts: Facts) -> int:
    """The first named barrier, of 1 to 15, that is not used."""
    used = {constant(users[0][1].value) for users in groups_of(facts, "id", lambda p, s: s.value)}
    return next((n for n in range(1, 16) if n not in used), 15)


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
    scopes = ("cluster", "gpu", "cta") if facts.kernel.cluster_size > 1 else ("gpu", "cta")
    for group in groups_of(facts, "sem"):
        if group[0][1].value == "relaxed":
            yield from each(facts, group, _strong(group[0][0].op))
    for group in groups_of(facts, "scope"):
        yield from each(facts, group, scopes)
    for group in groups_of(facts, "aligned"):
        yield from each(facts, group, [not group[0][1].value])


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
    by_size = [*groups_of(facts, "columns", lambda p, s: s.value)]
    for users in by_size:
        old = users[0][1].value
        for new in sorted((1 << n for n in range(5, 10)), key=lambda n: abs(n - old)):
            yield from changes(facts, users, new, as_one=True)
    for group in groups_of(facts, "columns"):
        yield from each(facts, group, [users[0][1].value for users in by_size])


@family("arrival")
def _arrival(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Arrivals with and without bytes, bytes with and without an arrival, commits: every option for
    all instructions that one line makes."""
    for places in by_line(facts.ops):
        for choice in zip(*(_arrivals(facts, p.op, p) for p in places), strict=False):
            new: list[tuple[Place, Instead]] = [
                (p, (op,)) for p, op in zip(places, choice, strict=True)
            ]
            what = f"{_brief(choice[0])} instead of {places[0].op.mnemonic}"
            yield of_places(what, new, 2)


def _brief(op: Op) -> str:
    bytes_ = getattr(op, "bytes", None)
    return f"{op.mnemonic} of {bytes_} bytes" if bytes_ is not None else op.mnemonic


def _arrivals(facts: Facts, op: Op, place: Place) -> Iterator[Op]:
    match op:
        case MbarrierArrive(mbar=mbar, sem=sem, scope=scope, token=token, loc=loc):
            for n in copied(facts, place):
                yield MbarrierArriveExpectTx(
                    mbar=mbar, bytes=Const(n), sem=sem, scope=scope, token=token, loc=loc
                )
            issued = {e.group for p in facts.ops for e in effects_of(p) if isinstance(e, fx.Issues)}
            if "tcgen05" in issued and not mbar.remote:
                yield Tcgen05Commit(mbar=mbar, loc=loc)
        case MbarrierExpectTx(mbar=mbar, bytes=bytes_, scope=scope, loc=loc):
            yield MbarrierArriveExpectTx(mbar=mbar, bytes=bytes_, scope=scope, loc=loc)
        case MbarrierArriveExpectTx(mbar=mbar, sem=sem, scope=scope, token=token, loc=loc):
            if token is None:
                yield MbarrierExpectTx(mbar=mbar, bytes=op.bytes, scope=scope, loc=loc)
            yield MbarrierArrive(mbar=mbar, sem=sem, scope=scope, token=token, loc=loc)
        case Tcgen05Commit():
            yield replace(op, cta_group=1 if op.cta_group == 2 else 2)
        case _:
            pass


#: the rule that accesses outside of an allocation break
_RULE = "out-of-bounds"


def _out(facts: Facts, focus: Focus) -> Iterator[Place]:
    """The instructions that leave their allocation."""
    if focus.rule == _RULE:
        yield from (p for p in facts.ops if focus.distance(p) == 0)


def _views(op: Op) -> dict[str, View]:
    """By name, the operands that are boxes of tensors."""
    found = {name: getattr(op, name) for name in operand_names(type(op))}
    return {
        name: view for name, view in found.items()
        if isinstance(view, View) and not isinstance(view.tensor, AddressedTensor)
    }  # fmt: skip


@family("edge")
def _edge(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Nothing beyond the end: elements only where they are inside, of a box at the edge the part
    that is."""
    for place in _out(facts, focus):
        for name, view in _views(place.op).items():
            if view.tensor.name not in focus.names:
                continue
            ends = [
                (dim, binary("+", offset, extent), size)
                for dim, (offset, extent, size) in enumerate(
                    zip(view.offsets, view.extents, view.tensor.shape, strict=True)
                )
                if constant(offset) is None
            ]  # fmt: skip
            if not ends:
                continue
            inside = reduce(all_of, (binary("<=", end, size) for _, end, size in ends))
            what = f"{place.op.mnemonic} if {facts.shown(inside)}"
            rest: tuple[Stmt, ...] = ()
            if any(view.extents[dim] > 1 for dim, _, _ in ends):
                part = _part(place.op, name, [dim for dim, _, _ in ends])
                if part is None:
                    continue
                rest = (part,)
                what += f", else {facts.shown(_views(part)[name])}"
            region = If(cond=inside, then=(place.op,), orelse=rest, loc=place.loc)
            yield of_places(what, [(place, (region,))], 2)


def _part(op: Op, name: str, dims: Sequence[int]) -> Op | None:
    """An instruction with the part of a box at the edge that is inside of its tensor; None if there
    is more than one edge, or none that all boxes there have."""
    view = _views(op)[name]
    partial = [d for d in dims if view.tensor.shape[d] % view.extents[d]]
    if len(partial) != 1:
        return None
    (dim,) = partial
    rest = view.tensor.shape[dim] % view.extents[dim]
    return _narrowed(op, name, dim, None, rest)


@family("rows")
def _rows(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A copy of one range, of a box that is none: a copy for each of its rows."""
    for place in _out(facts, focus):
        if not has(place, fx.Reads, asynchronous=True):
            continue
        for name, view in _views(place.op).items():
            full = [e == s for e, s in zip(view.extents, view.tensor.shape, strict=True)]
            outer = [d for d in range(len(full)) if view.extents[d] > 1 and not all(full[d + 1 :])]
            if len(outer) != 1:
                continue
            row = Var(facts.fresh("row"), s32)
            single = _narrowed(place.op, name, outer[0], row, 1)
            if single is None:
                continue
            loop = For(
                var=row, start=Const(0), stop=Const(view.extents[outer[0]]), step=Const(1),
                body=(single,), loc=place.loc,
            )  # fmt: skip
            what = f"{place.op.mnemonic} of each of {view.extents[outer[0]]} rows"
            edit = of_places(what, [(place, (loop,))], 2)
            yield replace(edit, variables=(row,))


def _narrowed(op: Op, name: str, dim: int, by: Expr | None, extent: int) -> Op | None:
    """An instruction all of whose boxes are ``extent`` wide where one is wider, from ``by`` on;
    None if the others have no such dimension."""
    views = _views(op)
    which = [d for d, e in enumerate(views[name].extents) if e > 1].index(dim)
    new: dict[str, View] = {}
    for other, view in views.items():
        wide = [d for d, e in enumerate(view.extents) if e > 1]
        if which >= len(wide) or view.extents[wide[which]] != views[name].extents[dim]:
            return None
        there = wide[which]
        offsets, extents = list(view.offsets), list(view.extents)
        extents[there] = extent
        if by is not None:
            offsets[there] = binary("+", offsets[there], by)
        new[other] = replace(view, offsets=tuple(offsets), extents=tuple(extents))
    return changed(op, **new)
