"""One repetition, watched: does every decision come out the same in those that follow?

Each instruction that is executed has to be the same in every repetition but for what it moves to
registers, and for where it reads global memory that nobody writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.dataflow import operand_expressions, registers_set
from tilesim.ir.expr import Base, Expr, Special, Var, walk
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.memory import GlobalTensor, View
from tilesim.ir.mir import Branch, Switch, Trap, condition
from tilesim.ir.op import Op
from tilesim.ir.packing import unit
from tilesim.sim.control import condition_lanes
from tilesim.sim.grid.follow import Follower
from tilesim.sim.machine.lanes import FULL, mask_array
from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
from tilesim.sim.machine.unknown import Unknown
from tilesim.sim.steady.shifts import Lost, NoShift, Shift, Shifts, is_moving

#: the largest number of bytes that an address has to be a multiple of
_ALIGNED = 16
#: a tensor map says where a copy of it begins in elements of s32
_COORDINATE = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True)
class Obstacle:
    """What is not the same in every repetition, and where; ``period`` as for `NoShift`."""

    what: str
    loc: Loc = UNKNOWN
    period: int = 1

    def __str__(self) -> str:
        return f"{self.what} ({self.loc})"


@dataclass(frozen=True)
class _Uses:
    """The registers that an instruction needs and sets, by slot.

    ``operands`` are its operands, with the registers in each. ``alike``: they are the same in all
    warps that have the same in these registers.
    """

    reads: frozenset[int]
    sets: tuple[int, ...]
    operands: tuple[tuple[Expr, frozenset[int]], ...]
    alike: bool


class Watched:
    """Watches a machine from one moment to the next; ``shifts``: by how much the registers of
    warps have moved up to now since the repetition before.

    ``obstacle`` is what is found to differ between repetitions.
    """

    def __init__(
        self, machine: Machine, plain: list[Entry], shifts: Mapping[tuple[int, int], Shift]
    ) -> None:
        self.machine = machine
        self.obstacle: Obstacle | None = None
        self.values = Shifts(machine.plan.slots, machine.plan.mir.typing)
        self._moving: dict[int, dict[int, Shift]] = {}
        for (warp, slot), shift in shifts.items():
            self._moving.setdefault(warp, {})[slot] = shift
        self._local = {machine.plan.slots[name] for name in machine.plan.mir.local}
        self._uses: dict[int, _Uses] = {}
        #: what instructions were found to set, and what is found just now
        self._known: dict[tuple[object, ...], tuple[tuple[int, Shift], ...]] = {}
        self._results: list[tuple[int, Shift]] = []
        #: by number, the registers in what may differ between clusters there
        self._between: dict[int, frozenset[int]] = {}
        if isinstance(machine.races.observer, Follower):
            for pc, names in machine.races.observer.reads.items():
                self._between[pc] = frozenset(machine.plan.slots[name] for name in names)
        #: what the machine is to execute meanwhile
        self.steps = self._steps(plain)

    def _steps(self, plain: list[Entry]) -> list[Entry]:
        steps, plan = list(plain), self.machine.plan
        for first, (alone, _) in plan.fused.items():
            if steps[first] is plan.steps[first]:
                steps[first] = alone
        for pc in range(len(steps) - 1):
            step, sync, cycles = steps[pc]
            steps[pc] = self._around(pc, step), sync, cycles
        return steps

    def _around(self, pc: int, step: Step) -> Step:
        what = self.machine.plan.mir.code[pc].what
        is_op = isinstance(what, Op)
        back = what.target if isinstance(what, Branch) and what.polls else None

        def watched(w: Warp) -> bool | None:
            if self.obstacle is None:
                self._look(pc, w)
                if back is not None and self._spins(w, back):
                    self.obstacle = Obstacle("whether a turn of a loop changes something", what.loc)
            stopped = step(w)
            if is_op and not pc <= w.pc <= pc + 1 and not w.frames and not w.exited_lanes:
                self.obstacle = Obstacle("several instructions at once")
            return stopped

        return watched

    @staticmethod
    def _spins(w: Warp, head: int) -> bool:
        """Whether it takes the registers to tell if a turn of a polling loop changed anything."""
        lap = w.laps.get(head)
        return lap is not None and (lap.effects, lap.version) == (w.effects, w.machine.version)

    def ends_as_it_began(self, shifts: Mapping[tuple[int, int], Shift]) -> bool:
        """Whether the shifts that were followed are those that are found in the end."""
        followed = {
            (warp, slot): shift
            for warp, slots in self._moving.items()
            for slot, shift in slots.items()
            if is_moving(shift)
        }
        return followed.keys() == shifts.keys() and all(
            type(followed[key]) is not Lost and np.all(followed[key] == shift)
            for key, shift in shifts.items()
        )

    # ------------------------------------------------------------------ instruction by instruction

    def _used(self, pc: int) -> _Uses:
        known = self._uses.get(pc)
        if known is None:
            instruction, slots = self.machine.plan.mir.code[pc], self.machine.plan.slots
            what, cond = instruction.what, condition(instruction)
            operands = list(operand_expressions(what)) if isinstance(what, Op) else []
            exprs = operands if cond is None else [*operands, cond]
            reads = {id(e): frozenset(slots[n] for n in _registers(e)) for e in exprs}
            results = registers_set(what) if isinstance(what, Op) else []
            known = self._uses[pc] = _Uses(
                frozenset[int]().union(*reads.values()),
                tuple(slots[var.name] for var in results),
                tuple((e, reads[id(e)]) for e in operands),
                not any(isinstance(v, Special | Base) for e in exprs for v in walk(e)),
            )
        return known

    def _look(self, pc: int, w: Warp) -> None:
        moving, uses = self._moving.setdefault(id(w), {}), self._used(pc)
        if not moving or uses.reads.isdisjoint(moving):
            if moving and not moving.keys().isdisjoint(uses.sets):
                for slot in uses.sets:
                    self._set(w, moving, slot, 0, w.mask, every=pc in self.machine.plan.idle)
            return
        key = self._key(pc, w, moving, uses)
        if key is not None and key in self._known:
            for slot, shift in self._known[key]:
                self._set(w, moving, slot, shift, w.mask)
            return
        self._results.clear()
        if not self._between.get(pc, frozenset()).isdisjoint(moving):
            # other clusters may decide otherwise, at other times
            loc = self.machine.plan.mir.code[pc].loc
            self.obstacle = Obstacle("what differs between clusters and from turn to turn", loc)
            return
        try:
            self._moved(pc, w, moving)
        except NoShift as why:
            instruction = self.machine.plan.mir.code[pc]
            self.obstacle = Obstacle(f"`{why}`", instruction.loc, why.period)
            return
        alone = pc in self.machine.plan.idle or self.machine.plan.mir.code[pc].guard is not None
        if key is not None and not alone:
            self._known[key] = tuple(self._results)

    @staticmethod
    def _key(pc: int, w: Warp, moving: dict[int, Shift], uses: _Uses) -> tuple[object, ...] | None:
        """What decides what is found about an instruction; None if that cannot be said briefly."""
        if not uses.alike:
            return None
        key: list[object] = [pc, w.mask]
        for slot in uses.reads:
            value, shift = w.registers[slot], moving.get(slot, 0)
            if type(value) is not int or type(shift) is not int:
                return None
            key += [value, shift]
        return tuple(key)

    def _moved(self, pc: int, w: Warp, moving: dict[int, Shift]) -> None:
        """An instruction that uses registers which move."""
        instruction, mask = self.machine.plan.mir.code[pc], w.mask
        match instruction.what:
            case Branch(cond=Expr() as cond) | Trap(cond=cond) | Switch(index=cond):
                self.values.require_fixed(cond, w, mask, moving)
                return
            case Op() as op:
                pass
            case _:
                return
        if pc in self.machine.plan.idle:
            for slot in self._used(pc).sets:
                moving.pop(slot, None)
            return
        if instruction.guard is not None:
            self.values.require_fixed(instruction.guard, w, mask, moving)
            holds = self.values.evaluate(instruction.guard)(w)
            if type(holds) is Unknown:
                raise NoShift(instruction.guard)
            mask &= condition_lanes(holds)
        match op.effects():
            case (fx.Defines(var=var, value=Expr() as value),):
                shift = self._assigned(var, value, w, mask, moving)
                self._set(w, moving, self._used(pc).sets[0], shift, mask)
                return
            case _:
                pass
        self._operands(op, w, mask, moving)
        for slot in self._used(pc).sets:
            self._set(w, moving, slot, 0, mask)

    def _assigned(
        self, var: Var, value: Expr, w: Warp, mask: int, moving: dict[int, Shift]
    ) -> Shift:
        """The shift of what a register is set to."""
        try:
            shift = self.values.of(value, w, mask, moving)
            if is_moving(shift):
                kind = var.dtype
                if kind.kind not in ("int", "uint"):
                    raise NoShift(value)
                limits = integer_limits(kind)
                self.values.require_range(value, w, mask, shift, *limits)
        except NoShift as why:
            return Lost(why)
        return shift

    def _operands(self, op: Op, w: Warp, mask: int, moving: dict[int, Shift]) -> None:
        """All operands are the same, but for where it reads what nobody writes or looks at."""
        free = self._free(op)
        for expr, slots in self._used(op.number).operands:
            if slots.isdisjoint(moving):
                continue
            found = free.get(id(expr))
            if found is None:
                self.values.require_fixed(expr, w, mask, moving)
                continue
            least, low, high = found
            shift = self.values.of(expr, w, mask, moving)
            if np.any(np.asarray(shift) % least):
                raise NoShift(expr, least)
            self.values.require_range(expr, w, mask, shift, low, high)

    def _free(self, op: Op) -> dict[int, tuple[int, int, int]]:
        """Operands that may move, by identity: by multiples of what, and in which range."""
        free: dict[int, tuple[int, int, int]] = {}
        for effect in op.effects():
            match effect:
                case fx.Reads(proxy="tensormap") | fx.Defines():
                    return {}
                case fx.ReadsMap(map=map_) if self._is_unseen(map_.tensor.name):
                    target = self.machine.program.target.name
                    free |= {id(e): (1, *_COORDINATE) for e in effect.coords}
                    least = unit(map_, map_.tensor.dtype, target)
                    free[id(effect.coords[-1])] = least, *_COORDINATE
                case fx.Reads(view=View(tensor=GlobalTensor() as tensor) as view) if (
                    self._is_unseen(tensor.name)
                ):
                    sizes = zip(
                        view.offsets, view.extents, tensor.shape, tensor.byte_strides, strict=True
                    )
                    for offset, extent, size, stride in sizes:
                        least = _ALIGNED // gcd(stride, _ALIGNED)
                        free[id(offset)] = least, 0, size - extent
                case _:
                    pass
        return free

    def _is_unseen(self, name: str) -> bool:
        """Whether nobody writes a global tensor, or looks at what it holds."""
        memory = self.machine.globals.memories[name]
        return not memory.tracked and not memory.data.size

    def _set(
        self, w: Warp, moving: dict[int, Shift], slot: int, shift: Shift, mask: int,
        *, every: bool = False,
    ) -> None:  # fmt: skip
        """A register is set in the lanes of ``mask``, in all if it is one of a loop."""
        alone = slot in self._local and not self.machine.forks
        self._results.append((slot, shift))
        if not (every or alone or mask == FULL or w.registers[slot] is None):
            shift = self._merged(mask, shift, moving.get(slot, 0))
        if is_moving(shift):
            moving[slot] = shift
        else:
            moving.pop(slot, None)

    @staticmethod
    def _merged(mask: int, shift: Shift, before: Shift) -> Shift:
        if type(shift) is Lost or type(before) is Lost:
            return shift if type(shift) is Lost else before
        if type(shift) is int and type(before) is int and shift == before:
            return shift
        merged: Any = np.where(mask_array(mask), shift, before)
        return merged


def _registers(expr: Expr) -> set[str]:
    return {v.name for v in walk(expr) if isinstance(v, Var)}
