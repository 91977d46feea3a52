"""The catalogue of single faults: what people get wrong in barrier code, injected into a program.

A fault rewrites one block of statements in one place. `mutants` gives every program that a fault
can make of another; the verifier may reject it, `tilesim.check` should find the rest, unless the
fault changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilesim.errors import UsageError
from tilesim.ir import effects as fx
from tilesim.ir.expr import Binary, Const, Expr, Select, Unary, Var, binary, constant, select, unary
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Mbar, SharedTensor, View
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarArrive, BarSync, ElectSync
from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierWait,
)
from tilesim.ir.ops.tma import BulkWaitGroup
from tilesim.ir.program import For, If, Program, Role, Stmt, While, children, walk

Block = tuple[Stmt, ...]


@dataclass(frozen=True)
class Edit:
    """One way to spoil a block: where, what was done (a clause), and the spoiled block."""

    loc: Loc
    what: str
    block: Block


Spoil = Callable[[Block], Iterator[Edit]]


@dataclass(frozen=True)
class Fault:
    """A kind of mistake; ``spoil`` gives every way to make it in a block."""

    name: str
    summary: str
    spoil: Spoil


@dataclass(frozen=True)
class Mutant:
    """A program with one fault in it: which one, at which line, and what was changed."""

    fault: str
    loc: Loc
    what: str
    program: Program

    def __str__(self) -> str:
        return f"{self.fault} at {self.loc}: {self.what}"


FAULTS: dict[str, Fault] = {}


def mutants(program: Program, faults: Iterable[str] | None = None) -> Iterator[Mutant]:
    """Every program with one fault of the catalogue (or of ``faults``), in a fixed order.

    Raises:
        UsageError: there is no such fault.
    """
    for name in FAULTS if faults is None else faults:
        if name not in FAULTS:
            raise UsageError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
        for edit in _everywhere(program.body, FAULTS[name].spoil):
            yield Mutant(name, edit.loc, edit.what, replace(program, body=edit.block))


def _everywhere(block: Block, spoil: Spoil) -> Iterator[Edit]:
    """Edits of a block and of the regions in it, as edits of the whole."""
    yield from spoil(block)
    for place, stmt in enumerate(block):
        for number, region in enumerate(children(stmt)):
            for edit in _everywhere(region, spoil):
                inside = _with_region(stmt, number, edit.block)
                yield replace(edit, block=(*block[:place], inside, *block[place + 1 :]))


def _with_region(stmt: Stmt, number: int, region: Block) -> Stmt:
    match stmt:
        case For() | While() | Role():
            return replace(stmt, body=region)
        case If():
            return replace(stmt, orelse=region) if number else replace(stmt, then=region)
        case _:
            raise AssertionError(stmt)


# ------------------------------------------------------------------ registering

#: replacements of one statement, each with a clause
Replace = Callable[[Any], Iterator[tuple[str, Block]]]


def _fault(name: str, summary: str) -> Callable[[Spoil], Spoil]:
    def register(spoil: Spoil) -> Spoil:
        FAULTS[name] = Fault(name, summary, spoil)
        return spoil

    return register


def _statement(name: str, summary: str, *kinds: type[Any]) -> Callable[[Replace], Replace]:
    """Registers a fault that replaces single statements of some classes."""

    def register(function: Replace) -> Replace:
        def spoil(block: Block) -> Iterator[Edit]:
            for place, stmt in enumerate(block):
                if isinstance(stmt, kinds):
                    for what, new in function(stmt):
                        yield Edit(stmt.loc, what, (*block[:place], *new, *block[place + 1 :]))

        FAULTS[name] = Fault(name, summary, spoil)
        return function

    return register


def _has(op: Op, *kinds: type[Any]) -> bool:
    return any(isinstance(effect, kinds) for effect in op.effects())


def _with(op: Any, **operands: Any) -> Op:
    """An instruction of any class with some operands replaced."""
    changed: Op = replace(op, **operands)
    return changed


# ------------------------------------------------------------------ arrivals


@_statement("arrive dropped", "an arrival or commit that a phase needs is missing", Op)
def _drop_arrive(op: Op) -> Iterator[tuple[str, Block]]:
    if isinstance(op, MbarrierArriveExpectTx):
        yield (
            f"only expect_tx is left of {op.mnemonic}",
            (MbarrierExpectTx(mbar=op.mbar, bytes=op.bytes, loc=op.loc),),
        )
    elif _has(op, fx.Arrives):
        yield f"{op.mnemonic} removed", ()


@_statement("arrive duplicated", "an arrival is made twice", Op)
def _duplicate_arrive(op: Op) -> Iterator[tuple[str, Block]]:
    if _has(op, fx.Arrives):
        yield f"{op.mnemonic} repeated", (op, op)


@_fault("arrive too early", "a stage is released, or a phase armed, before the work is done")
def _early_arrive(block: Block) -> Iterator[Edit]:
    units = list(_units(block))
    for place, unit in enumerate(units):
        arrive = next((s for s in walk(unit) if isinstance(s, MbarrierArrive)), None)
        if arrive is None or not _only_arrives(unit):
            continue
        waits = [i for i in range(place) if _waits(units[i])]
        for target in {waits[-1], waits[-1] + 1} if waits else {0}:
            if not all(map(_only_arrives, units[target:place])):
                moved = [*units[:target], unit, *units[target:place], *units[place + 1 :]]
                where = "before" if waits and target == waits[-1] else "right after"
                what = f"{arrive.mnemonic} moved {where} the wait that precedes it"
                yield Edit(arrive.loc, what, tuple(s for u in moved for s in u))


def _units(block: Block) -> Iterator[Block]:
    """The statements of a block; an election stays with the region it guards."""
    place = 0
    while place < len(block):
        pair = (
            isinstance(block[place], ElectSync)
            and place + 1 < len(block)
            and isinstance(block[place + 1], If)
        )
        yield block[place : place + 1 + pair]
        place += 1 + pair


def _only_arrives(unit: Block) -> bool:
    return all(isinstance(s, MbarrierArrive | ElectSync | If) for s in walk(unit))


def _waits(unit: Block) -> bool:
    return any(isinstance(s, MbarrierWait | BarSync) for s in unit)


@_statement("wrong arrival count", "mbarrier.init with one arrival too few or too many",
            MbarrierInit)  # fmt: skip
def _wrong_count(op: MbarrierInit) -> Iterator[tuple[str, Block]]:
    count = constant(op.count)
    for wrong in () if count is None else (count - 1, count + 1):
        if wrong >= 1:
            yield f"count {wrong} instead of {count}", (replace(op, count=Const(wrong)),)


@_statement("wrong bytes", "too few or too many bytes are expected",
            MbarrierArriveExpectTx, MbarrierExpectTx)  # fmt: skip
def _wrong_bytes(op: Any) -> Iterator[tuple[str, Block]]:
    for delta in (-16, 16):
        text = f"{abs(delta)} bytes too {'few' if delta < 0 else 'many'}"
        if (constant(op.bytes) or 0) + delta >= 0:
            yield text, (replace(op, bytes=binary("+", op.bytes, delta)),)


@_statement("relaxed", "an arrival publishes nothing", MbarrierArrive, MbarrierArriveExpectTx)
def _relaxed(op: Any) -> Iterator[tuple[str, Block]]:
    if op.sem == "release":
        yield ".relaxed instead of .release", (replace(op, sem="relaxed"),)


# ------------------------------------------------------------------ waits


@_statement("wait dropped", "nobody waits for the phase", MbarrierWait)
def _drop_wait(op: MbarrierWait) -> Iterator[tuple[str, Block]]:
    yield "the wait is removed", ()


@_statement("wrong parity", "a wait starts with the other parity", MbarrierWait)
def _wrong_parity(op: MbarrierWait) -> Iterator[tuple[str, Block]]:
    if op.parity:
        yield "the parity is inverted", (replace(op, phase=binary("^", op.phase, 1)),)


@_statement("phase not carried", "a wait uses the parity of its first use for ever", MbarrierWait)
def _stuck_parity(op: MbarrierWait) -> Iterator[tuple[str, Block]]:
    first = _at_zero(op.phase)
    if op.parity and constant(op.phase) is None and constant(first) is not None:
        yield f"the parity stays {first}", (replace(op, phase=first),)


def _at_zero(expr: Expr) -> Expr:
    """The value in the first iteration: every variable is 0."""
    match expr:
        case Var():
            return Const(0)
        case Unary(op, operand):
            return unary(op, _at_zero(operand))
        case Binary(op, lhs, rhs):
            return binary(op, _at_zero(lhs), _at_zero(rhs))
        case Select(cond, then, other):
            return select(_at_zero(cond), _at_zero(then), _at_zero(other))
        case _:
            return expr


# ------------------------------------------------------------------ slots


@_statement("barrier of another slot", "the barrier index is off by one", Op)
def _wrong_barrier(op: Op) -> Iterator[tuple[str, Block]]:
    mbar = getattr(op, "mbar", None)
    if not isinstance(mbar, Mbar) or mbar.array.count < 2 or isinstance(op, MbarrierInit):
        return
    index = binary("%", binary("+", mbar.index, 1), mbar.array.count)
    changed = _with(op, mbar=replace(mbar, index=index))
    yield f"{op.mnemonic} uses the barrier of the next slot", (changed,)


@_statement("data of another slot", "the stage's data index is off by one", Op)
def _wrong_slot(op: Op) -> Iterator[tuple[str, Block]]:
    for name, view in vars(op).items():
        if not isinstance(view, View) or not isinstance(view.tensor, SharedTensor):
            continue
        slots = view.tensor.shape[0]
        if len(view.tensor.shape) < 2 or view.extents[0] != 1 or slots < 2:
            continue
        first = binary("%", binary("+", view.offsets[0], 1), slots)
        moved = replace(view, offsets=(first, *view.offsets[1:]))
        yield (
            f"{op.mnemonic} uses the next slot of {view.tensor.name}",
            (_with(op, **{name: moved}),),
        )


# ------------------------------------------------------------------ copies, fences, groups


@_statement("copy dropped", "a copy whose bytes are expected is not issued", Op)
def _drop_copy(op: Op) -> Iterator[tuple[str, Block]]:
    if _has(op, fx.Completes) and _has(op, fx.Writes, fx.RemoteStore):
        yield f"{op.mnemonic} removed", ()


@_statement("wrong multicast mask", "a multicast reaches another set of CTAs", Op)
def _wrong_mask(op: Op) -> Iterator[tuple[str, Block]]:
    mask = getattr(op, "multicast", None)
    if isinstance(mask, Expr):
        wrong = binary("^", mask, 1)
        yield "rank 0 toggled in the mask", (_with(op, multicast=wrong),)


@_statement("fence dropped", "a memory, proxy or tensor-core fence is missing", Op)
def _drop_fence(op: Op) -> Iterator[tuple[str, Block]]:
    if _has(op, fx.Orders) and "fence" in op.mnemonic:
        yield f"{op.mnemonic} removed", ()


@_statement("drain dropped", "nobody waits for a group of asynchronous operations", Op)
def _drop_drain(op: Op) -> Iterator[tuple[str, Block]]:
    if _has(op, fx.WaitsGroup):
        yield f"{op.mnemonic} removed", ()


@_statement("wrong group count", "a wait leaves one more group pending", Op)
def _wrong_group(op: Op) -> Iterator[tuple[str, Block]]:
    pending = getattr(op, "pending", None)
    if _has(op, fx.WaitsGroup) and isinstance(pending, int):
        yield f"{pending + 1} groups may be pending", (_with(op, pending=pending + 1),)


@_statement("only reads awaited", "a store's result is not awaited, only its source",
            BulkWaitGroup)  # fmt: skip
def _reads_only(op: BulkWaitGroup) -> Iterator[tuple[str, Block]]:
    if not op.read:
        yield "wait_group.read instead of wait_group", (replace(op, read=True),)


@_statement("group commit dropped", "operations are never put into a group", Op)
def _drop_commit(op: Op) -> Iterator[tuple[str, Block]]:
    if _has(op, fx.Commits) and not _has(op, fx.Arrives):
        yield f"{op.mnemonic} removed", ()


@_statement("columns not freed", "tensor memory is kept at the end", Op)
def _drop_dealloc(op: Op) -> Iterator[tuple[str, Block]]:
    if _has(op, fx.FreesTmem):
        yield f"{op.mnemonic} removed", ()


# ------------------------------------------------------------------ barriers and control flow


@_statement("named barrier dropped", "one bar.sync or bar.arrive is missing", BarSync, BarArrive)
def _drop_named(op: BarSync | BarArrive) -> Iterator[tuple[str, Block]]:
    yield f"{op.mnemonic} removed", ()


@_fault("cluster barrier dropped", "CTAs of a cluster do not wait for each other")
def _drop_cluster(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block[:-1]):
        if isinstance(stmt, ClusterArrive) and isinstance(block[place + 1], ClusterWait):
            what = "barrier.cluster.arrive and wait removed"
            yield Edit(stmt.loc, what, (*block[:place], *block[place + 2 :]))


@_statement("dead predicate", "a region is never executed", If)
def _dead(stmt: If) -> Iterator[tuple[str, Block]]:
    if stmt.then:
        yield "the condition is never true", (replace(stmt, cond=Const(0)),)


@_fault("every lane", "what one elected lane should do is done by all lanes")
def _every_lane(block: Block) -> Iterator[Edit]:
    for place, stmt in enumerate(block[:-1]):
        region = block[place + 1]
        if isinstance(stmt, ElectSync) and isinstance(region, If) and region.then:
            new = (*block[: place + 1], *region.then, *block[place + 2 :])
            yield Edit(stmt.loc, "the region of the elected lane is executed by all lanes", new)


@_statement("uneven trips", "one role goes around once more or once less than the others", For)
def _uneven(stmt: For) -> Iterator[tuple[str, Block]]:
    yield "one trip more", (replace(stmt, stop=binary("+", stmt.stop, stmt.step)),)
    yield "one trip fewer", (replace(stmt, stop=binary("-", stmt.stop, stmt.step)),)
