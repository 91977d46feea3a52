"""What each effect of an instruction does, when lanes of a warp execute it.

`execute` returns the lanes that are through with the instruction: none if it has to wait. There is
one function per kind of effect; a kind without one is not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import lcm
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import Fragment, Unsaid, View
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Select, Unary, Var
from tilesim.ir.fragments import Held, layout_of
from tilesim.ir.op import Rearranges
from tilesim.proof import tensor_memory as tmem
from tilesim.proof.counters import Increment, Wait, Word
from tilesim.proof.machine import (
    Bits,
    Change,
    Execution,
    Group,
    Issued,
    Piece,
    Warp,
    coordinates,
    is_set,
)
from tilesim.proof.many import ALL_LANES, UNKNOWN, Many
from tilesim.proof.memory import Bytes, Names, Record, Strong, all_apart
from tilesim.proof.moving import at_view
from tilesim.proof.operands import (
    LANES,
    Address,
    Answer,
    Asked,
    Chosen,
    Drawn,
    Handed,
    MbarrierAt,
    Named,
    Place,
    Scalar,
    Value,
    answered,
    asked,
    cut,
    handed,
    lane_of,
    local,
    need,
    seen,
)
from tilesim.proof.order import Knowledge, Lanes, Row, merged
from tilesim.proof.phases import (
    Credit,
    Look,
    Mbarrier,
    NamedBarrier,
    Token,
    arrives_at_all,
)
from tilesim.proof.rules import NotCovered, Refuted, rule
from tilesim.proof.spins import Iteration

Executor = Callable[[Execution, Any], None]
X = TypeVar("X", bound=Executor)

#: what executes an effect, by its class
EXECUTORS: dict[type, Executor] = {}
#: effects that others look at, or that are hints
SILENT = (fx.Gathers, fx.GathersWarps, fx.Issues, fx.Shuffles)
#: strong reads on which something depends: a loop of them may never end
MOST_LOOKS = 1024
#: bytes that a lane stores at once, of data that may be the same as others'
MOST_NAMED = 1024
#: in which window an address is, and of which CTA, is the same wherever these begin
_OF_PLACES = ("isspacep", "getctarank")
#: bytes of an answer of launch control
_ANSWER = 16


def executes(*kinds: type) -> Callable[[X], X]:
    """Decorator: the function executes effects of these kinds."""

    def enter(function: X) -> X:
        EXECUTORS.update(dict.fromkeys(kinds, function))
        return function

    return enter


def execute(x: Execution) -> Sequence[int]:
    """An instruction. Returns the lanes that are through with it.

    Raises: Refuted: a rule does not hold; NotCovered: there is no rule for an effect of it."""
    if x.may:
        _only_accesses(x)
    if not _all_are_here(x):
        return []
    waits = x.effect(fx.Waits)
    if waits is not None and (not waits.poll or x.number in x.machine.spins):
        x.lanes, x.answers[id(waits)] = [*_wait(x, waits)], 1
        for e in x.effects if x.lanes else ():
            if isinstance(e, fx.Defines):
                _defines(x, e)
        return x.lanes
    if x.number in x.machine.iterations and not x.unless:
        x.lanes = _waits_for_word(x, x.machine.iterations[x.number])
        return x.lanes
    if x.unless and not all(isinstance(e, fx.Defines) for e in x.effects):
        raise NotCovered(f"{x.where}: an mbarrier that is polled decides whether it is executed")
    _step(x)
    _reads_registers(x)
    if x.warps:
        _by_warpgroup(x)
        return x.lanes
    for e in x.effects:
        if type(e) in EXECUTORS:
            EXECUTORS[type(e)](x, e)
        elif not isinstance(e, SILENT):
            raise NotCovered(f"{x.where}: {type(e).__name__}")
    issues = x.effect(fx.Issues)
    for one in x.issued if issues is not None else ():
        x.machine.group(issues.group, x.warp.first + one.lane).open.append(one)
        if issues.group == "tcgen05" and len(x.lanes) == 1:  # it is over as a whole
            one.record.whole = x.issued[0].record.whole
    return x.lanes


@executes(fx.Agrees)
def _agrees(x: Execution, e: fx.Agrees) -> None:
    for w in _apart(x, e.value):
        _is_shared(x, e.value, w)


def _apart(x: Execution, operand: Expr) -> Sequence[Any]:
    """The warp, and those of its shadows in which an operand may differ between lanes."""
    many = x.machine.operands.in_all(operand, x.warp)
    if many is None or (many.numbers is not None and many.numbers.shape[1] > 1):
        return x.warp.each
    return (x.warp,)


@rule("agree", "an operand that lanes share is the same in all of them")
def _is_shared(x: Execution, operand: Expr, w: Warp) -> Value:
    v = x.machine.operands
    value, executed = v.value(operand, w), v.value(operand, x.warp)
    if type(value) is int:
        return value
    row = [lane_of(value, i) for i in x.lanes]
    if len({*row}) > 1:
        raise Refuted("agree", f"{x.where}: {operand} differs between lanes")
    known = "lane" in v.names(operand) or lane_of(executed, x.lanes[0]) is not None
    if row[0] is None and len(row) > 1 and known:  # what data makes of it is not asked
        raise NotCovered(f"{x.where}: {operand}, which may differ between lanes")
    return value


@rule("region", "what data decides about computes, or accesses memory by the generic proxy")
def _only_accesses(x: Execution) -> None:
    """Each lane for itself: nothing that synchronises, is asynchronous, or ends threads.

    Raises: NotCovered: it does more."""
    waits = x.number in x.machine.iterations
    for e in x.effects:
        match e:
            case fx.Defines() | fx.Prefetches() | fx.UsesFragment(asynchronous=False, partly=True):
                pass
            case fx.Reads() | fx.Writes() if not (waits or e.asynchronous or e.held) and e.lanes:
                pass
            case _:
                raise NotCovered(f"{x.where} may be executed or not")


# ---------------------------------------------------------------------- lanes that have to be there


#: of `setmaxnreg`, which all threads of a warpgroup execute
_WHOLE_WARP = fx.Gathers(None, "E15", whole=True)
#: effects for which all threads of a warp that have not ended come together (E2, D3)
_OF_ALL = (fx.Registers, fx.JoinsBarrier, fx.JoinsCluster)
#: effects for which lanes, warps or CTAs wait for others
_OF_SEVERAL = (
    *_OF_ALL, fx.Gathers, fx.GathersWarps, fx.Cancels, fx.AllocatesTmem, fx.FreesTmem,
    fx.RelinquishesTmem,
)  # fmt: skip


def _all_are_here(x: Execution) -> bool:
    """Whether the lanes that execute the instruction together have all come to it (E2, E11)."""
    for e in x.effects if x.has(*_OF_SEVERAL) else ():
        match e:
            case fx.Gathers() if not _gathers(x, e):
                return False
            case fx.Registers() if not _gathers(x, _WHOLE_WARP):
                return False
            case fx.JoinsBarrier() | fx.JoinsCluster():
                if set(x.lanes) != x.warp.alive:
                    return False
                if e.aligned:
                    _none_passes_by(x)
            case fx.GathersWarps() if not _gathers_warps(x):
                return False
            case fx.Cancels() if not x.machine.asks():
                return False
            case fx.AllocatesTmem(pair=True) | fx.FreesTmem(pair=True) if not _meets_peer(x, e):
                return False
            case fx.RelinquishesTmem(pair=True):
                x.machine.has_started(x.warp, x.lanes, x.warp.rank ^ 1)
                if x.machine.ptx and not _meets_peer(x, e):
                    return False
    return True


@rule("E8", "an aligned barrier is executed by all lanes of its warp that have not ended")
def _none_passes_by(x: Execution) -> None:
    """One that has ended has executed nothing since it was together with these, or these know that
    it had: in no schedule they come to the barrier before it passes by."""
    w, past = x.warp, x.machine.order.past
    for i, position in w.ended.items():
        if (past[x.all, w.first + i] < position).any():
            raise Refuted(
                "E8", f"{x.where}: lane {i}, which does not execute it, may not have ended"
            )


def _step(x: Execution) -> None:
    """Positions grow, and lanes that have come together know that they have."""
    order = x.machine.order
    for w in x.warps or [x.warp]:
        g = w.lanes(x.lanes)
        if x.static(_does_more):
            order.step(g)
        # .sync waits for the lanes of each warp, not for the other warps of a warpgroup
        if x.has(*_OF_ALL):
            order.meet_in_time(g, w.lanes(range(LANES)))
        elif x.has(fx.Gathers, fx.GathersWarps):
            order.meet_in_time(g)
        _whichever_is_elected(x, w)
        if x.has(fx.Gathers) and any(isinstance(e, fx.Gathers) and e.orders for e in x.effects):
            order.meet(g)
            if len(g) == len(w.alive):
                w.apart_by.clear()


def _does_more(x: Execution) -> bool:
    """Whether an instruction does more than compute registers of registers."""
    return any(not isinstance(e, fx.Defines) or isinstance(e.value, View) for e in x.effects)


@rule("E12", "by the text, nothing depends on which lane is elected")
def _whichever_is_elected(x: Execution, w: Warp) -> None:
    """Between two meetings of its lanes, a warp executes either what its lanes do alike, but for an
    elected one, or what tells them apart otherwise; nor do these share groups or fences. What all
    know by an instruction of one of these is known by that.

    Raises: NotCovered: it does both."""
    if not x.machine.ptx:
        return
    effects = [e for e in x.effects if not isinstance(e, fx.Defines)]
    kinds = {kind for e in effects for kind in _of_thread(e)}
    known = {getattr(e, "group", "observed") for e in effects if isinstance(e, _MAKES_KNOWN)}
    alike = all(_done_alike(x, e, w) for e in effects)
    by = {"elected" if w.side else "lanes"} if effects and (w.side or not alike) else set[str]()
    apart = any(w.kinds.setdefault(kind, one) != one for kind in kinds for one in by)
    w.apart_by |= by | {w.kinds[kind] for kind in known if kind in w.kinds}
    if apart or len(w.apart_by) > 1 or (effects and w.side and not alike):
        raise NotCovered(f"{x.where}: what it does may depend on which lane is elected")


#: effects by which a thread knows what it has issued in a group, or observed by relaxed operations
_MAKES_KNOWN = (fx.Orders, fx.OrdersTmem, fx.WaitsGroup)


def _of_thread(e: fx.Effect) -> set[str]:
    """What stays with the threads that execute it, though they meet: groups, fences with relaxed
    operations, what these observe, and the order in which they issue on tensor memory."""
    found = {str(group)} if (group := getattr(e, "group", None)) else set[str]()
    relaxed = getattr(e, "sem", "") == "relaxed" and not isinstance(e, fx.Reads | fx.Writes)
    if getattr(e, "sem", "") == "relaxed" and isinstance(e, fx.Waits | fx.Reads):
        found.add("observed")
    if relaxed or isinstance(e, fx.Orders | fx.OrdersTmem | fx.Expects | fx.Completes):
        found.add("fence")
    issues = isinstance(e, fx.UsesTmem | fx.OrdersTmem) or any("tcgen05" in one for one in found)
    return found | {"tcgen05"} if issues else found


def _done_alike(x: Execution, e: fx.Effect, w: Warp) -> bool:
    """Whether all lanes that execute an effect do the same: all of them, or those on a side."""
    if isinstance(e, fx.Reads | fx.Writes):
        by_one = e.held is None and e.lanes in (0, LANES)
        if not by_one or (e.asynchronous and e.proxy == "generic" and not w.side):
            return False
    names = x.machine.operands.names(e)
    rows = [one.registers.get(name) for name in names for one in w.each]
    same = all(not isinstance(row, list) or len(set(row)) == 1 for row in rows)
    all_ = len(x.lanes) == LANES and not x.may
    return bool(w.side) or ("lane" not in names and same and all_)


@rule("E11", "the lanes of a member mask execute the instruction, and are all in the mask")
def _gathers(x: Execution, e: fx.Gathers) -> bool:
    w = x.warp
    masks = (dict.fromkeys(x.lanes, ALL_LANES) if e.mask is None
             else x.each(e.mask, "a member mask"))  # fmt: skip
    if e.whole and len(w.alive) < LANES:
        raise Refuted("E11", f"{x.where}: lanes of the warp have exited")
    for one in sorted(set(masks.values())):
        lanes = [i for i in x.lanes if masks[i] == one]
        members = {i for i in w.alive if one >> i & 1}
        if set(lanes) - members:
            raise Refuted("E11", f"{x.where}: a lane that is not in its mask")
        if any(one >> i & 1 for i in range(LANES) if i not in w.alive):
            raise NotCovered(f"{x.where}: lanes of a member mask that have exited")
        if set(lanes) == members:
            if w.side:
                raise NotCovered(f"{x.where}: its mask may depend on which lane is elected")
            x.lanes = lanes  # those of another mask execute it after them
            return True
    return False


@rule("F1", "the four warps of a warpgroup execute the instruction, with all their lanes")
def _gathers_warps(x: Execution) -> bool:
    w = x.warp
    first = w.number // 4 * 4
    four = [o for o in x.machine.warps if o.rank == w.rank and first <= o.number < first + 4]
    if len(four) < 4:
        raise Refuted("F1", f"{x.where}: a warpgroup of {len(four)} warps")
    here = [len(o.alive) == LANES and not o.blocked and set(o.at) == {x.number} for o in four]
    if not all(here):
        return False
    x.warps = four
    for o in four:
        x.machine.together(o, list(range(LANES)))
        o.at = [x.number + 1] * LANES
    return True


# ---------------------------------------------------------------------- registers


def _reads_registers(x: Execution) -> None:
    """The registers that an instruction reads have to be set before, data that lanes take from each
    other where it is taken."""
    own, taken = x.static(_registers_read)
    for w in x.warps or [x.warp]:
        for name, lanes in own:
            is_set(w, name, [i for i in x.lanes if i < lanes], x.where, x.unless)
        differ = taken and x.machine.operands.may_differ(x.op, w)
        for one, name in [(o, n) for o in (w.each if differ else (w,)) for n in taken]:
            try:
                is_set(w, name, _taken_from(x, one), x.where, x.unless)
            except Refuted as unset:  # which matters only where something depends on it
                raise NotCovered(unset.what) from None


def _registers_read(x: Execution) -> tuple[list[tuple[str, int]], list[str]]:
    """The registers of which lanes read their own, each with how many lanes do, from the first on:
    those that name rows of a matrix; and those of which they take each other's."""
    v, op = x.machine.operands, x.op
    names, own = v.sources(op), v.sources(op)
    if op.exchanges or x.effect(fx.Shuffles) is not None:
        fields = op.__dataclass_fields__.keys() - op.data
        own = v.names(tuple(getattr(op, name) for name in fields)) & names
    accesses = [e for e in op.effects() if isinstance(e, fx.Reads | fx.Writes) and e.lanes]
    accesses.sort(key=lambda e: e.lanes)
    rows = {name: e.lanes for e in accesses for name in v.names(e.view.operands)}
    read = [(name, rows.get(name, LANES)) for name in sorted(own - {"", "lane"})]
    return read, sorted(names - own - {"", "lane"})


