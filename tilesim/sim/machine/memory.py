"""Memories: bytes, and the footprints of the accesses to them.

Of bytes that several shared allocations have in common, `Overlaid` says under which name they were
written last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith import byte_set
from tilesim.arith.byte_set import ByteSet
from tilesim.arith.types import DType, numpy_dtype
from tilesim.ir.addresses import begins_with
from tilesim.ir.declarations import GlobalTensor, Tensor
from tilesim.ir.program import Program
from tilesim.sim.machine.footprint import Footprint, FootprintTable
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.unknown import Marks, Unknown


class Overlaid:
    """The last writer of every byte of a shared memory, among some allocations that overlap.

    A write counts from its issue on: a read before it has landed races with it.
    """

    def __init__(self, names: Iterable[str], nbytes: int) -> None:
        self._names = sorted(names)
        self._numbers = {name: i for i, name in enumerate(self._names, 1)}
        self._writers = np.zeros(nbytes, dtype=np.int32)

    def wrote(self, footprint: Footprint) -> None:
        """Notes a write under the name of the footprint's tensor."""
        number = self._numbers.get(footprint.tensor)
        if number is not None:
            for low, high in footprint.bytes.pairs:
                self._writers[low:high] = number

    def others(self, footprint: Footprint) -> list[str]:
        """The allocations, other than the one it belongs to, under whose names its bytes were
        written last."""
        own = self._numbers.get(footprint.tensor)
        if own is None:
            return []
        found: set[int] = set()
        for low, high in footprint.bytes.pairs:
            found.update(np.unique(self._writers[low:high]).tolist())
        return [self._names[number - 1] for number in sorted(found - {0, own})]


class Memory:
    """The bytes of one address space and the footprints recorded on them.

    ``tracked`` is False for global tensors that are never written: reads of them cannot race.
    ``dependent`` memory may still be in use by the grid before this one (D17).
    ``mbarriers`` (by address) is None for global memory, whose bytes count as initialised, but for
    those that each thread has for itself (``private``).
    ``given``: a check was given its contents. ``own_row``: the row of clocks about fences for this
    memory alone, or 0. ``apart``: it holds one tensor, whose elements share no bytes. ``constant``:
    nothing may be stored there.
    """

    def __init__(
        self,
        label: str,
        data: NDArray[np.uint8],
        *,
        tracked: bool = True,
        dependent: bool = False,
        given: bool = False,
        mbarriers: dict[int, Mbarrier] | None = None,
        apart: bool = False,
        constant: bool = False,
        private: bool = False,
    ) -> None:
        self.label = label
        self.mbarriers = mbarriers
        self.private = private
        #: whether its bytes hold nothing before they are written
        self.begins_empty = private or mbarriers is not None
        self.data = data
        self.tracked = tracked
        self.dependent = dependent
        self.given = given
        self.constant = constant
        self.table = FootprintTable(label, by_element=apart)
        self.own_row = 0
        #: where allocations that overlap may steer: what wrote their bytes
        self.overlaid: Overlaid | None = None
        #: which bytes are not known; None: all are known
        self.marks: Marks | None = None
        self._typed: dict[DType, NDArray[Any]] = {}

    @property
    def is_uniform(self) -> bool:
        """Whether it is the same wherever one looks, for good: its bytes are not looked at, or are
        never written and either nothing is known of them or they are the zeros of what is not
        given.
        """
        if self.tracked or not self.data.size:
            return not self.data.size
        return not self.given if self.marks is None else self.marks.none_known

    def footprint(self, key: Hashable, make: Callable[[], Footprint]) -> Footprint:
        """The footprint for ``key``; one of memory that cannot race is related to no other."""
        return (self.table.get if self.tracked else self.table.alone)(key, make)

    def forget(self, held: ByteSet, value: Unknown) -> None:
        """What these bytes hold is not known any longer; of memory without bytes it is not
        asked."""
        if self.data.size:
            if self.marks is None:
                self.marks = Marks(len(self.data), None)
            self.marks.set(held, value)

    def typed(self, dtype: DType) -> NDArray[Any]:
        """The bytes as elements of ``dtype`` (the tail that fills no element is left out)."""
        known = self._typed.get(dtype)
        if known is None:
            whole = len(self.data) // dtype.bytes * dtype.bytes
            known = self._typed[dtype] = self.data[:whole].view(numpy_dtype(dtype))
        return known


class GlobalMemory:
    """The global tensors of a launch; inputs are copied in, outputs read at the end.

    Only ``real`` tensors hold bytes: those that can be observed. ``by_bytes``: they are accessed at
    addresses as well, which know bytes and not elements. Of tensors with ``contents`` that are no
    input these are known, and nothing else.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, NDArray[Any]],
        written: frozenset[str],
        real: Callable[[str], bool],
        *,
        by_bytes: bool = False,
    ) -> None:
        self.memories: dict[str, Memory] = {}
        #: clusters that clusterlaunchcontrol has cancelled before they were launched
        self.cancelled: set[int] = set()
        for tensor in program.tensors:
            held = real(tensor.name)
            data = np.zeros(tensor.nbytes if held else 0, dtype=np.uint8)
            tracked = tensor.name in written or tensor.dependent or tensor.private
            memory = Memory(
                tensor.name, data, tracked=tracked, dependent=tensor.dependent,
                given=tensor.name in inputs,
                apart=elements_apart(tensor) and not by_bytes, constant=tensor.constant,
                private=tensor.private,
            )  # fmt: skip
            if held and tensor.name in inputs:
                array_of(tensor, memory)[...] = inputs[tensor.name]
            elif held and tensor.contents is not None:
                _mark_unknown(program, tensor, memory)
            self.memories[tensor.name] = memory
        #: in the order of the declarations
        self.ordered = [*self.memories.values()]


def _mark_unknown(program: Program, tensor: GlobalTensor, memory: Memory) -> None:
    """The first bytes are known, the others are not."""
    fix = f"give the contents of {tensor.name} in the launch description"
    memory.marks = Marks(len(memory.data), Unknown(f"the contents of {tensor.name}", fix))
    known = np.frombuffer(begins_with(program, tensor), np.uint8)[: len(memory.data)]
    if known.size:
        memory.data[: known.size] = known
        memory.marks.set(ByteSet.interval(0, known.size), None)


def array_of(tensor: GlobalTensor, memory: Memory) -> NDArray[Any]:
    """The tensor as a NumPy array that shares the memory's bytes."""
    return np.lib.stride_tricks.as_strided(
        memory.typed(tensor.dtype), tensor.shape, tensor.byte_strides
    )


@cache
def elements_apart(tensor: Tensor) -> bool:
    """Whether elements with different indices share no byte (a swizzle keeps them apart)."""
    return byte_set.elements_apart(tensor.shape, tensor.byte_strides, tensor.dtype.bytes)
