"""Where operands may differ from repetition to repetition: places in global memory, and data.

An access to memory whose contents are not looked at is the same wherever it lies, as long as it
stays inside and aligned, and as long as no accesses of different repetitions conflict (`boxes`).
So is a read from memory of which nothing is known: what it leaves is not known either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.uses_defs import expressions_in
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.addresses import GLOBAL_WINDOW
from tilesim.ir.declarations import GlobalTensor, TensorMap, View
from tilesim.ir.expr import Expr, constant
from tilesim.ir.op import Op
from tilesim.ir.tensormap import fields_of, unit
from tilesim.records import dataclass, field
from tilesim.sim.affine.cluster_plan import ALIGNED
from tilesim.sim.affine.free_parameter import is_free
from tilesim.sim.affine.shifts import FutureValue, Repetitions, Shift, Shifts, lanes_of
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.unknown import Unknown

#: a tensor map says where a copy of it begins in elements of s32
_COORDINATE = (-(1 << 31), (1 << 31) - 1)
#: all integers there are
_ANY = (-(1 << 63), (1 << 64) - 1)


@dataclass(frozen=True)
class MovableOperand:
    """An operand that may move, by a multiple of ``least`` and within a range.

    It says where an access begins in dimension ``dim`` of a ``tensor``, or is an address ("").
    ``memory``, if accesses to it are recorded: they move along with the operand, in this dimension,
    or by ``stride`` bytes for each that it does. ``data``: it may be anything. ``high`` may depend
    on a parameter.
    """

    least: int
    low: int
    high: Any
    memory: Memory | None = None
    tensor: str = ""
    dim: int = 0
    stride: int = 1
    data: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether it is bounded by the end of a tensor."""
        return self.low == 0

    @property
    def grows(self) -> bool:
        """Whether the range grows with a parameter."""
        return is_free(self.high)


def window(values: Shifts, expr: Expr, warp: Warp, mask: int) -> int | None:
    """An address that stands for those of all lanes and clusters; None if they are into different
    memory."""
    value = values.value(expr, warp)
    if type(value) is Unknown:
        return None
    together = values.in_lanes(value, lanes_of(mask))
    if together is None:
        return None
    low, high = int(np.min(together)), int(np.max(together))
    return low if low // GLOBAL_WINDOW == high // GLOBAL_WINDOW else None


def depends_on_registers(op: Op) -> bool:
    """Whether `free_operands` depends on what registers hold."""
    for effect in op.effects():
        match effect:
            case fx.Reads(view=View(tensor=AddressedTensor())):
                return True
            case fx.Writes(view=View(tensor=AddressedTensor())):
                return True
            case _:
                pass
    return False


def free_operands(
    machine: Machine, op: Op, look: Callable[[Expr], Any],
    sized: Mapping[str, GlobalTensor] | None = None,
) -> list[tuple[Expr, MovableOperand]]:  # fmt: skip
    """The operands of an instruction that may move; ``look`` evaluates one: what all lanes have, or
    None. ``sized``: tensors whose size depends on a parameter."""
    found: list[tuple[Expr, MovableOperand]] = []
    stored, loads = False, only_loads(op)
    written = [effect.view for effect in op.effects() if isinstance(effect, fx.Writes)]
    for effect in op.effects():
        match effect:
            case fx.Reads(proxy="tensormap"):
                return []
            case fx.Defines() if not loads:
                return []
            case (
                fx.ReadsMap(map=map_)
                | fx.WritesMap(map=map_)
                | fx.Prefetches(map=TensorMap() as map_)
            ):
                found += _in_map(machine, effect, map_, sized or {})
            case (
                fx.Reads(view=View(tensor=GlobalTensor()) as view)
                | fx.Writes(view=View(tensor=GlobalTensor()) as view)
            ):
                memory = machine.globals.memories[view.tensor.name]
                if memory.is_uniform:
                    stored |= isinstance(effect, fx.Writes)
                    found += _in_view(view, memory, sized or {})
            case (
                fx.Reads(view=View(tensor=AddressedTensor()) as view)
                | fx.Writes(view=View(tensor=AddressedTensor()) as view)
            ):
                at = _at_address(machine, view, look, only_read=view not in written)
                if at is not None:
                    stored |= isinstance(effect, fx.Writes)
                    found.append(at)
            case _:
                pass
    if stored:
        values = (expr for name in op.data for expr in expressions_in(getattr(op, name)))
        found += [(expr, MovableOperand(1, *_ANY, dim=-1, data=True)) for expr in values]
    return found


def only_loads(op: Op) -> bool:
    """Whether it does nothing but to load registers, without order."""
    match op.effects():
        case (
            fx.Reads(sem="weak", view=View(tensor=AddressedTensor() | GlobalTensor())),
            first,
            *rest,
        ):
            return all(isinstance(effect, fx.Defines) for effect in (first, *rest))
        case _:
            return False


def _is_plain(effect: fx.ReadsMap | fx.WritesMap | fx.Prefetches, tensor_map: TensorMap) -> bool:
    """Whether a copy touches a box that its coordinates move."""
    return effect.mode == "tile" and tensor_map.packing is None and tensor_map.dims is None


