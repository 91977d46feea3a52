"""Follows what moves through the instructions of a machine, as it executes them.

A run stands for others: for the next repetitions of a loop, for other clusters of the grid, for
larger values of a parameter. A value that moves is another one there: larger by a shift in the next
repetition (`shifts`) and for a larger parameter (`parameter_values`), or one of an array that has
it in all clusters (`cluster_classes`). Each instruction has to be the same there but for what it
moves to registers, for where it accesses memory whose contents are not looked at, and for data that
it stores there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilesim.analysis.uses_defs import mentioned, operand_expressions, registers_set
from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.expr import Base, Expr, Special, Var, walk
from tilesim.ir.mir import Branch, Switch, Trap, condition
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.affine.cluster_plan import OF_THE_WARP
from tilesim.sim.affine.free_parameter import Obstacle
from tilesim.sim.affine.loop_places import MovableOperand, OperandMotion, depends_on_registers
from tilesim.sim.affine.shifts import Lost, NoShift, Shift, Shifts, is_moving, set_moving
from tilesim.sim.machine.expression import evaluator
from tilesim.sim.machine.lanes import FULL, condition_lanes, mask_array
from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
from tilesim.sim.machine.unknown import Unknown

#: how registers of a warp move, by slot: by a shift, or in all clusters
Moving: TypeAlias = "dict[int, Any]"
#: a register: the identity of a warp, and the slot
Register: TypeAlias = "tuple[int, int]"


#: an operand, with the slots in it, and whether it moves by itself
Operand: TypeAlias = "tuple[Expr, frozenset[int], bool]"
#: a register that is set: its slot, how it moves, in which lanes it is set, and whether in all
Result: TypeAlias = "tuple[int, Any, int, bool]"


@dataclass(frozen=True)
class Uses:
    """What an instruction needs and sets: ``reads`` and ``sets`` are slots, ``touched`` both.

    ``exprs`` is all that is evaluated; ``moves``: some of it moves by itself. ``stays`` has to hold
    where it is executed. ``pure``: what is found about it is the same whenever these registers hold
    the same; if ``own`` is 1, in one CTA, if it is 2, in one warp. ``head``: where a loop begins
    that may only look, if it goes back there.
    """

    exprs: tuple[Expr, ...]
    reads: frozenset[int]
    sets: tuple[int, ...]
    touched: frozenset[int]
    operands: tuple[Operand, ...]
    stays: Expr | None
    moves: bool
    pure: bool
    own: int
    head: int | None


class Evaluator(ABC):
    """Follows a machine; ``moving``: by warp and slot, how registers move (lanes that are an agent
    of their own use those of their warp).

    ``obstacle`` is what is found that is not the same. Of the instruction at hand, ``pc``, ``op``,
    ``places`` are how what it accesses moves, and ``stores`` how the data does: "" if it does not.
    """

    def __init__(self, machine: Machine, moving: dict[int, Moving]) -> None:
        self.machine = machine
        self._code = machine.plan.mir.code
        self.moving = moving
        self.obstacle: Obstacle | None = None
        self.pc = 0
        self.op: object = None
        self.places: list[Any] = []
        self.stores = ""
        self._uses: dict[int, Uses] = {}
        #: what is found about an instruction, by what decides that: its results, places and data
        self._known: dict[tuple[object, ...], tuple[list[Result], list[Any], str]] = {}
        self._results: list[Result] = []
        #: keeps alive what is named by its identity there
        self._arrays: dict[int, Any] = {}

    # ------------------------------------------------------------------ what is followed

    @abstractmethod
    def _described(self, pc: int) -> Uses:
        """What an instruction needs and sets."""

    def _depends(self, expr: Expr) -> bool:
        """Whether an expression moves by itself."""
        return False

    @abstractmethod
    def _name(self, w: Warp, slot: int, moving: Moving) -> Hashable | None:
        """A short name of what a register holds and how it moves; None if there is none."""

    @abstractmethod
    def _require_fixed(self, expr: Expr, w: Warp, mask: int, moving: Moving) -> None:
        """The value of an expression is the same."""

    def _decide(self, cond: Expr, w: Warp, moving: Moving) -> None:
        """Where an instruction goes, or whether it is executed, is the same."""
        self._require_fixed(cond, w, w.mask, moving)

    def _with_unknown_guard(self, guard: Expr, w: Warp) -> int:
        """The lanes that execute an instruction if it is not known which."""
        raise NoShift(guard)

    def _not_covered(self, pc: int, moving: Moving, uses: Uses) -> str:
        """Why an instruction that moves cannot be followed; "" if it can."""
        return ""

    @abstractmethod
    def _assigned(self, var: Var, value: Expr, w: Warp, mask: int, moving: Moving) -> Any:
        """How a register moves that is set to a value."""

    def _computed(self, op: Op, w: Warp, mask: int) -> Sequence[Any]:
        """How the registers move that an instruction sets."""
        return (0,) * len(self.used(self.pc).sets)

    # ------------------------------------------------------------------ instruction by instruction

    def used(self, pc: int) -> Uses:
        """What an instruction needs and sets."""
        known = self._uses.get(pc)
        if known is None:
            known = self._uses[pc] = self._described(pc)
        return known

    def _uses_of(
        self, pc: int, operands: Sequence[Expr], stays: Expr | None, others: Sequence[Expr] = (),
        *, places: bool, pure: bool,
    ) -> Uses:  # fmt: skip
        """``others`` are evaluated that may move, as ``places`` do that it names."""
        instruction, slots = self.machine.plan.mir.code[pc], self.machine.plan.slots
        what = instruction.what
        # effects may have expressions that are made of operands
        found = (*operands, *others, condition(instruction), stays)
        exprs = tuple([expr for expr in found if expr is not None])
        named = {id(e): frozenset(slots[n] for n in registers_in(e)) for e in exprs}
        reads = frozenset[int]().union(*named.values())
        sets = tuple(slots[v.name] for v in registers_set(what)) if isinstance(what, Op) else ()
        return Uses(
            exprs, reads, sets, reads.union(sets),
            tuple((e, named[id(e)], self._depends(e)) for e in operands), stays,
            places or any(map(self._depends, exprs)), pure, max(map(_own, exprs), default=0),
            what.target if isinstance(what, Branch) and what.polls else None,
        )  # fmt: skip

    def look(self, pc: int, w: Warp) -> None:
        """An instruction is about to be executed."""
        if self.obstacle is not None:
            return
        instruction = self._code[pc]
        self.pc, self.op, self.places, self.stores = pc, instruction.what, [], ""
        moving, uses = self.moving.setdefault(id(w.origin), {}), self._uses.get(pc)
        if uses is None:
            uses = self.used(pc)
        if uses.head is not None and self._spins(w, uses.head):
            what = "whether an iteration of a loop changes something"
            self.obstacle = Obstacle(what, instruction.loc)
            return
        if not uses.moves and uses.touched.isdisjoint(moving):
            return
        if not uses.moves and uses.reads.isdisjoint(moving):
            chosen = chosen_lanes(pc, w)
            every = chosen is None or pc in self.machine.plan.idle
            for slot in uses.sets:
                self._set(w, moving, slot, 0, w.mask if chosen is None else chosen, every=every)
            return
        try:
            if why := self._not_covered(pc, moving, uses):
                raise NoShift(why)
            key = self._key(pc, uses.reads, w, w.mask, moving, uses)
            known = None if key is None else self._known.get(key)
            if known is None:
                self._results = []
                self._moved(pc, w, moving, uses)
                results, self._results = self._results, []
                if key is not None:
                    self._known[key] = results, self.places, self.stores
                return
        except NoShift as why:
            named = str(why)
            if isinstance(why.expr, Expr):
                from tilesim.ir.text.printer import value_text

                named = f"`{value_text(self.machine.program, why.expr)}`"
            self.obstacle = Obstacle(named, instruction.loc, why.period)
            return
        results, self.places, self.stores = known
        for result in results:
            self._apply(w, moving, result)

    def _spins(self, w: Warp, head: int) -> bool:
        """Whether it takes the registers to tell if a turn of a polling loop changed anything."""
        lap = w.laps.get(head)
        return lap is not None and (lap.effects, lap.version) == (w.effects, w.machine.version)

    def _key(
        self, what: int, reads: frozenset[int], w: Warp, mask: int, moving: Moving, uses: Uses
    ) -> tuple[object, ...] | None:
        """What decides what is found about an instruction, or an operand, which ``reads`` these
        registers; None if that cannot be said briefly."""
        if not uses.pure:
            return None
        key: list[object] = [what, mask, (0, w.cta.rank, w.index)[uses.own]]
        for slot in reads:
            name = self._name(w, slot, moving)
            if name is None:
                return None
            key.append(name)
        return tuple(key)

    def _moved(self, pc: int, w: Warp, moving: Moving, uses: Uses) -> None:
        """An instruction that uses registers which move."""
        instruction, plan, mask = self.machine.plan.mir.code[pc], self.machine.plan, w.mask
        if uses.stays is not None:
            self._require_fixed(uses.stays, w, mask, moving)
        match instruction.what:
            case Branch(cond=Expr() as cond) | Trap(cond=cond) | Switch(index=cond):
                self._decide(cond, w, moving)
                return
            case Op() as op:
                pass
            case _:
                return
        if pc in plan.idle:
            for slot in uses.sets:
                self._set(w, moving, slot, 0, mask, every=True)
            return
        if instruction.guard is not None:
            self._decide(instruction.guard, w, moving)
            chosen = chosen_lanes(pc, w)
            if chosen is None:
                chosen = self._with_unknown_guard(instruction.guard, w)
            if not chosen:
                return  # in no lane: nothing is evaluated, and registers keep what they hold
            mask = chosen
        match op.effects():
            case (fx.Defines(var=var, value=Expr() as value),):
                shift = self._assigned(var, value, w, mask, moving)
                self._set(w, moving, uses.sets[0], shift, mask)
                return
            case _:
                pass
        self._operands(op, w, mask, moving, uses)
        for slot, shift in zip(uses.sets, self._computed(op, w, mask), strict=True):
            self._set(w, moving, slot, shift, mask)

    def _operands(self, op: Op, w: Warp, mask: int, moving: Moving, uses: Uses) -> None:
        """What an instruction does is the same."""
        for expr, slots, moves in uses.operands:
            if moves or not slots.isdisjoint(moving):
                self._require_fixed(expr, w, mask, moving)

    def slots_in(self, expr: Expr) -> list[int]:
        """The registers in an expression."""
        return [self.machine.plan.slots[name] for name in registers_in(expr)]

    def _set(
        self, w: Warp, moving: Moving, slot: int, shift: Shift, mask: int, *, every: bool = False
    ) -> None:
        """A register is set in the lanes of ``mask``; in all (``every``) if it is one of a loop."""
        if mask or every:
            self._results.append((slot, shift, mask, every))
            self._apply(w, moving, self._results[-1])

    @abstractmethod
    def _apply(self, w: Warp, moving: Moving, result: Result) -> None:
        """A register is going to be set."""


class ShiftEvaluator(Evaluator):
    """Follows what moves by shifts: see `tilesim.sim.affine.shifts`."""

    def __init__(self, machine: Machine, values: Shifts, moving: dict[int, Moving]) -> None:
        super().__init__(machine, moving)
        self.values = values
        #: by number of an instruction: its operands that are the same, and those that may move
        self._parted: dict[int, tuple[list[Operand], list[tuple[Operand, MovableOperand]]]] = {}
        #: operands that have been found to be the same, by what decides that
        self._fixed: set[tuple[object, ...]] = set()

    def _seen(self, w: Warp) -> Warp:
        """A warp as expressions see it."""
        return w

    def _differing(self, w: Warp) -> Mapping[int, Any]:
        """What registers hold in all clusters, where it differs."""
        return {}

    @abstractmethod
    def _movable(self, op: Op, w: Warp, mask: int) -> list[tuple[Expr, MovableOperand]]:
        """The operands that may move; each says how."""

    def _described(self, pc: int) -> Uses:
        plan, what = self.machine.plan, self.machine.plan.mir.code[pc].what
        op = what if isinstance(what, Op) else None
        return self._uses_of(
            pc, () if op is None else operand_expressions(op),
            None if pc in plan.idle else plan.stays.get(pc),
            places=self._names_sizes(what), pure=op is None or not depends_on_registers(op),
        )  # fmt: skip

    def _names_sizes(self, what: object) -> bool:
        """Whether an instruction names a tensor whose size moves."""
        return False

    def _lost(self, var: Var, value: Expr, w: Warp, moving: Moving, why: NoShift) -> Lost:
        """What is known of a register that is set to a value without a shift."""
        return Lost(why)

    def _unplaced(
        self, expr: Expr, free: MovableOperand, w: Warp, mask: int, moving: Moving, why: NoShift
    ) -> None:
        """A place in memory has no shift."""
        raise why

    def _name(self, w: Warp, slot: int, moving: Moving) -> Hashable | None:
        value, shift = w.registers[slot], moving.get(slot, 0)
        if type(value) is not int or isinstance(shift, Lost | np.ndarray):
            return None
        array = self._differing(w).get(slot)
        if array is None:
            return value, shift
        # what is equal in all clusters is one array, which is never changed
        self._arrays[id(array)] = array
        return "array", id(array), shift

    def _require_fixed(self, expr: Expr, w: Warp, mask: int, moving: Moving) -> None:
        self.values.require_fixed(expr, self._seen(w), mask, moving)

    def _assigned(self, var: Var, value: Expr, w: Warp, mask: int, moving: Moving) -> Shift:
        """The shift of what a register is set to."""
        seen, before = self._seen(w), self.values.mark()
        try:
            shift = self.values.of(value, seen, mask, moving)
            if is_moving(shift):
                if var.dtype.kind not in ("int", "uint"):
                    raise NoShift(value)
                limits = integer_limits(var.dtype)
                self.values.require_range(value, seen, mask, shift, *limits, wraps=True)
        except NoShift as why:
            self.values.return_to(before)
            return self._lost(var, value, w, moving, why)
        return shift

    def _operands(self, op: Op, w: Warp, mask: int, moving: Moving, uses: Uses) -> None:
        """All operands are the same, but for places in memory that is not looked at, and data."""
        fixed, free = self._parted.get(op.number) or self._part(op, w, mask, uses)
        for operand in fixed:
            expr, slots, moves = operand
            if not moves and slots.isdisjoint(moving):
                continue
            key = self._key(id(expr), slots, w, mask, moving, uses)
            if key is None or key not in self._fixed:
                self._require_fixed(expr, w, mask, moving)
                if key is not None:
                    self._fixed.add(key)
        for (expr, slots, moves), one in free:
            if not (one.grows or moves) and slots.isdisjoint(moving):
                continue
            if one.data:
                self._data(expr, w, mask, moving)
            else:
                self._place(expr, one, w, mask, moving)

    def _part(
        self, op: Op, w: Warp, mask: int, uses: Uses
    ) -> tuple[list[Operand], list[tuple[Operand, MovableOperand]]]:
        """The operands of an instruction that are the same, and those that may move."""
        # an instruction may read and write one place
        places = {(id(e), f.tensor, f.dim): (e, f) for e, f in self._movable(op, w, mask)}
        free = [
            ((e, frozenset(self.slots_in(e)), self._depends(e)), one) for e, one in places.values()
        ]
        # an expression that is an operand twice has to be free as both
        times = Counter(id(expr) for expr, _, _ in uses.operands)
        times.subtract(Counter(id(expr) for (expr, _, _), _ in free))
        parted = [operand for operand in uses.operands if times[id(operand[0])]], free
        if not depends_on_registers(op):
            self._parted[op.number] = parted
        return parted

    def _data(self, expr: Expr, w: Warp, mask: int, moving: Moving) -> None:
        """What is stored differs: by the same in all lanes, or it is not known how."""
        try:
            uniform = type(self.values.of(expr, self._seen(w), mask, moving)) is int
        except NoShift:
            uniform = False
        self.stores = "moved" if uniform and self.stores != "anything" else "anything"

    def _place(self, expr: Expr, free: MovableOperand, w: Warp, mask: int, moving: Moving) -> None:
        """A place in memory moves."""
        seen = self._seen(w)
        try:
            shift = self.values.of(expr, seen, mask, moving)
        except NoShift as why:
            self._unplaced(expr, free, w, mask, moving, why)
            return
        self.values.require_multiple(expr, shift, free.least)
        self.values.require_inside(expr, seen, mask, shift, free)
        if free.memory is not None and is_moving(shift):
            if isinstance(shift, np.ndarray):
                raise NoShift(expr)
            self.places.append(OperandMotion(free, shift))

    def _apply(self, w: Warp, moving: Moving, result: Result) -> None:
        slot, shift, mask, every = result
        set_moving(w, moving, slot, shift, FULL if every else mask, _merged)


def looking(
    machine: Machine, plain: list[Entry], look: Callable[[int, Warp], None],
    looked: Callable[[int, bool], None],
) -> list[Entry]:  # fmt: skip
    """The same steps, each instruction alone: ``look`` is called before it, with its number, and
    ``looked`` after it, with whether others have been executed with it."""
    steps, code = machine.plan.apart(plain), machine.plan.mir.code

    def around(pc: int, step: Step) -> Step:
        is_op = isinstance(code[pc].what, Op)

        def followed(w: Warp) -> bool | None:
            look(pc, w)
            stopped = step(w)
            goes_on = not is_op or pc <= w.pc <= pc + 1 or w.frames or w.exited_lanes
            looked(pc, not goes_on)
            return stopped

        return followed

    for pc in range(len(steps) - 1):
        step, sync, cycles = steps[pc]
        steps[pc] = around(pc, step), sync, cycles
    return steps


def _merged(mask: int, shift: Shift, before: Shift) -> Shift:
    """A shift that is one thing in some lanes, and another in the others."""
    for one in (shift, before):
        if isinstance(one, Lost):
            return Lost(one.why)
    uniform = type(shift) is type(before) and not isinstance(shift, np.ndarray)
    if uniform and shift == before:
        return shift
    merged: Any = np.where(mask_array(mask), _boxed(shift), _boxed(before))
    return merged


def _boxed(shift: Shift) -> Any:
    """A shift as something that NumPy does not look into."""
    if type(shift) is int or isinstance(shift, np.ndarray):
        return shift
    box = np.empty((), dtype=object)
    box[()] = shift
    return box


def flat(moving: dict[int, Moving]) -> dict[Register, Shift]:
    """The same by register."""
    return {(w, slot): shift for w, slots in moving.items() for slot, shift in slots.items()}


def chosen_lanes(pc: int, w: Warp) -> int | None:
    """The active lanes that execute an instruction: those in which its guard holds, which has to be
    the same in all repetitions. In the others, registers that it sets keep what they hold.

    None: it is unknown what the guard is, and the registers, in all lanes, are not known either.
    """
    plan = w.machine.plan
    guard = plan.mir.code[pc].guard
    if guard is None:
        return w.mask
    holds = evaluator(plan, guard)(w)
    return None if type(holds) is Unknown else condition_lanes(holds) & w.mask


def registers_in(expr: Expr) -> set[str]:
    """The registers in an expression, by name."""
    return {v.name for v in walk(expr) if isinstance(v, Var)}


def _own(expr: Expr) -> int:
    """2 if an expression may be another one in each warp, 1 if it may be in each CTA."""
    if not mentioned(expr).isdisjoint(OF_THE_WARP):
        return 2
    return int(any(isinstance(part, Special | Base) for part in walk(expr)))
