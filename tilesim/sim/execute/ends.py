"""The ends of asynchronous copies: a view, or what a tensor map selects."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.types import PACKINGS, Direction, DType, Packing, numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.boxes import MapFields, fields_of
from tilesim.ir.expr import Expr
from tilesim.ir.memory import View
from tilesim.ir.op import Op
from tilesim.ir.packing import unit
from tilesim.sim.execute.combine import Combine
from tilesim.sim.execute.compose import Operands
from tilesim.sim.execute.tensormaps import MapInMemory, MapReader
from tilesim.sim.machine.boxes import Box
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform, write_elements
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.storage import Memory


class Piece(Protocol):
    """One end of one copy: ``nbytes`` of ``memory``, of which ``footprint`` is touched.

    Without a footprint nothing is touched that could race. ``through``: the tensor map that the
    copy reads, if that lies in memory.
    """

    memory: Memory
    footprint: Footprint | None
    nbytes: int
    dtype: DType
    through: MapInMemory | None

    def other(self, w: Warp, view: ViewAccess, memory: Memory) -> Footprint:
        """What the copy touches of ``view``, its other end, in this shared memory."""
        ...

    def load(self) -> NDArray[Any]:
        """The elements."""
        ...

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        """Writes elements, combined with what is there if asked."""
        ...


class _Range:
    """A contiguous range."""

    __slots__ = ("dtype", "footprint", "memory", "nbytes", "through")

    def __init__(self, view: ViewAccess, memory: Memory, footprint: Footprint) -> None:
        self.dtype = view.view.dtype
        self.memory = memory
        self.footprint: Footprint | None = footprint
        self.nbytes = view.view.nbytes
        self.through: MapInMemory | None = None

    def other(self, w: Warp, view: ViewAccess, memory: Memory) -> Footprint:
        return view.footprint_in(w, memory)

    def load(self) -> NDArray[Any]:
        assert self.footprint is not None
        return read_elements(self.memory, self.footprint, self.dtype)

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        assert self.footprint is not None
        values = as_elements(values, self.dtype, self.footprint.addresses.shape)
        if combine is not None:
            values = combine(self.load(), values)
        write_elements(self.memory, self.footprint, self.dtype, values)


class _Masked:
    """Some bytes of a contiguous range."""

    __slots__ = ("_kept", "_range", "dtype", "footprint", "memory", "nbytes", "through")

    def __init__(self, whole: _Range, footprint: Footprint | None, kept: NDArray[np.bool_]) -> None:
        self._range = whole
        self._kept = kept
        self.memory = whole.memory
        self.footprint = footprint
        self.nbytes = whole.nbytes
        self.dtype = whole.dtype
        self.through: MapInMemory | None = None

    def other(self, w: Warp, view: ViewAccess, memory: Memory) -> Footprint:
        return view.footprint_in(w, memory)

    def load(self) -> NDArray[Any]:
        return self._range.load()

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        whole = self._range.footprint
        assert whole is not None
        cells = self.memory.data[whole.bytes.low : whole.bytes.high]
        before = cells.copy()
        self._range.store(values, combine)
        cells[~self._kept] = before[~self._kept]


class _Selected:
    """What a tensor map selects."""

    __slots__ = ("_box", "_packing", "dtype", "footprint", "memory", "nbytes", "through")

    def __init__(
        self, box: Box, memory: Memory, footprint: Footprint | None, packing: Packing | None,
        through: MapInMemory | None,
    ) -> None:  # fmt: skip
        self._box = box
        self._packing = packing
        self.dtype = box.fields.dtype
        self.memory = memory
        self.footprint = footprint
        self.nbytes = box.nbytes
        self.through = through

    def other(self, w: Warp, view: ViewAccess, memory: Memory) -> Footprint:
        whole = view.footprint_in(w, memory)
        return whole if self.through is None else self._box.tile(view, whole, memory)

    def load(self) -> NDArray[Any]:
        found = self._box.load(self.memory)
        return found if self._packing is None else spread(found, self._packing)

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        if self._packing is not None:
            values = packed(values, self._packing)
        if self.footprint is not None and self.memory.marks is not None:
            self.memory.marks.set(self.footprint.bytes, None)
        self._box.store(self.memory, values, combine)


def spread(rows: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """Packed bytes as a load leaves them in shared memory, with the gaps (which hold anything)."""
    if not packing.padded:
        return rows
    chunks = rows.reshape(*rows.shape[:-1], -1, packing.payload)
    gaps = np.zeros((*chunks.shape[:-1], packing.room - packing.payload), dtype=rows.dtype)
    return np.concatenate([chunks, gaps], axis=-1).reshape(*rows.shape[:-1], -1)


def packed(rows: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """The bytes that a store makes of a tile: of elements of a byte each, the low bits."""
    if not packing.padded:
        return rows
    bits = np.unpackbits(rows[..., None], axis=-1, count=packing.bits, bitorder="little")
    return np.packbits(bits.reshape(*rows.shape[:-1], -1), axis=-1, bitorder="little")


End = Callable[[Warp], Piece]


def as_elements(values: NDArray[Any], dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
    """The same bytes as elements of this type, in this shape."""
    kind = numpy_dtype(dtype)
    if values.dtype != kind:
        values = np.ascontiguousarray(values).ravel().view(kind)
    return values.reshape(shape)


def range_end(c: Operands, op: Op, effect: fx.Reads | fx.Writes) -> End:
    """A contiguous, unswizzled, 16-byte aligned range (B6), or the bytes of it in a mask (B35)."""
    view = c.view(effect.view)
    mask = byte_mask(c, effect)

    def end(w: Warp) -> Piece:
        memory = view.memory(w)
        footprint = view.footprint_in(w, memory)
        require_contiguous(op, view, footprint)
        whole = _Range(view, memory, footprint)
        if mask is None:
            return whole
        chosen = mask(w)
        kept = np.array([chosen >> i % 16 & 1 for i in range(whole.nbytes)], dtype=bool)
        return _Masked(whole, masked(memory, footprint, chosen), kept)

    return end


def byte_mask(c: Operands, effect: fx.Reads | fx.Writes) -> Callable[[Warp], int] | None:
    """Which bytes of each 16 a copy moves; None if there is no choice."""
    if not isinstance(effect, fx.Writes) or effect.mask is None:
        return None
    mask = c.expr(effect.mask)
    return lambda w: uniform(mask(w), w) & 0xFFFF


def masked(memory: Memory, footprint: Footprint, mask: int) -> Footprint | None:
    """The bytes of a contiguous range that are in ``mask``, by their place in 16; None for none."""
    if not mask:
        return None
    low, size = footprint.bytes.low, footprint.bytes.high - footprint.bytes.low

    def make() -> Footprint:
        chosen = low + np.flatnonzero([mask >> i % 16 & 1 for i in range(size)])
        points = footprint.points
        if footprint.bytes.indices is not None:
            points = footprint.boxes(by_element=True)
        return Footprint(
            f"{footprint.name} in the bytes {mask:#x} of 16", footprint.tensor,
            ByteSet.elements(chosen, 1), chosen, 1, start=footprint.start, points=points,
            place=footprint.place,
        )  # fmt: skip

    return memory.table.get(("mask", mask, low, size), make)


def map_end(c: Operands, op: Op, effect: fx.ReadsMap | fx.WritesMap, at: View | None = None) -> End:
    """What a tensor map selects, or the one that lies ``at`` a place in memory.

    A store starts inside of the tensor.
    """
    declared, mode = fields_of(effect.map), effect.mode
    tensors = {tensor.name: tensor for tensor in effect.map.tensors}
    writes = isinstance(effect, fx.WritesMap)
    reader = None if at is None else MapReader(c, op, at, effect.map, _direction(effect))
    key: tuple[Hashable, ...] = ("map", effect.map.name, mode)
    coords = numbers(c, effect.coords)
    info = numbers(c, effect.info if isinstance(effect, fx.ReadsMap) else ())

    def end(w: Warp) -> Piece:
        place, more = coords(w), info(w)
        through = None if reader is None else reader.at(w)
        fields = declared if through is None else through.fields
        memory, tensor = w.machine.globals.memories[fields.tensor], tensors[fields.tensor]
        least = unit(fields.packing, fields.dtype, w.machine.program.target.name)
        if place[-1] % least:
            raise _starts_between(op, fields, place[-1], least)
        if writes and any(x < 0 for x in place):
            raise BarrierError(
                "out-of-bounds", f"{op.mnemonic} at negative coordinates {place} (B19)",
                "stores may stick out past the end of the tensor, not before its start",
            )  # fmt: skip
        packing = None if fields.packing is None else PACKINGS[fields.packing]
        if packing is not None:
            place = (*place[:-1], place[-1] * packing.bits // 8)
        box = Box(fields, tensor, mode, place, more)
        if through is not None:
            box.require_inside()
        name = key if through is None else (fields, mode)
        footprint = box.footprint(memory, (*name, place, more)) if memory.tracked else None
        return _Selected(box, memory, footprint, packing, through)

    return end


def _direction(effect: fx.ReadsMap | fx.WritesMap) -> Direction | None:
    if isinstance(effect, fx.ReadsMap):
        return "load"
    return "store" if effect.combine is None else None


def _starts_between(op: Op, fields: MapFields, first: int, least: int) -> BarrierError:
    """A tensor copy whose first coordinate is between the places where rows can begin."""
    rule, kind = "B37" if fields.packing is None else "B36", fields.packing or fields.dtype
    return BarrierError(
        "out-of-bounds",
        f"{op.mnemonic} at the first coordinate {first} of {kind} elements, no multiple of {least} "
        f"({rule})",
        "start at a multiple, or shift the address of the tensor map",
    )


def numbers(c: Operands, operands: tuple[Expr, ...]) -> Callable[[Warp], tuple[int, ...]]:
    """Operands as integers, the same in all active lanes."""
    functions = [c.expr(x) for x in operands]
    if not functions:
        return lambda w: ()

    def values(w: Warp) -> tuple[int, ...]:
        found = [f(w) for f in functions]
        return tuple([v if type(v) is int else uniform(v, w) for v in found])

    return values


#: bytes that copies move at once, to which both ends are aligned (B6)
CHUNK = 16


def require_contiguous(op: Op, view: ViewAccess, footprint: Footprint, *, skipped: int = 0) -> None:
    """A non-tensor bulk copy moves one contiguous, unswizzled, 16-byte aligned range (B6), which
    begins ``skipped`` bytes before what is touched of it."""
    size = footprint.addresses.size * footprint.itemsize
    low, straight = footprint.bytes.low, footprint.bytes.high - footprint.bytes.low == size
    swizzled = getattr(view.tensor, "swizzle", 0)
    if not straight or swizzled:
        raise BarrierError(
            "unsupported" if swizzled else "out-of-bounds",
            f"{op.mnemonic} of {footprint.name}, which is not one contiguous range (B.3)",
            "copy row by row, or through a tensor map",
        )
    if (low - skipped) % CHUNK:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {footprint.name} at byte {low}, not 16-byte aligned (B6)",
            "align both ends to 16 bytes",
        )
