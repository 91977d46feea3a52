"""Memory at addresses that registers hold: which CTA or tensor, and which bytes (SEMANTICS J).

Steps check their addresses: what decides must not change with where memory lies (J5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.ir.addressed import AddressedTensor, Space, is_part
from tilesim.ir.addresses import GLOBAL_WINDOW, RANK_SHIFT, SHARED_WINDOW
from tilesim.ir.declarations import View
from tilesim.ir.expr import Expr
from tilesim.ir.layout import swizzled
from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.errors import BarrierError, NotUniform, OutOfBounds, UnassignedVariable
from tilesim.sim.machine.expression import Evaluate
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import FULL, mask_array, mask_bits
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.unknown import Unknown, UnknownSteers, plain
from tilesim.sim.machine.view_access import ViewAccess, box_footprint, bytes_within, uniform

_OFFSET = (1 << RANK_SHIFT) - 1
#: sets of addresses that an operand remembers
_REMEMBERED = 4096


#: all addresses of what lanes access, where its pieces begin, their size, and a name for them
_Flat = tuple[NDArray[np.int64], NDArray[np.int64], int, bytes]


def _of_lanes(values: NDArray[Any], mask: int) -> NDArray[Any]:
    """The values of the lanes of a mask."""
    return values if mask == FULL else values[mask_array(mask)]


def _in_one_window(addresses: NDArray[Any]) -> bool:
    """Whether addresses of any state space are into one memory."""
    low, high = int(np.minimum.reduce(addresses)), int(np.maximum.reduce(addresses))
    if low >= GLOBAL_WINDOW:
        return low // GLOBAL_WINDOW == high // GLOBAL_WINDOW
    return high < GLOBAL_WINDOW and low >> RANK_SHIFT == high >> RANK_SHIFT


def target(w: Warp, address: int, space: Space) -> tuple[Memory, int, Cta | None]:
    """The memory that an address is into, the byte there, and whose shared memory it is.

    Raises:
        BarrierError: it is into no memory, or into one that the state space leaves out.
    """
    if space == "shared::cta":
        if address >> RANK_SHIFT != w.cta.rank:
            raise _nowhere(w, address, space)
        return w.cta.memory, address & _OFFSET, w.cta
    if space == "global" or (space == "generic" and address >= GLOBAL_WINDOW):
        number = address // GLOBAL_WINDOW - 1
        memories = w.machine.globals.ordered
        if not 0 <= number < len(memories):
            raise _nowhere(w, address, space)
        return memories[number], address % GLOBAL_WINDOW, None
    if space == "generic":
        address -= SHARED_WINDOW
    rank = address >> RANK_SHIFT
    if address < 0:
        raise _nowhere(w, address, space)
    cta = w.machine.peer(w, rank)
    return cta.memory, address & _OFFSET, cta


def _nowhere(w: Warp, address: int, space: Space) -> BarrierError:
    what = "is into no tensor"
    if space == "shared::cta" and address >= 0:
        what = f"is into the shared memory of CTA rank {address >> RANK_SHIFT}, not of rank "
        what += f"{w.cta.rank}, which executes it"
    return BarrierError(
        "out-of-bounds",
        f"{w} names the address {address:#x} in .{space}, which {what} (J1)",
        "take the address of what is meant, and .shared::cluster for other CTAs",
    )


def mbarrier_at(address: Evaluate, space: Space) -> Callable[[Warp], Mbarrier]:
    """The mbarrier at an address, as a function of a warp."""

    #: by offset: what the program calls it
    names: dict[int, tuple[str, str, str, int | None]] = {}

    def resolve(w: Warp) -> Mbarrier:
        value = address(w)
        if type(value) is not int:
            value = uniform(value, w)
        _, offset, cta = target(w, value, space)
        assert cta is not None
        known = names.get(offset)
        if known is None:
            known = names[offset] = _barrier_name(w, cta, offset)
        barrier = cta.mbarriers[offset]
        if barrier.name != known[0] and not barrier.made_at:
            barrier.call(*known)
        return barrier

    return resolve


def _barrier_name(w: Warp, cta: Cta, offset: int) -> tuple[str, str, str, int | None]:
    """What an mbarrier at a byte is called, without and with its place in an array; the variable
    that it lies in, and that place.

    Raises:
        BarrierError: there can be none.
    """
    allocations = w.machine.plan.allocations
    own, found = ByteSet.interval(offset, offset + 8), allocations.at(offset)
    if offset % 8 or found is None or not allocations.bytes.contains(own):
        raise BarrierError(
            "out-of-bounds",
            f"{w} takes byte {offset:#x} of {cta.memory.label} memory for an mbarrier: it must "
            "be a multiple of 8 in an allocation (A1, J1)",
            "take the address of an mbarrier",
        )
    label, variable = allocations.name(offset), found[1]
    name = variable if variable in allocations.barriers else label
    return name, label, variable, allocations.slot(offset)


class _Box:
    """How elements of ``size`` bytes lie in a box, wherever it begins."""

    def __init__(
        self, size: int, strides: tuple[int, ...], swizzle: int, extents: tuple[int, ...]
    ) -> None:
        #: how far behind the first one each of them begins, before a swizzle
        self.within = bytes_within(strides, extents)
        order = np.arange(self.within.size) * size
        in_order = not swizzle and bool((self.within.ravel() == order).all())
        #: their bytes, if they are one piece in order; else 0
        self.piece = self.within.size * size if in_order else 0


@lru_cache(maxsize=1024)
def _box(size: int, strides: tuple[int, ...], swizzle: int, extents: tuple[int, ...]) -> _Box:
    """One object for all instructions of which the elements lie so: what these access at one place
    has one footprint."""
    return _Box(size, strides, swizzle, extents)


class AddressedAccess(ViewAccess):
    """A compiled view at an address."""

    def __init__(
        self, view: View, compiled: Callable[[Expr], Evaluate], address: Evaluate, *, split: bool
    ) -> None:
        super().__init__(view, compiled, 0, split=split)
        assert isinstance(view.tensor, AddressedTensor)
        self._tensor = view.tensor
        self._address = address
        self.shared = view.space == "shared"
        #: all in the shared memory of the executing CTA
        self._near = self._tensor.space == "shared::cta"
        if self._near and not self._moving:
            self.place = address
        within = self._tensor.within
        #: the global tensors that the address may be in
        self._counts_from = self._tensor.among if is_part(within) or not within else (within,)
        #: by rank, lane mask and run-time operands
        self._flat: dict[tuple[Any, ...], _Flat] = {}
        fixed = [(o or 0) * s for o, s in zip(self._fixed, self._tensor.byte_strides, strict=True)]
        #: of the first element at an address
        self._start = sum(fixed)
        tensor, size = self._tensor, self._tensor.dtype.bytes
        self._box = _box(size, tensor.byte_strides, tensor.swizzle, self.extents)
        self._grain = tensor.multiple if tensor.undivided else size

    def _begins(self, warp: Warp) -> Any:
        """The address, or one per lane."""
        value = plain(self._address(warp))
        return value if type(value) is not Unknown else self._any_address(warp, value)

    def _any_address(self, warp: Warp, address: Unknown) -> int:
        """An address that stands for any in a tensor that is never written and of whose contents
        nothing is known, or matters: there, a read in bounds leaves the same wherever it reads.

        Raises:
            UnknownSteers: it is into another one, or which one it is into is not known.
        """
        memories = warp.machine.globals.ordered
        for number, memory in enumerate(memories):
            untold = not memory.data.size or (memory.marks is not None and memory.marks.none_known)
            if memory.label == self._tensor.within and not memory.tracked and untold:
                warp.machine.outcome.in_bounds[address.source] = None
                return (number + 1) * GLOBAL_WINDOW
        raise UnknownSteers(address)

    def is_null(self, warp: Warp) -> bool:
        address = plain(self._address(warp))
        lanes = mask_array(warp.mask)
        return type(address) is not Unknown and not np.any(np.broadcast_to(address, 32)[lanes])

    def lost(self, warp: Warp) -> Unknown | None:
        """The address, if it is not known."""
        value = self._address(warp)
        return value if type(value) is Unknown else None

    def memory_at(self, warp: Warp, address: Unknown) -> Memory:
        """The memory that an ``address`` is into whose place there is not known.

        Raises:
            UnknownSteers: that is not known either.
        """
        if self._near and warp.machine.plan.allocations.spans:
            return warp.cta.memory
        known = warp.machine.globals.memories.get(self._tensor.within)
        if known is None:
            raise UnknownSteers(address)
        return known

    def whole(self, warp: Warp, memory: Memory) -> Footprint:
        """All bytes of a memory that an instruction may access, as its elements."""
        near = memory.mbarriers is not None
        held, size = self._existing(warp, memory), self._tensor.dtype.bytes
        label = f"{memory.label} memory" if near else memory.label

        def make() -> Footprint:
            return Footprint(
                f"unknown bytes of {label}", memory.label, held,
                lambda: np.arange(held.low, held.high, size), size,
            )  # fmt: skip

        return memory.footprint(("whole", size), make)

    @property
    def several(self) -> bool:
        """Whether lanes may name several memories."""
        return not self._near

    def peers(self, warp: Warp) -> dict[int, int] | None:
        """The lanes of each memory where the active lanes name several; otherwise None."""
        value = self._begins(warp)
        if not isinstance(value, np.ndarray) or _in_one_window(_of_lanes(value, warp.mask)):
            return None
        active = mask_array(warp.mask)
        windows = value >> RANK_SHIFT
        far = value >= GLOBAL_WINDOW
        windows = np.where(far, -(value // GLOBAL_WINDOW), windows)
        keys = np.unique(windows[active]).tolist()
        return {key: mask_bits((windows == key) & active) for key in keys}

    def differs(self, warp: Warp) -> bool:
        """Whether active lanes surely name different places."""
        value = self._begins(warp)
        if not isinstance(value, np.ndarray):
            return False
        own = _of_lanes(value, warp.mask)
        return bool(own[0] != own[-1])

    def _target(self, warp: Warp, value: Any) -> tuple[Memory, int, Cta | None]:
        """What an address is into; all lanes that act name one memory."""
        if isinstance(value, np.ndarray):
            value = _of_lanes(value, warp.mask)
            if self._near:
                wrong = value[value >> RANK_SHIFT != warp.cta.rank]
                if len(wrong):
                    raise _nowhere(warp, int(wrong[0]), self._tensor.space)
            elif not _in_one_window(value):
                raise NotUniform
            value = value[0]
        return self._into(warp, int(value))

    def _into(self, warp: Warp, address: int) -> tuple[Memory, int, Cta | None]:
        """What an address is into: if it was made of that of one tensor or another, that one.

        Raises:
            BarrierError: it is into none, or into another tensor.
        """
        found = target(warp, address, self._tensor.space)
        own = self._counts_from
        if own and found[0].label not in own:
            names = " or ".join(own)
            raise BarrierError(
                "out-of-bounds",
                f"{warp} names an address that counts from {names}, and is outside of it (J1)",
                "stay inside of the tensor that the address is made of",
            )
        return found

    def cta(self, warp: Warp) -> Cta:
        """The CTA whose shared memory it lies in; the executing one for global memory."""
        return self._target(warp, self._begins(warp))[2] or warp.cta

    def memory(self, warp: Warp) -> Memory:
        """The memory it lies in."""
        if self._near:
            return warp.cta.memory
        return self._target(warp, self._begins(warp))[0]

    def footprint(self, warp: Warp) -> Footprint:
        """The footprint for this warp (all active lanes together)."""
        return self.footprint_in(warp, self.memory(warp))

    def footprint_in(self, warp: Warp, memory: Memory) -> Footprint:
        """The same bytes of another CTA's memory (a multicast destination)."""
        address = uniform(self._begins(warp), warp)
        _, start, cta = self._into(warp, address)
        offsets = self.offsets(warp)
        key = (self._box, start, offsets)
        return memory.footprint(key, lambda: self._box_bytes(warp, memory, start, offsets, cta))

    def _box_bytes(
        self, warp: Warp, memory: Memory, start: int, offsets: tuple[int, ...], cta: Cta | None
    ) -> Footprint:
        spans = tuple(range(o, o + n) for o, n in zip(offsets, self.extents, strict=True))
        named = partial(self._named, warp, memory, cta)
        made = box_footprint(self._tensor, start, spans, named)
        self._require_vector(np.array([made.start]), memory)
        self._require_inside(warp, memory, made.bytes)
        _require_aligned(made.start, self._tensor.dtype.bytes, made.name)
        return made

    def lane_footprint(self, warp: Warp) -> tuple[Memory, Footprint, NDArray[np.int64]]:
        """Memory, footprint and byte addresses of the view at each active lane's address."""
        value = self._begins(warp)
        moving = [plain(evaluate(warp)) for _, evaluate in self._moving]
        operands = (v if type(v) is int else np.asarray(v).tobytes() for v in (value, *moving))
        key = (warp.cta.rank, warp.mask, *operands)
        known = self._flat.get(key)
        if known is None or not self._near:
            memory, _, cta = self._target(warp, value)
        else:
            memory, cta = warp.cta.memory, warp.cta
        if known is None:
            if len(self._flat) >= _REMEMBERED:
                self._flat.clear()
            first = self._first(warp, value, moving, far=cta is None)
            self._require_vector(first, memory)
            flat, piece = self._elements(first), self._box.piece
            # a piece is where it begins and how long it is: whether two meet is seen from that
            starts, width = (first, piece) if piece else (flat, self._tensor.dtype.bytes)
            known = self._flat[key] = flat, starts, width, starts.tobytes()
        flat, _, width, places = known
        name = ("at", self._grain, self._tensor.dtype.bytes, width, places)
        made = memory.footprint(name, lambda: self._lane_bytes(warp, memory, known, cta))
        return memory, made, flat

    def _first(self, warp: Warp, value: Any, moving: list[Any], *, far: bool) -> NDArray[np.int64]:
        """The bytes in their memory at which what the active lanes access begins."""
        tensor, mask = self._tensor, warp.mask
        whole = value if isinstance(value, np.ndarray) else np.full(32, value)
        first = _of_lanes(whole, mask).astype(np.int64, copy=False)
        first = first % GLOBAL_WINDOW if far else first & _OFFSET
        if self._start:
            first += self._start
        for (dim, _), column in zip(self._moving, moving, strict=True):
            stride = tensor.byte_strides[dim]
            first += _of_lanes(np.broadcast_to(column, 32), mask).astype(np.int64) * stride
        return first

    def _elements(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The byte addresses of all elements of the lanes that begin at ``first``."""
        within = self._box.within
        flat = first if within.size == 1 else (first[:, None] + within.ravel()).ravel()
        return swizzled(flat, self._tensor.swizzle)

    def _lane_bytes(self, warp: Warp, memory: Memory, known: _Flat, cta: Cta | None) -> Footprint:
        flat, starts, width, _ = known
        size, held = self._tensor.dtype.bytes, ByteSet.pieces(starts, width)
        name, tensor, slot = self._named(warp, memory, cta, held.low)
        length = held.high - held.low
        try:
            self._require_inside(warp, memory, held)
        except OutOfBounds as fault:
            if cta is None:
                nbytes = self._size_of(warp, memory)
                fault.lanes = _outside(starts, width, nbytes, warp.mask)
            raise
        for address in starts[starts % size != 0].tolist():
            _require_aligned(address, size, name)
        return Footprint(
            name if length == size else f"{name}..+{length}", tensor, held, flat, size,
            common=held.nbytes < len(starts) * width, grain=self._grain, place=(tensor, slot),
        )  # fmt: skip

    def _require_vector(self, first: NDArray[np.int64], memory: Memory) -> None:
        """The vectors to whose elements the lanes' addresses belong begin at multiples of their
        size (H15)."""
        multiple = self._tensor.multiple
        for start in (first - self._tensor.beyond).tolist() if multiple else ():
            if start % multiple:
                raise BarrierError(
                    "out-of-bounds",
                    f"{multiple} bytes at once at byte {start} of {memory.label}: their address "
                    f"must be a multiple of {multiple} (H15)",
                    "align the address, or access the elements one by one",
                )

    @staticmethod
    def _size_of(warp: Warp, memory: Memory) -> int:
        """The bytes of a tensor in global memory."""
        return warp.machine.plan.sizes[memory.label]

    def _named(
        self, warp: Warp, memory: Memory, cta: Cta | None, low: int
    ) -> tuple[str, str, int | None]:
        """What findings call a byte, the allocation that holds it, and its place in an array of
        barriers."""
        if cta is None:
            return f"{memory.label}+{low}", memory.label, None
        allocations = warp.machine.plan.allocations
        found = allocations.at(low)
        name = self._tensor.name if found is None else found[1]
        return allocations.written(low), name, allocations.slot(low)

    def _existing(self, warp: Warp, memory: Memory) -> ByteSet:
        """All bytes of a memory that are of something that is declared."""
        if memory.mbarriers is not None:
            return warp.machine.plan.allocations.bytes
        return ByteSet.interval(0, self._size_of(warp, memory))

    def _require_inside(self, warp: Warp, memory: Memory, held: ByteSet) -> None:
        """Raises unless all bytes are of something that is declared."""
        known = self._existing(warp, memory)
        if known.contains(held):
            return
        first = (held - known).low
        if memory.mbarriers is None:
            what = f"byte {first:#x} of {memory.label}, which has {known.high} bytes (J1)"
            raise OutOfBounds(what, memory.label)
        near = warp.machine.plan.allocations.nearest(first)
        raise OutOfBounds(
            f"byte {first:#x} of {memory.label} memory, where nothing is declared: {near} (J1)",
            memory.label,
        )


def _outside(starts: NDArray[np.int64], width: int, nbytes: int, mask: int) -> int:
    """The active lanes of which a piece, of ``width`` bytes, leaves a memory of ``nbytes``."""
    lanes = np.flatnonzero(mask_array(mask))
    wrong = ((starts < 0) | (starts + width > nbytes)).reshape(len(lanes), -1).any(axis=1)
    return sum(1 << int(lane) for lane in lanes[wrong])


def _require_aligned(address: int, size: int, name: str) -> None:
    if address % size:
        raise BarrierError(
            "out-of-bounds",
            f"an access of {size} bytes at byte {address} ({name}): its address must be a multiple "
            f"of {size} (J1)",
            "align what it points to, and what is added to the address",
        )


# ----------------------------------------------------------------- steps that check their addresses


def checked(step: Step, stays: Evaluate, guard: Evaluate | None, what: Op | Control) -> Step:
    """``step``, behind a check of what has to hold in the lanes that execute it.

    An address that is not known, or not set, decides nothing: that would end the run."""

    def check(w: Warp) -> bool | None:
        try:
            holds = plain(stays(w))
        except UnassignedVariable:
            holds = 1
        if type(holds) is not Unknown and not np.all(holds) and _fails(w, holds, guard):
            why = f"an address at {what.loc} is none in what it counts from, or has wrapped"
            w.machine.outcome.decided_by_bases[f"{why}: every launch may have another one"] = None
            w.machine.outcome.explorable = False
        return step(w)

    return check


def _fails(w: Warp, holds: Any, guard: Evaluate | None) -> bool:
    """Whether it does not hold in a lane that executes the instruction."""
    lanes = mask_array(w.mask)
    if guard is not None:
        executes = plain(guard(w))
        if type(executes) is not Unknown:
            lanes = lanes & np.not_equal(executes, 0)
    return bool(np.any(lanes & np.equal(holds, 0)))
