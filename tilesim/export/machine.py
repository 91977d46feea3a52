"""One warp of a program in machine form: it is followed through the list, and every round of a loop
is written out.

What a warp does must follow from its number, its lanes and the launch. Waits are taken to end, as
the model decides whether they do; what memory holds, and answers of polls, the model does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tilesim.analysis.cfg import LANES, graph_of
from tilesim.export.errors import NotExportable
from tilesim.export.instructions import instruction, silent
from tilesim.export.model import Model
from tilesim.export.nodes import Action, Node
from tilesim.export.process import FULL, Process, reason
from tilesim.export.values import Known, Runtime, Unknown, Value, active
from tilesim.ir.addresses import bases
from tilesim.ir.effects import Defines, Gathers, Shuffles
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Mir, Switch, Trap
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.machine.cta import coordinates
from tilesim.sim.machine.expression import Evaluate, compile_expr
from tilesim.sim.machine.unknown import plain

#: instructions of one warp: a model of more is of no use to SPIN
MOST = 50_000
_ANSWER = "an answer that differs between schedules"


class MachineProcess(Process):
    """A warp whose registers hold one number per lane, computed as the machine computes them."""

    addressed = True

    def __init__(self, model: Model, mir: Mir, rank: int, warp: int, held: int) -> None:
        super().__init__(model, rank, warp, held)
        self._mir = mir
        self._slots = {v.name: n for n, v in enumerate(mir.kernel.variables)}
        self._compiled: dict[int, tuple[Evaluate, tuple[str, ...]]] = {}
        program, number = mir.kernel, model.ctas[rank]
        coords = coordinates(program, number)
        cluster = SimpleNamespace(number=model.cluster)
        self._warp = SimpleNamespace(
            number=warp, mask=FULL, registers=[None] * len(self._slots),
            cta=SimpleNamespace(rank=rank, coords=coords, cluster=cluster),
            machine=SimpleNamespace(program=program, plan=SimpleNamespace(bases=bases(program))),
        )  # fmt: skip

    def value(self, expr: Expr) -> Value:
        """``expr`` in the active lanes."""
        evaluate, names = self._of(expr)
        for name in names:
            value = self.state.variables.get(name, Unknown(f"%{name}, which is not set"))
            if isinstance(value, Unknown):
                return value
            if isinstance(value, Runtime):
                if isinstance(expr, Var):
                    return self._read(expr, self.state.mask)
                return Unknown(f"%{name}, {_ANSWER}")
            if None in value.lanes and any(
                value.lanes[lane] is None for lane in active(self.state.mask)
            ):
                return Unknown(f"%{name}, which not every lane has set")
            self._warp.registers[self._slots[name]] = _register_value(value)
        self._warp.mask = mask = self.state.mask
        try:
            found = plain(evaluate(cast(Any, self._warp)))
        except ZeroDivisionError:
            return Unknown("a division by zero")
        lanes = (found,) * LANES if np.ndim(found) == 0 else tuple(found.tolist())
        if mask == FULL:
            return Known(lanes)
        return Known(tuple(v if mask >> i & 1 else None for i, v in enumerate(lanes)))

    def _of(self, expr: Expr) -> tuple[Evaluate, tuple[str, ...]]:
        """What evaluates an expression, and the registers that it reads."""
        found = self._compiled.get(id(expr))
        if found is None:
            names = dict.fromkeys(e.name for e in walk(expr) if isinstance(e, Var))
            compiled = compile_expr(expr, self._slots, self._mir.typing)
            found = self._compiled[id(expr)] = compiled, tuple(names)
        return found

    def define(self, var: Var, value: Value) -> tuple[Node, ...]:
        """``var = value`` in the active lanes; what is known needs no copy in the model."""
        nodes = super().define(var, value)
        return () if isinstance(value, Known) else nodes

    def _known(self, shuffles: Shuffles) -> bool:
        """Whether all lanes exchange, and what is known."""
        operands = (self.value(e) for e in (shuffles.value, shuffles.lane))
        return self.state.mask == FULL and all(isinstance(v, Known) for v in operands)

    def compute(self, op: Op) -> bool:
        """Sets the registers that an instruction computes; False if it does something else."""
        match op.effects():
            case (*_, Shuffles(mode="idx") as shuffles, Defines(var=var)) if self._known(shuffles):
                given, lane = self.value(shuffles.value), self.value(shuffles.lane)
                assert isinstance(given, Known)
                assert isinstance(lane, Known)
                self.define(var, Known(tuple(given.lanes[int(n or 0) % LANES] for n in lane.lanes)))
                return True
            case _:
                pass
        effects = [e for e in op.effects() if not isinstance(e, Gathers | Shuffles)]
        results = [e for e in effects if isinstance(e, Defines)]
        if not results or len(results) < len(effects) or any(e.value is not None for e in results):
            return False
        told = type(op).evaluate is not Op.evaluate
        if not told or any(e.unknown or e.oracle for e in results):
            for effect in results:
                self.forget(effect.var, f"{effect.var}, which {op.mnemonic} sets at {op.loc}")
            return True
        try:
            columns = op.evaluate(cast(Any, _Operands(self)))
        except _NotKnown as error:
            for effect in results:
                self.forget(effect.var, str(error))
            return True
        for effect, column in zip(results, columns, strict=False):
            lanes = np.broadcast_to(column, LANES).tolist()
            self.define(effect.var, Known(tuple(lanes)))
        return True


class _NotKnown(Exception):
    """An operand is not known; the text says which."""


class _Operands:
    """What `tilesim.ir.op.Inputs` has for instructions that compute registers of registers."""

    def __init__(self, process: MachineProcess) -> None:
        self._process = process
        self.active = np.array([process.state.mask >> i & 1 for i in range(LANES)], bool)

    def lanes(self, operand: Expr) -> Any:
        """An operand's value in each lane."""
        value = self._process.value(operand)
        if not isinstance(value, Known):
            raise _NotKnown(reason(value))
        numbers = [v or 0 for v in value.lanes]
        return np.array(
            numbers, object if any(v >> 63 for v in numbers if type(v) is int) else None
        )

    def scalar(self, operand: Expr) -> Any:
        """An operand that is the same in all active lanes."""
        return self.lanes(operand)[int(np.argmax(self.active))]

    def number(self, _operand: Expr) -> int | None:
        """Of each lane is known whether it has set its operands."""
        return None