def _taken_from(x: Execution, w: Any) -> Sequence[int]:
    """The lanes whose data others get; all of them, if data decides which."""
    if (e := x.effect(fx.Shuffles)) is not None:
        known = [n for n in _lanes_named(x, e, w).values() if n is not None]
        return known if len(known) == len(x.lanes) else x.lanes
    try:
        there: Any = x.op.source_lanes(_Inputs(x, w, blank=False))
    except _Unknown:
        return x.lanes
    return [int(i) for i in there[x.lanes]]


@executes(fx.Defines)
def _defines(x: Execution, e: fx.Defines) -> None:
    v, w = x.machine.operands, x.warp
    what = x.op if e.value is None else e.value
    if isinstance(e.value, fx.Shuffles):
        what = (e.value.value, e.value.lane)  # type: ignore[assignment]
    apart = v.may_differ(what, w) and not isinstance(e.value, fx.Arrives | fx.Elects)
    apart |= v.launches and (e.value is None or isinstance(e.value, View | fx.Queries))
    each = w.each if apart or e.var.name in w.differing else (w,)
    made = _made_of_loads(x, e)
    if v.follows and x.sources is None:  # before the first of them is set
        x.sources = _made_of(x)
    many = _in_all(x, e) if len(each) > 1 else None
    results = [_defined(x, e, one if apart else w) for one in each] if many is None else []
    if many is not None:
        w.hold_many(e.var.name, many)
    for one, result in zip(reversed(each), reversed(results), strict=False):
        v.assign(one, e.var, _in_both_cases(x, e, one, result), x.lanes)
    w.has_set(e.var.name, [i for i in x.lanes if i not in x.unless])
    w.set_behind |= {(e.var.name, i): look for i, look in x.unless.items()}
    if e.value is None and not (e.oracle or e.unknown or e.elsewhere):
        for row in x.computed.values():
            del row[:1]
    if x.sources is not None:
        names = w.names.setdefault(e.var.name, [None] * LANES)
        for i in x.lanes:
            of = x.sources[i]
            names[i] = None if of is None else x.machine.name((e.var.name, of))
    w.made.pop(e.var.name, None)
    if made:
        w.made[e.var.name] = made
    if len(results) > 1:
        w.hold(e.var.name, [one.registers.get(e.var.name) for one in each])


def _in_all(x: Execution, e: fx.Defines) -> Many | None:
    """What a register is in a warp and its shadows, if arrays can have it."""
    v, w, found = x.machine.operands, x.warp, None
    data = e.oracle or e.unknown or e.elsewhere or _is_data(x, e.value)
    if data and not (w.side or w.detours or v.family is not None or v.launches):
        found = UNKNOWN
    elif isinstance(e.value, Expr) and x.op.mnemonic not in _OF_PLACES:
        found = v.in_all(e.value, w)
    return None if found is None or x.unless else v.assigned(w, e.var, found, x.lanes)


def _is_data(x: Execution, view: object) -> bool:
    """Whether what is loaded is not known, wherever it is in global memory."""
    return isinstance(view, View) and view.space == "global" and not x.machine.any_given


def _made_of(x: Execution) -> list[Hashable]:
    """By lane, of which data an instruction makes what it sets, if its operands and what it finds
    in memory say all of it; where lanes execute it together, those of all of them."""
    v, decide = x.machine.operands, x.machine.deciding
    told = all(map(_is_told, x.effects)) and not getattr(x.op, "partly", False)
    told &= not (x.unless or x.may)
    told &= any(isinstance(e, fx.Defines) and e.var.name not in decide for e in x.effects)
    operands = v.parts(x.op) if told else ()
    if not operands and not (told and x.found):
        return [None] * LANES
    found: list[Hashable] = [tuple(x.found.get(i, ())) for i in range(LANES)]
    rows = _joined([found, *(_same_value(x, one, n) for n, one in enumerate(operands))])
    if x.effect(fx.Gathers) is not None or x.effect(fx.Shuffles) is not None:
        if None in rows or len(x.lanes) < LANES:
            return [None] * LANES
        rows = [(x.machine.name((x.number, *rows)), i) for i in range(LANES)]
    return [row and (x.number, row) for row in rows]


def _is_told(e: fx.Effect) -> bool:
    """Whether operands and memory may say what an instruction sets."""
    match e:
        case fx.Defines(oracle="", elsewhere=False, group=None, value=value):
            return value is None or isinstance(value, Expr | View | fx.Shuffles)
        case fx.Reads(sem="weak", proxy="generic", asynchronous=False, elsewhere=False):
            return e.lanes > 0
    return isinstance(e, fx.Gathers | fx.Shuffles)


def _joined(rows: Sequence[list[Hashable]]) -> list[Hashable]:
    """By lane, all of what several rows have there; None: one of them has nothing."""
    return [None if None in row else row for row in zip(*rows, strict=True)]


def _same_value(x: Execution, e: Expr, number: int) -> list[Hashable]:
    """By lane, what an operand is, with its number among several: numbers that are known, in each
    cluster of the class, or data that has a name, or what is made of these (H23)."""
    v, w, rows = x.machine.operands, x.warp, list[Hashable]([None] * LANES)
    numbers = _numbers_in_all(x, e)
    match e:
        case Var(name):
            rows = [*w.names.get(name, rows)]
        case Const() | ScalarParam():
            rows = [(number,)] * LANES
        case Unary() | Binary() | Select():
            parts = v.parts(e)
            rows = _joined([_same_value(x, one, n) for n, one in enumerate(parts)])
            rows = [row and (number, row) for row in rows]
    return [one or row for one, row in zip(numbers, rows, strict=True)]


