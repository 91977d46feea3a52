"""From the tree of a `Program` to the machine's list of instructions (`tilesim.ir.mir`)."""

from __future__ import annotations

from collections.abc import Callable

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.divergence import Lanes, parts_of
from tilesim.arith.operators import integer
from tilesim.arith.types import s32
from tilesim.ir.arithmetic import wrap
from tilesim.ir.elements import apart
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Special, Var
from tilesim.ir.expr import Select as SelectExpr
from tilesim.ir.frozen import cached
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Control, Instruction, Join, Mir, Trap
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import SyncWarp
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While, walk
from tilesim.ir.registers import assigned, outliving_counters, typing_of
from tilesim.records import dataclass, replace
from tilesim.transforms.await_condition import second_wait, spin_wait
from tilesim.transforms.rewrite import renumbered

_WARP = Special("warp_id")


@dataclass(frozen=True, slots=True)
class _Region:
    """What a statement is in: the role that reports name, and whether all lanes reach it of the
    warps that come to the outermost region."""

    role: str
    whole: bool = True


#: an instruction whose target, if it has one, is a label
_Draft = Callable[[], Instruction]


class _Label:
    """A position that is known once everything before it has been lowered."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = -1


@cached
def lower(program: Program) -> Mir:
    """The program as a numbered list of instructions.

    Instructions are copies that know their number, also of one object that is in the program twice.
    Where emitted code has a `bar.warp.sync` behind a region, it is written out if warps do not act
    as one; else the `Join` there says that the lanes meet.
    """
    outliving, written = outliving_counters(program), assigned(program)
    lowering = _Lowering(program, outliving - written)
    lowering.block(program.body, _Region(""))
    drafts = [draft() for draft in lowering.drafts]
    code = tuple(_numbered(draft, number) for number, draft in enumerate(drafts))
    kernel = replace(program, body=(), variables=(*program.variables, *lowering.hidden))
    roles = tuple(program.role_of(warp) for warp in range(program.warps))
    hidden = {var.name for var in lowering.hidden}
    own = {s.var.name for s in program.statements if isinstance(s, For)}
    local = frozenset((own | hidden) - outliving - written)
    mir = Mir(kernel, code, roles, typing_of(program), local)
    meetings = [n for n, i in enumerate(code) if isinstance(i.what, Join) and i.what.syncs]
    if not meetings or not parts_of(graph_of(mir)):
        return mir
    return renumbered(mir, {n: _written_out(code[n]) for n in meetings})


def _written_out(join: Instruction) -> tuple[Instruction, ...]:
    """A `Join` at which the lanes meet, with the instruction by which they do."""
    return join.doing(Join(loc=join.loc)), join.doing(SyncWarp(loc=join.loc))


def _numbered(instruction: Instruction, number: int) -> Instruction:
    what = instruction.what
    return instruction.doing(what.as_number(number)) if isinstance(what, Op) else instruction


class _Lowering:
    """Collects instructions; jumps are resolved when all labels are placed.

    Lanes meet behind a region that the whole warp came to and only some of them entered.

    ``escaping``: see `tilesim.ir.registers.escaping_counters`.
    """

    def __init__(self, program: Program, escaping: frozenset[str]) -> None:
        self.drafts: list[_Draft] = []
        self.hidden: list[Var] = []
        self._escaping = escaping
        self._lanes = Lanes(program)
        self._names = {v.name for v in program.variables}
        #: where a break of the innermost loop goes
        self._loops: list[_Label] = []

    def block(self, body: tuple[Stmt, ...], region: _Region) -> None:
        """Lowers statements one after another."""
        for stmt in body:
            self._statement(stmt, region)

    def _statement(self, stmt: Stmt, region: _Region) -> None:
        match stmt:
            case Role():
                self._role(stmt, region)
            case If():
                self._if(stmt, region)
            case For():
                self._for(stmt, region)
            case While():
                self._while(stmt, region)
            case Break():
                self._branch(self._loops[-1], region, stmt.loc)
            case _:
                for part in apart(stmt):
                    self._add(part, region)

    # ------------------------------------------------------------------ emission

    def _add(self, what: Op | Control, region: _Region, guard: Expr | None = None) -> None:
        instruction = Instruction(what, guard, region.role)
        self.drafts.append(lambda: instruction)

    def _branch(
        self, target: _Label, region: _Region, loc: Loc, cond: Expr | None = None,
        *, sense: bool = True, arms: bool = False, polls: bool = False,
    ) -> None:  # fmt: skip
        def draft() -> Instruction:
            branch = Branch(
                target=target.number, cond=cond, sense=sense, arms=arms, polls=polls, loc=loc
            )
            return Instruction(branch, None, region.role)

        self.drafts.append(draft)

    def _place(self, label: _Label) -> None:
        label.number = len(self.drafts)

    def _join(self, meet: _Label, region: _Region, stmt: Stmt) -> None:
        self._place(meet)
        self._add(Join(syncs=self._meets(stmt, region), loc=stmt.loc), region)

    def _meets(self, stmt: Stmt, region: _Region) -> bool:
        """Whether the lanes meet behind a statement."""
        return region.whole and self._lanes.meets(stmt)

    def _inside(self, stmt: Stmt, region: _Region) -> _Region:
        """What the regions of a branch or loop are in."""
        if region.whole and self._lanes.splits(stmt):
            return replace(region, whole=False)
        return region

    # ------------------------------------------------------------------ regions

    def _role(self, stmt: Role, region: _Region) -> None:
        end = _Label()
        named = region.role or ("" if stmt.name.startswith("warp ") else stmt.name)
        inside = _Region(named, region.whole)
        self._branch(end, region, stmt.loc, _member(stmt.warps), sense=False)
        self.block(stmt.body, inside)
        self._place(end)

    def _if(self, stmt: If, region: _Region) -> None:
        waits = second_wait(stmt)
        if waits is not None:
            self._add(waits[1], region, stmt.cond)
            if self._meets(stmt, region):
                self._add(SyncWarp(loc=stmt.loc), region)
            return
        orelse, meet = _Label(), _Label()
        inside = self._inside(stmt, region)
        arms = synchronises(stmt.then) and synchronises(stmt.orelse)
        other = orelse if stmt.orelse else meet
        self._branch(other, region, stmt.loc, stmt.cond, sense=False, arms=arms)
        self.block(stmt.then, inside)
        if stmt.orelse:
            self._branch(meet, region, stmt.loc)
            self._place(orelse)
            self.block(stmt.orelse, inside)
        self._join(meet, region, stmt)

    def _for(self, stmt: For, region: _Region) -> None:
        """The bounds are evaluated once; the variable is a register that the body may change."""
        head, meet, loc = _Label(), _Label(), stmt.loc
        stop = self._once(stmt.stop, f"{stmt.var.name}.stop", region, loc)
        step = self._once(stmt.step, f"{stmt.var.name}.step", region, loc)
        counter = stmt.var
        if counter.name in self._escaping:
            counter = self._hide(f"{counter.name}.next")
        if not isinstance(step, Const):
            self._add(Trap(cond=step.eq(0), what="a loop whose step is 0", loc=loc), region)
        self._set(counter, stmt.start, region, loc)
        self._place(head)
        self._branch(meet, region, loc, _goes_on(counter, stop, step), sense=False)
        if counter is not stmt.var:
            self._set(stmt.var, counter, region, loc)
        self._loops.append(meet)
        self.block(stmt.body, region)
        self._loops.pop()
        self._set(counter, counter + step, region, loc)
        self._branch(head, region, loc)
        self._join(meet, region, stmt)

    def _once(self, bound: Expr, name: str, region: _Region, loc: Loc) -> Expr:
        """A bound of a loop, in a register of its own unless it cannot change."""
        match bound:
            case Const(value) | ScalarParam(_, value):
                return Const(wrap(integer(value), "s32"))
        hidden = self._hide(name)
        self._set(hidden, bound, region, loc)
        return hidden

    def _hide(self, name: str) -> Var:
        """A register that the source does not name."""
        candidate, n = name, 1
        while candidate in self._names:
            candidate, n = f"{name}.{n}", n + 1
        self._names.add(candidate)
        self.hidden.append(Var(candidate, s32))
        return self.hidden[-1]

    def _set(self, var: Var, value: Expr, region: _Region, loc: Loc) -> None:
        what = Assign(var=var, value=value, loc=loc)
        instruction = Instruction(what, None, region.role, counts=True)
        self.drafts.append(lambda: instruction)

    def _while(self, stmt: While, region: _Region) -> None:
        waits = spin_wait(stmt)
        if waits is not None:
            # a flag that is still set from another wait, or a first poll, lets the loop out at once
            for part in waits:
                self._add(part, region, stmt.cond)
            if self._meets(stmt, region):
                self._add(SyncWarp(loc=stmt.loc), region)
            return
        head, meet = _Label(), _Label()
        self._place(head)
        self._branch(meet, region, stmt.loc, stmt.cond, sense=False)
        self._loops.append(meet)
        self.block(stmt.body, self._inside(stmt, region))
        self._loops.pop()
        self._branch(head, region, stmt.loc, polls=True)
        self._join(meet, region, stmt)


def _member(warps: tuple[int, ...]) -> Expr:
    """Whether the executing warp is one of these."""
    if not warps:
        return Const(False)
    low, high = min(warps), max(warps)
    if low == high:
        return _WARP.eq(low)
    if len(set(warps)) == high - low + 1:
        lower, upper = Binary(">=", _WARP, Const(low)), Binary("<=", _WARP, Const(high))
        return Binary("and", lower, upper)
    mask = sum(1 << w for w in set(warps))
    return (Const(mask) >> _WARP) & 1


def _goes_on(counter: Var, stop: Expr, step: Expr) -> Expr:
    """Whether a loop makes another turn."""
    match step:
        case Const(value):
            return Binary("<" if value > 0 else ">", counter, stop)
        case _:
            return SelectExpr(step > 0, counter < stop, counter > stop)


def synchronises(body: tuple[Stmt, ...]) -> bool:
    """Whether an instruction in there is one that others can observe or wait for."""
    return any(isinstance(s, Op) and s.synchronises for s in walk(body))
