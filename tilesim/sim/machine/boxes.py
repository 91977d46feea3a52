"""What a tensor copy accesses in global memory: bytes and numbers (SEMANTICS B16 to B23)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.types import numpy_dtype
from tilesim.ir.boxes import MapFields, copied_shape, rows_of
from tilesim.ir.layout import byte_strides, row_pitch
from tilesim.ir.memory import GlobalTensor
from tilesim.ir.packing import held_shape
from tilesim.sim.machine.errors import OutOfBounds
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.memory import ViewAccess, box_footprint, swizzle_addresses
from tilesim.sim.machine.storage import Memory

#: per dimension: the first and one past the last index of the box that is inside, and its place
_Span = tuple[int, int, int]


class Box:
    """One copy through a tensor map: what it touches of ``tensor``, at these coordinates."""

    def __init__(
        self, fields: MapFields, tensor: GlobalTensor, mode: str, coords: tuple[int, ...],
        info: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.fields = fields
        self.tensor = tensor
        self.mode = mode
        self.coords = coords
        self.info = info
        halo = info[0] if info else 0
        self.shape = copied_shape(fields.box, fields.steps, mode, halo)
        self.nbytes = prod(self.shape) * fields.dtype.bits // 8
        #: what it takes in shared memory, where packed elements have room of their own
        self.held = held_shape(fields.packing, self.shape)

    def require_inside(self) -> None:
        """For a map that a kernel has made: what it says is the tensor has to be inside of it.

        Raises:
            OutOfBounds: some element that would be accessed is not.
        """
        if self._inside:
            self._bytes(self._addresses() if self.mode == "tile" else self._scattered[2])

    def footprint(self, memory: Memory, key: Hashable) -> Footprint | None:
        """What is inside the tensor, None if nothing is; ``key`` names the box in this memory."""
        if not self._inside:
            return None
        return memory.footprint(key, self._footprint)

    def load(self, memory: Memory) -> NDArray[Any]:
        """The elements, as they get into shared memory; outside ones read as the fill value."""
        fill = np.nan if self.fields.fill == "nan" else 0
        result = np.full(self.shape, fill, dtype=numpy_dtype(self.fields.dtype))
        if not self._inside:
            return result
        if self.mode == "tile":
            inner, outer = self._slices
            result[inner] = self._array(memory)[outer]
        else:
            rows, columns, addresses = self._scattered
            elements = memory.typed(self.fields.dtype)
            result[rows, columns] = elements[addresses // self.fields.dtype.bytes]
        return result

    def store(
        self, memory: Memory, values: NDArray[Any], combine: Callable[[Any, Any], Any] | None
    ) -> None:
        """Writes what is inside, combined with the old values if asked."""
        if not self._inside:
            return
        values = values.reshape(self.shape)
        if self.mode == "tile":
            inner, outer = self._slices
            array, new = self._array(memory), values[inner]
            array[outer] = new if combine is None else combine(array[outer], new)
        else:
            rows, columns, addresses = self._scattered
            place = addresses // self.fields.dtype.bytes
            elements, new = memory.typed(self.fields.dtype), values[rows, columns]
            elements[place] = new if combine is None else combine(elements[place], new)

    def tile(self, view: ViewAccess, whole: Footprint, memory: Memory) -> Footprint:
        """What the copy touches in shared memory, from where ``view`` begins.

        That is ``whole``, the view's footprint, if the map says what the view was made for.
        """
        fields, tensor = self.fields, view.view.tensor
        size = fields.dtype.bytes
        same = tuple(n for n in self.held if n != 1) == tuple(n for n in view.extents if n != 1)
        if same and size == whole.itemsize and fields.swizzle == getattr(tensor, "swizzle", 0):
            return whole
        key = ("tile", whole.start, self.held, size, fields.swizzle)
        return memory.table.get(key, lambda: self._dense(tensor.name, whole.start, memory))

    def _dense(self, name: str, start: int, memory: Memory) -> Footprint:
        size, swizzle = self.fields.dtype.bytes, self.fields.swizzle
        pitch = row_pitch(self.held, size * 8, swizzle, None)
        addresses = np.full((), start, dtype=np.int64)
        strides = byte_strides(self.held, size * 8, pitch)
        for extent, stride in zip(self.held, strides, strict=True):
            addresses = addresses[..., None] + np.arange(extent, dtype=np.int64) * stride
        addresses = swizzle_addresses(addresses, swizzle)
        held = _held(addresses, size)
        if held.high > len(memory.data):
            what = f"byte {held.high - 1} of shared memory, which has {len(memory.data)}"
            raise OutOfBounds(what, memory.label)
        return Footprint(
            f"{name} as {'x'.join(map(str, self.held))}", name, held, addresses, size,
            start=start,
        )  # fmt: skip

    # ------------------------------------------------------------------ boxes

    @cached_property
    def _spans(self) -> list[_Span]:
        spans = []
        for start, count, step, limit in zip(
            self.coords, self.shape, self.fields.steps, self.fields.dims, strict=True
        ):
            first = max(0, -(start // step)) if start < 0 else 0
            last = min(count, -(-(limit - start) // step)) if limit > start else 0
            spans.append((first, max(first, last), start + first * step))
        return spans

    @cached_property
    def _progressions(self) -> tuple[range, ...]:
        """The indices inside, per dimension."""
        return tuple(
            range(at, at + (last - first - 1) * step + 1, step)
            for (first, last, at), step in zip(self._spans, self.fields.steps, strict=True)
        )

    @cached_property
    def _slices(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        inner = tuple(slice(first, last) for first, last, _ in self._spans)
        return inner, tuple(slice(r.start, r.stop, r.step) for r in self._progressions)

    def _array(self, memory: Memory) -> NDArray[Any]:
        fields = self.fields
        elements = memory.typed(fields.dtype)[fields.offset // fields.dtype.bytes :]
        return np.lib.stride_tricks.as_strided(elements, fields.dims, fields.strides)

    # ------------------------------------------------------------------ rows

    @cached_property
    def _scattered(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What is inside of copies that are no boxes: rows and columns in shared memory, addresses.

        Arrays of shapes (rows, 1), (1, columns) and (rows, columns).
        """
        fields = self.fields
        outer = np.array(self._rows, dtype=np.int64).reshape(len(self._rows), -1)
        inside = ((outer >= 0) & (outer < np.array(fields.dims[:-1]))).all(axis=1)
        rows = np.flatnonzero(inside)
        start = self.coords[-1]
        columns = np.arange(max(0, -start), min(self.shape[1], fields.dims[-1] - start))
        lines = fields.offset + outer[rows] @ np.array(fields.strides[:-1], dtype=np.int64)
        addresses = lines[:, None] + (start + columns)[None, :] * fields.strides[-1]
        return rows[:, None], columns[None, :], addresses

    @cached_property
    def _rows(self) -> list[tuple[int, ...]]:
        return rows_of(self.fields, self.mode, self.coords, self.info)

    # ------------------------------------------------------------------ footprints

    @cached_property
    def _inside(self) -> bool:
        if self.mode == "tile":
            return all(first < last for first, last, _ in self._spans)
        return self._scattered[2].size > 0

    def _footprint(self) -> Footprint:
        if self.mode != "tile":
            return self._points()
        spans = self._progressions
        if self.fields.dims == self.tensor.shape and not self.fields.offset:
            return box_footprint(self.tensor, 0, spans, self._addresses)
        return self._bytes(self._addresses())

    def _addresses(self) -> NDArray[np.int64]:
        result = np.full((), self.fields.offset, dtype=np.int64)
        for span, stride in zip(self._progressions, self.fields.strides, strict=True):
            result = result[..., None] + np.array(span, dtype=np.int64) * stride
        return result

    def _points(self) -> Footprint:
        addresses = self._scattered[2]
        return self._bytes(addresses)

    def _bytes(self, addresses: NDArray[np.int64]) -> Footprint:
        """Any bytes of the tensor, at element addresses.

        Raises:
            OutOfBounds: the map says that the tensor is where it is not.
        """
        size, tensor = self.fields.dtype.bytes, self.tensor
        held = _held(addresses, size)
        if held.low < 0 or held.high > tensor.nbytes:
            raise OutOfBounds(
                f"bytes {held.low}..{held.high - 1} of {tensor.name}, which has {tensor.nbytes}: "
                "its tensor map says that it is larger",
                tensor.name,
            )
        where = ", ".join(map(str, self.coords))
        whole = [tuple((0, n) for n in tensor.shape)]
        return Footprint(
            f"{tensor.name} at ({where})", tensor.name, held, addresses, size, points=whole,
            folded=self.mode != "tile" and held.nbytes < addresses.size * size,
        )  # fmt: skip


def _held(addresses: NDArray[np.int64], size: int) -> ByteSet:
    """The bytes of elements at these addresses."""
    lows = addresses.ravel()
    return ByteSet.intervals(lows, lows + size)
