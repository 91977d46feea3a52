"""Which instructions have to be followed to tell whether two warps store the same unknown data.

These are the instructions that what they store comes from (SEMANTICS H23). While a machine runs,
each of them gives the registers that it sets a name, which is made of the names of what it works on
(`tilesim.sim.observers.value_numbers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import expressions_in, operand_expressions, registers_set
from tilesim.ir.effects import (
    Defines,
    Effect,
    Gathers,
    GathersWarps,
    Issues,
    Reads,
    Shuffles,
    UsesFragment,
    Writes,
)
from tilesim.ir.expr import Base, Expr, Special, Var, walk
from tilesim.ir.op import Op, Symmetric
from tilesim.sim.machine.assignment_jit import take_apart
from tilesim.sim.machine.executable import Leaf, Making, Operand
from tilesim.sim.machine.expression import evaluator
from tilesim.sim.machine.machine import Code, Step, Warp
from tilesim.sim.observers.value_numbers import NamingDetector

#: by name of a variable, the numbers of the instructions that set it
_Setters: TypeAlias = Mapping[str, Collection[int]]
#: what differs between the CTAs of a grid
_OF_GRID = frozenset({"cta_x", "cta_y", "cta_z", "cluster_rank", "cluster_id"})


def name_stores(code: Code, stores: Iterable[int]) -> None:
    """From now on, machines that run ``code`` say what these stores leave, if that can be said of
    any."""
    naming = _Naming(code)
    for number in stores:
        what = code.mir.code[number].what
        if isinstance(what, Op) and (data := _stored(what)):
            code.named[number] = tuple(naming.operand(number, expr) for expr in data)
            naming.follow(data)
    code.makings.update(naming.makings)
    _watch(code)


def _stored(op: Op) -> list[Expr]:
    """What a weak store of lanes stores, or of a warp together; nothing of others."""
    for effect in op.effects():
        match effect:
            case Writes(proxy="generic", sem="weak", combine=None, asynchronous=False):
                pass
            case Gathers():
                pass
            case _:
                return []
    return [expr for name in op.data for expr in expressions_in(getattr(op, name))]


class _Naming:
    """Finds the instructions that what is stored comes from."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self.makings: dict[int, Making] = {}
        self._setters = code.mir.setters
        #: by name of a register tile, the variable that stands for its registers, and the other way
        self._variables: dict[str, str] = {}
        self._products: dict[str, list[int]] = {}
        for number, instruction in enumerate(code.mir.code):
            if not isinstance(instruction.what, Op):
                continue
            for effect in code.mir.effects[number]:
                if isinstance(effect, UsesFragment) and effect.variable:
                    self._variables[effect.fragment.name] = effect.variable
        for number, effects in enumerate(code.mir.effects):
            into = _product(effects)
            if into is not None and into.fragment.name in self._variables:
                variable = self._variables[into.fragment.name]
                self._products.setdefault(variable, []).append(number)

    def follow(self, exprs: Iterable[Expr]) -> None:
        """Notes all instructions that these expressions come from."""

        def sources(name: str) -> Iterator[str]:
            for number in (*self._setters.get(name, ()), *self._products.get(name, ())):
                if number not in self.makings:
                    self.makings[number], names = self._making(number)
                    yield from names

        closure(_variables(exprs), sources)

    def operand(self, number: int, expr: Expr) -> Operand:
        """What tells what an expression is for this instruction."""
        parts = [*walk(expr)]
        names = dict.fromkeys(part.name for part in parts if isinstance(part, Var))
        special = {part.name for part in parts if isinstance(part, Special | Base)}
        leaves = (
            *(self._leaf(number, name) for name in names),
            *(Leaf(special=True) for _ in special),
        )
        held = all(self._is_computed(number, name) for name in names)
        evaluate = evaluator(self._code, expr) if held else None
        return Operand(evaluate, leaves, not _OF_GRID.isdisjoint(special))

    def _is_computed(self, number: int, name: str) -> bool:
        """Whether a register holds what the program computes when an instruction reads it."""
        flow = self._code.flow
        setters = flow.setters(number, name)
        return bool(setters) and all(flow.decides(name, setter) for setter in setters)

    def _leaf(self, number: int, name: str) -> Leaf:
        slot = self._code.slots[name]
        if not self._is_computed(number, name):
            return Leaf(slot)
        return Leaf(slot, held=Operand(lambda w: w.registers[slot], (Leaf(slot),)))

    def _making(self, number: int) -> tuple[Making, list[str]]:
        """How an instruction makes registers, and the variables that these come from."""
        instruction, effects = self._code.mir.code[number], self._code.mir.effects[number]
        op = instruction.what
        assert isinstance(op, Op)
        into = _product(effects)
        if into is not None:
            return self._product(number, op, into)
        slots = tuple(self._code.slots[var.name] for var in registers_set(op))
        sources = operand_expressions(op)
        if not sources or not _is_told(effects):
            return Making(number, slots, known=False), []
        guard = None if instruction.guard is None else self.operand(number, instruction.guard)
        operands = tuple(self.operand(number, source) for source in sources)
        tiles = {*self._variables.values()}
        partly = not tiles.isdisjoint(var.name for var in registers_set(op))
        gathers = any(isinstance(e, Gathers | Shuffles) for e in effects)
        if any(isinstance(e, Reads) for e in effects):
            making = Making(
                number, slots, known=True, places=operands, guard=guard, loads=True,
                gathers=gathers, partly=partly,
            )  # fmt: skip
            return making, []
        match effects:
            case (*_, Shuffles(value=value, lane=lane, mode=mode), Defines()):
                making = Making(
                    number, slots, known=True, operands=(self.operand(number, value),),
                    guard=guard, gathers=True, shuffles=mode, lane=self.operand(number, lane),
                )  # fmt: skip
                return making, [*_variables(sources)]
            case _:
                pass
        making = Making(
            number, slots, known=True, operands=operands, guard=guard, gathers=gathers,
            moves=_moves(op) and tiles.isdisjoint(_variables(sources)), partly=partly,
            symmetric=isinstance(op, Symmetric) and op.symmetric,
        )  # fmt: skip
        guards = () if instruction.guard is None else (instruction.guard,)
        return making, [*_variables((*sources, *guards))]

    def _product(self, number: int, op: Op, into: UsesFragment) -> tuple[Making, list[str]]:
        """A product of a warpgroup: of what is in shared memory, and in other registers."""
        effects = self._code.mir.effects[number]
        others = [e.fragment.name for e in effects if isinstance(e, UsesFragment) and e is not into]
        result = self._variables[into.fragment.name]
        sources = [self._variables.get(name, "") for name in others]
        slots = (self._code.slots[result],)
        plain = self._code.mir.code[number].guard is None
        if not plain or "" in sources:
            return Making(number, slots, known=False), []
        making = Making(
            number, slots, known=True,
            operands=tuple(Operand(None, (self._leaf(number, name),)) for name in sources),
            places=tuple(self.operand(number, e) for e in operand_expressions(op)), loads=True,
            product=True,
            keeps=None if into.keeps is None else self.operand(number, into.keeps),
        )  # fmt: skip
        return making, sources