def _register_value(value: Known) -> Any:
    """A value as registers of the machine hold it: one number, if all lanes have the same."""
    first = value.lanes[0]
    return first if first is not None and len({*value.lanes}) == 1 else _array(value)


def _array(value: Known) -> Any:
    """One number per lane."""
    numbers = [v or 0 for v in value.lanes]
    return np.array(numbers, object if any(type(v) is int and v >> 63 for v in numbers) else None)


@dataclass
class _Group:
    """Lanes that are at ``pc`` and stay together until ``end``; ``acts``: others have seen them.

    ``arms``: how many of the groups that it was split into have acted, at the branch ``split``.
    """

    pc: int
    mask: int
    end: int
    acts: bool = False
    arms: int = 0
    split: Loc | None = None


class MachineCode:
    """Writes what one warp does."""

    def __init__(self, process: MachineProcess, mir: Mir) -> None:
        self._process = process
        self._mir = mir
        self._graph = graph_of(mir)
        self._groups = [_Group(0, FULL, len(mir.code))]

    def nodes(self) -> tuple[Node, ...]:
        """The statements of the warp.

        Raises:
            NotExportable: what it does depends on something that the model does not have.
        """
        nodes: list[Node] = []
        steps = 0
        while self._groups and not self._process.state.dead:
            group = self._groups[-1]
            state = self._process.state
            state.mask = group.mask & state.live
            if group.pc == group.end or not state.mask:
                self._leave(group)
                continue
            steps += 1
            if steps > MOST:
                loc = self._mir.code[group.pc].loc
                why = f"a warp executes more than {MOST:,} instructions, and all are written out"
                raise NotExportable("the loop", loc, why)
            made = tuple(self._step(group))
            group.acts = group.acts or bool(made)
            nodes += made
        return tuple(nodes)

    def _leave(self, group: _Group) -> None:
        """The lanes wait for those that they were split from."""
        self._groups.pop()
        if not self._groups or not group.acts:
            return
        whole = self._groups[-1]
        # the group below is a sibling, or the one that was split
        while whole.split is None and len(self._groups) > 1:
            whole = self._groups[self._groups.index(whole) - 1]
        whole.arms += 1
        whole.acts = True
        if whole.arms > 1 and whole.split is not None:
            raise NotExportable(
                "the branch", whole.split, "its lanes act in both arms, in an order left open"
            )

    def _step(self, group: _Group) -> Iterator[Node]:
        number = group.pc
        item = self._mir.code[number]
        group.pc += 1
        match item.what:
            case Branch(target=target, cond=None):
                group.pc = target
            case Branch(target=target, cond=Expr() as cond, sense=sense):
                self._go(group, number, cond, {int(sense): target})
            case Switch(index=index, targets=targets):
                self._go(group, number, index, dict(enumerate(targets)))
            case Trap(cond=cond, what=what):
                if any(self._decided(cond, "trap", item.loc)):
                    yield Action("assert(false)", item.loc, what)
            case Op() as op:
                yield from self._op(op, item.guard)
            case _:
                pass

    def _op(self, op: Op, guard: Expr | None) -> Iterator[Node]:
        process, whole = self._process, self._process.state.mask
        if guard is not None:
            if isinstance(process.value(guard), Unknown) and silent(op):
                self._forget(op)
                return
            held = self._decided(guard, op.mnemonic, op.loc)
            process.state.mask = sum(1 << i for i in active(whole) if held[i])
        if process.state.mask and not process.compute(op):
            yield from instruction(process, op)

    def _decided(self, cond: Expr, what: str, loc: Loc) -> tuple[int, ...]:
        """A condition or index in each lane, 0 where it is not active.

        Raises:
            NotExportable: the model does not have it.
        """
        value = self._process.value(cond)
        if not isinstance(value, Known):
            why = f"{cond}, {_ANSWER}" if isinstance(value, Runtime) else reason(value)
            raise NotExportable(what, loc, f"what it does depends on {why}")
        return tuple(int(v or 0) for v in value.lanes)

    def _forget(self, op: Op) -> None:
        for effect in op.effects():
            if isinstance(effect, Defines):
                why = f"{effect.var}, set by {op.mnemonic} at {op.loc} under a condition"
                self._process.forget(effect.var, f"{why} the model does not have")

    # ------------------------------------------------------------------ branches

    def _go(self, group: _Group, number: int, cond: Expr, targets: dict[int, int]) -> None:
        """Lanes go where ``targets`` has what the condition is in them, else on."""
        loc, after = self._mir.code[number].loc, group.pc
        meet = self._meeting(number)
        if isinstance(self._process.value(cond), Unknown) and meet is not None:
            passed = self._between(number, meet)
            if passed is not None:
                for op in passed:
                    self._forget(op)
                group.pc = meet
                return
        values = self._decided(cond, "the branch", loc)
        truth = targets.keys() <= {0, 1} and len(targets) == 1
        by_target: dict[int, int] = {}
        for lane in active(self._process.state.mask):
            value = int(values[lane] != 0) if truth else values[lane]
            target = targets.get(value, after)
            by_target[target] = by_target.get(target, 0) | 1 << lane
        if len(by_target) == 1:
            (group.pc,) = by_target
            return
        group.pc = len(self._mir.code) if meet is None else meet
        group.arms, group.split = 0, loc
        self._groups += [_Group(target, mask, group.pc) for target, mask in by_target.items()]

    def _meeting(self, number: int) -> int | None:
        """Where the lanes that a branch splits go on together; None: at no place."""
        block = self._graph.post_dominators[self._graph.block_of[number]]
        if block is None:
            return None
        return self._graph.blocks[block].start

    def _between(self, number: int, meet: int) -> list[Op] | None:
        """The instructions between a branch and where its lanes meet, if they only move data and
        are no loop: it may wait for what others do to memory."""
        graph, found = self._graph, list[Op]()
        last = graph.block_of[meet] if meet < len(self._mir.code) else len(graph.blocks) - 1
        todo, seen = list(graph.successors[graph.block_of[number]]), {last}
        while todo:
            block = todo.pop()
            if block in seen:
                continue
            seen.add(block)
            todo += graph.successors[block]
            for item in (self._mir.code[n] for n in graph.blocks[block]):
                if isinstance(item.what, Trap) or (
                    isinstance(item.what, Op) and not silent(item.what)
                ):
                    return None
                if isinstance(item.what, Op):
                    found.append(item.what)
        inside = seen - {last} | {graph.block_of[number]}
        return None if any(block in inside for block, _ in graph.back_edges) else found