def _numbers_in_all(x: Execution, e: Expr) -> list[Hashable]:
    """By lane, the numbers that an operand is in all clusters of the class, if these are known."""
    v, w = x.machine.operands, x.warp
    many = v.in_all(e, w) if v.may_differ(e, w) else None
    if many is None:
        values = [v.value(e, one) for one in (w.each if v.may_differ(e, w) else (w,))]
        width = LANES if list in map(type, values) else 1
        rows = [_numbers([lane_of(one, i) for one in values]) for i in range(width)]
        return rows * (LANES // width)
    if many.numbers is None:
        return [None] * LANES
    columns = np.broadcast_to(many.numbers.T, (LANES, len(many.numbers)))
    same, base = (columns == columns[:, :1]).all(1), many.base or None
    return [((int(one[0]) if alike else one.tobytes(), base),) if many.lanes >> i & 1 else None
            for i, (one, alike) in enumerate(zip(columns, same, strict=True))]  # fmt: skip


def _numbers(found: Sequence[Scalar]) -> Hashable:
    """What is the same wherever memory lies: numbers, and addresses by what they count from."""
    bases = [x.base if isinstance(x, Address) else None for x in found]
    known = all(type(x) is int or base for x, base in zip(found, bases, strict=True))
    return (*zip(found, bases, strict=True),) if known else None


def _made_of_loads(x: Execution, e: fx.Defines) -> frozenset[tuple[Any, str]]:
    """Of which registers that loads of tensor memory have set a register is made from now on, in
    all lanes: loads, and names (U33). One of several results need not be made of all sources, nor
    one of the registers for which a variable stands."""
    w = x.warp
    if e.group == "tcgen05.ld" and not x.machine.ptx:
        load = x.machine.group(e.group, w.first).open[-1].record.tmem
        if len(load.lanes) == LANES:
            load.left.add(e.var.name)
            return frozenset({(load, e.var.name)})
    if not w.made or len(x.effects) > 1 or getattr(x.op, "partly", False) or x.may:
        return frozenset()
    v = x.machine.operands
    names = v.sources(x.op)
    made = frozenset[tuple[Any, str]]().union(*(w.made.get(name, ()) for name in names))
    everywhere = len(x.lanes) == LANES and not x.unless
    return made if everywhere else made & w.made.get(e.var.name, frozenset())


def _stores_what_is_loaded(x: Execution, e: fx.Writes, places: Sequence[Named]) -> None:
    """All lanes store registers that tcgen05.ld has set, or what is made of them, where others may
    see it (U33)."""
    m, w = x.machine, x.warp
    own = any(p.place[0] == "global" and m.tensors[str(p.place[1])].private for p in places)
    if own or e.asynchronous or e.proxy != "generic" or e.combine or len(x.lanes) < LANES:
        return
    positions = m.order.position[x.all].tolist()
    for field in x.op.data:
        for name in m.operands.names(getattr(x.op, field)):
            for load, register in w.made.get(name, ()):
                load.stores(register, x.all.tolist(), positions)


def _in_both_cases(x: Execution, e: fx.Defines, w: Any, value: Value) -> Value:
    """What a register is where lanes execute the instruction if a poll has answered no."""
    if not x.unless:
        return value
    row, old = [lane_of(value, i) for i in range(LANES)], seen(w.registers.get(e.var.name), w)
    for i, look in x.unless.items():
        yes, no = answered(lane_of(old, i), look, yes=True), answered(row[i], look, yes=False)
        row[i] = asked(look, yes, no)
    return row


def _defined(x: Execution, e: fx.Defines, w: Any) -> Value:
    """What a register becomes in a warp, or in its shadow in another cluster."""
    if e.oracle or e.unknown or e.elsewhere:
        return None
    match e.value:
        case None:
            row = x.computed.setdefault(id(w), _compute(x, w) if id(w) not in x.computed else [])
            return row[0] if row else None
        case View():
            return _load(x, e.value, w)
        case fx.Shuffles():
            return _shuffle(x, e.value, w)
        case fx.Queries():
            return _queried(x, e.value, w)
        case Expr():
            found = x.machine.operands.value(e.value, w)
            if x.op.mnemonic not in _OF_PLACES:
                return found
            (address,) = x.machine.operands.parts(x.op)
            at = x.machine.operands.value(address, w)
            return [_without_base(x, lane_of(found, i), lane_of(at, i)) for i in range(LANES)]
        case effect:
            return x.answers.get(id(effect))


class _Unknown(Exception):
    """An operand that is not known."""


class _Inputs:
    """What an instruction computes with (`tilesim.ir.op.Inputs`), as far as it is known."""

    time = 0

    def __init__(self, x: Execution, w: Any, *, blank: bool) -> None:
        self._x, self._w = x, w
        self._blank = [getattr(x.op, name) for name in x.op.data] if blank else []
        self.active = np.zeros(LANES, bool)
        self.active[x.lanes] = True
        #: whether an operand is computed of where shared memory begins
        self.local = False

    def lanes(self, operand: Expr) -> NDArray[Any]:
        """An operand in each lane."""
        value, op = self._x.machine.operands.value(operand, self._w), self._x.op
        row = [lane_of(value, i) for i in range(LANES)]
        known = [int(y) if isinstance(y, int) else 0 for y in row]
        exchanged = op.exchanges and any(operand is getattr(op, name) for name in op.data)
        active = [row[i] for i in (_taken_from(self._x, self._w) if exchanged else self._x.lanes)]
        unknown = any(type(y) is not int and not local(y) for y in active)
        if unknown and not any(operand is one for one in self._blank):
            raise _Unknown
        self.local |= any(map(local, active))
        return np.array(known, np.uint64 if max(known) >> 63 else np.int64)

    def number(self, _operand: Expr) -> None:
        """Nothing at once: `lanes` has it."""

    def memory(self, view: View) -> NDArray[Any]:
        """What each lane finds at a view, where stores have left numbers."""
        x, reads = self._x, self._x.effect(fx.Reads)
        if reads is None or not any(type(one) is int for one in x.words.values()):
            raise _Unknown
        found = _lies_at(x, view, self._w)
        if any(type(found[i]) is not int for i in x.lanes if i < reads.lanes):
            raise _Unknown
        held = b"".join((one or 0).to_bytes(view.nbytes, "little") for one in found)
        return np.frombuffer(held, numpy_dtype(view.dtype)).reshape(LANES, -1)

    def __getattr__(self, name: str) -> Any:
        raise _Unknown  # tiles: data


def _compute(x: Execution, w: Any, *, blank: bool = False) -> list[Value]:
    """The results of an instruction, in order; none if they are not known. ``blank``: of what it
    makes with 0 in place of data, whether that is defined."""
    inputs = _Inputs(x, w, blank=blank)
    try:
        if x.op.unspecified(inputs):
            return []
        found = x.op.evaluate(inputs)
    except (_Unknown, NotImplementedError):
        if (answers := _answers_in(x)) is not None:
            return [[y and y._replace(half=n) for y in answers] for n in range(2)]
        if blank:
            raise NotCovered(f"{x.where}: data decides of which lane a value is") from None
        if len(x.lanes) < LANES and x.effect(fx.Gathers) is not None:
            _compute(x, w, blank=True)
        return []
    except Exception as why:  # the definition refuses the operands
        raise NotCovered(f"{x.where}: {why}") from why
    kind = Drawn if inputs.local else int
    return [seen(_integers(row, kind), w) for row in found]


def _without_base(x: Execution, found: Scalar, at: Scalar) -> Scalar:
    same = isinstance(at, Address) and x.machine.operands.is_inside(at)
    return int(found) if isinstance(found, Drawn) and same else found


def _integers(row: Any, kind: type[int]) -> Value:
    if isinstance(row, np.ndarray) and row.shape == (LANES,) and row.dtype.kind != "f":
        return [kind(y) for y in row.tolist()]
    if isinstance(row, np.ndarray) and row.ndim == 2 and len(row) == LANES:  # what lanes store
        return [kind(int.from_bytes(y.tobytes(), "little")) for y in row]
    return kind(row) if isinstance(row, int | np.integer) else None


@rule("E27", "a lane gets a value of a lane that executes the shuffle as well")
def _shuffle(x: Execution, e: fx.Shuffles, w: Any) -> Value:
    """PTX 9.7.9.6.

    Raises: Refuted: a lane names one that does not."""
    values, found = x.machine.operands.value(e.value, w), list[Scalar]([None] * LANES)
    for i, source in _lanes_named(x, e, w).items():
        if source is None and len(x.lanes) < LANES:
            raise NotCovered(f"{x.where}: data decides of which lane a value is")
        if source is None:
            continue
        if source not in x.lanes:
            raise Refuted("E27", f"{x.where}: lane {i} names lane {source}")
        value = lane_of(values, source)
        found[i] = None if isinstance(value, Chosen) else value
    return found


def _lanes_named(x: Execution, e: fx.Shuffles, w: Any) -> dict[int, int | None]:
    """By lane, the one whose value it gets; None: data decides."""
    far, named = x.machine.operands.value(e.lane, w), dict[int, int | None]()
    for i in x.lanes:
        n = lane_of(far, i)
        if type(n) is int:
            n &= LANES - 1
            n = {"idx": n, "up": i - n, "down": i + n, "bfly": i ^ n}[e.mode]
            n = n if 0 <= n < LANES else i
        named[i] = n if type(n) is int else None
    return named


def _load(x: Execution, view: View, w: Any) -> Value:
    """The integer that a load or atomic finds where no order gives another, or nothing writes."""
    bits = [None] * LANES if view.dtype.kind == "float" else _lies_at(x, view, w)
    return [_as_loaded(one, view) for one in bits]


def _lies_at(x: Execution, view: View, w: Any) -> list[Any]:
    """The bits that lanes find at a view where no order gives others, or nothing writes."""
    reads = x.effect(fx.Reads)
    plain = reads is not None and reads.sem == "weak" and x.effect(fx.Writes) is None
    found: list[Any] = [None] * LANES
    if reads is None or not (plain or x.settled):
        return found
    if w.every and view.space != "shared":
        return found
    lanes = [i for i in x.lanes if i < (reads.lanes or LANES)]
    for group, place, at, _, any_ in x.machine.operands.view(view, w, lanes):
        word = place, int(at[0, 0]), at.size
        known: Any = (
            x.words.get(word) if place[0] == "shared" else x.machine.given(str(place[1]), *word[1:])
        )
        known = known[w.index] if type(known) is tuple else known
        if len(place) == 4 and place[3] is not None:  # what lies there depends on the same number
            known = handed(known, place[3])
        for i in group:
            found[i] = None if any_ else known
    return found


def _answers_in(x: Execution) -> list[Answer | None] | None:
    """Which answer of launch control a load or query finds that reads one whole, by lane."""
    reads, queries = x.effect(fx.Reads), x.effect(fx.Queries) is not None
    found: list[Answer | None] = [None] * LANES
    if reads is None or x.may or reads.view.nbytes != _ANSWER or reads.view.space == "global":
        return None
    if not (queries or x.op.mnemonic == "ld.v"):
        return None
    for group, place, at, *_ in x.machine.operands.view(reads.view, x.warp, x.lanes):
        known = x.machine.memory(place).integer(int(at[0, 0]), _ANSWER)
        for i in group:
            found[i] = known if isinstance(known, Answer) else None
    return found


@rule("D19", "of an answer that cancels nothing, no cluster's number is asked for")
def _queried(x: Execution, e: fx.Queries, w: Any) -> Value:
    """Whether an answer has cancelled a cluster, or where the first CTA of that is: of each cluster
    that it may be, one of those for which the warp stands."""
    v = x.machine.operands
    answers: Any = _answers_in(x)
    if e.registers is not None:
        low, high = (v.value(one, w) for one in e.registers)
        halves = [(lane_of(low, i), lane_of(high, i)) for i in range(LANES)]
        answers = [p if _whole(p, q) else None for p, q in halves]
    found: list[Scalar] = [None] * LANES
    for i in x.lanes:
        answer = answers[i] if answers else None
        if not isinstance(answer, Answer):
            continue
        if e.part == "canceled":
            found[i] = int(answer.granted)
            continue
        if not answer.granted:
            raise Refuted("D19", f"{x.where}: the number of no cluster")
        at = coordinates(x.machine.program, w.cluster, 0)["xyz".index(e.part)]
        found[i] = Handed(at, answer.iteration)
    return found


def _whole(low: Scalar, high: Scalar) -> bool:
    """Whether these are the words of one answer."""
    return isinstance(low, Answer) and not low.half and high == low._replace(half=1)


@executes(fx.Queries)
def _queries(x: Execution, e: fx.Queries) -> None:
    """What it answers is defined by `_queried`."""


@executes(fx.Cancels)
def _cancels(x: Execution, _: fx.Cancels) -> None:
    if len(x.lanes) > 1:
        raise NotCovered(f"{x.where}: several lanes ask launch control at once")
    x.machine.failed = not x.machine.answer


@executes(fx.Elects)
def _elects(x: Execution, e: fx.Elects) -> None:
    if x.machine.ptx and len(x.lanes) < LANES:
        raise NotCovered(f"{x.where}: some lanes of a warp elect one")
    first = [int(i == min(x.lanes)) for i in range(LANES)]  # in practice
    x.answers[id(e)] = [Chosen(1, 0)] * LANES if x.machine.ptx else [*first]


# ---------------------------------------------------------------------- memory


def _strong(e: fx.Reads | fx.Writes) -> Strong | None:
    if e.sem != "weak":
        t, size = e.view.tensor, e.view.dtype.bytes
        return (t.multiple if isinstance(t, AddressedTensor) and t.undivided else size), e.scope
    # a reduction by a copy is relaxed, at .gpu (B12)
    combines = isinstance(e, fx.Writes) and e.combine is not None
    return (e.view.dtype.bytes, "gpu") if combines else None


def _known_form(x: Execution, e: fx.Reads | fx.Writes) -> None:
    """Raises: NotCovered: there is no rule for such an access."""
    lacking = {
        "memory of other devices": e.elsewhere,
        "the proxy of tensor maps": e.proxy == "tensormap",
        "bytes that hold nothing": isinstance(e, fx.Writes) and e.lost,
        "a matrix of which any lane may store any element":
            isinstance(e, fx.Writes) and isinstance(e.held, Unsaid),
        "bytes that are not read": isinstance(e, fx.Reads) and e.ignored is not None,
        "an access by a thread of its own":
            e.asynchronous and e.proxy == "generic" and x.effect(fx.Issues) is None,
    }  # fmt: skip
    for what, holds in lacking.items():
        if holds:
            raise NotCovered(f"{x.where}: {what}")


@executes(fx.Reads, fx.Writes)
def _accesses(x: Execution, e: fx.Reads | fx.Writes) -> None:
    _known_form(x, e)
    m, w, v = x.machine, x.warp, x.machine.operands
    lanes = _that_read(x, e) if isinstance(e, fx.Reads) else x.lanes
    lanes = [i for i in lanes if i < (e.lanes or LANES)]  # others name nothing
    of_all, move = _in_one_tensor(x, e, lanes) if w.shadows and lanes else (False, None)
    if of_all:
        return
    places = [*(own := m.operands.view(e.view, w, lanes))]
    if move is not None:
        places = [p._replace(place=("global", str(p.place[1]), w.instance, move)) for p in own]
    for s in w.shadows if e.view.space != "shared" and move is None else ():
        if s.every:
            _in_every_program(x, e, s, lanes)
            continue
        places += [p for p in m.operands.view(e.view, s, lanes) if p.place[0] == "global"]
    if w.made and isinstance(e, fx.Writes) and not x.may:
        _stores_what_is_loaded(x, e, places)
    pieces: dict[Place, list[Piece]] = {}
    for named in places:
        _aligned(x, e, named)
        if isinstance(e, fx.Reads) and e.noncoherent:
            m.memory(named.place).read_as_constant(named.bytes, x.where)
        only_read = named.place[0] == "global" and named.place[1] in m.read_only
        if only_read and isinstance(e, fx.Reads):
            m.memory(named.place).in_bounds(named.bytes, x.where)
        elif e.asynchronous or e.proxy != "generic":
            _asynchronous(x, e, named)
        elif e.lanes == 0:
            _by_warp(x, e, named)
        else:
            pieces.setdefault(named.place, []).append((named.lanes, named.bytes))
        if v.follows and isinstance(e, fx.Reads):
            _finds(x, named)
        if m.tracks(named.place) and not x.may:  # another turn may find something else
            word = named.place, int(named.bytes[0, 0]), named.bytes.size
            x.words.setdefault(word, m.memory(named.place).integer(*word[1:]))
    write, decides = isinstance(e, fx.Writes), isinstance(e, fx.Reads) and _may_decide(x, e)
    counts = write and m.iterations and e.sem != "weak" and e.lanes
    counted = [(one, m.word(one)) for one in places if counts and m.tracks(one.place)]
    for named, _ in counted:
        m.memory(named.place).words.pop(int(named.bytes[0, 0]), None)
    settled = [
        m.access(x, some, place, write, strong=_strong(e), number=_number(x, e, some),
                 names=_names_of_bytes(x, e, some),
                 adds=isinstance(e, fx.Writes) and e.combine == "add", decides=decides)
        for place, some in pieces.items()
    ]  # fmt: skip
    if isinstance(e, fx.Writes):
        _counts(x, e, counted)
    x.settled |= decides and all(settled)
    m.looks += decides
    if m.looks > MOST_LOOKS:
        raise NotCovered(f"{x.where}: more than {MOST_LOOKS} looks at words")
    sure = not _strong(e) or (all(settled) and e.element is None)
    if isinstance(e, fx.Writes) and sure and not x.may:
        _leaves(x, e, own)
    if isinstance(e, fx.Writes) and x.effect(fx.Cancels) is not None:
        for one in x.issued:
            answer = Answer(m.granted, bool(m.answer))
            m.memory(one.place).holds(int(one.record.bytes[0]), _ANSWER, answer)
        m.answer = None


def _in_one_tensor(
    x: Execution, e: fx.Reads | fx.Writes, lanes: list[int]
) -> tuple[bool, int | None]:
    """An access of global memory by a warp and its shadows at once, if they access one tensor in
    which no word is waited for. Returns whether that is all of it, as nothing writes there; if not,
    how all of them move, so that what the warp itself does says the rest (`Machine.move`)."""
    m, w, v = x.machine, x.warp, x.machine.operands
    found = None if e.view.space == "shared" else v.places(e.view, w, lanes)
    if found is None:
        return False, None
    (name, first), box = found, v.box(e.view)
    place: Place = ("global", name, w.instance)
    kept = isinstance(e, fx.Writes) or name not in m.read_only
    single = not e.asynchronous and e.proxy == "generic" and e.lanes != 0 and not _strong(e)
    move = m.move(first) if kept and single else None
    if m.tracks(place) or (kept and move is None):
        return False, None
    ends = np.array([[first.min() + box.min(), first.max() + box.max()]])
    m.memory(place).in_bounds(ends, x.where)
    issues = x.effect(fx.Issues)
    multiple = lcm(16, (issues and issues.piece) or 1) if e.asynchronous else box.size
    for rest in np.flatnonzero(np.bincount((first % multiple).reshape(-1))):
        _aligned(x, e, Named(lanes, place, box + rest, int(rest)))
    for i in lanes if v.follows and not kept else ():
        x.found.setdefault(i, []).append((name, 0))
    return not kept, move


def _in_every_program(x: Execution, e: fx.Reads | fx.Writes, s: Any, lanes: Sequence[int]) -> None:
    """An access of global memory, in all programs of a family."""
    if e.asynchronous:
        raise NotCovered(f"{x.where}: an asynchronous copy, for every value of a parameter")
    write = isinstance(e, fx.Writes) or _strong(e) is not None or e.noncoherent
    multiple = e.view.size * e.view.dtype.bytes if e.lanes else 1
    at_view(x.machine, e.view, s, lanes, write=write, multiple=multiple)


def _may_decide(x: Execution, e: fx.Reads) -> bool:
    """Whether more may depend on what a strong read of shared memory finds than what is stored."""
    kinds = [type(one) for one in x.effects]
    one = kinds.count(fx.Reads) == 1 and (fx.Writes not in kinds or len(x.lanes) == 1)
    one &= bool(e.lanes) and not e.asynchronous and e.proxy == "generic" and not x.may
    found = x.effect(fx.Defines)
    name = "" if found is None else found.var.name
    return one and e.sem != "weak" and e.view.space == "shared" and name in x.machine.deciding


def _number(x: Execution, e: fx.Reads | fx.Writes, pieces: Sequence[Piece]) -> int | None:
    """The number that each lane stores into an element of its own, in all clusters."""
    value = e.value if isinstance(e, fx.Writes) and e.element is None else None
    whole = e.view.dtype.kind in ("int", "uint") and all(len(at) == 1 for _, at in pieces)
    if x.machine.ptx or _strong(e) or not whole or not isinstance(value, Expr):
        return None
    rows = x.machine.operands.each(value, x.warp)
    found = {lane_of(row, i) for row in rows for i in x.lanes}
    numbers = [y for y in found if type(y) is int]
    return numbers[0] if len(numbers) == len(found) == 1 else None


def _finds(x: Execution, named: Named) -> None:
    """Lanes find what the last write has left in a CTA, or what a tensor begins with."""
    m, (space, where, *_) = x.machine, named.place
    given = space == "global" and where in m.read_only
    last = 0 if given else int(m.memory(named.place).changed[named.bytes].max(initial=0))
    for i in named.lanes:
        x.found.setdefault(i, []).append((where, last))


def _names_of_bytes(x: Execution, e: fx.Reads | fx.Writes, pieces: Sequence[Piece]) -> Names | None:
    """Of each byte that lanes store a number that only the same data has; negative: it has none."""
    m, op, kinds = x.machine, x.op, {type(one) for one in x.effects}
    if not m.operands.follows or x.may or not kinds <= {fx.Gathers, fx.Writes} or _strong(e):
        return None
    value = getattr(e, "value", None)
    fields = [getattr(op, f) for f in op.data] if value is None else [value]
    operands = [one for some in fields for one in (some if isinstance(some, tuple) else (some,))]
    if not operands or not all(isinstance(one, Expr) for one in operands):
        return None
    rows = [_same_value(x, one, n) for n, one in enumerate(operands)]
    if isinstance(op, Rearranges):  # halves of registers, of any lane
        halves = np.arange(2 * LANES * op.count).reshape(op.count, LANES, 2)
        stored = op.rows([one[:, 0] | one[:, 1] << 16 for one in halves]).astype(int).tolist()
        parts = [[(rows[h // 64][h // 2 % LANES], h % 2) for h in row] for row in stored]
    else:
        parts = [[(row, 0)] for row in _joined(rows)]
    size = pieces[0][1].size // len(parts[0])
    if size > MOST_NAMED or (fx.Gathers in kinds and not isinstance(op, Rearranges)):
        return None
    names = [[-1 if one is None else m.name((one, part)) for one, part in row] for row in parts]
    found = np.array(names)[..., None] * MOST_NAMED + np.arange(size)
    return np.concatenate([found[i].reshape(-1) for some, _ in pieces for i in some])


@rule("H15", "what an access moves at once is one piece at a multiple of its size")
def _aligned(x: Execution, e: fx.Reads | fx.Writes, named: Named) -> None:
    """Vectors of lanes (H15), pieces of cp.async (C1), bulk copies, answers of launch control and
    tiles (B6, B10, D18, U10)."""
    issues, at, right = x.effect(fx.Issues), named.bytes, True
    if not e.asynchronous:
        right = not e.lanes or len(at) <= 1 or _one_piece(at, at.size)
    elif issues is not None and issues.piece:
        right = not (at.reshape(-1, issues.piece)[:, 0] % issues.piece).any()
    elif e.proxy == "async" and "tensor" in x.op.mnemonic:
        right = named.place[0] != "shared" or named.first % 128 == 0
    elif e.proxy == "async" and ("bulk" in x.op.mnemonic or x.effect(fx.Cancels) is not None):
        right = _one_piece(at, 16)
    if not right:
        raise Refuted("H15", f"{x.where}: byte {named.first} of {named.place}")


def _one_piece(at: Bytes, multiple: int) -> bool:
    """Whether bytes are one range at a multiple of so many, and as many of them."""
    flat = at.reshape(-1)
    whole = not (np.diff(flat) != 1).any()
    return whole and (not flat.size or flat[0] % multiple == flat.size % multiple == 0)


def _by_warp(x: Execution, e: fx.Reads | fx.Writes, named: Named) -> None:
    """A tile, or a store by the warp as one, which is over for each of its lanes."""
    group, place, at, *_ = named
    m, w, write, holders = x.machine, x.warp, isinstance(e, fx.Writes), None
    if write:
        _distinct(x, at)
    if isinstance(e.held, Fragment):
        if e.held.split:  # a warp has a quarter of the rows
            rows = len(at) // 4
            at = at[rows * (w.number % 4) : rows * (w.number % 4 + 1)]
        holders = _holders(x, e.held, len(at), write)
    elif write and len(group) == LANES:
        record = m.issue(x, group, place, at, True, "generic", as_one=True)
        record.ends_with(fact := m.order.new_fact(w.rank if place == ("shared", w.rank) else None))
        m.order.learn_fact(x.all.tolist(), fact, (Row.GENERIC, Row.GENERIC_GLOBAL))
        return
    m.access(x, [(group, at)], place, write, strong=_strong(e), holders=holders)


@rule("H23", "the elements of a register tile are stored to different bytes")
def _distinct(x: Execution, at: Bytes) -> None:
    if not all_apart(at):
        raise Refuted("H23", f"{x.where}: elements at one place")


def _holders(x: Execution, tile: Fragment, elements: int, write: bool) -> Sequence[Lanes]:
    """For each lane, the elements of a register tile that it accesses."""
    rows = tile.warp_shape[0]
    columns = elements // rows  # of one column, or all
    layout = layout_of(tile, lanes=tile.name in x.machine.rows_in_lanes)
    return _of_lanes(Held(layout, rows, columns, write))


@cache
def _of_lanes(held: Held) -> list[Lanes]:
    masks = np.array(held.lanes(), np.int64)
    return [np.flatnonzero(masks >> i & 1) for i in range(LANES)]


def _asynchronous(x: Execution, e: fx.Reads | fx.Writes, named: Named) -> None:
    group, place, at, *_ = named
    write, issues = isinstance(e, fx.Writes), x.effect(fx.Issues)
    if e.proxy == "generic":  # cp.async: lanes that name one box share it out, but not in PTX
        together = len(group) > 1 and _one_box(x)
        rows = at.reshape(-1, issues.piece)
        if together and not issues.shared_out:
            raise NotCovered(f"{x.where}: lanes that copy one piece to one place")
        for n, lane in enumerate(group):
            mine = rows[n :: len(group)] if together else rows
            if len(mine):
                x.machine.issue(x, [lane], place, mine, write, "generic")
        return
    if (mask := getattr(x.effect(fx.Writes), "mask", None)) is not None:  # of each 16 bytes
        masks = set(x.each(mask, "a mask of bytes").values())
        if len(masks) > 1:
            raise NotCovered(f"{x.where}: masks of bytes that differ between lanes")
        bits, flat = masks.pop(), at.reshape(-1, 1)
        at = flat[[bool(bits >> i % 16 & 1) for i in range(len(flat))]]
    for to in _destinations(x, place, group[0], write=write):
        if write:
            _to_a_peer(x, to)
        for some in [[lane] for lane in group] if write else [group]:
            _copies(x, some, to, at, write, strong=_strong(e))


@rule("B2-multicast", "a multicast copy has read its source when it has landed in all CTAs")
def _copies(
    x: Execution, lanes: Sequence[int], place: Place, at: Bytes, write: bool, **how: Any
) -> None:
    """Lanes copy the same bytes. It reads once for each CTA, so that a read is over with the
    completion there."""
    completes, parts = x.effect(fx.Completes), [(lanes, place)]
    if not write and completes is not None and completes.multicast is not None:
        parts = [([i], ("shared", cta)) for i in lanes for cta in _ctas(x, completes.multicast, i)]
    for some, ends in parts:
        x.machine.issue(x, some, place, at, write, "async", ends=ends, **how)


@rule("B.2", "a bulk copy of shared memory goes to another CTA, or to global memory")
def _to_a_peer(x: Execution, to: Place) -> None:
    reads = x.effect(fx.Reads)
    if to == ("shared", x.warp.rank) and reads is not None and reads.view.space == "shared":
        raise Refuted("B.2", f"{x.where}: into its own CTA")


def _one_box(x: Execution) -> bool:
    """Whether all lanes of a copy name one destination, as many bytes, and, if any, one source."""
    v, reads, real = x.machine.operands, x.effect(fx.Reads), x.effect(fx.Issues).real
    reading = _that_read(x, reads)
    sizes = None if real is None else v.decides(real, x.warp)
    ends = [(x.effect(fx.Writes).view, x.lanes), *([(reads.view, reading)] if reading else [])]
    return len({lane_of(sizes, i) for i in x.lanes}) == 1 and all(
        len({lane_of(v.value(part, w), i) for i in lanes}) == 1
        for end, lanes in ends for part in end.operands for w in x.warp.each
    )  # fmt: skip


@rule("C2-bytes", "cp.async reads at most as many bytes as it writes")
def _that_read(x: Execution, e: fx.Reads) -> list[int]:
    """The lanes that read; one that copies some bytes only may read any of its source."""
    issues = x.effect(fx.Issues)
    if issues is None or issues.real is None:
        return x.lanes
    real = x.each(issues.real, "a size")
    for number in real.values():
        if not 0 <= number <= e.view.nbytes:
            raise Refuted("C2-bytes", f"{x.where}: {number} of {e.view.nbytes} bytes")
    return [i for i, number in real.items() if number]


def _destinations(x: Execution, place: Place, lane: int, *, write: bool) -> list[Place]:
    """Where a copy goes that may be multicast, or works in both CTAs of a pair (G10)."""
    completes, issues = x.effect(fx.Completes), x.effect(fx.Issues)
    if place[0] != "shared":
        return [place]
    if write and completes is not None and completes.multicast is not None:
        return [("shared", c) for c in _ctas(x, completes.multicast, lane)]
    if issues is not None and issues.pair:
        return [place, ("shared", int(place[1]) ^ 1)]
    return [place]


@executes(fx.ReadsMap, fx.WritesMap)
def _through_map(x: Execution, e: fx.ReadsMap | fx.WritesMap) -> None:
    m, write = x.machine, isinstance(e, fx.WritesMap)
    combines = isinstance(e, fx.WritesMap) and e.combine is not None
    strong = (e.map.tensor.dtype.bytes, "gpu") if combines else None
    each = x.warp.each
    if len(each) > 1 and e.map.tensor.name in m.read_only:
        each = each[:1] if m.operands.starts_right_in_all(e, x.warp) else each
    for w in each:
        if w.every:
            raise NotCovered(f"{x.where}: a copy by a tensor map, for every value of a parameter")
        for group, place, at, *_ in m.operands.box_of_map(e, w, x.lanes):
            if write and not strong:
                _distinct(x, at)
            if not write and place[1] in m.read_only:
                continue
            one = not write or (not strong and _one_source(x, w, group))
            for some in [group] if one else [[lane] for lane in group]:
                _copies(x, some, place, at, write, strong=strong)


@rule("H23-copies", "in practice, lanes that copy one box to one place need no order")
def _one_source(x: Execution, w: Any, group: Sequence[int]) -> bool:
    """Whether they copy the same box of shared memory: its copies then are parts of one, which is
    over when all of them are, and comes after what all of them know."""
    views = x.machine.operands.view(x.effect(fx.Reads).view, w, group)
    return len(views) == 1 and not x.machine.ptx


@executes(fx.Prefetches)
def _prefetches(x: Execution, e: fx.Prefetches) -> None:
    """A hint, whose operand has to be what a copy could read all the same (B13)."""
    operands, each = x.machine.operands, x.warp.each
    if e.box is not None and len(each) > 1 and operands.starts_right_in_all(e.box, x.warp):
        each = each[:1]
    for w in each:
        if w.every:
            raise NotCovered(f"{x.where}: a prefetch, for every value of a parameter")
        if e.box is not None:  # what a box has outside of its tensor is not read
            operands.box_of_map(e.box, w, x.lanes)
        for named in [] if e.view is None else operands.view(e.view, w, x.lanes):
            x.machine.memory(named.place).in_bounds(named.bytes, x.where)
            if not _one_piece(named.bytes, 16):
                raise NotCovered(f"{x.where}: bytes that a bulk copy could not read")


@executes(fx.RemoteStore)
@rule("D11", "st.async and red.async write where their mbarrier is, reductions in another CTA")
def _stores_remotely(x: Execution, e: fx.RemoteStore) -> None:
    """Through the generic proxy (D13); a reduction is relaxed, at .cluster (D12)."""
    m, w, completes = x.machine, x.warp, x.effect(fx.Completes)
    strong = None if e.combine is None else (e.view.dtype.bytes, "cluster")
    for group, place, at, *_ in m.operands.view(e.view, w, x.lanes):
        ranks = {rank for _, (rank, _) in m.operands.mbarrier(completes.mbar, w, group)}
        if ranks != {place[1]} or m.program.cluster_size == 1 or (strong and place[1] == w.rank):
            raise Refuted("D11", f"{x.where}: to {place}, with an mbarrier of CTA {ranks}")
        for lane in group:
            m.issue(x, [lane], place, at, True, "generic", strong=strong)


def _leaves(x: Execution, e: fx.Writes, places: Sequence[Named]) -> None:
    """The integers that stores of lanes, or atomics, leave, where they are known, and the same in
    all clusters."""
    tracked = [one for one in places if x.machine.tracks(one.place)]
    whole = e.view.dtype.kind in ("int", "uint")
    if not tracked or e.asynchronous or isinstance(e.held, Fragment) or not whole:
        return
    v = x.machine.operands
    stored: dict[Bits, list[list[Scalar]]] = {}
    if e.value is None:
        each = _computed_to_store(x, e)
    elif isinstance(e.value, Expr):
        each = v.each(e.value, x.warp)
    else:
        each = [x.answers.get(id(e.value))]
    for group, place, at, *_ in tracked:
        word = place, int(at[0, 0]), at.size
        for row, value in zip(stored.setdefault(word, [[] for _ in each]), each, strict=True):
            row += [lane_of(value, i) for i in group]
    for word, rows in stored.items():
        left = [_bits(_combined(e, x.words.get(word), row), 8 * word[2]) for row in rows]
        same = all(one == left[0] for one in left)
        if None not in left and (same or v.launches):
            x.machine.memory(word[0]).holds(*word[1:], left[0] if same else (*left,))


def _computed_to_store(x: Execution, e: fx.Writes) -> list[Value]:
    """What lanes store of what an instruction computes of numbers, in each cluster in which it may
    be another: of vectors and matrices all bytes of a lane, as one number."""
    w, found = x.warp, list[Value]()
    if not e.lanes or e.combine or _strong(e):
        return [None]
    data = tuple(getattr(x.op, field) for field in sorted(x.op.data))
    for one in w.each if x.machine.operands.may_differ(data, w) else (w,):
        rows = _compute(x, one)
        if len(rows) != 1:
            return [None]
        found += rows
    return found


def _combined(e: fx.Writes, old: Scalar, numbers: list[Scalar]) -> Scalar:
    """What lanes leave in a word that held ``old``, in whichever order they come."""
    first = numbers[0]
    if e.combine in (None, "exch"):
        return first if all(type(n) is type(first) and n == first for n in numbers) else None
    known = [n for n in (old, *numbers) if type(n) is int]
    adds = e.combine == "add" and e.times == 1 and len(known) == 1 + len(numbers)
    return sum(known) if adds else None


def _bits(one: Scalar, bits: int) -> Scalar:
    """What a store of a value leaves in so many bits, if that is a number."""
    if isinstance(one, Handed):
        return handed(_bits(one.value, bits), one.iteration)
    return cut(one, one & ((1 << bits) - 1), bits) if isinstance(one, int) else None


def _as_loaded(bits: Scalar, view: View) -> Scalar:
    """The number that a load of the view's type finds."""
    if isinstance(bits, Handed):
        return handed(_as_loaded(bits.value, view), bits.iteration)
    if not isinstance(bits, int):
        return None
    negative = view.dtype.kind == "int" and bits >> (view.dtype.bits - 1)
    number = bits - (1 << view.dtype.bits) if negative else bits
    return cut(bits, number, view.dtype.bits)


# ---------------------------------------------------------------------- words that are waited for


def _waits_for_word(x: Execution, iteration: Iteration) -> list[int]:
    """The lanes whose wait passes have learned what it tells. What they have found is not known."""
    m, w, e = x.machine, x.warp, x.effect(fx.Reads)
    v, order, passing = m.operands, m.order, list[tuple[int, Named, Word, Wait]]()
    differ = any(v.may_differ(m.mir.code[n].what, w) for n in (*iteration.ops, iteration.branch))
    if differ or not m.reaches_all(e.scope):
        raise NotCovered(f"{x.where}: clusters or CTAs that may wait for something else")
    for named in v.view(e.view, w, x.lanes):
        _aligned(x, e, named)
        word = m.word(named)
        for lane in named.lanes:
            wait = Wait(
                iteration.passes(v, w, lane, partial(_as_loaded, view=e.view)), w.first + lane
            )
            if wait.passes(word.holds()):
                passing.append((lane, named, word, wait))
    x.lanes = [lane for lane, *_ in passing]
    if passing:
        order.step(x.all)
        _whichever_is_elected(x, w)
        _reads_registers(x)
        _defines(x, x.effect(fx.Defines))
    for lane, named, word, wait in passing:
        m.access(x, [([lane], named.bytes)], named.place, False, strong=_strong(e))
        wait.position = int(order.position[wait.lane])
        learned, p = order.nothing(), m.program
        made = word.wait(wait, m.seen(wait.lane, named.place), learned)
        clusters = {c.lane // m.in_cta // p.cluster_size for c in wait.needs}
        _resident(p.cooperative or clusters <= {w.base // p.cluster_size}, x)
        past = merged([order.past[wait.lane], *(c.past for c in made)])
        order.past[wait.lane, : len(past)] = past
        order.observe(w.lanes([lane]), learned, "acquire" if e.sem == "acquire" else "relaxed")
        w.leaving[lane], m.counted = (iteration.branch, not iteration.back), m.counted + 1
    return x.lanes


@rule("resident", "clusters that wait for each other are all resident, in a cooperative launch")
def _resident(holds: bool, x: Execution) -> None:
    if not holds:
        raise NotCovered(f"{x.where}: a wait for clusters that need not be resident")


def _counts(x: Execution, e: fx.Writes, words: Sequence[tuple[Named, Word]]) -> None:
    """Words that may be waited for are changed by strong stores and atomics of lanes."""
    m, order = x.machine, x.machine.order
    for named, word in words:
        m.memory(named.place).words[int(named.bytes[0, 0])] = word
        rows = m.operands.each(e.value, x.warp) if isinstance(e.value, Expr) else []
        for lane in named.lanes:
            i, numbers = x.warp.first + lane, {lane_of(row, lane) for row in rows}
            n = numbers.pop() if len(numbers) == 1 and e.view.dtype.kind != "float" else None
            whole = not e.element and e.times == 1 and m.reaches_all(e.scope)
            n = n if whole and type(n) is int and not x.may else None
            released = order.released(i, e.sem)  # of a fence, what later ones add to
            c = Increment(
                i, int(order.position[i]), m.seen(i, named.place), order.past[i].copy(),
                released and released.copy(), n if e.combine == "add" else None,
                e.combine in (None, "exch"), e.combine is None,
            )  # fmt: skip
            word.change(c, n)
            m.counted += 1


# ---------------------------------------------------------------------- mbarriers


@executes(fx.InitsMbarrier)
def _inits(x: Execution, e: fx.InitsMbarrier) -> None:
    counts = x.each(e.count, "a count")
    for group, at in x.machine.operands.mbarrier(e.mbar, x.warp, x.lanes):
        x.machine.init_mbarrier(x, at, counts[group[0]], group)


@executes(fx.InvalidatesMbarrier)
def _invalidates(x: Execution, e: fx.InvalidatesMbarrier) -> None:
    m, w = x.machine, x.warp
    for group, at in m.operands.mbarrier(e.mbar, w, x.lanes):
        for lane in group:
            life = m.mbarrier(at, w, [lane])
            m.over_before(life, w.lanes([lane]), "mbarrier.inval", own=True)
            m.handed_over(life, w.first + lane)
            life.last_phase()
            life.dead = True
            m.bytes_of_mbarrier(x, at, [lane], live=False)
            del m.mbarriers[at]


def _learners(x: Execution, life: Mbarrier, at: MbarrierAt) -> Sequence[Knowledge]:
    """What the open phase releases to threads that learn what the warp, or a copy that it has
    issued, does: by the text, only waits of wider scope do in another CTA (U4)."""
    return life.released[x.machine.ptx and at[0] != x.warp.rank :]


def _credit(
    x: Execution, lane: int, at: MbarrierAt, *, sem: str = "relaxed", scope: str = "cta",
    drop: bool = False, later: bool = False, **counts: Any,
) -> None:  # fmt: skip
    """One credit of a lane; ``later``: of an asynchronous operation that it has issued."""
    m, i = x.machine, x.warp.first + lane
    life = m.mbarrier(at, x.warp, [lane])
    reaches = not m.ptx or at[0] == x.warp.rank or scope != "cta"  # U4
    if reaches and not later and (knowledge := m.order.released(i, sem)) is not None:
        for one in _learners(x, life, at):
            one.join(knowledge)
    position = int(m.order.position[i])
    where = None if later else (i, position)
    life.credit(i, position, Credit(where, m.order.past[i].copy(), **counts), drop=drop)


@executes(fx.Arrives)
def _arrives(x: Execution, e: fx.Arrives) -> None:
    m, w = x.machine, x.warp
    counts = x.each(e.count, "a count")
    nbytes = {} if e.bytes is None else x.each(e.bytes, "a tx-count")
    tokens: list[Scalar] = [None] * LANES
    for group, at in m.operands.mbarrier(e.mbar, w, x.lanes):
        for lane in group:
            arrives_at_all(n := counts[lane])
            if e.asynchronous:
                for to in _signalled(x, e.multicast, at, lane):
                    _arrives_later(x, e, lane, to, n)
                continue
            here = m.mbarriers.get(at)
            tokens[lane] = None if here is None else Token(here, here.phase)
            _credit(x, lane, at, sem=e.sem, scope=e.scope, drop=e.drop, arrive=n,
                    expect=nbytes.get(lane, 0), partial=e.partial)  # fmt: skip
    x.answers[id(e)] = tokens


def _arrives_later(x: Execution, e: fx.Arrives, lane: int, at: MbarrierAt, count: int) -> None:
    """An arrival once what the thread has issued is complete (C6, G23)."""
    m, i = x.machine, x.warp.first + lane
    if e.lent:
        _credit(x, lane, at, lent=count)
    life = m.mbarrier(at, x.warp, [lane])
    assert e.group is not None
    commit, learners = e.group == "tcgen05", _learners(x, life, at)
    some, rows = m.group(e.group, i).every, _rows_handed_over(x, e.group)
    _ends_with(learners, _fact(x, some), some, rows)
    if commit:  # it implies the fence
        m.order.tmem_fence(i, before=True)
        for one in learners:
            one.join(m.order.of(np.array([i])), (Row.TMEM, Row.TMEM_FENCED))
    _credit(x, lane, at, later=True, arrive=count, lent=-1 if e.lent else 0,
            own=at[0] == x.warp.rank and not m.ptx)  # fmt: skip


def _rows_handed_over(x: Execution, group: str) -> Sequence[int]:
    """The rows in which the end of asynchronous operations is known to waits: by the text, what
    cp.async has copied through the generic proxy takes a fence to be read through another (U14)."""
    generic = (Row.GENERIC, Row.GENERIC_GLOBAL)
    return generic if x.machine.ptx and group == "cp.async" else x.machine.order.handed


def _fact(x: Execution, some: Sequence[Issued]) -> int:
    """That these operations of a CTA are over."""
    own = all(one.place == ("shared", x.warp.rank) for one in some if one.place[0] == "shared")
    return x.machine.order.new_fact(x.warp.rank if own else None)


def _ends_with(learners: Sequence[Knowledge], fact: int, some: Sequence[Issued], rows: Any) -> None:
    """The open phase's end tells, of some rows, that these operations are over."""
    for learner in learners if some else ():
        learner.add(fact, rows)
    for one in some:
        one.ends_with(fact)


def _multicast(x: Execution, mask: Expr | None, at: MbarrierAt, lane: int) -> Sequence[MbarrierAt]:
    return [at] if mask is None else [(c, at[1]) for c in _ctas(x, mask, lane)]


@rule("U9-commit", "in practice, a commit with a multicast mask of 0 signals no mbarrier")
def _signalled(x: Execution, mask: Expr | None, at: MbarrierAt, lane: int) -> Sequence[MbarrierAt]:
    if mask is not None and not x.machine.ptx and x.each(mask, "a mask")[lane] == 0:
        return []
    return _multicast(x, mask, at, lane)


@rule("U9", "a multicast mask names CTAs of the cluster, at least one")
def _ctas(x: Execution, mask: Expr, lane: int) -> list[int]:
    bits = x.each(mask, "a mask")[lane]
    size = x.machine.program.cluster_size
    if x.effect(fx.Cancels) is not None:  # it goes to all CTAs of the cluster
        bits = (1 << size) - 1
    if not 0 < bits < 1 << size:
        raise Refuted("U9", f"{x.where}: mask {bits:#x} in a cluster of {size}")
    return [x.warp.base + c for c in range(size) if bits >> c & 1]


@executes(fx.Expects)
def _expects(x: Execution, e: fx.Expects) -> None:
    nbytes = x.each(e.bytes, "a tx-count")
    for group, at in x.machine.operands.mbarrier(e.mbar, x.warp, x.lanes):
        for lane in group:
            _credit(x, lane, at, scope=e.scope, expect=nbytes[lane])


@executes(fx.Completes)
def _completes(x: Execution, e: fx.Completes) -> None:
    if e.bytes is None:
        raise NotCovered(f"{x.where}: a completion of unknown bytes")
    m, w = x.machine, x.warp
    nbytes = x.each(e.bytes, "bytes")
    for group, at in m.operands.mbarrier(e.mbar, w, x.lanes):
        for lane in group:
            for cta, to in _signals(x, e, at, lane):
                life = m.mbarrier(to, w, [lane])
                # of a multicast copy, what is done in a CTA, and for it
                reads = e.multicast is None
                mine = [i for i in x.issued if i.lane == lane and (
                        i.place == ("shared", cta) or (reads and not i.record.write))]  # fmt: skip
                # of generic accesses, a proxy fence hands on that they are over (D13)
                remote = x.effect(fx.RemoteStore) is not None
                rows = (Row.GENERIC,) if remote else m.order.handed
                _ends_with(_learners(x, life, to), _fact(x, mine), mine, rows)
                _credit(x, lane, to, later=e.asynchronous, scope=e.scope, complete=nbytes[lane])


def _signals(
    x: Execution, e: fx.Completes, at: MbarrierAt, lane: int
) -> list[tuple[int, MbarrierAt]]:
    """The CTAs that are written, each with the mbarrier on which that completes: in its pair, that
    of the CTA of the same parity as the named one (B9, B27)."""
    ctas = [rank for rank, _ in _multicast(x, e.multicast, at, lane)]
    if not e.pair:
        return [(cta, (cta, at[1])) for cta in ctas]
    if e.multicast is None:
        ctas = [int(i.place[1]) for i in x.issued if i.lane == lane and i.record.write]
        _of_pair(x, ctas, at)
    return [(cta, (cta & ~1 | at[0] & 1, at[1])) for cta in ctas]


@rule("B26", "a copy completes on an mbarrier of the CTA that it writes, or of the other of a pair")
def _of_pair(x: Execution, ctas: Sequence[int], at: MbarrierAt) -> None:
    if any(cta ^ at[0] > 1 for cta in ctas):
        raise Refuted("B26", f"{x.where}: into CTA {ctas}, with an mbarrier of CTA {at[0]}")


def _wait(x: Execution, e: fx.Waits) -> Sequence[int]:
    """The lanes whose wait passes have learned what it tells."""
    m, w = x.machine, x.warp
    phases = m.operands.decides(e.phase, w)
    passing: list[tuple[list[int], Mbarrier]] = []
    for group, at in m.operands.mbarrier(e.mbar, w, x.lanes):
        _own(at, w)
        life = m.mbarrier(at, w, group)
        named = {i: _phase(lane_of(phases, i), parity=e.parity, ptx=m.ptx) for i in group}
        over = {phase: life.passes(phase, e.parity) for phase in dict.fromkeys(named.values())}
        through = [i for i in group if over[named[i]]]
        if through:
            passing.append((through, life))
    lanes = [i for some, _ in passing for i in some]
    if lanes:
        m.order.step(w.lanes(lanes))
        _whichever_is_elected(x, w)
    for some, life in passing:
        for i in (i for i in some if i in x.unless):
            life.spared(x.unless[i], w.first + i, _asks(e, lane_of(phases, i)))
        _passes(x, e, w.lanes(some), life)
    return lanes


def _passes(x: Execution, e: fx.Waits, lanes: Lanes, life: Mbarrier) -> None:
    """Lanes have found the last phase over."""
    order = x.machine.order
    life.no_early_pass(order.past[lanes].min(0))
    over = life.waited(lanes, order.position[lanes], acquires=e.sem == "acquire")
    if over is not None:
        width = len(over.past)
        order.past[lanes, :width] = np.maximum(order.past[lanes, :width], over.past)
        order.observe(lanes, over.knowledge[0 if e.scope == "cta" else -1], e.sem)


def _asks(e: fx.Waits, phase: Scalar) -> tuple[object, ...]:
    """All that a wait, or a poll, asks for."""
    return phase, e.parity, e.sem, e.scope


@executes(fx.Waits)
def _polls(x: Execution, e: fx.Waits) -> None:
    """A poll. That it answers yes is certain of test_wait if the phase must be over for all lanes
    (A25), which makes a wait of it; otherwise schedules decide."""
    m, w = x.machine, x.warp
    phases = m.operands.decides(e.phase, w)
    looks = []
    for group, at in m.operands.mbarrier(e.mbar, w, x.lanes):
        _own(at, w)
        for lane in group:
            phase = _phase(lane_of(phases, lane), parity=e.parity, ptx=m.ptx)
            life = m.mbarrier(at, w, [lane])
            looks.append((lane, life, phase, m.order.past[w.first + lane]))
    over = [life.passes(phase, e.parity) and life.must_be_over(past)
            for _, life, phase, past in looks]  # fmt: skip
    answers: list[Scalar] = [None] * LANES
    for lane, life, phase, past in looks:
        i = w.first + lane
        if all(over) and not e.suspends:
            _passes(x, e, w.lanes([lane]), life)
            answers[lane] = 1
        elif isinstance(phase, Token):
            raise NotCovered(f"{x.where}: an mbarrier that is polled by a token")
        else:
            life.operations[i] = int(m.order.position[i])
            answers[lane] = Asked(Look(i, life, _asks(e, phase), past.copy()), 1, 0)
    x.answers[id(e)] = answers


@rule("A17", "a thread waits for an mbarrier of its own CTA")
def _own(at: MbarrierAt, w: Warp) -> None:
    if at[0] != w.rank:
        raise Refuted("A17", f"a wait for an mbarrier of CTA {at[0]} in CTA {w.rank}")


@rule("A21", "of a parity the last bit counts; by the text it is 0 or 1")
def _phase(phase: Scalar, *, parity: bool, ptx: bool) -> int | Token:
    if isinstance(phase, Token):
        return phase
    number = int(need(phase, "a phase"))
    if parity and ptx and number not in (0, 1):
        raise Refuted("A21", f"a wait for parity {number}")
    return number & 1 if parity else number


# ---------------------------------------------------------------------- other barriers, fences


@executes(fx.JoinsBarrier)
def _joins_barrier(x: Execution, e: fx.JoinsBarrier) -> None:
    m, w = x.machine, x.warp
    ids = set(x.each(e.id, "which barrier").values())
    threads: int | None = None
    if e.threads is not None:
        every = set(x.each(e.threads, "a count of threads").values())
        threads = every.pop() if len(every) == 1 else 0
    number = ids.pop()
    if ids or (threads is not None and (threads < LANES or threads % LANES)):
        raise NotCovered(f"{x.where}: lanes at several named barriers, or a count of {threads}")
    _in_the_cta(x, number, threads)
    name = f"named barrier {number} of CTA {w.rank}"
    barrier = m.named.setdefault((w.rank, number), NamedBarrier(name, m.order.nothing()))
    past = m.order.past[x.all[0]]
    barrier.no_mixture(e.vote is not None)  # what the votes come to is not known
    if m.ptx and e.aligned:
        barrier.at_one_place(x.number, waits=e.waits)
    barrier.join(x.all, m.order.position[x.all], past, w.number, threads)
    barrier.knowledge.join(m.order.of(x.all))
    if e.waits:
        w.apart_by.clear()
        w.blocked |= dict.fromkeys(x.lanes, barrier)
    m.complete_named(w.rank, barrier)


@rule("E1", "a named barrier is one of 16, and waits for no more threads than its CTA has")
def _in_the_cta(x: Execution, number: int, threads: int | None) -> None:
    if not 0 <= number < 16 or (threads or 0) > x.machine.in_cta:
        raise Refuted("E1", f"{x.where}: barrier {number} of {threads} threads")


@executes(fx.JoinsCluster)
def _joins_cluster(x: Execution, e: fx.JoinsCluster) -> None:
    order = x.machine.order
    if not e.arrives:
        number = x.machine.cluster_barrier(x.warp).wait(x.all)
        x.warp.blocked |= dict.fromkeys(x.lanes, number)
        return
    knowledge = x.machine.cluster_barrier(x.warp).arrive(x.all, order.past[x.all[0]])
    knowledge.join(order.of(x.all), (Row.INIT,))  # D6: a fence of its own made them known
    for i in x.all:
        known = order.released(int(i), e.sem)
        if known is not None:
            knowledge.join(known)
    x.machine.complete_cluster_barrier(x.warp)


@executes(fx.Orders)
def _fence(x: Execution, e: fx.Orders) -> None:
    order = x.machine.order
    if e.in_shared and e.releases and x.machine.at_peers:
        raise NotCovered(f"{x.where}: a fence for the own CTA's memory behind accesses to others'")
    if not x.machine.reaches_all(e.scope) and not e.inits:
        return  # its edges end in the CTA, or cluster, and barriers need not
    if e.inits:
        order.publish_own(x.all)
    for i in x.all if not e.inits else ():
        if e.acquires:
            order.acquire_fence(int(i), order.shared if e.in_shared else None)
        if e.releases:
            (order.release_own if e.in_shared else order.release_fence)(int(i))


@executes(fx.Crosses)
def _crosses(x: Execution, e: fx.Crosses) -> None:
    order = x.machine.order
    sides = {
        "async.shared": (Row.GENERIC, Row.ASYNC_SHARED),
        "async.own": (Row.GENERIC, order.own(x.warp.rank)),
        "async.global": (Row.GENERIC_GLOBAL, Row.ASYNC_GLOBAL),
        "half.own": (Row.GENERIC, order.half(x.warp.rank)),
    }
    if e.source == "half" and e.targets == ("async.shared",):
        _acquires_halves(x)
    elif e.source != "generic" or not set(e.targets) <= set(sides):
        raise NotCovered(f"a proxy fence from {e.source} to {e.targets}")
    else:
        for target in e.targets:
            order.cross(x.all, *sides[target])


@rule(
    "H10", "what a one-way release has handed over counts behind an acquire, of that CTA's memory"
)
def _acquires_halves(x: Execution) -> None:
    order = x.machine.order
    for cta in range(x.machine.size):
        order.cross(x.all, order.half(cta), order.own(cta))


@executes(fx.Exits)
def _exits(x: Execution, _: fx.Exits) -> None:
    x.machine.exit(x.warp, x.lanes)


@executes(fx.Registers)
def _changes_registers(x: Execution, e: fx.Registers) -> None:
    order, i = x.machine.order, int(x.all[0])
    change = Change(x.warp.rank, x.warp.number, e.count, e.increase, x.number, i,
                    int(order.position[i]), order.past[i].copy())  # fmt: skip
    x.machine.register_changes.append(change)


# ---------------------------------------------------------------------- groups


@executes(fx.Commits)
def _commits(x: Execution, e: fx.Commits) -> None:
    for i in x.all:
        x.machine.group(e.group, i).commit()


@executes(fx.WaitsGroup)
def _waits_group(x: Execution, e: fx.WaitsGroup) -> None:
    # to the thread itself no fence is needed (G23), to others it is
    rows = (Row.TMEM,) if e.group.startswith("tcgen05.") else _rows_handed_over(x, e.group)
    for i in x.all:
        group = x.machine.group(e.group, i)
        if e.group.startswith("tcgen05."):  # there are no groups: all that the warp has issued
            group.commit()
        count = max(len(group.committed) - e.pending, 0)
        over = [one for some in group.committed[:count] for one in some]
        # .read: sources may be written again, destinations not be read (B33)
        ended = [one for one in over if not (e.read_only and one.record.write)]
        if ended:
            fact = _fact(x, ended)
            for one in ended:
                one.ends_with(fact)
            x.machine.order.learn_fact([int(i)], fact, rows)
        if not e.read_only:
            group.over += count
            del group.committed[:count]


# ---------------------------------------------------------------------- wgmma


def _by_warpgroup(x: Execution) -> None:
    """An instruction of four warps, which make one record of each operand together."""
    m = x.machine
    first = x.warps[0]
    lanes: Lanes = np.concatenate([w.lanes(range(LANES)) for w in x.warps])
    group = m.group("wgmma", first.first)
    for e in x.effects:
        match e:
            case fx.GathersWarps() | fx.Issues() | fx.Gathers():
                pass
            case fx.Reads():
                group.open.append(_shared_operand(x, e, lanes))
            case fx.UsesFragment():
                for w in x.warps:
                    _uses_tile(x, w, e, group)
            case fx.FencesFragments():
                for w in x.warps:
                    w.tiles = {n: (frozenset(), products) for n, (_, products) in w.tiles.items()}
                    w.fenced = True
            case fx.Commits():
                group.commit()
            case fx.WaitsGroup():
                _waits_wgmma(x, e, group, lanes)
            case _:
                raise NotCovered(f"{x.where}: {type(e).__name__}")


@rule("F10", "the four warps of a product name the same operands in shared memory")
def _shared_operand(x: Execution, e: fx.Reads, lanes: Lanes) -> Issued:
    m, every = x.machine, list(range(LANES))
    places = [m.operands.view(e.view, w, every) for w in x.warps]
    _, place, at, *_ = places[0][0]
    for some in places:
        if len(some) != 1 or some[0].place != place or (some[0].bytes != at).any():
            raise Refuted("F10", f"{x.where}: operands that differ")
    record = m.issue(x, every, place, at, False, "async", issuers=lanes)
    return Issued(0, place, record, past=m.order.past[lanes].max(0))


def _waits_wgmma(x: Execution, e: fx.WaitsGroup, group: Group, lanes: Lanes) -> None:
    count = max(len(group.committed) - e.pending, 0)
    over = [one for some in group.committed[:count] for one in some]
    order = x.machine.order
    fact = _fact(x, over)
    for one in over:
        one.ends_with(fact)
        width = len(one.past)  # F5: it has run, so all four warps have issued it
        order.past[lanes, :width] = np.maximum(order.past[lanes, :width], one.past)
    order.learn_fact(lanes.tolist(), fact, order.handed)
    group.over += count
    del group.committed[:count]
    for w in x.warps:
        w.tiles = {
            name: (uses, frozenset(p for p in products if p[0] >= group.over))
            for name, (uses, products) in w.tiles.items()
        }


@executes(fx.UsesFragment)
def _uses_fragment(x: Execution, e: fx.UsesFragment) -> None:
    if len(x.lanes) < LANES and not e.partly:
        raise NotCovered(f"{x.where}: a part of a warp uses a register tile")
    if x.op.mnemonic != "tcgen05.ld":  # its registers are used behind tcgen05.wait::ld
        _uses_tile(x, x.warp, e, None)
    else:
        _tile_is_set(x, x.warp, e)


@rule("F3", "no access to a register tile while a wgmma uses it, nor use before wgmma.fence")
def _uses_tile(x: Execution, w: Warp, e: fx.UsesFragment, group: Group | None) -> None:
    """``group``: of an asynchronous product, the warpgroup's (F3, F5, F6)."""
    never = frozenset[Any]() if w.fenced else frozenset({"accessed"})
    uses, products = w.tiles.get(e.fragment.name, (never, frozenset()))
    _tile_is_set(x, w, e)
    if not e.asynchronous:
        if any(how != "read" for _, how in products) or (products and e.write):
            raise Refuted("F3", f"{x.where}: {e.fragment.name} is used by products under way")
        moved = e.moved and not x.machine.ptx  # in practice a number may be, behind the fence
        w.tiles[e.fragment.name] = (uses if moved else uses | {"accessed"}, products)
        return
    if group is None:
        raise NotCovered(f"{x.where}: a register tile that is used asynchronously")
    how = e.product if e.write else "read"
    if (uses | {other for _, other in products}) - {how}:
        raise Refuted("F3", f"{x.where}: {e.fragment.name} without wgmma.fence, or another shape")
    w.tiles[e.fragment.name] = (uses | {how}, products | {(group.number, how)})


def _tile_is_set(x: Execution, w: Warp, e: fx.UsesFragment) -> None:
    """What products and other instructions on whole tiles read has to be set before."""
    keeps = e.keeps is not None and any(
        lane_of(_is_shared(x, e.keeps, one), x.lanes[0]) != 0 for one in w.each
    )
    if (keeps or not e.write) and not e.partly:
        is_set(w, e.fragment.name, x.lanes, x.where, x.unless)
    if e.write and not x.may:
        w.has_set(e.fragment.name, x.lanes)


# ---------------------------------------------------------------------- tensor memory


@executes(fx.UsesTmem)
def _uses_tmem(x: Execution, e: fx.UsesTmem) -> None:
    m, w = x.machine, x.warp
    by_warp = e.kind in ("ld", "st")
    issues = x.effect(fx.Issues)
    ctas = (w.rank, w.rank ^ 1) if issues is not None and issues.pair else (w.rank,)
    for group, address, cells in tmem.places(e, m.operands, w, w.number, x.lanes):
        if e.cells.own and address >> 16 < LANES:
            users = m.pools[w.rank].quarters.setdefault((x.number, w.number // 4), set())
            users.add(w.number)
        for lane in group[:1] if by_warp else group:
            for cta in ctas:
                if cta != w.rank:
                    m.touch(w, [lane], cta)
                form = None if e.product is None else (int(address), e.product)
                lanes = group if by_warp else [lane]
                record = _tmem_record(x, e.kind, cells, lanes, e.write, form)
                m.pools[cta].owned(cells, address, x.where)
                if not e.write or tmem.keeps(e, m.operands, w, lane):
                    _filled(x, cta, cells)
                m.pools[cta].memory.access(record, ordered := tmem.Ordered(m.order))
                x.issued.append(Issued(lane, ("shared", cta), record))
                m.group("tcgen05", w.first + lane).open += [
                    Issued(lane, ("shared", cta), earlier) for earlier in ordered.before
                ]
    if by_warp:
        for i in x.all:
            m.group(f"tcgen05.{e.kind}", i).open += x.issued


@rule("G-init", "tensor memory is written before it is read")
def _filled(x: Execution, cta: int, cells: tmem.Cells) -> None:
    if not x.machine.pools[cta].memory.written[cells].all():
        raise Refuted("G-init", f"{x.where}: cells that nothing has written")


def _tmem_record(
    x: Execution, kind: str, cells: tmem.Cells, lanes: Sequence[int], write: bool, form: Any = None
) -> Record:
    w = x.warp
    g = tuple(int(i) for i in w.lanes(lanes))
    record = Record(cells, write, "tmem", None, x.where)
    position = int(x.machine.order.position[g[0]])
    record.tmem = tmem.TmemAccess(kind, w, g, position, form)
    return record


def _changes_pool(
    x: Execution, kind: str, at: tuple[int, int], columns: int, **changes: Any
) -> None:
    """An allocation and its end conflict with all accesses of the columns, but take no time.
    ``at``: a CTA and the first column; ``changes``: of the `TmemAccess`."""
    memory, cells = x.machine.pools[at[0]].memory, tmem.span(at[1], columns)
    record = _tmem_record(x, kind, cells, x.lanes, True)
    record.tmem = replace(record.tmem, **changes)
    memory.access(record, tmem.Ordered(x.machine.order))
    memory.written[cells] = False


def _meets_peer(x: Execution, e: Any) -> bool:
    """Whether the other CTA of the pair has come to the same (G9), as the first one may wait for
    it. When columns are freed, both come after all uses of them in both."""
    m, w = x.machine, x.warp
    m.has_started(w, x.lanes, w.rank ^ 1)
    own, peer = m.pools[w.rank], m.pools[w.rank ^ 1]
    frees = isinstance(e, fx.FreesTmem)
    first = _freed(x, e) if frees else 0
    what = type(e).__name__, getattr(e, "columns", 0), first
    if own.comes_second(peer, what, int(x.all[0]), m.order):
        both = tuple(i + n for i, _ in (own.ended, peer.ended) for n in range(LANES))
        for rank in (w.rank, w.rank ^ 1) if frees else ():
            _changes_pool(x, "free", (rank, first), e.columns, lanes=both)
    return own.goes_on()


@executes(fx.AllocatesTmem)
def _allocates(x: Execution, e: fx.AllocatesTmem) -> None:
    i, rank, pools = int(x.all[0]), x.warp.rank, x.machine.pools
    at = i, int(x.machine.order.position[i])
    first = pools[rank].allocate(e.columns, at, x.machine.order)
    other = pools[rank ^ 1].ended if e.pair else None
    _changes_pool(x, "alloc", (rank, first), e.columns, other=other)
    x.answers[id(e)] = Drawn(first, (rank, first))


@executes(fx.FreesTmem)
def _frees(x: Execution, e: fx.FreesTmem) -> None:
    first, rank = _freed(x, e), x.warp.rank
    if not e.pair:
        _changes_pool(x, "free", (rank, first), e.columns)
    warp = int(x.all[0]) // LANES if x.machine.ptx else None
    x.machine.pools[rank].free(first, e.columns, warp)


def _freed(x: Execution, e: fx.FreesTmem) -> int:
    """The first column that is freed."""
    address = x.machine.operands.decides(e.address, x.warp)
    first, *others = {tmem.own_address(lane_of(address, i), x.warp.rank) for i in x.lanes}
    if others:
        raise NotCovered("lanes decide what tcgen05.dealloc frees")
    return tmem.Pool.returned(first)


@executes(fx.RelinquishesTmem)
def _relinquishes(x: Execution, _: fx.RelinquishesTmem) -> None:
    x.machine.pools[x.warp.rank].relinquish(int(x.all[0]), x.machine.order)


@executes(fx.OrdersTmem)
def _orders_tmem(x: Execution, e: fx.OrdersTmem) -> None:
    for i in x.all:
        x.machine.order.tmem_fence(int(i), before=e.before)