def _variables(exprs: Iterable[Expr]) -> Iterator[str]:
    return (part.name for expr in exprs for part in walk(expr) if isinstance(part, Var))


def _product(effects: tuple[Effect, ...]) -> UsesFragment | None:
    """What a product of a warpgroup adds to; None if an instruction is none."""
    match effects:
        case (GathersWarps(), UsesFragment(product=(_, _, _)) as into, *rest) if any(
            isinstance(e, Issues) for e in rest
        ):
            return into
        case _:
            return None


def _moves(op: Op) -> bool:
    """Whether an instruction sets a register to what another one of its type holds."""
    match op.effects():
        case (Defines(var=var, value=Var() as value),):
            return var.dtype == value.dtype
        case _:
            return False


def _is_told(effects: tuple[Effect, ...]) -> bool:
    """Whether what an instruction sets is said by its operands, and by the memory that it reads."""
    for effect in effects:
        match effect:
            case Gathers() | Shuffles() | Defines(oracle="", elsewhere=False):
                pass
            case Reads(proxy="generic", sem="weak", asynchronous=False, elsewhere=False):
                pass
            case _:
                return False
    return True


def _watch(code: Code) -> None:
    """Each of these instructions is a step by itself, which names what it sets."""
    numbers = code.makings.keys()
    take_apart(code, code.steps, numbers)
    code.rows = {row: step for row, step in code.rows.items() if numbers.isdisjoint(row)}
    code.assigned &= code.rows.keys()
    for number, making in code.makings.items():
        step, sync, cycles = code.steps[number]
        code.steps[number] = code.alone[number] = partial(_named, making, step), sync, cycles


def _named(making: Making, step: Step, w: Warp) -> bool | None:
    races = w.machine.races
    assert isinstance(races, NamingDetector)
    return races.execute(making, step, w)
