"""Byte memories and views into them: addresses, footprints, and moving numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet, Indices
from tilesim.arith.types import DType
from tilesim.ir.declarations import SharedTensor, Tensor, View
from tilesim.ir.expr import Expr, constant
from tilesim.ir.layout import CHUNK_MASK, swizzled
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.machine.errors import NotUniform, OutOfBounds
from tilesim.sim.machine.expression import Evaluate
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array, mask_bits
from tilesim.sim.machine.memory import Memory, elements_apart
from tilesim.sim.machine.unknown import Unknown, plain

if TYPE_CHECKING:
    from tilesim.sim.machine.cta import Cta
    from tilesim.sim.machine.machine import Warp


def bytes_within(strides: Sequence[int], shape: Sequence[int]) -> NDArray[np.int64]:
    """How far behind the first element of a box each of them begins, before a swizzle."""
    found = np.zeros((), dtype=np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        found = found[..., None] + np.arange(extent, dtype=np.int64) * stride
    return found


def box_footprint(
    tensor: Tensor, base: int, spans: Indices,
    named: Callable[[int], tuple[str, str, int | None]] | None = None,
) -> Footprint:  # fmt: skip
    """The footprint of the elements with these indices, one progression per dimension.

    ``named`` tells of its first byte what findings call it, the tensor that it lies in, whatever
    its elements there, and its place in an array of barriers.
    """
    size, strides, swizzle = tensor.dtype.bytes, tensor.byte_strides, getattr(tensor, "swizzle", 0)
    counts = tuple(map(len, spans))
    start = base + sum(x.start * s for x, s in zip(spans, strides, strict=True))
    held = ByteSet.box(
        base, spans, strides, size, mask=CHUNK_MASK[swizzle],
        space=tensor.name if named is None and elements_apart(tensor) else None,
    )  # fmt: skip

    def addresses() -> NDArray[np.int64]:
        steps = [x.step * s for x, s in zip(spans, strides, strict=True)]
        return swizzled(start + bytes_within(steps, counts), swizzle)

    if named is None:
        parts = [str(x.start) if len(x) == 1 and len(spans) > 1 else _slice(x) for x in spans]
        slot = spans[0].start if len(spans) > 1 and counts[0] == 1 else None
        name, owner = f"{tensor.name}[{', '.join(parts)}]", tensor.name
    else:
        name, owner, slot = named(held.low)
    return Footprint(
        name, owner, held, addresses, size, start=start,
        folded=held.nbytes < size * prod(counts), place=(owner, slot),
    )  # fmt: skip


def _slice(span: range) -> str:
    return f"{span.start}:{span[-1] + 1}" + (f":{span.step}" if span.step > 1 else "")


def make_footprint(
    tensor: Tensor, base: int, offsets: tuple[int, ...], shape: tuple[int, ...]
) -> Footprint:
    """The footprint of a box; `OutOfBounds` if it leaves the tensor."""
    for d, (offset, extent, limit) in enumerate(zip(offsets, shape, tensor.shape, strict=True)):
        if offset < 0 or offset + extent > limit:
            raise OutOfBounds(
                f"elements {offset}..{offset + extent - 1} of dimension {d} of {tensor.name}, "
                f"which has {limit}",
                tensor.name,
            )
    spans = tuple(range(o, o + n) for o, n in zip(offsets, shape, strict=True))
    return box_footprint(tensor, base, spans)


@dataclass(frozen=True, eq=False)
class LaneSet:
    """Elements of a tensor that lanes name: their indices by dimension, and byte addresses."""

    tensor: Tensor
    chosen: NDArray[np.int64]
    addresses: NDArray[np.int64]

    @cached_property
    def name(self) -> tuple[str, bytes]:
        """What tells it from others."""
        return self.tensor.name, self.addresses.tobytes()

    def footprint(self) -> Footprint:
        """Its footprint in one memory."""
        return Footprint(**self._said)

    @cached_property
    def _said(self) -> dict[str, Any]:
        """What the footprints in all memories say."""
        tensor, size = self.tensor, self.tensor.dtype.bytes
        low, high = self.chosen.min(axis=1).tolist(), self.chosen.max(axis=1).tolist()
        parts = [str(a) if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True)]
        box = tuple(range(a, b + 1) for a, b in zip(low, high, strict=True))
        apart = elements_apart(tensor)
        held = ByteSet.pieces(self.addresses, size)
        common, points = held.nbytes < len(self.addresses) * size, None
        if apart and held.nbytes == prod(map(len, box)) * size:
            held = ByteSet(held.base, held.form, tensor.name, box)
        elif apart and not isinstance(tensor, SharedTensor):
            points = [tuple((i, i + 1) for i in indices) for indices in self.chosen.T.tolist()]
        return {
            "name": f"{tensor.name}[{', '.join(parts)}]", "tensor": tensor.name, "bytes": held,
            "_addresses": self.addresses, "itemsize": size, "points": points, "common": common,
            "place": (tensor.name, low[0] if low[0] == high[0] else None),
        }  # fmt: skip


#: lane sets that a view remembers
_LANE_CACHE = 4096
_LAST = (1 << 63) - 1


class ViewAccess:
    """A compiled view: gives the memory and footprint it names for a warp.

    ``split`` makes each warp of a warpgroup see its quarter of the rows (wgmma's layout).
    """

    def __init__(
        self, view: View, compiled: Callable[[Expr], Evaluate], base: int, *, split: bool = False
    ) -> None:
        self.view = view
        self.tensor = view.tensor
        self.base = base
        self.shared = isinstance(view.tensor, SharedTensor)
        self.split = split
        self.extents = view.extents
        if split:
            rows = view.dims[-2]
            self.rows = rows
            self.extents = tuple(n // 4 if d == rows else n for d, n in enumerate(view.extents))
        self._fixed = [constant(o) for o in view.offsets]
        self._moving: list[tuple[int, Evaluate]] = [
            (d, compiled(o)) for d, o in enumerate(view.offsets) if self._fixed[d] is None
        ]
        self._cta = None if view.cta is None else compiled(view.cta)
        moves = len(self._moving)
        self._own = self.shared and self._cta is None and not split
        self._identity = id(self)
        #: of a box in the CTA's own memory, what decides where it lies, if one thing does
        self.place: Evaluate | None = None
        if self._own and moves <= 1:
            self.place = self._moving[0][1] if moves else _at_rest
        #: by lane mask and run-time offsets
        self._lanes: dict[tuple[Any, ...], LaneSet] = {}
        #: shared by equal boxes of one tensor, so that they get one footprint
        self._key = (view.tensor.name, self.extents)

    def is_null(self, _warp: Warp) -> bool:
        """Whether it is at an address that is a null pointer in all active lanes."""
        return False

    def cta(self, warp: Warp) -> Cta:
        """The CTA whose shared memory the view lies in."""
        if self._cta is None:
            return warp.cta
        return warp.machine.peer(warp, uniform(self._cta(warp), warp))

    @property
    def several(self) -> bool:
        """Whether lanes may name several memories."""
        return self._cta is not None

    def peers(self, warp: Warp) -> dict[int, int] | None:
        """The lane mask of every CTA rank where the active lanes name several; otherwise None."""
        value = None if self._cta is None else plain(self._cta(warp))
        if not isinstance(value, np.ndarray):
            return None
        active = mask_array(warp.mask)
        ranks = np.unique(value[active]).tolist()
        if len(ranks) == 1:
            return None
        return {rank: mask_bits((value == rank) & active) for rank in ranks}

    def differs(self, warp: Warp) -> bool:
        """Whether active lanes surely name different places."""
        return False

    def lost(self, _warp: Warp) -> Unknown | None:
        """The address that it is at, if that is not known."""
        return None

    def memory(self, warp: Warp) -> Memory:
        """The memory the view lies in."""
        if self._own:
            return warp.cta.memory
        if self.shared:
            return self.cta(warp).memory
        return warp.machine.globals.memories[self.tensor.name]

    def offsets(self, warp: Warp) -> tuple[int, ...]:
        """Uniform element offsets per dimension; `NotUniform` if a lane disagrees."""
        values: list[Any] = list(self._fixed)
        for d, evaluate in self._moving:
            value = evaluate(warp)
            values[d] = value if type(value) is int else uniform(value, warp)
        if self.split:
            values[self.rows] += warp.number % 4 * self.extents[self.rows]
        return tuple(values)

    def footprint(self, warp: Warp) -> Footprint:
        """The footprint for this warp (all active lanes together)."""
        if self.place is None:
            return self.footprint_in(warp, self.memory(warp))
        value, memory = self.place(warp), warp.cta.memory
        if type(value) is not int:
            return self.footprint_in(warp, memory)
        known = memory.table.by_view.get((self._identity, value))
        if known is None:
            known = self.footprint_in(warp, memory)
            memory.table.by_view[self._identity, value] = known
        return known

    def footprint_in(self, warp: Warp, memory: Memory) -> Footprint:
        """The same box in another CTA's memory (a multicast destination)."""
        offsets = self.offsets(warp)
        return memory.footprint(
            (self._key, offsets),
            lambda: make_footprint(self.tensor, self.base, offsets, self.extents),
        )

    def lane_footprint(self, warp: Warp) -> tuple[Memory, Footprint, NDArray[np.int64]]:
        """Memory, footprint and byte addresses of the view that each active lane names, lane by
        lane."""
        values = [_of_64_bits(plain(evaluate(warp))) for _, evaluate in self._moving]
        key = (warp.mask, *(v if type(v) is int else v.tobytes() for v in values))
        known = self._lanes.get(key)
        if known is None:
            if len(self._lanes) >= _LANE_CACHE:
                self._lanes.clear()
            known = self._lanes[key] = self._lane_set(warp.mask, values)
        memory = self.memory(warp)
        return memory, memory.footprint(known.name, known.footprint), known.addresses

    def _lane_set(self, mask: int, values: list[Any]) -> LaneSet:
        chosen = np.empty((len(self._fixed), mask.bit_count()), dtype=np.int64)
        for d, fixed in enumerate(self._fixed):
            chosen[d] = _of_64_bits(fixed or 0)
        for (d, _), value in zip(self._moving, values, strict=True):
            chosen[d] = (
                value if type(value) is int else np.broadcast_to(value, 32)[mask_array(mask)]
            )
        if self.view.size > 1:
            inner = np.indices(self.extents).reshape(len(self.extents), 1, -1)
            chosen = (chosen[:, :, None] + inner).reshape(len(self.extents), -1)
        bounds = chosen.min(axis=1).tolist(), chosen.max(axis=1).tolist()
        for d, (low, high, limit) in enumerate(zip(*bounds, self.tensor.shape, strict=True)):
            if low < 0 or high >= limit:
                wrong = (chosen[d] < 0) | (chosen[d] >= limit)
                raise OutOfBounds(
                    f"element {int(chosen[d][wrong][0])} of dimension {d} of {self.tensor.name}, "
                    f"which has {limit}",
                    self.tensor.name,
                )
        addresses = self.base + np.array(self.tensor.byte_strides, dtype=np.int64) @ chosen
        addresses = swizzled(addresses, getattr(self.tensor, "swizzle", 0))
        return LaneSet(self.tensor, chosen, addresses)


def _of_64_bits(indices: Any) -> Any:
    """A number, or those of lanes, as signed ones of 64 bits: what is beyond these lies in no
    tensor, and neither does the last one of them."""
    if type(indices) is int:
        return max(min(indices, _LAST), ~_LAST)
    if indices.dtype == object:
        indices = np.clip(indices, ~_LAST, _LAST)
    return np.asarray(indices, dtype=np.int64)


def _at_rest(_warp: Warp) -> int:
    """Nothing decides where a box lies."""
    return 0


def footprints_of(views: Sequence[ViewAccess]) -> Callable[[Warp], tuple[Footprint, ...]]:
    """The footprints of all operands of an instruction, as a function of a warp.

    Where all lie in the CTA's own memory, they are found at once by what decides where.
    """
    places = [*dict.fromkeys(view.place for view in views if view.place is not None)]
    identity = id(views[0])

    def find(w: Warp) -> tuple[Footprint, ...]:
        found, known = tuple([place(w) for place in places]), w.cta.memory.table.by_operands
        for value in found:
            if type(value) is not int:
                return each(w)
        footprints = known.get((identity, found))
        if footprints is None:
            footprints = known[identity, found] = each(w)
        return footprints

    def each(w: Warp) -> tuple[Footprint, ...]:
        return tuple([view.footprint(w) for view in views])

    return each if any(view.place is None for view in views) else find


def uniform_value(value: Any, warp: Warp) -> int | float:
    """``value`` as one number; `NotUniform` if the active lanes disagree."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        active = value[mask_array(warp.mask)]
        if active.size == 0 or (active != active[0]).any():
            raise NotUniform
        value = active[0]
    return value if isinstance(value, float) else int(value)


def uniform(value: Any, warp: Warp) -> int:
    """``value`` as one integer; `NotUniform` if the active lanes disagree."""
    return int(uniform_value(value, warp))


def read_elements(memory: Memory, footprint: Footprint, dtype: DType) -> NDArray[Any]:
    """The elements of a footprint, in the shape of its box."""
    return memory.typed(dtype)[footprint.cells(dtype.bytes)]


def unknown_in(memory: Memory, footprint: Footprint, op: Op) -> Unknown | None:
    """What an instruction reads there, if some of it is not known."""
    found = None if memory.marks is None else memory.marks.first_in(footprint.bytes)
    return None if found is None else found.read_by(op.mnemonic, op.loc)


def write_elements(
    memory: Memory, footprint: Footprint, dtype: DType, values: NDArray[Any]
) -> None:
    """Stores ``values`` (broadcast to the footprint's shape)."""
    if memory.marks is not None:
        memory.marks.set(footprint.bytes, None)
    memory.typed(dtype)[footprint.cells(dtype.bytes)] = values
