"""Flattens a program into steps: one function of a warp per instruction, jumps for regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

from tilesim.ir import effects as fx
from tilesim.ir.dataflow import Dataflow, loaded_tensors
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.memory import GlobalTensor, Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.op import Op, OpTable
from tilesim.ir.ops.cp_async import CpAsyncMbarrierArrive
from tilesim.ir.ops.mbarrier import (
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierWait,
)
from tilesim.ir.program import (
    Break,
    For,
    If,
    Program,
    Role,
    Stmt,
    While,
    children,
    instructions,
    walk,
)
from tilesim.sim import control
from tilesim.sim.expression import Evaluate, compile_expr
from tilesim.sim.latency import issue_cycles
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import OutOfBounds, ViewAccess, uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.warp import Step, Warp
from tilesim.sim.peek import peek_flags, second_wait, spin_wait
from tilesim.sim.spin import counters, spins

Rule: TypeAlias = Callable[["Compiler", Any], Step]
#: how each instruction runs; filled by the modules of ``sim.ops``
RULES: OpTable[Rule] = OpTable("the simulator")

#: a step, whether it is a scheduling point, and its issue cycles (0 for control flow)
Entry: TypeAlias = tuple[Step, bool, int]


@dataclass(slots=True)
class Code:
    """A compiled program: ``steps`` with, per step, the instruction or location it comes from."""

    flow: Dataflow
    steps: list[Entry] = field(default_factory=list)
    origins: list[Op | Loc] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    op_roles: dict[int, str] = field(default_factory=dict)
    group_kinds: tuple[str, ...] = ()
    mbarrier_addresses: tuple[int, ...] = ()
    uses_named: bool = False
    uses_cluster: bool = False
    #: warps of a CTA that can reach a fence.mbarrier_init
    fence_inits: frozenset[int] = frozenset()
    uses_remote_stores: bool = False
    uses_tcgen05: bool = False
    has_loose_credits: bool = False
    #: tensors that instructions access by the async proxy
    async_tensors: frozenset[str] = frozenset()
    #: tensors whose words only count (`tilesim.sim.spin`)
    counters: frozenset[str] = frozenset()


class Compiler:
    """Compiles one program; instruction rules use it to resolve their operands.

    ``numbers`` off skips data that no scalar load can observe.
    """

    def __init__(self, program: Program, *, numbers: bool) -> None:
        self.program = program
        self.code = Code(Dataflow(program))
        self.numbers = numbers or self.code.flow.steers_by_tiles
        self.code.slots = {v.name: i for i, v in enumerate(program.variables)}
        self._observed = loaded_tensors(program)
        #: variables that only say whether a poll must be repeated as a wait
        self.peek_flags = peek_flags(program)
        #: by the identity of the instruction: polls that only wait for a word of memory
        self.spins = spins(program)
        self.code.counters = counters(program, self.spins)
        self._escapes: list[list[control.Label]] = []
        self._role_name = ""

    # ------------------------------------------------------------------ operands, for rules

    def expr(self, expr: Expr) -> Evaluate:
        """``expr`` as a function of a warp."""
        return compile_expr(expr, self.code.slots)

    def slot(self, var: Var) -> int:
        """The register index of a variable."""
        return self.code.slots[var.name]

    def view(self, view: View, *, split: bool = False) -> ViewAccess:
        """``view`` as a resolver of memory and footprint; ``split`` for warpgroup fragments."""
        base = 0
        if isinstance(view.tensor, SharedTensor):
            base = self.program.placement[view.tensor.name]
        return ViewAccess(view, self.code.slots, base, split=split)

    def real(self, tensor: GlobalTensor | SharedTensor) -> bool:
        """True if the tensor's bytes must be computed."""
        return self.holds(tensor.name)

    def holds(self, name: str) -> bool:
        """True if the tensor of this name holds bytes."""
        return self.numbers or name in self._observed

    def mbar(self, mbar: Mbar) -> Callable[[Warp], Mbarrier]:
        """``mbar`` as a function of a warp."""
        base = self.program.placement[mbar.array.name]
        count, name = mbar.array.count, mbar.array.name
        if mbar.cta is not None:
            rank = self.expr(mbar.cta)
            local = self.mbar(Mbar(mbar.array, mbar.index))

            def remote(w: Warp) -> Mbarrier:
                address = local(w).address
                cta = w.machine.peer(w, uniform(rank(w), w))
                return labelled(cta.mbarriers[address], name, (address - base) // 8, cta.number, w)

            return remote
        index = self.expr(mbar.index)

        def resolve(w: Warp) -> Mbarrier:
            i = index(w)
            if type(i) is not int:
                i = uniform(i, w)
            if not 0 <= i < count:
                raise OutOfBounds(f"mbarrier {i} of {name}, which has {count}")
            barrier = w.cta.mbarriers[base + 8 * i]
            if barrier.name is not name:
                labelled(barrier, name, i, w.cta.number, w)
            return barrier

        return resolve

    # ------------------------------------------------------------------ statements

    def compile(self) -> Code:
        """The whole program; the last step ends the warp."""
        import_module("tilesim.sim.ops")  # registers the rules

        program, code = self.program, self.code
        all_effects = [e for op in instructions(program) for e in op.effects()]
        code.group_kinds = tuple(sorted(_group_kinds(program)))
        code.mbarrier_addresses = tuple(
            sorted(
                {
                    program.placement[s.name] + 8 * i
                    for s in program.shared if isinstance(s, Mbarriers)
                    for i in range(s.count)
                }
            )
        )  # fmt: skip
        code.async_tensors = frozenset(_asynchronous(all_effects))
        code.uses_named = any(isinstance(e, fx.JoinsBarrier) for e in all_effects)
        code.uses_cluster = any(isinstance(e, fx.JoinsCluster) for e in all_effects)
        every = frozenset(range(program.warps))
        code.fence_inits = frozenset(_executing(FenceMbarrierInit, program.body, every))
        code.uses_tcgen05 = any("tcgen05" in op.features for op in instructions(program))
        code.uses_remote_stores = any(isinstance(e, fx.RemoteStore) for e in all_effects)
        code.has_loose_credits = any(_is_loose(op) for op in instructions(program))
        end = control.Label()
        self._escapes.append([end])
        self._block(program.body)
        self._place(end)
        self._emit(control.finish, program.loc)
        return code

    def _emit(self, step: Step, origin: Op | Loc, *, sync: bool = False, cycles: int = 0) -> None:
        self.code.steps.append((step, sync, cycles))
        self.code.origins.append(origin)

    def _place(self, label: control.Label) -> None:
        label.pc = len(self.code.steps)

    def _block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Role():
                self._role(stmt)
            case If():
                self._if(stmt)
            case For():
                self._for(stmt)
            case While():
                self._while(stmt)
            case Break():
                self._emit(control.leave_loop(self._escapes[-1][-1]), stmt.loc)
            case _:
                self._instruction(stmt)

    def _instruction(self, op: Op) -> None:
        step = RULES[type(op)](self, op)
        if self._role_name:
            self.code.op_roles[id(op)] = self._role_name
        self._emit(step, op, sync=op.synchronises, cycles=issue_cycles(op))
        if op.mnemonic == "exit":
            self._emit(control.jump_if_empty(self._escapes[-1][-1]), op.loc)

    def _role(self, stmt: Role) -> None:
        end = control.Label()
        self._emit(control.skip_unless_member(frozenset(stmt.warps), end), stmt.loc)
        outer = self._role_name
        if not outer and not stmt.name.startswith("warp "):
            self._role_name = stmt.name
        self._block(stmt.body)
        self._role_name = outer
        self._place(end)

    def _if(self, stmt: If) -> None:
        peeked = second_wait(stmt)
        if peeked is not None and peeked[0].name in self.peek_flags:
            self._peeked(stmt, *peeked)
            return
        orelse, end = control.Label(), control.Label()
        arms = _synchronises(stmt.then) and _synchronises(stmt.orelse)
        self._emit(control.enter_if(self.expr(stmt.cond), orelse, arms=arms), stmt.loc)
        self._escapes[-1].append(orelse)
        self._block(stmt.then)
        self._place(orelse)
        self._escapes[-1].pop()
        if stmt.orelse:
            self._emit(control.enter_else(end, stmt.loc), stmt.loc)
            self._escapes[-1].append(end)
            self._block(stmt.orelse)
            self._escapes[-1].pop()
            self._place(end)
        self._emit(control.leave_if(self._escapes[-1][-1]), stmt.loc)

    def _peeked(self, stmt: If, flag: Var, wait: MbarrierWait) -> None:
        """``if not flag: wait`` as one instruction."""
        from tilesim.sim.ops.mbarrier_wait import wait_unless

        if self._role_name:
            self.code.op_roles[id(wait)] = self._role_name
        step = wait_unless(self, stmt.cond, flag, wait)
        self._emit(step, wait, sync=wait.synchronises, cycles=issue_cycles(wait))

    def _for(self, stmt: For) -> None:
        head, next_, end = control.Label(), control.Label(), control.Label()
        slot = self.slot(stmt.var)
        bounds = (self.expr(stmt.start), self.expr(stmt.stop), self.expr(stmt.step))
        self._emit(control.enter_for(slot, bounds, end), stmt.loc)
        self._place(head)
        self._escapes[-1].append(next_)
        self._block(stmt.body)
        self._escapes[-1].pop()
        self._place(next_)
        self._emit(control.next_for(slot, head), stmt.loc)
        self._place(end)
        self._emit(control.leave_if(self._escapes[-1][-1]), stmt.loc)

    def _while(self, stmt: While) -> None:
        spin = spin_wait(stmt)
        if spin is not None:
            # a flag that is still set from another wait, or a first poll, lets the loop out at once
            for part in spin:
                self._if(If(cond=stmt.cond, then=(part,), loc=stmt.loc))
            return
        head, next_, end = control.Label(), control.Label(), control.Label()
        self._emit(control.enter_while, stmt.loc)
        self._place(head)
        self._emit(control.test_while(self.expr(stmt.cond), end), stmt.loc)
        self._escapes[-1].append(next_)
        self._block(stmt.body)
        self._escapes[-1].pop()
        self._place(next_)
        self._emit(control.next_while(head, end), stmt.loc)
        self._place(end)
        self._emit(control.leave_if(self._escapes[-1][-1]), stmt.loc)


def labelled(barrier: Mbarrier, name: str, index: int, cta: int, warp: Warp) -> Mbarrier:
    """Gives the barrier the name the program uses for it here (arrays may alias)."""
    prefix = "" if warp.machine.program.ctas == 1 else f"CTA {cta} "
    barrier.name = name
    barrier.label = f"{prefix}{name}[{index}]"
    return barrier


def require_live(barrier: Mbarrier, warp: Warp, op: Op) -> None:
    """Raises unless ``barrier`` is initialised, visibly to ``warp`` (A6, A7)."""
    if not barrier.live:
        if barrier.ended is not None:
            raise BarrierError(
                "barrier-lifetime",
                f"{op.mnemonic} on {barrier.label} after its mbarrier.inval (A6)",
                "invalidate a barrier only after its last use, and synchronise in between",
                barrier.ended,
            )
        raise BarrierError(
            "uninitialised-barrier",
            f"{op.mnemonic} on {barrier.label}, which has not been initialised yet (A6)",
            "initialise it in one thread and synchronise (__syncthreads, or a cluster barrier "
            "after fence.mbarrier_init) before any other use",
        )
    if warp.index not in barrier.visible_to:
        barrier.check_visible(warp, op)


def _is_loose(op: Op) -> bool:
    """True if the order of such credits matters within a phase: bytes or arrivals that are expected
    apart from an arrival, and arrivals that see how many are pending."""
    match op:
        case CpAsyncMbarrierArrive(noinc=noinc):
            return not noinc
        case MbarrierArrive(no_complete=partial):
            return partial
        case _:
            effects = op.effects()
            expects = any(isinstance(e, fx.Expects) for e in effects)
            return expects and not any(isinstance(e, fx.Arrives) for e in effects)


def _synchronises(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Op) and s.synchronises for s in walk(body))