def _in_map(
    machine: Machine, effect: fx.ReadsMap | fx.WritesMap | fx.Prefetches, tensor_map: TensorMap,
    sized: Mapping[str, GlobalTensor],
) -> list[tuple[Expr, MovableOperand]]:  # fmt: skip
    name = tensor_map.tensor.name
    memory = machine.globals.memories[name]
    if not memory.is_uniform:
        return []
    free: list[tuple[Expr, MovableOperand]] = []
    fields = fields_of(tensor_map)
    least = unit(tensor_map.packing, tensor_map.tensor.dtype, machine.program.target.name)
    untouched = isinstance(effect, fx.Prefetches) or not memory.tracked
    if not untouched and not _is_plain(effect, tensor_map):
        return []
    for dim, coord in enumerate(effect.coords):
        multiple = least if dim == len(effect.coords) - 1 else 1
        if untouched:
            free.append((coord, MovableOperand(multiple, *_COORDINATE, tensor=name, dim=dim)))
            continue
        size: Any = sized[name].shape[dim] if name in sized else fields.dims[dim]
        room = size - (fields.box[dim] - 1) * fields.steps[dim] - 1
        free.append(
            (coord, MovableOperand(multiple, 0, room, memory, name, dim, fields.strides[dim]))
        )
    return free


def _in_view(
    view: View, memory: Memory, sized: Mapping[str, GlobalTensor]
) -> list[tuple[Expr, MovableOperand]]:
    name, strides = view.tensor.name, view.tensor.byte_strides
    shape: tuple[Any, ...] = sized.get(name, view.tensor).shape
    sizes = zip(view.offsets, view.extents, shape, strides, strict=True)
    free: list[tuple[Expr, MovableOperand]] = []
    for dim, (offset, extent, size, stride) in enumerate(sizes):
        least = ALIGNED // gcd(stride, ALIGNED)
        owner = memory if memory.tracked else None
        free.append((offset, MovableOperand(least, 0, size - extent, owner, name, dim, stride)))
    return free


def _at_address(
    machine: Machine, view: View, look: Callable[[Expr], Any], *, only_read: bool
) -> tuple[Expr, MovableOperand] | None:
    """The address of what lies in one global tensor that is not looked at, or of which nothing is
    known if it is ``only_read``."""
    tensor = view.tensor
    assert isinstance(tensor, AddressedTensor)
    address = look(tensor.address)
    if address is None or tensor.swizzle or tensor.space not in ("global", "generic"):
        return None
    number = int(address) // GLOBAL_WINDOW - 1
    if not 0 <= number < len(machine.globals.ordered):
        return None
    memory = machine.globals.ordered[number]
    offsets = [constant(offset) for offset in view.offsets]
    unknown = only_read and memory.marks is not None and memory.marks.none_known
    if not memory.is_uniform and not unknown:
        return None
    if any(type(offset) is not int for offset in offsets):
        return None
    sizes = list(zip(offsets, view.extents, tensor.byte_strides, strict=True))
    first = sum(int(o or 0) * s for o, _, s in sizes)
    last = sum((int(o or 0) + n - 1) * s for o, n, s in sizes) + tensor.dtype.bytes
    base = (number + 1) * GLOBAL_WINDOW
    size = machine.plan.sizes[memory.label]
    owner = memory if memory.tracked else None
    return tensor.address, MovableOperand(ALIGNED, base - first, base + size - last, owner)


@dataclass(frozen=True)
class OperandMotion:
    """How an access moves with an operand: in each repetition by ``by``, or as ``later`` says, from
    the value ``now`` in all clusters: (clusters, lanes)."""

    free: MovableOperand
    by: Shift = 0
    later: FutureValue | None = None
    now: NDArray[Any] | None = None
    lanes: NDArray[np.bool_] | None = None

    def further(self, many: Repetitions) -> NDArray[np.int64]:
        """How much further it is in these repetitions: (repetitions, clusters).

        Raises:
            NoShift: not by the same in all lanes.
        """
        if self.later is None:
            return (many * int(self.by))[:, None]
        assert self.now is not None
        values = self.later.at(many)
        difference = values.reshape(len(many), -1, values.shape[-1]) - self.now
        if difference.shape[-1] > 1:
            difference = difference[:, :, self.lanes]
        if (difference != difference[:, :, :1]).any():
            raise self.later.why
        return cast("NDArray[np.int64]", difference[:, :, 0])

    def inside(self, most: int) -> NDArray[np.int64]:
        """In how many repetitions, of so many, it stays where it may be, in each cluster."""
        assert self.later is not None
        assert self.now is not None
        values = self.later.at(np.arange(1, most + 1, dtype=np.int64))
        values = values.reshape(most, -1, values.shape[-1])
        if values.shape[-1] > 1:
            values = values[:, :, self.lanes]
        now = self.now[:, self.lanes] if self.now.shape[-1] > 1 else self.now
        wrong = (values < self.free.low) | (values > self.free.high)
        wrong |= (values - now) % self.free.least != 0
        outside = np.any(wrong, axis=2)
        return np.where(outside.any(axis=0), outside.argmax(axis=0), most)


@dataclass(eq=False)
class MovingAccess:
    """An access to global memory that moves with operands; ``noted``: see `Follower.noted`."""

    memory: Memory
    footprint: Footprint
    access: Access
    motions: tuple[OperandMotion, ...]
    noted: Any = None


@dataclass
class IterationAccesses:
    """The accesses to global memory in one repetition: those that move, and other places."""

    moved: list[MovingAccess] = field(default_factory=list)
    still: dict[Footprint, None] = field(default_factory=dict)

    def places(self) -> Iterable[Footprint]:
        """What is accessed in every repetition, and all that shares bytes with it."""
        return {other: None for place in self.still for other in place.overlaps}
