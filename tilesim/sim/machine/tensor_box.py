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
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.layout import byte_strides, row_pitch, swizzled
from tilesim.ir.tensormap import MapFields, copied_shape, held_shape, rows_of
from tilesim.sim.machine.errors import OutOfBounds
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.view_access import ViewAccess, box_footprint, bytes_within


class MapBox:
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
        if self._is_inside:
            self._bytes()

    def footprint(self, memory: Memory, key: Hashable) -> Footprint | None:
        """What is inside the tensor, None if nothing is; ``key`` names the box in this memory."""
        return memory.footprint(key, self._footprint) if self._is_inside else None

    def load(self, memory: Memory) -> NDArray[Any]:
        """The elements, as they get into shared memory; outside ones read as the fill value."""
        dtype = self.fields.dtype
        fill = np.nan if self.fields.fill == "nan" else 0
        result = np.full(self.shape, fill, dtype=numpy_dtype(dtype))
        if self._is_inside:
            elements, place = self._elements(memory)
            result[self._inside] = elements[place]
        return result

    def store(
        self, memory: Memory, values: NDArray[Any], combine: Callable[[Any, Any], Any] | None
    ) -> None:
        """Writes what is inside, combined with the old values if asked."""
        if self._is_inside:
            new = values.reshape(self.shape)[self._inside]
            elements, place = self._elements(memory)
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
        within = bytes_within(byte_strides(self.held, size * 8, pitch), self.held)
        addresses = swizzled(start + within, swizzle)
        held = ByteSet.elements(addresses, size)
        if held.high > len(memory.data):
            what = f"byte {held.high - 1} of shared memory, which has {len(memory.data)}"
            raise OutOfBounds(what, memory.label)
        return Footprint(
            f"{name} as {'x'.join(map(str, self.held))}", name, held, addresses, size, start=start
        )

    # ------------------------------------------------------------------ what is inside

    @cached_property
    def _inside(self) -> tuple[Any, ...]:
        """Where in shared memory the elements go that are inside of the tensor: slices of a box,
        and of other copies rows, (rows, 1), and columns."""
        fields = self.fields
        if self.mode != "tile":
            inside = (self._rows >= 0) & (self._rows < np.array(fields.dims[:-1]))
            start, limit = self.coords[-1], fields.dims[-1]
            columns = np.arange(max(0, -start), min(self.shape[1], limit - start))
            return np.flatnonzero(inside.all(axis=1))[:, None], columns
        sizes = zip(self.coords, self.shape, fields.steps, fields.dims, strict=True)
        return tuple(
            slice(max(0, -(start // step)), max(0, min(count, -(-(limit - start) // step))))
            for start, count, step, limit in sizes
        )

    def _elements(self, memory: Memory) -> tuple[NDArray[Any], Any]:
        """An array with the elements inside, and where in it they are."""
        fields, elements = self.fields, memory.typed(self.fields.dtype)
        if self.mode != "tile":
            return elements, self._addresses // fields.dtype.bytes
        first = elements[fields.offset // fields.dtype.bytes :]
        array = np.lib.stride_tricks.as_strided(first, fields.dims, fields.strides)
        return array, tuple(slice(x.start, x.stop, x.step) for x in self._indices)

    @cached_property
    def _is_inside(self) -> bool:
        """Whether any element is."""
        if self.mode == "tile":
            return all(part.start < part.stop for part in self._inside)
        return all(part.size for part in self._inside)

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """The outer indices of the rows of a copy that is no box: (rows, dimensions)."""
        rows = rows_of(self.fields, self.mode, self.coords, self.info)
        return np.array(rows, dtype=np.int64).reshape(len(rows), -1)

    @cached_property
    def _indices(self) -> tuple[range, ...]:
        """Those of a box that are inside, per dimension."""
        sizes = zip(self.coords, self._inside, self.fields.steps, strict=True)
        return tuple(
            range(start + part.start * step, start + (part.stop - 1) * step + 1, step)
            for start, part, step in sizes
        )

    @cached_property
    def _addresses(self) -> NDArray[np.int64]:
        """The byte addresses of the elements inside."""
        fields = self.fields
        if self.mode != "tile":
            rows, columns = self._inside
            *outer, inner = fields.strides
            lines = self._rows[rows] @ np.array(outer, dtype=np.int64)
            scattered: NDArray[np.int64] = lines + (self.coords[-1] + columns) * inner
            return scattered + fields.offset
        sizes = list(zip(self._indices, fields.strides, strict=True))
        within = bytes_within([x.step * s for x, s in sizes], [len(x) for x, _ in sizes])
        return fields.offset + sum(x.start * s for x, s in sizes) + within

    # ------------------------------------------------------------------ footprints

    def _footprint(self) -> Footprint:
        whole = self.fields.dims == self.tensor.shape and not self.fields.offset
        if self.mode == "tile" and whole:
            return box_footprint(self.tensor, 0, self._indices)
        return self._bytes()

    def _bytes(self) -> Footprint:
        """Any bytes of the tensor.

        Raises:
            OutOfBounds: the map says that the tensor is where it is not.
        """
        size, tensor, addresses = self.fields.dtype.bytes, self.tensor, self._addresses
        held = ByteSet.elements(addresses, size)
        if held.low < 0 or held.high > tensor.nbytes:
            raise OutOfBounds(
                f"bytes {held.low}..{held.high - 1} of {tensor.name}, which has {tensor.nbytes}: "
                "its tensor map says that it is larger",
                tensor.name,
            )
        where = ", ".join(map(str, self.coords))
        return Footprint(
            f"{tensor.name} at ({where})", tensor.name, held, addresses, size,
            points=[tuple((0, n) for n in tensor.shape)],
            folded=held.nbytes < addresses.size * size,
        )  # fmt: skip