def _executing(kind: type[Op], body: tuple[Stmt, ...], warps: frozenset[int]) -> Iterator[int]:
    """The ``warps`` that may execute an instruction of this kind, by the roles around it."""
    for stmt in body:
        inside = warps.intersection(stmt.warps) if isinstance(stmt, Role) else warps
        if isinstance(stmt, kind):
            yield from inside
        for region in children(stmt):
            yield from _executing(kind, region, inside)


def _asynchronous(effects: Iterable[fx.Effect]) -> Iterator[str]:
    """The tensors that are accessed by the async proxy."""
    for effect in effects:
        match effect:
            case fx.Reads(view=view, proxy="async") | fx.Writes(view=view, proxy="async"):
                yield view.tensor.name
            case fx.ReadsMap(map=map_) | fx.WritesMap(map=map_):
                yield map_.tensor.name
            case _:
                pass


def _group_kinds(program: Program) -> set[str]:
    """Group kinds the program uses: operations that complete through one, commits, waits."""
    kinds: set[str] = set()
    for op in instructions(program):
        for effect in op.effects():
            match effect:
                case fx.Commits(group="bulk") | fx.WaitsGroup(group="bulk"):
                    kinds.update(("bulk", "bulk.write"))
                case fx.WaitsGroup(group=group) | fx.Commits(group=group):
                    kinds.add(group)
                case fx.Reads(proxy="async", asynchronous=True):
                    kinds.update(("bulk", "bulk.write", "wgmma"))
                case fx.UsesTmem():
                    kinds.update(("tcgen05", "tcgen05.ld", "tcgen05.st", "tcgen05.order"))
                case fx.Writes(proxy="generic", asynchronous=True):
                    kinds.add("cp.async")
                case _:
                    pass
    return kinds
