"""Faults that inject mistakes: edits of a right program, as repairs are edits of a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar, overload

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.uniformity import diverging
from tilesim.analysis.uses_defs import replaced
from tilesim.errors import UsageError
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.declarations import Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.expr import Binary, Const, Expr, Select, Var, binary, constant, walk
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Instruction, Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarSync, ElectSync
from tilesim.ir.ops.mbarrier import (
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierWait,
)
from tilesim.ir.ops.tcgen05 import Tcgen05Commit
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma
from tilesim.ir.program import For, If, Program, Stmt
from tilesim.ir.program import walk as all_in
from tilesim.mistakes.context import Facts, effects_of, has, units_of
from tilesim.mistakes.edits import Edit, after, before, changed, of_places
from tilesim.records import dataclass, field, replace

P = TypeVar("P", Program, Mir)


@dataclass(frozen=True)
class Fault:
    """A kind of mistake; ``edits`` gives every way to make it in a program."""

    name: str
    summary: str
    edits: Callable[[Facts], Iterator[Edit]]


@dataclass(frozen=True)
class Mutant(Generic[P]):
    """A program with one fault in it: which one, at which line, and what was changed."""

    fault: str
    loc: Loc
    what: str
    make: Callable[[], P] = field(compare=False, repr=False)

    @property
    def program(self) -> P:
        """The program, made anew each time."""
        return self.make()

    def __str__(self) -> str:
        behind = self.loc.innermost
        line = "" if behind is self.loc else f" ({behind})"
        return f"{self.fault} at {self.loc}{line}: {self.what}"


#: by name
FAULTS: dict[str, Fault] = {}


@overload
def mutants(program: Program, faults: Iterable[str] | None = None) -> Iterator[Mutant[Program]]: ...
@overload
def mutants(program: Mir, faults: Iterable[str] | None = None) -> Iterator[Mutant[Mir]]: ...
def mutants(program: Program | Mir, faults: Iterable[str] | None = None) -> Iterator[Mutant[Any]]:
    """Every program with one fault of the table (or of ``faults``), in a fixed order.

    The verifier may reject what comes of it; `tilesim.check` should find the rest, unless the fault
    changes nothing.

    Raises:
        UsageError: there is no such fault.
    """
    facts = Facts(program)
    for name in FAULTS if faults is None else faults:
        if name not in FAULTS:
            raise UsageError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
        for edit in FAULTS[name].edits(facts):
            yield Mutant(name, edit.lines[0], edit.what, partial(_with, program, edit))


def _with(program: Program | Mir, edit: Edit) -> Program | Mir:
    """A program with a fault; ranges of registers are not known any more."""
    new = edit.of(program)
    return replace(new, typing=replace(new.typing, ranges={})) if isinstance(new, Mir) else new


def fault(
    name: str, summary: str
) -> Callable[[Callable[[Facts], Iterator[Edit]]], Callable[[Facts], Iterator[Edit]]]:
    """Registers a fault."""

    def register(edits: Callable[[Facts], Iterator[Edit]]) -> Callable[[Facts], Iterator[Edit]]:
        FAULTS[name] = Fault(name, summary, edits)
        return edits

    return register


#: what may stand in the place of one statement, each with a clause
Others = Callable[[Any], Iterator[tuple[str, tuple[Stmt, ...]]]]


def statement_fault(name: str, summary: str, *kinds: type[Any]) -> Callable[[Others], Others]:
    """Registers a fault of single statements of some classes: instructions, if none are given."""

    def register(others: Others) -> Others:
        @fault(name, summary)
        def edits(facts: Facts) -> Iterator[Edit]:
            for place in (p for block in facts.blocks for p in block):
                if isinstance(place.what, kinds or Op):
                    for what, new in others(place.what):
                        yield of_places(what, [(place, new)], 1)

        return others

    return register


def dropped(name: str, summary: str, which: Callable[[Op], bool]) -> None:
    """Registers the fault of leaving out an instruction of this kind."""

    @statement_fault(name, summary)
    def drop(op: Op) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
        if which(op):
            yield f"{op.mnemonic} removed", ()


def with_effect(*kinds: type, **fields: object) -> Callable[[Op], bool]:
    """Whether an instruction has an effect of one of these classes, with these fields."""
    return lambda op: has(op, *kinds, **fields)


#: the statements of what is moved as one
Unit = tuple[Stmt, ...]
#: of the units of a block: the one that is moved, past which one, and in words where that is
Move = tuple[int, int, str]


def moving_fault(
    name: str, summary: str
) -> Callable[[Callable[[list[Unit]], Iterator[Move]]], object]:
    """Registers a fault that moves a unit of a block past another one."""

    def register(moves: Callable[[list[Unit]], Iterator[Move]]) -> object:
        @fault(name, summary)
        def edits(facts: Facts) -> Iterator[Edit]:
            for block in facts.blocks:
                units = list(units_of(block))
                stmts = [tuple(p.stmt for p in unit) for unit in units]
                for here, there, where in moves(stmts):
                    op = next(s for s in all_in(stmts[here]) if has(s, fx.Arrives, fx.Commits))
                    late = there > here
                    target = units[there][-1 if late else 0]
                    new = after(target, *stmts[here]) if late else before(target, *stmts[here])
                    what = f"{op.mnemonic} moved {where}" if isinstance(op, Op) else where
                    gone = [(p, ()) for p in units[here]]
                    edit = of_places(what, [*gone, (target, new)], 3)
                    yield replace(edit, lines=(op.loc,))

        return moves

    return register


# ------------------------------------------------------------------ arrivals


@statement_fault("arrive dropped", "an arrival or commit that a phase needs is missing")
def _drop(op: Op) -> Iterator[tuple[str, Unit]]:
    if isinstance(op, MbarrierArriveExpectTx):
        yield (
            f"only expect_tx is left of {op.mnemonic}",
            (MbarrierExpectTx(mbar=op.mbar, bytes=op.bytes, loc=op.loc),),
        )
    elif has(op, fx.Arrives):
        yield f"{op.mnemonic} removed", ()


@statement_fault("arrive duplicated", "an arrival is made twice")
def _duplicate(op: Op) -> Iterator[tuple[str, Unit]]:
    if has(op, fx.Arrives):
        yield f"{op.mnemonic} repeated", (op, op)


@moving_fault("arrive too early", "a stage is released, or a phase armed, before the work is done")
def _early(units: list[Unit]) -> Iterator[Move]:
    for place in _arriving(units):
        waits = [i for i in range(place) if _waits(units[i])]
        for target in sorted({waits[-1], waits[-1] + 1}) if waits else [0]:
            if not all(map(_only_arrives, units[target:place])):
                side = "before" if waits and target == waits[-1] else "right after"
                yield place, target, f"{side} the wait that precedes it"


@moving_fault(
    "arrive before the group wait", "a stage is released while an operation still reads it"
)
def _before_group_wait(units: list[Unit]) -> Iterator[Move]:
    for place in _arriving(units):
        waits = [i for i in range(place) if any(has(s, fx.WaitsGroup) for s in units[i])]
        if waits:
            wait = units[waits[-1]][0]
            yield place, waits[-1], f"before {getattr(wait, 'mnemonic', 'the wait')}"


@moving_fault("arrive too late", "an arrival is made only after the next wait")
def _late(units: list[Unit]) -> Iterator[Move]:
    for place in _arriving(units):
        following = next((i for i in range(place + 1, len(units)) if _waits(units[i])), None)
        if following is not None:
            yield place, following, "after the wait that follows it"


def _arriving(units: list[Unit]) -> Iterator[int]:
    """The units that do nothing but arrive."""
    for place, unit in enumerate(units):
        if _only_arrives(unit) and any(isinstance(s, MbarrierArrive) for s in all_in(unit)):
            yield place


def _only_arrives(unit: Unit) -> bool:
    return all(isinstance(s, MbarrierArrive | ElectSync | If) for s in all_in(unit))


def _waits(unit: Unit) -> bool:
    return any(isinstance(s, MbarrierWait | BarSync) for s in unit)


@moving_fault("commit too early", "a commit is made before the operations it should cover")
def _early_commit(units: list[Unit]) -> Iterator[Move]:
    for place, unit in enumerate(units):
        if isinstance(unit[0], Tcgen05Commit):
            start = place
            while start and not any(map(_blocks, units[start - 1])):
                start -= 1
            if any(isinstance(s, Tcgen05Mma) for u in units[start:place] for s in all_in(u)):
                yield place, start, "before the operations"


def _blocks(stmt: Stmt) -> bool:
    return has(stmt, fx.Waits, fx.JoinsBarrier, fx.JoinsCluster) or isinstance(stmt, Tcgen05Commit)


@statement_fault("commit without the operations", "an arrival does not wait for the tensor core",
                 Tcgen05Commit)  # fmt: skip
def _plain_arrive(op: Tcgen05Commit) -> Iterator[tuple[str, Unit]]:
    if op.multicast is None:
        arrive = MbarrierArrive(mbar=op.mbar, scope="cluster", loc=op.loc)
        yield f"mbarrier.arrive instead of {op.mnemonic}", (arrive,)


@statement_fault("wrong arrival count", "mbarrier.init with one arrival too few or too many",
                 MbarrierInit)  # fmt: skip
def _count(op: MbarrierInit) -> Iterator[tuple[str, Unit]]:
    known = constant(op.count)
    for delta, text in ((-1, "one too few"), (1, "one too many")):
        if known is None or known + delta >= 1:
            count = binary("+", op.count, delta)
            shown = text if known is None else f"{known + delta} instead of {known}"
            yield f"count {shown}", (replace(op, count=count),)


@statement_fault("wrong bytes", "too few or too many bytes are expected",
                 MbarrierArriveExpectTx, MbarrierExpectTx)  # fmt: skip
def _bytes(op: Any) -> Iterator[tuple[str, Unit]]:
    for delta in (-16, 16):
        text = f"{abs(delta)} bytes too {'few' if delta < 0 else 'many'}"
        if (constant(op.bytes) or 0) + delta >= 0:
            yield text, (changed(op, bytes=binary("+", op.bytes, delta)),)


@statement_fault("bytes not expected", "an arrival forgets the bytes of its copies",
                 MbarrierArriveExpectTx, MbarrierExpectTx)  # fmt: skip
def _no_bytes(op: Any) -> Iterator[tuple[str, Unit]]:
    if isinstance(op, MbarrierExpectTx):
        yield f"{op.mnemonic} removed", ()
        return
    arrive = MbarrierArrive(mbar=op.mbar, sem=op.sem, scope=op.scope, token=op.token, loc=op.loc)
    yield f"{arrive.mnemonic} instead of {op.mnemonic}", (arrive,)


# ------------------------------------------------------------------ barriers and control flow


dropped("init dropped", "a barrier is used without mbarrier.init", with_effect(fx.InitsMbarrier))
dropped("inval dropped", "a barrier's lifetime never ends", with_effect(fx.InvalidatesMbarrier))
dropped(
    "named barrier dropped", "one bar.sync or bar.arrive is missing",
    with_effect(fx.JoinsBarrier, vote=None),
)  # fmt: skip


@fault("cluster barrier dropped", "CTAs of a cluster do not wait for each other")
def _drop_cluster(facts: Facts) -> Iterator[Edit]:
    for arrive, wait in (pair for block in facts.blocks for pair in pairwise(block)):
        if has(arrive, fx.JoinsCluster, arrives=True) and has(wait, fx.JoinsCluster, arrives=False):
            what = "barrier.cluster.arrive and wait removed"
            yield of_places(what, [(arrive, ()), (wait, ())], 2)


dropped("cluster barrier halved", "a CTA only arrives, or only waits", with_effect(fx.JoinsCluster))


@statement_fault("cluster barrier relaxed", "the cluster barrier publishes nothing")
def _relaxed_cluster(op: Op) -> Iterator[tuple[str, Unit]]:
    if has(op, fx.JoinsCluster, arrives=True, sem="release"):
        yield ".relaxed instead of .release", (changed(op, sem="relaxed"),)


@fault("dead predicate", "a region is never executed")
def _never(facts: Facts) -> Iterator[Edit]:
    for place in (p for block in facts.blocks for p in block):
        if isinstance(place.what, If) and place.what.then:
            new = replace(place.what, cond=Const(0))
            yield of_places("the condition is never true", [(place, (new,))], 1)
    if isinstance(mir := facts.program, Mir):
        for number, branch in _skips(mir):
            end = mir.code[branch.target].loc.innermost if branch.target < len(mir.code) else None
            what = f"what follows is skipped up to {end or 'the end'}"
            yield _machine(mir, number, what, replace(branch, cond=None))
        for number, op in _guarded(mir):
            yield _machine(mir, number, f"{op.mnemonic} is never executed", None)


def _skips(mir: Mir) -> Iterator[tuple[int, Branch]]:
    """The branches over code that other agents can observe or wait for."""
    for number, instruction in enumerate(mir.code):
        match instruction.what:
            case Branch(target=target, cond=Expr(), polls=False) as branch if target > number:
                inside = (i.what for i in mir.code[number + 1 : target])
                if any(isinstance(what, Op) and what.synchronises for what in inside):
                    yield number, branch
            case _:
                pass


def _guarded(mir: Mir) -> Iterator[tuple[int, Op]]:
    """The predicated instructions that other agents can observe or wait for."""
    for number, instruction in enumerate(mir.code):
        what = instruction.what
        if instruction.guard is not None and isinstance(what, Op) and what.synchronises:
            yield number, what


def _machine(
    mir: Mir, number: int, what: str, new: Op | Branch | None, *, guarded: bool = True
) -> Edit:
    """Another instruction, or none, in the place of one of machine code, with or without its
    guard."""
    old = mir.code[number]
    guard = old.guard if guarded else None
    code: tuple[Instruction, ...] = () if new is None else (replace(old, what=new, guard=guard),)
    instead = {number: tuple(i.what for i in code)}
    return Edit(what, instead, 1, (old.loc,), code={number: code})


@fault("every lane", "what one elected lane should do is done by all lanes")
def _every_lane(facts: Facts) -> Iterator[Edit]:
    for elect, place in (pair for block in facts.blocks for pair in pairwise(block)):
        if has(elect, fx.Elects) and isinstance(place.what, If) and place.what.then:
            what = "the region of the elected lane is executed by all lanes"
            edit = of_places(what, [(place, place.what.then)], 1)
            yield replace(edit, lines=(elect.loc,))
    if isinstance(mir := facts.program, Mir):
        differs = diverging(graph_of(mir)).differs
        for number, _ in _skips(mir):
            if differs(condition(mir.code[number]), number):
                what = "the branch over what follows is removed: all lanes execute it"
                yield _machine(mir, number, what, None)
        for number, op in _guarded(mir):
            if differs(mir.code[number].guard, number):
                what = f"{op.mnemonic} is executed by all lanes"
                yield _machine(mir, number, what, op, guarded=False)


@statement_fault("uneven trips", "one role makes one trip more or fewer than the others", For)
def _uneven(stmt: For) -> Iterator[tuple[str, Unit]]:
    yield "one trip more", (replace(stmt, stop=binary("+", stmt.stop, stmt.step)),)
    yield "one trip fewer", (replace(stmt, stop=binary("-", stmt.stop, stmt.step)),)


# ------------------------------------------------------------------ asynchronous operations, fences


dropped("copy dropped", "a copy whose bytes are expected is not issued",
        lambda op: has(op, fx.Completes) and has(op, fx.Writes, fx.RemoteStore))  # fmt: skip


@statement_fault("wrong multicast mask", "a multicast reaches another set of CTAs")
def _mask(op: Op) -> Iterator[tuple[str, Unit]]:
    mask = getattr(op, "multicast", None)
    if isinstance(mask, Expr):
        wrong = binary("^", mask, 1)
        yield "rank 0 toggled in the mask", (changed(op, multicast=wrong),)
        yield "no mask: the own CTA only", (changed(op, multicast=None),)


#: the faults of leaving out one instruction that has them as its `Op.fault`, and what is missing
for _fault, _what in {
    "proxy fence dropped": "fence.proxy.async or fence.proxy.async::generic",
    "mbarrier_init fence dropped": "fence.mbarrier_init",
    "tcgen05 fence dropped": "tcgen05.fence",
    "wgmma fence dropped": "wgmma.fence",
    "memory fence dropped": "fence",
}.items():
    dropped(_fault, f"{_what} is missing", partial(lambda fault, op: op.fault == fault, _fault))
#: those of groups that are not waited for
for _fault, *_groups in (
    ("store not awaited", "bulk"),
    ("wgmma wait dropped", "wgmma"),
    ("cp.async wait dropped", "cp.async"),
    ("tcgen05 wait dropped", "tcgen05.ld", "tcgen05.st"),
):
    dropped(
        _fault, f"no instruction waits for operations of {' or '.join(_groups)}",
        partial(lambda groups, op: any(has(op, fx.WaitsGroup, group=g) for g in groups), _groups),
    )  # fmt: skip


@statement_fault("wrong group count", "a wait leaves one more group pending")
def _group(op: Op) -> Iterator[tuple[str, Unit]]:
    pending = getattr(op, "pending", None)
    if has(op, fx.WaitsGroup) and isinstance(pending, int):
        yield f"{pending + 1} groups may be pending", (changed(op, pending=pending + 1),)


@statement_fault("only reads awaited", "a store's result is not awaited, only its source")
def _reads_only(op: Op) -> Iterator[tuple[str, Unit]]:
    if has(op, fx.WaitsGroup, group="bulk", read_only=False):
        yield "wait_group.read instead of wait_group", (changed(op, read=True),)


def _closes_group(stmt: Stmt) -> bool:
    return has(stmt, fx.Commits) and not has(stmt, fx.Arrives, fx.WaitsGroup)


dropped("group commit dropped", "operations are never put into a group", _closes_group)


@moving_fault("group commit too early", "operations are issued after the commit of their group")
def _commit_first(units: list[Unit]) -> Iterator[Move]:
    for place, (first, stmt) in enumerate(pairwise(unit[0] for unit in units), 1):
        starts = any(getattr(e, "asynchronous", False) for e in effects_of(first))
        if _closes_group(stmt) and starts and isinstance(first, Op):
            yield place, place - 1, f"before the last {first.mnemonic}"


dropped("columns not freed", "tensor memory is kept at the end", with_effect(fx.FreesTmem))


# ------------------------------------------------------------------ slots, phases, strength

#: of an mbarrier: where neighbours are, if they are one array
_BYTES = 8


@statement_fault("barrier of another slot", "the barrier index is off by one")
def _barrier(op: Op) -> Iterator[tuple[str, Unit]]:
    match getattr(op, "mbar", None):
        case _ if has(op, fx.InitsMbarrier):
            pass
        case Mbar(AddressedMbarriers(address) as array) as mbar:
            further = replace(array, address=binary("+", address, _BYTES))
            moved = changed(op, mbar=replace(mbar, array=further))
            yield f"{op.mnemonic} uses the barrier {_BYTES} bytes further", (moved,)
        case Mbar(Mbarriers(count=count), index) as mbar if count > 1:
            moved = changed(op, mbar=replace(mbar, index=binary("%", binary("+", index, 1), count)))
            yield f"{op.mnemonic} uses the barrier of the next slot", (moved,)
        case _:
            pass


@statement_fault("data of another slot", "the stage's data index is off by one")
def _data(op: Op) -> Iterator[tuple[str, Unit]]:
    for name, view in vars(op).items():
        if not isinstance(view, View) or not isinstance(view.tensor, SharedTensor):
            continue
        slots = view.tensor.shape[0]
        if len(view.tensor.shape) < 2 or view.extents[0] != 1 or slots < 2:
            continue
        first = binary("%", binary("+", view.offsets[0], 1), slots)
        moved = replace(view, offsets=(first, *view.offsets[1:]))
        what = f"{op.mnemonic} uses the next slot of {view.tensor.name}"
        yield what, (changed(op, **{name: moved}),)


@statement_fault("wait dropped", "no instruction waits for the phase")
def _unwaited(op: Op) -> Iterator[tuple[str, Unit]]:
    effects = op.effects()
    if len(effects) == 1 and isinstance(effects[0], fx.Waits) and not effects[0].poll:
        yield "the wait is removed", ()


@statement_fault("wrong parity", "a wait starts with the other parity")
def _parity(op: Any) -> Iterator[tuple[str, Unit]]:
    if has(op, fx.Waits) and op.parity:
        yield "the parity is inverted", (changed(op, phase=binary("^", op.phase, 1)),)


@statement_fault("phase not carried", "a wait uses the parity of an earlier round for ever")
def _stuck(op: Any) -> Iterator[tuple[str, Unit]]:
    for effect in op.effects():
        match effect:
            case fx.Defines(var=var, value=Expr() as value) if _steps(var, value):
                yield f"{var.name} is not advanced", ()
            case _:
                pass
    if not has(op, fx.Waits) or not op.parity or constant(op.phase) is not None:
        return
    names = sorted({e.name for e in walk(op.phase) if isinstance(e, Var)})
    first = replaced(op.phase, dict.fromkeys(names, Const(0)))
    if constant(first) is not None:
        yield f"the parity stays {first}", (changed(op, phase=first),)
    for name in names if len(names) > 1 else ():
        again = replaced(op.phase, {name: Const(0)})
        if again != op.phase:
            yield f"the parity starts again with every {name}", (changed(op, phase=again),)


def _steps(var: Var, value: Expr) -> bool:
    """Whether this is the step of a phase bit (``x ^ ...``) or of a stage that starts over."""
    steps = (isinstance(e, Select) or (isinstance(e, Binary) and e.op == "^") for e in walk(value))
    return any(steps) and var in walk(value)


@statement_fault("relaxed arrival", "an arrival publishes nothing")
def _relaxed(op: Any) -> Iterator[tuple[str, Unit]]:
    if has(op, fx.Arrives, drop=False) and getattr(op, "sem", "") == "release":
        yield ".relaxed instead of .release", (changed(op, sem="relaxed"),)


@statement_fault("relaxed wait", "a wait acquires nothing")
def _unacquired(op: Any) -> Iterator[tuple[str, Unit]]:
    if has(op, fx.Waits) and op.sem == "acquire":
        yield ".relaxed instead of .acquire", (changed(op, sem="relaxed"),)


@statement_fault("scope too small", "an operation of the cluster orders for its CTA only")
def _scope(op: Op) -> Iterator[tuple[str, Unit]]:
    if getattr(op, "scope", None) == "cluster":
        yield f"{op.mnemonic} has .cta instead of .cluster", (changed(op, scope="cta"),)
