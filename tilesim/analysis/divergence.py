"""Which lanes of a warp execute what, and into how many parts they may fall, before a program runs.

A warp acts as one where all lanes execute an instruction, and where some of them act between two
meetings of all while the others do nothing. Everywhere else its parts have clocks of their own
(`tilesim.sim.machine.warp`), and room for these has to be made.

`Lanes` says the same of the tree of a program. Emitted code has a `bar.warp.sync` where
``elect.sync`` chooses a lane, and behind a region that the whole warp came to and only some lanes
entered, unless a lane may have left for good.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.relaxed import fencing
from tilesim.analysis.ssa import assigned
from tilesim.analysis.thread_values import Threads, Value
from tilesim.analysis.uniformity import diverging
from tilesim.analysis.uses_defs import expressions_in, mentioned, mentions
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.declarations import Mbar
from tilesim.ir.effects import (
    Commits,
    Defines,
    Exits,
    Gathers,
    Issues,
    JoinsBarrier,
    JoinsCluster,
    Orders,
    UsesFragment,
)
from tilesim.ir.expr import Binary, Const, Expr, Special, Unary, Var, constant
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Branch, Join, Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, SyncWarp
from tilesim.ir.program import Break, For, If, Program, Stmt, While, children
from tilesim.ir.registers import defined, operands
from tilesim.ir.scalars import WordAccess, word_access

#: lanes of a warp
_ALL = 32
_FULL = (1 << _ALL) - 1
#: stands for the branches that one elected lane takes
_ELECTED = -1


@cached
def parts_of(graph: FlowGraph) -> dict[int, int]:
    """By warp that does not always act as one: into how many parts its lanes may fall."""
    return _splitting(graph).parts


@cached
def issuers_of(graph: FlowGraph) -> dict[tuple[int, str], int]:
    """By warp and kind of group: how many sets of its lanes may issue operations of groups that
    these lanes have of their own."""
    return _splitting(graph).issuers


@cached
def _splitting(graph: FlowGraph) -> _Splitting:
    return _Splitting(graph)


class _Splitting:
    """What the branches of a program do to the lanes of its warps."""

    def __init__(self, graph: FlowGraph) -> None:
        self._graph = graph
        self._mir, self._warps = graph.mir, executing(graph.mir)
        self._mentions = mentions(graph.mir)
        #: what may differ between the lanes of a warp
        self._diverging = diverging(graph)
        self._splits = self._diverging.splits
        #: by branch, what lanes that it splits may execute before they meet
        self._regions = {number: graph.inside(number) for number in self._splits}
        self._apart = set[int]().union(*self._regions.values())
        self.parts: dict[int, int] = {}
        self._count()

    # ------------------------------------------------------------------ what differs

    def _differs(self, names: frozenset[str]) -> bool:
        return not names.isdisjoint(self._diverging.names)

    # ------------------------------------------------------------------ how often

    def _count(self) -> None:
        for number in sorted(self._splits):
            if not self._simple(number):
                self._add(number, _ALL if self._repeats(number) else len(self._graph.sides(number)))
        for number, instruction in enumerate(self._mir.code):
            op, guard = instruction.what, instruction.guard
            if not isinstance(op, Op):
                continue
            if guard is not None and self._diverging.differs(guard, number):
                self._add(number, _ALL if self._repeats(number) else 2)
            if op.mnemonic.startswith("mbarrier.") and self._differs(self._mentions[number].used):
                self._add(number, _ALL)  # lanes may name barriers or phases of their own
            if self._of_each_lane(number):
                self._add(number, _ALL)
            if any(isinstance(e, Gathers) and _of_several(e) for e in op.effects()):
                self._add(number, _ALL)  # lanes may meet in groups
            access = word_access(op.effects())
            if access is not None and access.sem != "weak":
                # lanes may tell what they know at words of their own, and learn there
                where = frozenset[str]().union(*map(mentioned, expressions_in(access.view)))
                if access.asynchronous or self._differs(where):
                    self._add(number, _ALL)  # each one comes after its lane alone (D14)
                elif self._hands_on(access) and not self._is_single(number):
                    self._add(number, _ALL)  # of those at one word, too, each learns of others
        for number in self._crowds:
            self._add(number, 1)

    def _hands_on(self, access: WordAccess) -> bool:
        """Whether an access may hand over what its thread did, and learn what others have."""
        fenced = any(e.releases for _, e in self._mir.all_of(Orders))
        return (
            access.combine is not None and access.result is not None and (access.releases or fenced)
        )

    def _of_each_lane(self, number: int) -> bool:
        """Whether lanes may give a tensor core operations of their own, or commit them each to an
        mbarrier of its own."""
        return self._differs(self._mentions[number].used) and any(
            isinstance(e, Issues | Commits) and e.group == "tcgen05"
            for e in self._mir.effects[number]
        )

    def _add(self, number: int, factor: int) -> None:
        for warp in self._warps[number]:
            self.parts[warp] = min(_ALL, self.parts.get(warp, 1) * factor)

    def _repeats(self, number: int) -> bool:
        """Whether an instruction may be executed again."""
        return self._graph.block_of[number] in self._graph.repeated

    def _simple(self, number: int) -> bool:
        """Whether the lanes have met before a branch, the others act as one, and those that it
        sends away do nothing until all meet again."""
        branch, meet = self._mir.code[number].what, self._graph.reconvergence[number]
        if not self._fencing.isdisjoint(self._warps[number]):
            return False  # each lane has fences of its own (H3)
        if not self._crowded.isdisjoint(self._warps[number]):
            return False  # account is kept of the parts of these warps: also of those made here
        if number in self._apart or not isinstance(branch, Branch) or branch.target != meet:
            return False
        if met_before(self._graph, number) is None or not meets_at(self._graph, meet):
            return False
        inside = self._regions[number]
        return inside.isdisjoint(self._splits) and not any(map(self._ends, inside))

    @cached_property
    def _fencing(self) -> frozenset[int]:
        return fencing(self._mir)

    def _ends(self, number: int) -> bool:
        return any(isinstance(e, Exits) for e in self._mir.effects[number])

    # ------------------------------------------------------------------ groups of lanes

    @property
    def issuers(self) -> dict[tuple[int, str], int]:
        """See `issuers_of`. The branches around an instruction tell lanes apart; those that are
        elected are always the same."""
        found: dict[tuple[int, str], set[frozenset[int]]] = {}
        for number, effect in self._mir.all_of(Issues):
            guard = self._mir.code[number].guard
            deciding = {
                self._deciding_branch(n) for n, region in self._regions.items() if number in region
            }
            if guard is not None and self._diverging.differs(guard, number):
                deciding.add(_ELECTED if self._unelected(guard) is not None else number)
            lanes = [frozenset(deciding)]
            if self._of_each_lane(number) or any(map(self._moves, deciding)):
                lanes = [frozenset((*deciding, -2 - lane)) for lane in range(_ALL)]
            for warp in self._warps[number]:
                found.setdefault((warp, effect.group), set()).update(lanes)
        return {key: len(lanes) for key, lanes in found.items()}

    def _moves(self, branch: int) -> bool:
        """Whether a branch may single out another lane each time (``lane == i``)."""
        what = None if branch == _ELECTED else self._mir.code[branch].what
        if not isinstance(what, Branch) or what.cond is None:
            return False
        names = mentioned(self._set_before(branch, what.cond)) - self._diverging.names
        return any(
            map(self._repeats, (n for name in names for n in self._mir.setters.get(name, ())))
        )

    def _deciding_branch(self, number: int) -> int:
        branch = self._mir.code[number].what
        cond = branch.cond if isinstance(branch, Branch) else None
        if cond is None or self._unelected(self._set_before(number, cond)) is None:
            return number
        return _ELECTED

    # ------------------------------------------------------------------ one lane, many lanes

    @cached_property
    def _elected(self) -> frozenset[str]:
        """Registers that only ``elect.sync`` writes: they hold in one lane."""
        code = self._mir.code
        return frozenset(
            name
            for name, numbers in self._mir.setters.items()
            if all(isinstance(code[n].what, ElectSync) for n in numbers)
        )

    @cached_property
    def _crowded(self) -> frozenset[int]:
        """The warps of these arrivals."""
        return frozenset[int]().union(*(self._warps[number] for number in self._crowds))

    @cached_property
    def _crowds(self) -> list[int]:
        """Where several lanes arrive at once at barriers of which no count is known to be whole.

        Lanes of one arrive may end a phase and others begin the next; what they then publish is
        what they know of each other, which only warps that have parts keep account of.
        """
        barriers = [
            (number, op, mbar)
            for number, op in enumerate(i.what for i in self._mir.code)
            if isinstance(op, Op) and isinstance(mbar := getattr(op, "mbar", None), Mbar)
        ]
        # one that is named by its address may be any
        unnamed = any(isinstance(mbar.array, AddressedMbarriers) for _, _, mbar in barriers)
        inits: dict[str, list[int | None]] = {}
        crowds: dict[str, list[int]] = {}
        for number, op, mbar in barriers:
            name = "" if unnamed else mbar.array.name
            count = getattr(op, "count", None)
            if op.mnemonic == "mbarrier.init" and isinstance(count, Expr):
                inits.setdefault(name, []).append(constant(count))
            elif "arrive" in op.mnemonic and not self._is_single(number):
                crowds.setdefault(name, []).append(number)
        return [
            number
            for name, numbers in crowds.items()
            if any(count is None or count % _ALL for count in inits.get(name, []))
            for number in numbers
        ]

    def _is_single(self, number: int) -> bool:
        """Whether only one lane of a warp executes an instruction: the elected one, or one that a
        number tells."""
        guard = self._mir.code[number].guard
        guarded = guard is not None and self._in_others(guard, number) is False
        return guarded or number in self._single

    def _in_others(self, cond: Expr, number: int) -> bool | None:
        """What a condition is in all lanes but one at most; None if other things decide it."""
        chosen = self._unelected(self._set_before(number, cond))
        return _in_most(self._threads.value(cond, number)) if chosen is None else chosen

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self._graph)

    @cached_property
    def _single(self) -> set[int]:
        """What is only in a branch of one lane."""
        found: set[int] = set()
        for number in self._splits:
            branch = self._mir.code[number].what
            if not isinstance(branch, Branch) or branch.cond is None:
                continue
            others = self._in_others(branch.cond, number)
            if others is not None:
                graph, meet = self._graph, self._graph.reconvergence[number]
                taken = graph.between(branch.target, meet)
                other = graph.between(number + 1, meet)
                found |= other - taken if others is branch.sense else taken - other
        return found

    def _set_before(self, number: int, cond: Expr) -> Expr:
        """What a register that a branch tests was set to, where that is known."""
        found = assigned(self._graph, number, cond.name) if isinstance(cond, Var) else None
        return cond if found is None else found

    def _unelected(self, cond: Expr) -> bool | None:
        """What a predicate is in lanes that were not elected; None if other things decide it."""
        match cond:
            case Var(name):
                return False if name in self._elected else None
            case Const(value):
                return bool(value)
            case Unary("not", operand):
                inner = self._unelected(operand)
                return None if inner is None else not inner
            case Binary("and" | "or" | "&" | "|" as op, lhs, rhs):
                decides = op in ("or", "|")
                parts = self._unelected(lhs), self._unelected(rhs)
                if decides in parts:
                    return decides
                return None if None in parts else not decides
            case _:
                return None


def _in_most(condition: Value) -> bool | None:
    """What a condition is in all lanes of each warp but one at most, by threads; None if it is not
    known to be the same in these."""
    if not isinstance(condition, np.ndarray):
        return None
    holds = (condition != 0).sum(axis=1)
    if holds.max() <= 1:
        return False
    return True if holds.min() >= _ALL - 1 else None


def _of_several(effect: Gathers) -> bool:
    """Whether lanes may name different ones that they meet."""
    return effect.orders and effect.mask is not None and constant(effect.mask) is None


def _only_registers(op: Op) -> bool:
    """Whether all that an instruction does is to read and set registers of its own lane."""
    return all(
        isinstance(e, Defines) or (isinstance(e, UsesFragment) and e.partly and not e.asynchronous)
        for e in op.effects()
    )


def block_at(graph: FlowGraph, number: int) -> range:
    """The instructions of the basic block that one is in."""
    return graph.blocks[graph.block_of[number]]


def met_before(graph: FlowGraph, number: int) -> int | None:
    """The instruction at which the lanes of a warp meet before one, -1 for where they all begin;
    None if there is none in its block, or they do more after it than to set registers."""
    first = block_at(graph, number).start
    for earlier in reversed(range(first, number)):
        instruction = graph.mir.code[earlier]
        match instruction.what:
            case ElectSync(warp_sync=True) | Join(syncs=True) if instruction.guard is None:
                return earlier
            case SyncWarp(mask=mask) if instruction.guard is None:
                return earlier if constant(mask) == _FULL else None
            case Op() if earlier > first and _meet_in_cluster(graph.mir, earlier - 1):
                return earlier
            case Op() if _meet_in_cta(graph.mir, earlier):
                return earlier
            case ElectSync() | Join():
                pass
            case Op() as op if _only_registers(op):
                pass
            case _:
                return None
    return None if first or graph.predecessors[0] else -1


def meets_at(graph: FlowGraph, meet: int) -> bool:
    """Whether the lanes that come together at a `Join` meet there, or when they have only set
    registers."""
    for number in range(meet, block_at(graph, meet).stop):
        instruction = graph.mir.code[number]
        match instruction.what:
            case Join(syncs=syncs):
                if syncs:
                    return True
            case SyncWarp(mask=mask) if instruction.guard is None:
                return constant(mask) == _FULL
            case Op() as op if _only_registers(op):
                pass
            case _:
                return _meet_in_cta(graph.mir, number) or _meet_in_cluster(graph.mir, number)
    return False


def _meet_in_cta(mir: Mir, number: int) -> bool:
    """Whether all lanes of a warp wait together at a barrier of the CTA (E4)."""
    if mir.code[number].guard is not None:
        return False
    return any(isinstance(e, JoinsBarrier) and e.waits and e.aligned for e in mir.effects[number])


def _meet_in_cluster(mir: Mir, number: int) -> bool:
    """Whether all lanes of a warp release what they did at the barrier of the cluster, and wait for
    it next (D4)."""
    both = mir.code[number : number + 2]
    if len(both) < 2 or any(i.guard is not None for i in both):
        return False
    arrive, wait = (
        next((e for e in mir.effects[n] if isinstance(e, JoinsCluster)), None)
        for n in (number, number + 1)
    )
    if arrive is None or wait is None or not (arrive.aligned and wait.aligned):
        return False
    return arrive.arrives and arrive.sem == "release" and not wait.arrives


_LANE = ("lane_id", "thread_id")


def elected(program: Program, *, meets: bool = False) -> frozenset[str]:
    """Variables that only ``elect.sync`` writes: they hold in one lane.

    ``meets``: only by such before which the lanes meet.
    """
    writers: dict[str, list[Op]] = {}
    for stmt in program.statements:
        if isinstance(stmt, Op):
            for var in defined(stmt):
                writers.setdefault(var.name, []).append(stmt)
    return frozenset(
        name
        for name, ops in writers.items()
        if all(isinstance(o, ElectSync) and (o.warp_sync or not meets) for o in ops)
    )


def divergent_variables(program: Program) -> frozenset[str]:
    """Variables whose value may differ between the lanes of a warp."""
    found: set[str] = set()
    while True:
        before = len(found)
        _spread(program.body, found, inside=False)
        if len(found) == before:
            return frozenset(found)


def is_divergent(expr: Expr, divergent: frozenset[str] | set[str]) -> bool:
    """True if the value may differ between the lanes of a warp."""
    return any(
        (isinstance(x, Special) and x.name in _LANE) or (isinstance(x, Var) and x.name in divergent)
        for x in walk_expr(expr)
    )


def _spread(body: tuple[Stmt, ...], found: set[str], *, inside: bool) -> None:
    for stmt in body:
        if isinstance(stmt, Op):
            sets = [e for e in stmt.effects() if isinstance(e, fx.Defines)]
            differs = bool(sets) and any(is_divergent(x, found) for x in operands(stmt))
            found.update(e.var.name for e in sets if inside or differs or e.divergent)
            continue
        split = isinstance(stmt, If | While) and is_divergent(stmt.cond, found)
        if isinstance(stmt, For) and inside:
            found.discard(stmt.var.name)
        for region in children(stmt):
            _spread(region, found, inside=inside or split)


def leaves(body: tuple[Stmt, ...], *, loops: bool = True) -> bool:
    """True if a lane may leave the region early: by exit, or by a break (``loops``) of it."""
    for stmt in body:
        if isinstance(stmt, Op) and stmt.mnemonic == "exit":
            return True
        if isinstance(stmt, Break) and loops:
            return True
        inner = loops and not isinstance(stmt, (For, While))
        if any(leaves(region, loops=inner) for region in children(stmt)):
            return True
    return False


# ------------------------------------------------------------------ where lanes meet


class Lanes:
    """What a program's branches do to the lanes of its warps."""

    def __init__(self, program: Program) -> None:
        self.divergent = divergent_variables(program)
        self.elected = elected(program)
        self._meets = elected(program, meets=True)

    def splits(self, stmt: Stmt) -> bool:
        """Whether only some lanes may enter the regions of a branch or loop."""
        return isinstance(stmt, If | While) and is_divergent(stmt.cond, self.divergent)

    def meets(self, stmt: Stmt) -> bool:
        """Whether the lanes of a warp that has come to a region as a whole meet behind it."""
        match stmt:
            case If(sync=False) | For(sync=False) | While(sync=False):
                return False
            case If(cond=Var(name=name)) if name in self.elected and name not in self._meets:
                return False
            case If(then=then, orelse=orelse):
                return self.splits(stmt) and not leaves((*then, *orelse))
            case For(body=body):
                return leaves(body) and not leaves(body, loops=False)
            case While(body=body):
                left = leaves(body, loops=False)
                return (self.splits(stmt) or leaves(body)) and not left
            case _:
                return False
