"""Follows what moves with a parameter through instructions and expressions.

A run for a parameter that is k steps larger has more repetitions of each period: ``often`` times k.
A value v with `Ray` (a, b) is v + k a + j b there, in the j-th of these repetitions. Where an
operation keeps that form its result has one; a comparison bounds k by where it comes out otherwise.

Each instruction that is executed has to be the same for every larger value, in every repetition,
but for what it moves to registers, and for where it accesses global memory whose contents are not
looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np

from tilesim.analysis.uses_defs import operand_expressions, registers_set
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.arithmetic import Typing, integer_limits
from tilesim.ir.declarations import GlobalTensor, TensorMap, View
from tilesim.ir.expr import Base, Binary, Const, Expr, ScalarParam, Special, Var, walk
from tilesim.ir.mir import Branch, Switch, Trap, condition
from tilesim.ir.op import Op
from tilesim.ir.tensormap import fields_of, unit
from tilesim.ir.text.printer import value_text
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.free_parameter import Forms, Obstacle, is_free, slope_of, value_of
from tilesim.sim.affine.loop_period import chosen_lanes
from tilesim.sim.affine.loop_places import Free, free_operands, looks, only_loads, window
from tilesim.sim.affine.shifts import Look, Lost, NoShift, Shifts, is_moving, set_moving
from tilesim.sim.machine.expression import plain
from tilesim.sim.machine.lanes import FULL, mask_array
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.memory import Memory


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

    what: str
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
    """The rays of expressions; ``demands`` is what they ask for, of the instruction at hand."""

    def __init__(self, slots: Mapping[str, int], typing: Typing, forms: Forms, step: int) -> None:
        super().__init__(slots, typing)
        self.demands: list[Demand] = []
        self.look = _Look
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
        self.demands.append(Demand("", value, as_ray(shift), low, high, fits))


class _Look(Look):
    """One look at an expression, lane by lane."""

    def at(self, expr: Expr, lane: int) -> Any:
        if isinstance(expr, Const | ScalarParam):
            rays = self._shifts
            assert isinstance(rays, Rays)
            return rays.literal(expr)
        return super().at(expr, lane)

    def _variable(self, expr: Expr, name: str, lane: int) -> Any:
        ray = self._moving.get(self._shifts.slot(name), 0)
        if type(ray) is Lost:
            raise ray.why
        if isinstance(ray, np.ndarray):
            self.varies = True
            ray = ray[lane]
        return ray

    def _extreme(self, expr: Binary, lane: int, a: Any, b: Any) -> Any:
        if not self._value(expr.lhs, lane) - self._value(expr.rhs, lane):
            if a != b:
                raise NoShift(expr)
            return a
        return super()._extreme(expr, lane, a, b)


# ------------------------------------------------------------------ instructions


#: the largest number of bytes that an address has to be a multiple of
_ALIGNED = 16
#: a tensor map says where a copy of it begins in elements of s32
_COORDINATE = (-(1 << 31), (1 << 31) - 1)
Moving = dict[int, dict[int, Any]]


@dataclass(frozen=True)
class _Place:
    """An operand that may move, by multiples of ``least``: where an access begins in dimension
    ``dim`` of a tensor in ``memory``. It stays inside of ``limit`` with its ``extent``; of a copy
    that may stick out, ``limit`` is None."""

    expr: Expr
    least: int
    limit: Any
    extent: int
    memory: Memory
    dim: int


@dataclass(frozen=True)
class _Uses:
    """What an instruction needs and sets: ``reads`` and ``sets`` are slots; ``operands`` its
    operands, each with the slots in it, and whether it mentions the parameter, as ``depends`` of
    all. ``alike``: it is the same in all warps that have the same in these registers."""

    reads: frozenset[int]
    sets: tuple[int, ...]
    operands: tuple[tuple[Expr, frozenset[int], bool], ...]
    depends: bool
    alike: bool


class Follow:
    """Follows a machine; ``moving``: by warp and slot, what registers move by (lanes that are an
    agent of their own use those of their warp).

    ``demands`` are what has to hold for more values, each with the instruction that asks for it;
    ``obstacle`` is why nothing can be said.
    """

    def __init__(self, machine: Machine, forms: Forms, step: int, moving: Moving) -> None:
        self.machine = machine
        self.moving = moving
        self.obstacle: Obstacle | None = None
        self.demands: dict[Demand, int] = {}
        plan = machine.plan
        self.values = Rays(plan.slots, plan.mir.typing, forms, step)
        self._forms = forms
        self._uses: dict[int, _Uses] = {}
        self._free: dict[int, list[_Place]] = {}
        #: of the instruction that was looked at last: how places of what the kernel writes move
        self.op: object = None
        self.moved: list[tuple[Memory, int, Ray]] = []
        #: what instructions were found to set, and what is found just now
        self._known: dict[tuple[object, ...], tuple[tuple[int, Any], ...]] = {}
        self._results: list[tuple[int, Any]] = []
        #: by number, the registers in what may differ between clusters there
        self._between: Mapping[int, frozenset[str]] = {}
        observer = getattr(machine.races.observer, "follower", machine.races.observer)
        if isinstance(observer, Follower):
            reads = observer.reads
            self._between = {pc: frozenset(names) for pc, names in reads.items()}

    # ------------------------------------------------------------------ instruction by instruction

    def look(self, pc: int, w: Warp) -> None:
        """An instruction is about to be executed."""
        if self.obstacle is not None:
            return
        self.op = self.machine.plan.mir.code[pc].what
        self.moved.clear()
        moving, uses = self.moving.setdefault(id(w.origin), {}), self._used(pc)
        if not uses.depends and (not moving or uses.reads.isdisjoint(moving)):
            if moving and not moving.keys().isdisjoint(uses.sets):
                chosen = chosen_lanes(self.values, pc, w)
                every = chosen is None or pc in self.machine.plan.idle
                for slot in uses.sets:
                    self._set(w, moving, slot, 0, w.mask if chosen is None else chosen, every=every)
            return
        loc = self.machine.plan.mir.code[pc].loc
        if self._differs_between(pc, moving, uses):
            self.obstacle = Obstacle("what differs between clusters and with the parameter", loc)
            return
        key = _key(pc, w, moving, uses)
        if key is not None and key in self._known:
            for slot, ray in self._known[key]:
                self._set(w, moving, slot, ray, w.mask)
            return
        self.values.demands.clear()
        self._results.clear()
        try:
            self._moved(pc, w, moving, uses)
        except NoShift as why:
            what = value_text(self.machine.program, why.expr)
            self.obstacle = Obstacle(f"`{what}`", loc)
            return
        for demand in self.values.demands:
            self.demands.setdefault(demand, pc)
        alone = pc in self.machine.plan.idle or self.machine.plan.mir.code[pc].guard is not None
        if key is not None and not alone and not self.moved:
            self._known[key] = tuple(self._results)

    def spins(self, w: Warp, head: int) -> bool:
        """Whether it takes the registers to tell if a turn of a polling loop changed anything."""
        lap = w.laps.get(head)
        same = lap is not None and (lap.effects, lap.version) == (w.effects, w.machine.version)
        return same and any(self.moving.values())

    def _used(self, pc: int) -> _Uses:
        known = self._uses.get(pc)
        if known is None:
            instruction, slots = self.machine.plan.mir.code[pc], self.machine.plan.slots
            what, cond = instruction.what, condition(instruction)
            operands = list(operand_expressions(what)) if isinstance(what, Op) else []
            # effects may have expressions that are made of operands
            exprs = operands if cond is None else [*operands, cond]
            reads = {id(e): frozenset(slots[n] for n in _registers(e)) for e in exprs}
            depends = any(self._depends(e) for e in exprs) or bool(self._sized(what))
            known = self._uses[pc] = _Uses(
                frozenset[int]().union(*reads.values()),
                tuple(slots[v.name] for v in registers_set(what)) if isinstance(what, Op) else (),
                tuple((e, reads[id(e)], self._depends(e)) for e in operands),
                depends,
                not any(isinstance(v, Special | Base) for e in exprs for v in walk(e)),
            )
        return known

    def _depends(self, expr: Expr) -> bool:
        return any(self.values.depends(part) for part in walk(expr))

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

    def _differs_between(self, pc: int, moving: dict[int, Any], uses: _Uses) -> bool:
        """Whether something depends both on the cluster and on what moves."""
        names = self._between.get(pc)
        if names is None:
            return False
        slots = self.machine.plan.slots
        if any(slots[name] in moving for name in names):
            return True
        instruction = self.machine.plan.mir.code[pc]
        cond = condition(instruction)
        for expr in (*(e for e, _, _ in uses.operands), *([] if cond is None else [cond])):
            parts = list(walk(expr))
            varies = any(isinstance(p, Special | Base) or _name(p) in names for p in parts)
            if varies and any(self.values.depends(p) for p in parts):
                return True
        return any(
            any(map(is_free, self._forms.tensors[v.tensor.name].shape))
            for v in self._sized(instruction.what)
        )

    def _moved(self, pc: int, w: Warp, moving: dict[int, Any], uses: _Uses) -> None:
        instruction, mask = self.machine.plan.mir.code[pc], w.mask
        if pc in self.machine.plan.stays and pc not in self.machine.plan.idle:
            self.values.require_fixed(self.machine.plan.stays[pc], w, mask, moving)
        match instruction.what:
            case Branch(cond=Expr() as cond) | Trap(cond=cond) | Switch(index=cond):
                self.values.require_fixed(cond, w, mask, moving)
                return
            case Op() as op:
                pass
            case _:
                return
        if pc in self.machine.plan.idle:
            for slot in uses.sets:
                moving.pop(slot, None)
            return
        if instruction.guard is not None:
            self.values.require_fixed(instruction.guard, w, mask, moving)
            chosen = chosen_lanes(self.values, pc, w)
            if chosen is None:
                raise NoShift(instruction.guard)
            if not chosen:
                return  # in no lane: nothing is evaluated, and registers keep what they hold
            mask = chosen
        match op.effects():
            case (fx.Defines(var=var, value=Expr() as value),):
                self._set(w, moving, uses.sets[0], self._assigned(var, value, w, mask), mask)
                return
            case _:
                pass
        self._operands(op, w, mask, moving, uses)
        for slot in uses.sets:
            self._set(w, moving, slot, 0, mask)

    def _assigned(self, var: Var, value: Expr, w: Warp, mask: int) -> Any:
        """What a register that is set moves by."""
        kept = len(self.values.demands)
        try:
            ray = self.values.of(value, w, mask, self.moving[id(w.origin)])
            if is_moving(ray):
                if var.dtype.kind not in ("int", "uint"):
                    raise NoShift(value)
                self.values.require_range(value, w, mask, ray, *integer_limits(var.dtype))
        except NoShift as why:
            del self.values.demands[kept:]
            return Lost(why)
        return ray

    def _operands(self, op: Op, w: Warp, mask: int, moving: dict[int, Any], uses: _Uses) -> None:
        """All operands are the same, but for where it accesses what is not looked at."""
        known = self._free.get(op.number)
        if known is None:
            known = self._free[op.number] = _once(self._places(op))
        addressed = dict(self._addressed(op, w, mask))
        apart = _only_places(known, uses) | addressed.keys()
        for expr, slots, depends in uses.operands:
            moves = depends or not slots.isdisjoint(moving)
            if id(expr) not in apart and moves:
                self.values.require_fixed(expr, w, mask, moving)
            elif moves and id(expr) in addressed:
                free = addressed[id(expr)]
                ray = self.values.of(expr, w, mask, moving)
                self._require_multiple(expr, ray, free.least)
                self.values.require_range(expr, w, mask, ray, free.low, free.high)
        for place in known:
            ray = self.values.of(place.expr, w, mask, moving)
            self._require_multiple(place.expr, ray, place.least)
            self._inside(place, w, mask, ray)
            if place.memory.tracked and is_moving(ray):
                if isinstance(ray, np.ndarray):
                    raise NoShift(place.expr)
                self.moved.append((place.memory, place.dim, as_ray(ray)))

    @staticmethod
    def _require_multiple(expr: Expr, ray: Any, least: int) -> None:
        for part in np.asarray(ray, dtype=object).ravel():
            if part and any(n % least for n in (as_ray(part).a, as_ray(part).b)):
                raise NoShift(expr, least)

    def _addressed(self, op: Op, w: Warp, mask: int) -> Iterable[tuple[int, Free]]:
        """By identity the addresses, in registers, of what is read where nothing is written and
        nothing is known."""
        if not looks(op) or any(m.dependent for m in self.machine.globals.ordered):
            return
        free = free_operands(self.machine, op, lambda expr: window(self.values, expr, w, mask))
        for effect in op.effects():
            match effect:
                case fx.Reads(view=View(tensor=AddressedTensor(address=address))):
                    found = free.get(id(address))
                    if found is not None and found.memory is None and not found.data:
                        yield id(address), found
                case _:
                    pass

    def _inside(self, place: _Place, w: Warp, mask: int, ray: Any) -> None:
        """A place stays inside of what it is a place in."""
        expr, limit = place.expr, place.limit
        if limit is None:
            if is_moving(ray):
                self.values.require_range(expr, w, mask, ray, *_COORDINATE)
            return
        grows: Ray | int = 0
        size = limit
        if is_free(limit):
            size, grows = value_of(limit), Ray(self.values.integer(slope_of(limit), expr))
        value = plain(self.values.evaluate(expr)(w))
        for lane in (n for n in range(32) if mask >> n & 1):
            at, by = _in_lane(value, lane), _in_lane(ray, lane)
            if type(at) is not int:
                raise NoShift(expr)
            if place.memory.tracked and (by or grows) and not 0 <= at <= size - place.extent:
                raise NoShift(expr)
            self.values.bound_negative(at, by)
            self.values.bound_negative(size - place.extent - at, grows - as_ray(by))

    def _places(self, op: Op) -> Iterable[_Place]:
        """Operands that may move."""
        looked_at = any(
            isinstance(e, fx.Defines) or (isinstance(e, fx.Reads) and e.proxy == "tensormap")
            for e in op.effects()
        )
        if looked_at and not only_loads(op):
            if self._sized(op):
                raise NoShift(f"the size of {self._sized(op)[0].tensor.name}")
            return
        for effect in op.effects():
            match effect:
                case fx.ReadsMap(map=map_) | fx.WritesMap(map=map_):
                    yield from self._coordinates(effect, map_)
                case (
                    fx.Reads(view=View(tensor=GlobalTensor() as tensor) as view)
                    | fx.Writes(view=View(tensor=GlobalTensor() as tensor) as view)
                ):
                    yield from self._offsets(view, tensor)
                case _:
                    pass

    def _coordinates(
        self, effect: fx.ReadsMap | fx.WritesMap, map_: TensorMap
    ) -> Iterable[_Place]:  # fmt: skip
        """Where a copy begins. What the kernel writes is accessed as a box that lies inside."""
        memory = self._unseen(map_.tensor.name)
        if memory is None:
            return
        fields = fields_of(map_)
        least = unit(map_.packing, map_.tensor.dtype, self.machine.program.target.name)
        shape: tuple[Any, ...] = self._forms.tensors.get(map_.tensor.name, map_.tensor).shape
        if memory.tracked and (effect.mode != "tile" or map_.packing or map_.dims):
            return
        last = len(effect.coords) - 1
        for dim, coord in enumerate(effect.coords):
            multiple = least if dim == last else 1
            if not memory.tracked:
                yield _Place(coord, multiple, None, 0, memory, dim)
                continue
            extent = (fields.box[dim] - 1) * fields.steps[dim] + 1
            yield _Place(coord, multiple, shape[dim], extent, memory, dim)

    def _offsets(self, view: View, tensor: GlobalTensor) -> Iterable[_Place]:
        memory = self._unseen(tensor.name)
        if memory is None:
            return
        sized = self._forms.tensors.get(tensor.name, tensor)
        strides: tuple[Any, ...] = sized.byte_strides
        for stride in strides:
            if is_free(stride) and self.values.integer(slope_of(stride), tensor.name) % _ALIGNED:
                raise NoShift(f"the row of {tensor.name}, in bytes", _ALIGNED)
        parts = zip(view.offsets, view.extents, sized.shape, tensor.byte_strides, strict=True)
        for dim, (offset, extent, size, stride) in enumerate(parts):
            yield _Place(offset, _ALIGNED // gcd(stride, _ALIGNED), size, extent, memory, dim)

    def _unseen(self, name: str) -> Memory | None:
        """The memory of a global tensor, if what it holds is not looked at; if the kernel writes
        it, accesses to it are known by element."""
        memory = self.machine.globals.memories[name]
        if not memory.is_uniform or memory.dependent:
            return None
        return memory if not memory.tracked or memory.table.by_element else None

    def _set(
        self, w: Warp, moving: dict[int, Any], slot: int, ray: Any, mask: int,
        *, every: bool = False,
    ) -> None:  # fmt: skip
        """A register is set in the lanes of ``mask``; in all (``every``) if it is one of a loop."""
        if mask or every:
            self._results.append((slot, ray))
            set_moving(w, moving, slot, ray, FULL if every else mask, _merged)


def _once(places: Iterable[_Place]) -> list[_Place]:
    """Each place once: an instruction may read and write it."""
    return list({(id(p.expr), p.memory.label, p.dim): p for p in places}.values())


def _only_places(places: list[_Place], uses: _Uses) -> set[int]:
    """By identity the operands that are nothing but places."""
    number = Counter(id(place.expr) for place in places)
    times = Counter(id(expr) for expr, _, _ in uses.operands)
    return {expr for expr, count in number.items() if times[expr] == count}


def _key(
    pc: int, w: Warp, moving: Mapping[int, Any], uses: _Uses
) -> tuple[object, ...] | None:  # fmt: skip
    """What decides what is found about an instruction; None if that cannot be said briefly."""
    if not uses.alike:
        return None
    key: list[object] = [pc, w.mask]
    for slot in uses.reads:
        value, ray = w.registers[slot], moving.get(slot, 0)
        if type(value) is not int or not isinstance(ray, int | Ray):
            return None
        key += [value, ray]
    return tuple(key)


def _merged(mask: int, ray: Any, before: Any) -> Any:
    if type(ray) is Lost or type(before) is Lost:
        return ray if type(ray) is Lost else before
    same = not isinstance(ray, np.ndarray) and not isinstance(before, np.ndarray)
    if same and as_ray(ray) == as_ray(before):
        return ray
    return np.where(mask_array(mask), _boxed(ray), _boxed(before))


def _boxed(ray: Any) -> Any:
    """A ray as something that NumPy does not look into."""
    if isinstance(ray, np.ndarray):
        return ray
    box = np.empty((), dtype=object)
    box[()] = as_ray(ray)
    return box


def _in_lane(value: Any, lane: int) -> Any:
    if isinstance(value, np.ndarray):
        value = value[lane]
        return value.item() if isinstance(value, np.generic) else value
    return value


def _registers(expr: Expr) -> set[str]:
    return {v.name for v in walk(expr) if isinstance(v, Var)}


def _name(part: Expr) -> str | None:
    return part.name if isinstance(part, Var) else None
