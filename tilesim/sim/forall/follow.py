"""Follows what moves with a parameter through the instructions of a run.

Each instruction that is executed has to be the same for every larger value, in every repetition,
but for what it moves to registers, and for where it accesses global memory that nobody looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from tilesim.analysis.uses_defs import operand_expressions, registers_set
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.arithmetic import integer_limits
from tilesim.ir.boxes import fields_of
from tilesim.ir.expr import Base, Expr, Special, Var, walk
from tilesim.ir.memory import GlobalTensor, TensorMap, View
from tilesim.ir.mir import Branch, Switch, Trap, condition
from tilesim.ir.op import Op
from tilesim.ir.packing import unit
from tilesim.ir.text.statement import value_text
from tilesim.sim.expression import plain
from tilesim.sim.forall.forms import Forms
from tilesim.sim.forall.free import Obstacle, is_free, slope_of, value_of
from tilesim.sim.forall.rays import Demand, Ray, Rays, as_ray
from tilesim.sim.grid.follow import Follower
from tilesim.sim.machine.lanes import FULL, mask_array
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.storage import Memory
from tilesim.sim.steady.bounds import NoShift
from tilesim.sim.steady.period import chosen_lanes
from tilesim.sim.steady.places import Free, free_operands, looks, only_loads, window
from tilesim.sim.steady.shifts import Lost, is_moving

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
        copies of what nobody writes may stick out."""
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
        """All operands are the same, but for where it accesses what nobody looks at."""
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
        """By identity the addresses, in registers, of what is read where nobody writes and nothing
        is known."""
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
        """The memory of a global tensor, if nobody looks at what it holds; if the kernel writes it,
        accesses to it are known by element."""
        memory = self.machine.globals.memories[name]
        if not memory.is_uniform or memory.dependent:
            return None
        return memory if not memory.tracked or memory.table.by_element else None

    def _set(
        self, w: Warp, moving: dict[int, Any], slot: int, ray: Any, mask: int,
        *, every: bool = False,
    ) -> None:  # fmt: skip
        """A register is set in the lanes of ``mask``, in all if it is one of a loop; in the others
        it moves as it did before."""
        if not mask and not every:
            return
        alone = slot in self.machine.plan.private and not self.machine.forks
        self._results.append((slot, ray))
        if not (every or alone or mask == FULL or w.registers[slot] is None):
            ray = _merged(mask, ray, moving.get(slot, 0))
        if is_moving(ray):
            moving[slot] = ray
        else:
            moving.pop(slot, None)


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
