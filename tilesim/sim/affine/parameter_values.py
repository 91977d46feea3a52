"""Follows a timed run from its start to its end, and says for which larger values it stands.

Up to a repetition of the state (see `tilesim.sim.affine`) a run for a larger value is the same but
for registers that depend on it. There it makes more repetitions, and goes on as this run does, but
for registers that have moved meanwhile. Where that is so in every instruction, the one run stands
for all. Runs with several loops, one after the other, have more repetitions in each.

A run for a parameter that is k steps larger has more repetitions of each period: ``often`` times k.
A value v with `Ray` (a, b) is v + k a + j b there, in the j-th of these repetitions. Where an
operation keeps that form its result has one; a comparison bounds k by where it comes out otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import count
from math import gcd
from typing import Any

import numpy as np

from tilesim.analysis.uses_defs import operand_expressions
from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import Typing
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Base, Binary, Expr, Special, walk
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.mir import Instruction, condition
from tilesim.ir.op import Op
from tilesim.ir.text.printer import statement_text, value_text
from tilesim.records import dataclass, replace
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.cluster_plan import ALIGNED
from tilesim.sim.affine.evaluator import Moving, Register, ShiftEvaluator, Uses, flat, looking
from tilesim.sim.affine.free_parameter import (
    UNBOUNDED,
    Forms,
    Obstacle,
    is_free,
    slope_of,
    value_of,
)
from tilesim.sim.affine.loop_period import Level
from tilesim.sim.affine.loop_places import MovableOperand, free_operands, window
from tilesim.sim.affine.loop_skipping import Skipper
from tilesim.sim.affine.shifts import (
    ExpressionShift,
    Lost,
    NoShift,
    Shift,
    Shifts,
    in_lane,
    is_moving,
)
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.moving_boxes import Box, Course, Family, corners, may_conflict
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.machine.unknown import plain


@dataclass(frozen=True, slots=True)
class Ray:
    """By how much a value is larger: ``a`` for each step of the parameter, ``b`` for each
    repetition. It counts with integers as a shift does."""

    a: int
    b: int = 0

    def __bool__(self) -> bool:
        return bool(self.a or self.b)

    def __add__(self, other: Ray | int) -> Ray:
        more = as_ray(other)
        return Ray(self.a + more.a, self.b + more.b)

    __radd__ = __add__

    def __neg__(self) -> Ray:
        return Ray(-self.a, -self.b)

    def __sub__(self, other: Ray | int) -> Ray:
        return self + -as_ray(other)

    def __rsub__(self, other: Ray | int) -> Ray:
        return -self + other

    def __mul__(self, by: int) -> Ray:
        return Ray(self.a * by, self.b * by)

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> Ray:
        return Ray(self.a // by, self.b // by)

    def __mod__(self, by: int) -> Ray:
        return Ray(self.a % by, self.b % by)

    def __lshift__(self, by: int) -> Ray:
        return Ray(self.a << by, self.b << by)

    def __abs__(self) -> int:
        return gcd(self.a, self.b)


def as_ray(shift: Any) -> Ray:
    """A shift as a ray: an integer is none of a repetition."""
    return shift if isinstance(shift, Ray) else Ray(int(shift))


@dataclass(frozen=True)
class Demand:
    """A value has to stay in a range, ``low`` to ``high``; ``fits``: that of a type."""

    value: int
    ray: Ray
    low: int | None
    high: int | None
    fits: bool

    def lasts(self, often: int, skipped: int = 0) -> int | None:
        """For how many steps of the parameter; None: for any number.

        ``skipped`` repetitions were left out after this one.
        """
        found: int | None = None
        for value in {self.value, self.value + skipped * self.ray.b}:
            for by in (self.ray.a, self.ray.a + often * self.ray.b):
                room = self._room(value, by)
                if room is not None:
                    found = room if found is None else min(found, room)
        return found

    def _room(self, value: int, by: int) -> int | None:
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            return 0
        if by > 0 and high is not None:
            return (high - value) // by
        return (value - low) // -by if by < 0 and low is not None else None


class Rays(Shifts):
    """The rays of expressions; ``demands`` is what they ask for, at the instruction ``at``."""

    def __init__(self, slots: Mapping[str, int], typing: Typing, forms: Forms, step: int) -> None:
        super().__init__(slots, typing)
        #: each with the number of the instruction that asks for it first
        self.demands: dict[Demand, int] = {}
        self.at = 0
        self.look = _ExpressionRay
        self.wide = False
        self._forms = forms
        self._step = step

    def literal(self, expr: Expr) -> Ray | int:
        """The ray of a literal."""
        number = self._forms.literals.get(id(expr))
        return 0 if number is None else Ray(self.integer(slope_of(number), expr))

    def integer(self, slope: Fraction, what: object) -> int:
        """By how much something grows with each step of the parameter."""
        by = slope * self._step
        if by.denominator != 1:
            raise NoShift(what, by.denominator)
        return by.numerator

    def depends(self, expr: Expr) -> bool:
        """Whether there are literals in it that depend on the parameter."""
        return id(expr) in self._forms.literals

    def bound_range(self, value: Any, shift: Any, low: int, high: int) -> None:
        if not shift:
            return
        if type(value) is not int or not low <= value <= high:
            raise NoShift(f"{value} outside of {low}..{high}")
        self._demand(value, shift, low, high, fits=True)

    def bound_negative(self, value: int, shift: Any) -> None:
        if shift:
            low, high = (None, -1) if value < 0 else (0, None)
            self._demand(value, shift, low, high)

    def bound_zero(self, value: int, shift: Any) -> None:
        if shift and value:
            low, high = (None, -1) if value < 0 else (1, None)
            self._demand(value, shift, low, high)
        elif shift:
            self._demand(value, shift, 0, 0)

    def _demand(
        self, value: int, shift: Any, low: int | None, high: int | None, *, fits: bool = False
    ) -> None:
        self.demands.setdefault(Demand(value, as_ray(shift), low, high, fits), self.at)

    def mark(self) -> int:
        return len(self.demands)

    def return_to(self, limits: int) -> None:
        while len(self.demands) > limits:
            self.demands.popitem()

    def require_inside(
        self, expr: Expr, w: Warp, mask: int, shift: Any, free: MovableOperand
    ) -> None:
        """The end of a tensor may move as well."""
        if not free.is_inside:
            super().require_inside(expr, w, mask, shift, free)
            return
        high, grows = free.high, Ray(0)
        if is_free(high):
            high, grows = value_of(high), Ray(self.integer(slope_of(high), expr))
        value = plain(self.evaluate(expr)(w))
        for lane in (n for n in range(32) if mask >> n & 1):
            at, by = in_lane(value, lane), as_ray(in_lane(shift, lane))
            if type(at) is not int:
                raise NoShift(expr)
            if free.memory is not None and (by or grows) and not 0 <= at <= high:
                raise NoShift(expr)
            self.bound_negative(at, by)
            self.bound_negative(high - at, grows - by)


class _ExpressionRay(ExpressionShift):
    """One look at an expression, lane by lane."""

    def _extreme(self, expr: Binary, lane: int, a: Any, b: Any) -> Any:
        if not self._value(expr.lhs, lane) - self._value(expr.rhs, lane):
            if a != b:
                raise NoShift(expr)
            return a
        return super()._extreme(expr, lane, a, b)


# ------------------------------------------------------------------ instructions


class Follow(ShiftEvaluator):
    """Follows a machine for larger values of a parameter: see `Evaluator`.

    What is asked of them is in ``values.demands``.
    """

    values: Rays

    def __init__(
        self, machine: Machine, forms: Forms, step: int, moving: dict[int, Moving]
    ) -> None:
        plan = machine.plan
        super().__init__(machine, Rays(plan.slots, plan.mir.typing, forms, step), moving)
        self._forms = forms
        observer = getattr(machine.races.observer, "follower", machine.races.observer)
        #: by number, the registers in what may differ between clusters there
        self._between: Mapping[int, frozenset[int]] = {}
        if isinstance(observer, Follower):
            self._between = observer.reads

    def look(self, pc: int, w: Warp) -> None:
        self.values.at = pc
        super().look(pc, w)

    def _spins(self, w: Warp, head: int) -> bool:
        return super()._spins(w, head) and any(self.moving.values())

    def _depends(self, expr: Expr) -> bool:
        return any(map(self.values.depends, walk(expr)))

    def _names_sizes(self, what: object) -> bool:
        return bool(self._sized(what))

    def _sized(self, what: object) -> list[View | TensorMap]:
        """What an instruction names of global tensors of which the size depends on the parameter;
        copies of what is never written may stick out."""
        if not isinstance(what, Op):
            return []
        effects = what.effects()
        named: list[Any] = [getattr(effect, "view", None) for effect in effects]
        named += [e.map for e in effects if isinstance(e, fx.WritesMap | fx.ReadsMap)]
        found = [n for n in named if isinstance(n, View | TensorMap)]
        return [n for n in found if self._matters(n)]

    def _matters(self, named: View | TensorMap) -> bool:
        name = named.tensor.name
        sized = name in self._forms.tensors
        return sized and (isinstance(named, View) or self.machine.globals.memories[name].tracked)

    def _not_covered(self, pc: int, moving: Moving, uses: Uses) -> str:
        """Whether something depends both on the cluster and on what moves."""
        slots = self._between.get(pc)
        if slots is None:
            return ""
        differs = not slots.isdisjoint(moving)
        instruction = self.machine.plan.mir.code[pc]
        cond = condition(instruction)
        for expr in (*(e for e, _, _ in uses.operands), *([] if cond is None else [cond])):
            parts = list(walk(expr))
            varies = any(isinstance(p, Special | Base) for p in parts)
            varies |= not slots.isdisjoint(self.slots_in(expr))
            differs |= varies and any(self.values.depends(p) for p in parts)
        for named in self._sized(instruction.what):
            differs |= any(map(is_free, self._forms.tensors[named.tensor.name].shape))
        return "what differs between clusters and with the parameter" if differs else ""

    def _movable(self, op: Op, w: Warp, mask: int) -> list[tuple[Expr, MovableOperand]]:
        sized = self._forms.tensors
        found = free_operands(
            self.machine, op, lambda expr: window(self.values, expr, w, mask), sized
        )
        found = [(expr, free) for expr, free in found if self._is_followed(free)]
        for named in self._sized(op):
            name, tensor = named.tensor.name, sized[named.tensor.name]
            bounded = {free.dim for _, free in found if free.tensor == name and free.grows}
            if bounded != {dim for dim, size in enumerate(tensor.shape) if is_free(size)}:
                raise NoShift(f"the size of {name}")
            strides: tuple[Any, ...] = tensor.byte_strides if isinstance(named, View) else ()
            for stride in strides:
                if is_free(stride) and self.values.integer(slope_of(stride), name) % ALIGNED:
                    raise NoShift(f"the row of {name}, in bytes", ALIGNED)
        return found

    def _is_followed(self, free: MovableOperand) -> bool:
        """Whether what an operand decides is not looked at, for any value: a place by element, or
        an address where nothing is written."""
        memories = self.machine.globals.memories
        if free.data:
            return False
        if not free.tensor:
            return free.memory is None and not any(m.dependent for m in memories.values())
        memory = memories[free.tensor]
        return not memory.dependent and (not memory.tracked or memory.table.by_element)


# ------------------------------------------------------------------ runs


#: turns of other loops, per warp, after which the one that is looked at has ended: there are few
_IDLE = 16
#: accesses to one tensor that are compared, at most
_MOST = 1 << 12


@dataclass(frozen=True)
class Reach:
    """A box of elements of a tensor that is accessed, and how it moves."""

    memory: str
    box: Box
    course: Course
    write: bool


def may_meet(reaches: Iterable[Reach]) -> str | None:
    """The tensor in which accesses may conflict for some values of the parameter, though they do
    not in the run that was followed, or of which that cannot be said.

    What is accessed at a place that is the same for all values is judged by that run.
    """
    by_memory: dict[str, dict[Reach, None]] = defaultdict(dict)
    for reach in reaches:
        by_memory[reach.memory][reach] = None
    for name, found in by_memory.items():
        boxes: dict[tuple[Course, bool], list[Box]] = defaultdict(list)
        for reach in found:
            boxes[reach.course, reach.write].append(reach.box)
        if not any(any(course.iteration) or any(course.slope) for course, _ in boxes):
            continue
        families = [Family(*corners(b), *how) for how, b in boxes.items()]
        written = any(family.write for family in families)
        if written and (len(found) > _MOST or may_conflict(families)):
            return name
    return None


@dataclass(frozen=True)
class Limit:
    """More than ``steps`` are not covered, because of ``obstacle``; ``fits``: what is computed
    there would leave its type."""

    steps: int
    obstacle: Obstacle
    fits: bool = False


class Traced:
    """What is known of the runs of one simulation: of each a limit, if there is one.

    ``step``: by how much the parameter grows. ``ratios``: how many steps of the parameter one
    repetition of the state is; ``spare``: how many fewer would do as well; ``hopeless``: why
    nothing can be said, of any value; ``why``: why these runs stand for no others.
    """

    def __init__(
        self, simulation: Simulation, forms: Forms, step: int, *, quick: bool = True,
        answered: bool = False,
    ) -> None:  # fmt: skip
        """``quick``: copies take one cycle; what is shown of one schedule holds in all.
        ``answered``: the runs that cover what launch control may answer are the same for all
        values."""
        self.forms = forms
        self.quick = quick
        self._answered = answered
        self.step = step
        self.limits: list[Limit] = []
        self.ratios: set[Fraction] = set()
        self.spare: int | None = None
        self.hopeless: Obstacle | None = None
        self.why: Obstacle | None = None
        #: where the parameter is used first, in a condition if it is in any
        self.used = _first_use(simulation.code.mir.code, forms)
        #: warp instructions, but for those that were skipped
        self.executed = 0
        #: numbers of repetitions
        self.numbers = count(1)
        self._simulation = simulation
        self._machines: list[Machine] = []
        self._tracers: dict[int, Tracer] = {}
        simulation.watches = self._machines.append
        simulation.skipper = self._follow

    def _follow(self, machine: Machine) -> None:
        if machine.options.answers is None or self._answered:
            self._tracers[id(machine)] = Tracer(machine, self)

    def close(self) -> None:
        """All runs are over; those that were given up were made again."""
        self._simulation.watches = None
        reaches: list[Reach] = []
        for machine in self._machines:
            self.executed += machine.executed
            if not all(warp.exited for warp in machine.warps):
                continue
            tracer = self._tracers.get(id(machine))
            if tracer is None:
                self.limits.append(Limit(0, Obstacle("a run that cannot be followed", UNKNOWN)))
                continue
            tracer.close()
            if machine.outcome.unfilled or self._simulation.code.named:
                self.limits.append(Limit(0, Obstacle("what tiles hold decides", UNKNOWN)))
            self.limits += tracer.limits
            reaches += tracer.reaches
            self.ratios |= tracer.ratios
            spare = [s for s in (self.spare, tracer.spare) if s is not None]
            self.spare = min(spare, default=None)
            self.hopeless = self.hopeless or tracer.hopeless
            self.why = self.why or tracer.why
        if (name := may_meet(reaches)) is not None:
            what = f"accesses to {name} of different iterations, which may overlap"
            self.limits.append(Limit(0, Obstacle(what, UNKNOWN)))
            self.why = self.why or self.limits[-1].obstacle
        self._machines.clear()
        self._tracers.clear()

    def least(self) -> Limit | None:
        """The limit that is met first."""
        return min(self.limits, key=lambda limit: limit.steps, default=None)


class Tracer(Skipper):
    """Follows a machine; see `Traced`."""

    thrifty = False
    parts = False

    def __init__(self, machine: Machine, traced: Traced) -> None:
        self._forms = traced.forms
        self._used = traced.used
        self._step = traced.step
        self.limits: list[Limit] = []
        self.ratios: set[Fraction] = set()
        self.spare: int | None = None
        self.hopeless: Obstacle | None = None
        self.why: Obstacle | None = None
        #: accesses to what the kernel writes; of those while a repetition is watched, how they
        #: move from one to the next
        self.reaches: list[Reach] = []
        self._repeated: list[tuple[int, Course]] = []
        self._numbers = traced.numbers
        self._dims = {t.name: len(t.shape) for t in machine.program.tensors}
        self._main = Follow(machine, traced.forms, traced.step, {})
        self._period: Follow | None = None
        self._shifts: Mapping[tuple[int, int], Any] = {}
        self._start: dict[int, Moving] = {}
        self._spoilt: Obstacle | None = None
        #: whether the parameter decides how often the inner one of two loops turns
        self._inner_grows = False
        self._refuse_what_is_not_followed(machine)
        machine.code = looking(machine, machine.code, self._notice, self._looked)
        if traced.quick:
            machine.copy_cycles = _at_once
        super().__init__(machine)
        self._idle = _IDLE * len(machine.warps)

    def _refuse_what_is_not_followed(self, machine: Machine) -> None:
        """What has no expressions: the memory of tensors whose size depends on the parameter."""
        for name, tensor in self._forms.tensors.items():
            memory = machine.globals.memories[name]
            elements = not memory.tracked or memory.table.by_element
            if not memory.is_uniform or memory.dependent or not elements:
                what = f"the size of {name}, which the kernel looks at"
                self._spoil(Obstacle(what, tensor.loc))
        for number in sorted(machine.plan.losing):
            loc = machine.plan.mir.code[number].loc
            self._spoil(Obstacle("whether what is discarded is read", loc))
        if self._forms.tensors:
            self._refuse_addresses(machine)
        self.hopeless = self._spoilt

    def _refuse_addresses(self, machine: Machine) -> None:
        if not machine.plan.global_by_name:
            self._spoil(Obstacle("addresses in global memory", UNKNOWN))
        for instruction in machine.plan.mir.code:
            if _takes_an_address(instruction):
                self._spoil(Obstacle("an address in global memory", instruction.loc))

    def _spoil(self, why: Obstacle) -> None:
        if self._spoilt is None:
            self._spoilt = why
            self.limits.append(Limit(0, why))
            self.why = self.why or why

    # ------------------------------------------------------------------ steps

    def _looked(self, pc: int, several: bool) -> None:
        machine = self._main.machine
        loc = machine.plan.mir.code[pc].loc
        if machine.plan.async_accesses:
            self._spoil(Obstacle("asynchronous accesses to global memory", loc))
        if machine.irregular:
            self._spoil(Obstacle("what data decides about", loc))
        if several:
            self._spoil(Obstacle("several instructions at once", loc))

    def _notice(self, pc: int, w: Warp) -> None:
        if self._spoilt is not None:
            return
        self._main.look(pc, w)
        if self._main.obstacle is not None:
            self._spoil(self._main.obstacle)
        if self._period is not None:
            self._period.look(pc, w)

    # ------------------------------------------------------------------ global memory

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        super().touch(memory, footprint, access)
        if not memory.tracked or self._spoilt is not None:
            return
        dims = self._dims[memory.label] if memory.table.by_element else 0
        sized = memory.label in self._forms.tensors
        if not dims or access.op is not self._main.op or self.follower is not None:
            if sized or self._main.places:
                self._spoil(Obstacle(f"an access to {memory.label}", access.op.loc))
            return
        course = _course(self._main, memory, dims)
        for box in footprint.boxes(by_element=True):
            if self._period is not None:
                own = _course(self._period, memory, dims)
                self._repeated.append((len(self.reaches), own))
            self.reaches.append(Reach(memory.label, box, course, access.write))

    def _in_repetitions(self, often: int, times: int) -> None:
        """What has been accessed since `began` is accessed in more repetitions."""
        number = next(self._numbers)
        for place, own in self._repeated:
            course = replace(own, loop=number, often=often, times=times)
            self.reaches[place] = replace(self.reaches[place], course=course)

    # ------------------------------------------------------------------ repetitions

    def began(self, shifts: Mapping[tuple[int, int], Any]) -> None:
        self._period = None
        self._repeated.clear()
        if any(shift is None for shift in shifts.values()):
            return  # registers that move otherwise: the repetition stands for no other
        self._shifts = shifts
        self._start = self._further(Ray(0, 1))
        moving = {warp: dict(slots) for warp, slots in self._start.items()}
        self._period = Follow(self.machine, self._forms, self._step, moving)

    def _give_up(self, level: Level, why: Obstacle) -> None:
        super()._give_up(level, why)
        self.machine.races.observer = self

    def _watch(self, level: Level, shifts: dict[Register, Shift], left_out: int = 0) -> None:
        if level is self._outer and self._inner_grows:
            # while turns of a loop around it are watched, none of the inner one are left out: its
            # end would be another for each value
            self._fail(level, None)
            return
        super()._watch(level, shifts, left_out)

    def _end_period(self, level: Level) -> None:
        period, known = self._period, len(self.ratios)
        super()._end_period(level)
        self._inner_grows |= level is self._inner and len(self.ratios) > known
        if self._period is period:
            self._period = None

    def ended(self, times: int, shifts: Mapping[tuple[int, int], Any]) -> bool:
        period = self._period
        if self._spoilt is not None or not times:
            return True
        if period is None or times == UNBOUNDED or period.obstacle is not None:
            if period is not None:
                self.why = self.why or period.obstacle
            return False  # each of them is executed, and followed
        ratios = {ratio for d in period.values.demands if (ratio := _ratio(d)) is not None}
        self.ratios |= {ratio * self._step for ratio in ratios}
        # whether registers have moved by what was followed, the states have shown
        if any(type(ray) is Lost for ray in flat(self._start).values()):
            return False
        if not _same(period.moving, self._start):
            return False
        often = min((int(1 / ratio) for ratio in ratios), default=0)
        limits = self._limits(period, often, times)
        if often and any(limit.steps == 0 for limit in limits):
            often, limits = 0, self._limits(period, 0, times)
        if ratios:
            spare = min(int((times - 1) * ratio * self._step) for ratio in ratios)
            self.spare = spare if self.spare is None else min(spare, self.spare)
        self.limits += limits
        self._in_repetitions(often, times)
        self._main.moving = self._further(Ray(often))
        return True

    def _limits(self, follow: Follow, often: int, skipped: int) -> list[Limit]:
        """The limit that is met first of what was asked, if there is one."""
        found = []
        for demand, pc in follow.values.demands.items():
            steps = demand.lasts(often, skipped)
            if steps is not None:
                instruction = self.machine.plan.mir.code[pc]
                what = Obstacle(self._text(instruction), instruction.loc)
                found.append(Limit(steps, what, demand.fits))
        return [min(found, key=lambda limit: limit.steps)] if found else []

    def _text(self, instruction: Instruction) -> str:
        """An instruction, or the condition of a branch, as a reader of the program knows it."""
        kernel, cond = self.machine.program, condition(instruction)
        if isinstance(instruction.what, Op):
            return f"`{statement_text(kernel, instruction.what)}`"
        return f"`{value_text(kernel, cond)}`"

    def _further(self, by: Any) -> dict[int, Moving]:
        """What registers move by, and ``by`` for each that they move in a repetition."""
        found: dict[int, Moving] = {warp: dict(slots) for warp, slots in self._main.moving.items()}
        for (warp, slot), shift in self._shifts.items():
            slots = found.setdefault(warp, {})
            before = slots.get(slot, 0)
            if type(before) is Lost:
                continue
            slots[slot] = np.add(before, np.multiply(shift, by))
            if not is_moving(slots[slot]):
                del slots[slot]
        return found

    def close(self) -> None:
        """The run is over."""
        self.limits += self._limits(self._main, 0, 0)
        if self.obstacle is not None and self.why is None:
            known = self.obstacle.loc is not UNKNOWN
            self.why = Obstacle(self.obstacle.what, self.obstacle.loc if known else self._used)


def _first_use(code: Sequence[Instruction], forms: Forms) -> Loc:
    """The line where a parameter is used first, in a condition if it is in any."""

    def uses(expr: Expr | None) -> bool:
        return expr is not None and any(id(part) in forms.literals for part in walk(expr))

    decides = (i.loc for i in code if uses(condition(i)))
    others = (
        i.loc
        for i in code
        if isinstance(i.what, Op) and any(map(uses, operand_expressions(i.what)))
    )
    return next(decides, next(others, UNKNOWN))


def _at_once(nbytes: int) -> int:
    """A latency of copies with which most runs are soon in a steady state, of a short period."""
    return 1


def _takes_an_address(instruction: Instruction) -> bool:
    what, cond = instruction.what, condition(instruction)
    exprs = list(operand_expressions(what)) if isinstance(what, Op) else []
    parts = (part for e in [*exprs, *([] if cond is None else [cond])] for part in walk(e))
    return any(isinstance(part, Base) and part.space == "global" for part in parts)


def _ratio(demand: Demand) -> Fraction | None:
    """How many repetitions more a step of the parameter makes, if it takes some to keep a
    demand (as the test of a loop does), as a fraction of one."""
    a, b = demand.ray.a, demand.ray.b
    if demand.fits or a * b >= 0:
        return None
    closes = b < 0 if demand.low is not None else b > 0
    return Fraction(-b, a) if closes else None


def _same(one: dict[int, Moving], other: dict[int, Moving]) -> bool:
    """Whether registers move by the same."""
    a, b = flat(one), flat(other)
    return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)


def _equal(one: Any, other: Any) -> bool:
    if type(one) is Lost or type(other) is Lost:
        return type(one) is type(other)
    return not is_moving(np.subtract(one, other))


def _course(follow: Follow, memory: Memory, dims: int) -> Course:
    """How the access of the instruction at hand moves, in each dimension."""
    motions = [Ray(0)] * dims
    for motion in follow.places:
        if motion.free.memory is memory:
            motions[motion.free.dim] += motion.by
    return Course(tuple(motion.b for motion in motions), tuple(motion.a for motion in motions))
