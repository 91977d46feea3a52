"""Asynchronous copies, from their effects (SEMANTICS sections B, C and D).

A copy is one operation of several effects: it reads its source, writes its destination, and then
completes bytes on an mbarrier or is done as a member of a group. Both ends are checked when it is
issued, with the issuer's clock (B1); its completion is published by the phase or group that tracks
it (B2, A28). An end is a view, or what a tensor map selects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.types import PACKINGS, Direction, DType, Packing, numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.declarations import View
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.ir.tensormap import MapFields, fields_of, info_limits, unit
from tilesim.records import dataclass, replace
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.compose import (
    Act,
    Effects,
    acting,
    each_lane,
    executor,
    operation,
    with_effect,
)
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.errors import BarrierError, NotUniform
from tilesim.sim.machine.execute.mbarrier import Landing, require_live
from tilesim.sim.machine.execute.memory import cells_of, judge_lanes_that_overlap, leave
from tilesim.sim.machine.execute.tensormaps import MapInMemory, map_reader
from tilesim.sim.machine.expression import Evaluate
from tilesim.sim.machine.footprint import EVERY, Access, Footprint
from tilesim.sim.machine.lanes import mask_array, mask_bits
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.tensor_box import MapBox
from tilesim.sim.machine.unknown import Unknown, first_of, plain
from tilesim.sim.machine.view_access import (
    ViewAccess,
    read_elements,
    uniform,
    unknown_in,
    write_elements,
)
from tilesim.sim.machine.word_order import COMBINE, Combine
from tilesim.sim.observers.phase_conditions import Credit


class End(ABC):
    """One end of a copy: ``nbytes`` of ``memory``, of which ``footprint`` is touched.

    Without a footprint nothing is touched that could race. ``through``: the tensor map that the
    copy reads, if that lies in memory.
    """

    through: MapInMemory | None = None

    def __init__(
        self, memory: Memory, footprint: Footprint | None, nbytes: int, dtype: DType
    ) -> None:
        self.memory = memory
        self.footprint = footprint
        self.nbytes = nbytes
        self.dtype = dtype

    def shared(
        self, w: Warp, op: Op, view: ViewAccess, memory: Memory, mask: int | None = None
    ) -> Range:
        """The other end of the copy, where a view lies in shared ``memory``; see `Range`."""
        whole = view.footprint_in(w, memory)
        _require_alignment(op, view, whole)
        return Range(memory, whole, self.nbytes, view.view.dtype, mask)

    def reads(self, w: Warp, op: Op, at: tuple[int, int]) -> Access | None:
        """The copy reads it, until it is over at a position."""
        if self.footprint is None:
            return None
        access = Access(w, op, *at, True, False, lanes=w.mask, among=EVERY)
        w.machine.races.read(self.memory, self.footprint, access, w.clock)
        return access

    def writes(
        self, w: Warp, op: Op, at: tuple[int, int], combine: Combine | None
    ) -> Access | None:
        """The copy writes it, combined with what is there if asked, until it is over."""
        if self.footprint is None:
            return None
        scope: fx.Scope | None = None if combine is None else "gpu"
        access = Access(w, op, *at, True, True, scope, lanes=w.mask, among=EVERY)
        if combine is not None:
            w.machine.races.unwritten.note(self.memory, self.footprint, access)
        w.machine.races.write(self.memory, self.footprint, access, w.clock)
        return access

    @abstractmethod
    def load(self) -> NDArray[Any]:
        """The elements."""

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        """Writes elements, combined with what is there if asked."""
        raise TypeError("such copies only read this end")

    def lost(self, op: Op) -> Unknown | None:
        """What is not known of the elements."""
        return None if self.footprint is None else unknown_in(self.memory, self.footprint, op)


class Range(End):
    """The bytes of a footprint, or those of them in a ``mask`` of 16."""

    def __init__(
        self, memory: Memory, whole: Footprint, nbytes: int, dtype: DType, mask: int | None = None
    ) -> None:
        touched = whole if mask is None else masked(memory, whole, mask)
        super().__init__(memory, touched, nbytes, dtype)
        self.whole = whole
        self._mask = mask

    def load(self) -> NDArray[Any]:
        return read_elements(self.memory, self.whole, self.dtype)

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        cells = self.memory.data[self.whole.bytes.low : self.whole.bytes.high]
        before = None if self._mask is None else cells.copy()
        values = as_elements(values, self.dtype, self.whole.addresses.shape)
        if combine is not None:
            values = combine(self.load(), values)
        write_elements(self.memory, self.whole, self.dtype, values)
        if before is not None and self._mask is not None:
            left = np.array([not self._mask >> i % CHUNK & 1 for i in range(self.nbytes)])
            cells[left] = before[left]


class _Selected(End):
    """What a tensor map selects."""

    def __init__(
        self, box: MapBox, memory: Memory, footprint: Footprint | None, packing: Packing | None,
        through: MapInMemory | None,
    ) -> None:  # fmt: skip
        super().__init__(memory, footprint, box.nbytes, box.fields.dtype)
        self._box = box
        self._packing = packing
        self.through = through

    def shared(
        self, w: Warp, op: Op, view: ViewAccess, memory: Memory, mask: int | None = None
    ) -> Range:
        made = super().shared(w, op, view, memory, mask)
        if self.through is None:
            return made
        # a map in memory says itself what the copy touches there
        tile = self._box.tile(view, made.whole, memory)
        return Range(memory, tile, self.nbytes, self.dtype, mask)

    def load(self) -> NDArray[Any]:
        found = self._box.load(self.memory)
        return found if self._packing is None else spread(found, self._packing)

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        if self._packing is not None:
            values = packed(values, self._packing)
        if self.footprint is not None and self.memory.marks is not None:
            self.memory.marks.set(self.footprint.bytes, None)
        self._box.store(self.memory, values, combine)


def move(op: Op, source: End, target: End, combine: Combine | None = None, times: int = 1) -> None:
    """Writes the elements of one end to the other, combined with what is there if asked."""
    lost = source.lost(op)
    if combine is not None:
        lost = first_of(lost, target.lost(op))
    if lost is None:
        values = source.load()
        for _ in range(times):
            target.store(values, combine)
    elif target.footprint is not None:
        target.memory.forget(target.footprint.bytes, lost)
    if isinstance(source, Inner):
        source.make_ignored_bytes_unknown(op, target)


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


EndOf = Callable[[Warp], End]


def as_elements(values: NDArray[Any], dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
    """The same bytes as elements of this type, in this shape."""
    kind = numpy_dtype(dtype)
    if values.dtype != kind:
        values = np.ascontiguousarray(values).ravel().view(kind)
    return values.reshape(shape)


def range_end(c: Operands, op: Op, effect: fx.Reads | fx.Writes) -> EndOf:
    """A contiguous, unswizzled, 16-byte aligned range (B6), or the bytes of it in a mask (B35)."""
    view = c.view(effect.view)
    mask = byte_mask(c, effect)

    def end(w: Warp) -> End:
        memory = view.memory(w)
        footprint = view.footprint_in(w, memory)
        require_contiguous(op, view, footprint)
        chosen = None if mask is None else mask(w)
        return Range(memory, footprint, view.view.nbytes, view.view.dtype, chosen)

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


def map_end(
    c: Operands, op: Op, effect: fx.ReadsMap | fx.WritesMap, at: View | None = None
) -> EndOf:
    """What a tensor map selects, or the one that lies ``at`` a place in memory.

    A store starts inside of the tensor.
    """
    declared, mode = fields_of(effect.map), effect.mode
    tensors = {tensor.name: tensor for tensor in effect.map.tensors}
    writes = isinstance(effect, fx.WritesMap)
    reader = None if at is None else map_reader(c, op, at, effect.map, _direction(effect))
    key: tuple[Hashable, ...] = ("map", effect.map.name, mode)
    coords = numbers(c, effect.coords)
    info = numbers(c, effect.info if isinstance(effect, fx.ReadsMap) else ())

    def end(w: Warp) -> End:
        place, more = coords(w), info(w)
        through = None if reader is None else reader(w)
        fields = declared if through is None else through.fields
        memory, tensor = w.machine.globals.memories[fields.tensor], tensors[fields.tensor]
        least = unit(fields.packing, fields.dtype, w.machine.program.target.name)
        if place[-1] % least:
            raise _starts_between(op, fields, place[-1], least)
        for operand, most in zip(more, info_limits(mode, len(more)), strict=True):
            if not 0 <= operand <= most:
                raise BarrierError(
                    "out-of-bounds",
                    f"{op.mnemonic} with the im2col operand {operand}, not 0 to {most} (B23)",
                    "move the coordinate instead",
                )
        if writes and any(x < 0 for x in place):
            raise BarrierError(
                "out-of-bounds", f"{op.mnemonic} at negative coordinates {place} (B19)",
                "stores may stick out past the end of the tensor, not before its start",
            )  # fmt: skip
        packing = None if fields.packing is None else PACKINGS[fields.packing]
        if packing is not None:
            place = (*place[:-1], place[-1] * packing.bits // 8)
        box = MapBox(fields, tensor, mode, place, more)
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


# ---------------------------------------------------- ranges without some bytes at their ends (B38)


class Inner(End):
    """What is read of a range, ``left`` elements from its start, as an end of a copy of all."""

    def __init__(self, view: View, memory: Memory, footprint: Footprint | None, left: int) -> None:
        super().__init__(memory, footprint, view.nbytes, view.dtype)
        self._left = left

    def load(self) -> NDArray[Any]:
        """The elements; zeros for those that are ignored."""
        found = np.zeros(self.nbytes // self.dtype.bytes, numpy_dtype(self.dtype))
        if self.footprint is not None:
            read = read_elements(self.memory, self.footprint, self.dtype).ravel()
            found[self._left : self._left + read.size] = read
        return found

    def make_ignored_bytes_unknown(self, op: Op, target: End) -> None:
        """What is ignored is not known at the other end when the copy has landed."""
        assert target.footprint is not None
        addresses = target.footprint.addresses.ravel()
        count = 0 if self.footprint is None else self.footprint.addresses.size
        left = self._left if count else addresses.size
        ignored = np.concatenate([addresses[:left], addresses[left + count :]])
        if ignored.size:
            lost = Unknown(f"bytes that {op.mnemonic} ignores", loc=op.loc)
            target.memory.forget(ByteSet.elements(ignored, target.footprint.itemsize), lost)


def inner_end(c: Operands, op: Op, effect: fx.Reads, ignored: tuple[Expr, Expr]) -> EndOf:
    """The end of a copy that reads a view without so many bytes at its ends."""
    view, size = effect.view, effect.view.dtype.bytes
    sides = tuple(map(c.expr, ignored))
    known: dict[tuple[int, int], ViewAccess] = {}

    def end(w: Warp) -> Inner:
        left, right = (_bytes(w, op, side) // size for side in sides)
        if left + right >= view.size:
            some = known.setdefault((0, 0), c.view(view.inner(0, 0)))
            return Inner(view, some.memory(w), None, 0)
        if (left, right) not in known:
            known[left, right] = c.view(view.inner(left, right))
        part = known[left, right]
        memory = part.memory(w)
        footprint = part.footprint_in(w, memory)
        require_contiguous(op, part, footprint, skipped=left * size)
        return Inner(view, memory, footprint, left)

    return end


def _bytes(w: Warp, op: Op, side: Evaluate) -> int:
    count = uniform(side(w), w)
    if not 0 <= count < CHUNK:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {w} ignores {count} bytes at one end, more than {CHUNK - 1} (B38)",
            "copy less",
        )
    return count


E = TypeVar("E")


# ---------------------------------------------------------- copies and their completion (section B)


def transfers(effects: Effects) -> bool:
    """Whether these are the effects of one asynchronous copy of the async proxy."""
    if any(isinstance(e, fx.RemoteStore | fx.Cancels) for e in effects):
        return False
    return any(
        (isinstance(e, fx.Issues) and e.group == "bulk")
        or (isinstance(e, fx.Completes) and e.asynchronous)
        for e in effects
    )


@operation(transfers)
def _transfer(c: Operands, op: Op, effects: Effects) -> Step:
    """The step of an asynchronous copy."""
    completes = _only(effects, fx.Completes)
    step = _grouped(c, op, effects) if completes is None else _tracked(c, op, effects, completes)
    return each_lane(step)


def _only(effects: Effects, kind: type[E]) -> E | None:
    return next((e for e in effects if isinstance(e, kind)), None)


def _end(c: Operands, op: Op, effects: Effects, effect: fx.Effect | None) -> EndOf:
    match effect:
        case fx.ReadsMap() | fx.WritesMap():
            maps = (e.view for e in effects if isinstance(e, fx.Reads) and e.proxy == "tensormap")
            return map_end(c, op, effect, next(maps, None))
        case fx.Reads(ignored=(left, right)):
            return inner_end(c, op, effect, (left, right))
        case fx.Reads() | fx.Writes():
            return range_end(c, op, effect)
        case _:
            raise TypeError(f"{op.mnemonic}: a copy has a source and a destination")


# ---------------------------------------------------------------------- tracked by an mbarrier


def _tracked(c: Operands, op: Op, effects: Effects, completes: fx.Completes) -> Step:
    """A copy into shared memory that completes its bytes on an mbarrier per destination."""
    writes, read = _only(effects, fx.Writes), _only(effects, fx.Reads)
    read_map = _only(effects, fx.ReadsMap)
    assert writes is not None
    source_of = _end(c, op, effects, read_map or read)
    target, mbar = c.view(writes.view), c.mbar(completes.mbar)
    mask = None if completes.multicast is None else c.expr(completes.multicast)
    real, pair = c.real(writes.view.tensor), completes.pair
    combine = None if writes.combine is None else COMBINE[writes.combine]
    boxed = read_map is not None
    to_peer = read is not None and read.view.space == "shared"

    def step(w: Warp) -> None:
        source, cta, barrier = source_of(w), target.cta(w), mbar(w)
        if to_peer:
            _require_peer(w, op, cta, barrier)
        elif not pair and barrier.cta is not cta:
            own = "name the barrier of the CTA that is written"
            raise _completes_elsewhere(w, op.mnemonic, cta, barrier, "CTA", own)
        if not boxed:
            require_contiguous(op, target, target.footprint_in(w, cta.memory))
        places = destinations(w, op, cta, barrier, None if mask is None else uniform(mask(w), w))
        if pair:
            places = _paired(w, op, places, barrier)
        for _ in range(w.lanes):
            tracked_load(w, op, target, places, source, combine, real=real)

    return step


def _require_peer(w: Warp, op: Op, cta: Cta, barrier: Mbarrier) -> None:
    """Raises unless a copy of shared memory goes to, and signals, one other CTA."""
    if cta is w.cta or barrier.cta is not cta:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {w} with destination and mbarrier in CTA {cta.number} and "
            f"{barrier.cta.number}: both must be in one other CTA of the cluster (B.2)",
            "use .at(rank) of one peer on both; copy inside a CTA with ordinary stores",
        )


def _completes_elsewhere(
    w: Warp, name: str, cta: Cta, barrier: Mbarrier, of: str, hint: str
) -> BarrierError:
    """A copy into a CTA that completes where it cannot. PTX says so of tensor copies; of other
    copies of global memory, which are made in the same way, it is silent."""
    return BarrierError(
        "out-of-bounds",
        f"{name} of {w} into CTA {cta.number} completes on a barrier of CTA {barrier.cta.number}, "
        f"which is not of that {of} (B26)",
        hint,
    )


def _paired(
    w: Warp, op: Op, places: list[tuple[Cta, Mbarrier]], barrier: Mbarrier
) -> list[tuple[Cta, Mbarrier]]:
    """In the pair of every destination, the barrier of the CTA that ``barrier`` has in its own
    (B26, B27)."""
    parity = barrier.cta.rank & 1
    if len(places) == 1 and barrier.cta.rank | 1 != places[0][0].rank | 1:
        either = "name the barrier of the tile's CTA or of the one whose rank differs in bit 0"
        name = f"{op.mnemonic}.cta_group::2"
        raise _completes_elsewhere(w, name, places[0][0], barrier, "pair", either)
    ctas = w.cta.cluster.ctas
    signalled = [(cta, ctas[cta.rank & ~1 | parity]) for cta, _ in places]
    return [(cta, other.mbarriers[barrier.address]) for cta, other in signalled]


def destinations(
    w: Warp, op: Op, own: Cta, barrier: Mbarrier, mask: int | None
) -> list[tuple[Cta, Mbarrier]]:
    """The CTAs a load writes, each with the barrier it completes on: the ones it names, or those
    at the same offsets in every CTA of a multicast mask (B9)."""
    if mask is None:
        return [(own, barrier)]
    ctas = w.cta.cluster.ctas
    size = len(ctas)
    if not 0 < mask < 1 << size:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} with multicast mask {mask:#b} in a cluster of {size} CTAs (B9, U9)",
            "name only CTAs of the cluster, by cluster rank",
        )
    chosen = [cta for cta in ctas if mask >> cta.rank & 1]
    for cta in chosen:
        w.machine.peers.touch(w, cta)
    return [(cta, cta.mbarriers[barrier.address]) for cta in chosen]


def tracked_load(
    w: Warp, op: Op, view: ViewAccess, places: list[tuple[Cta, Mbarrier]], source: End,
    combine: Combine | None = None, *, real: bool,
) -> None:  # fmt: skip
    """Issues a copy of ``source`` into shared memory that completes its bytes on a barrier per
    destination.

    ``combine`` makes it a reduction; ``real``: the bytes are computed.
    """
    machine, through = w.machine, source.through
    issued = w.clock.copy()
    also = None if through is None else w.lane_groups["bulk.map"].issue_by(w.mask)
    landings: list[Landing] = []
    for cta, tracked in places:
        require_live(tracked, w, op)
        at = tracked.tracks(w.cta), NEVER
        target = source.shared(w, op, view, cta.memory)
        write = target.writes(w, op, at, combine)
        assert write is not None
        accesses = [write]
        if through is not None:
            accesses.append(through.read(w, op, at, also))
        read = source.reads(w, op, at)
        if read is not None:
            accesses.append(read)
            if source.memory is w.cta.memory:
                machine.peers.note(w.cta, read)
        tracked.last_load = (op, w, write)
        # what its own CTA tracks, a copy into it included, the CTA's barriers answer for
        for place in {cta, tracked.cta} - ({w.cta} if tracked.cta is w.cta else set()):
            machine.peers.note(place, write)
        credit = Credit(w, op, 0, -source.nbytes, 0, asynchronous=True)
        moves = partial(move, op, source, target, combine) if real else None
        landings.append(Landing(w, op, tracked, credit, issued, moves, accesses))
    for landing in landings:
        landing.launch(machine.copy_cycles(source.nbytes))
    w.advance()
    w.effects += 1


def _require_alignment(op: Op, target: ViewAccess, footprint: Footprint) -> None:
    """Shared addresses of tensor copies are 128-byte aligned, of bulk copies 16 (B6, U10)."""
    need = 128 if "tensor" in op.mnemonic else 16
    start = footprint.start
    if target.shared and start % need:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} at shared address {start}, which is not {need}-byte aligned (U10, B6)",
            f"align the tensor and its stages to {need} bytes",
        )


# ---------------------------------------------------------------------- in a bulk group


def _grouped(c: Operands, op: Op, effects: Effects) -> Step:
    """A copy from shared to global memory, in the bulk group of its thread."""
    reads = _only(effects, fx.Reads)
    effect = _only(effects, fx.WritesMap) or _only(effects, fx.Writes)
    assert reads is not None
    assert effect is not None
    boxed = isinstance(effect, fx.WritesMap)
    view, target_of = c.view(reads.view), _end(c, op, effects, effect)
    written = effect.map.tensors if isinstance(effect, fx.WritesMap) else (effect.view.tensor,)
    observed = any(map(c.real, written))
    combine = None if effect.combine is None else COMBINE[effect.combine]
    mask = None if isinstance(effect, fx.WritesMap) else byte_mask(c, effect)
    times = 1 if isinstance(effect, fx.WritesMap) else effect.times

    def step(w: Warp) -> None:
        target = target_of(w)
        memory = view.memory(w)
        if not boxed:
            require_contiguous(op, view, view.footprint_in(w, memory))
        source = target.shared(w, op, view, memory, None if mask is None else mask(w))
        copies = w.lanes
        if combine is None and copies > 1 and not w.machine.options.ptx:
            # they write the same bytes from one place: one copy, over once each lane has waited
            w.machine.lean("H23", op)
            copies = 1
        for _ in range(copies):
            _issue(w, op, source, target, combine)
        if observed and target.memory.data.size:
            move(op, source, target, combine, times if combine is None else times * w.lanes)

    return step


def _issue(w: Warp, op: Op, source: End, target: End, combine: Combine | None) -> None:
    """Issues a copy of shared memory to global memory into the warp's open bulk group."""
    machine = w.machine
    reads, writes = w.lane_groups["bulk"], w.lane_groups["bulk.write"]
    w.last_issue["bulk"] = op
    number = reads.issue_by(w.mask)
    if target.through is not None:
        target.through.read(w, op, number)
    source.reads(w, op, number)
    target.writes(w, op, writes.issue_by(w.mask), combine)
    finish = machine.env.now + machine.copy_cycles(target.nbytes)
    reads.finish = writes.finish = max(reads.finish, finish)
    w.effects += 1


# ---------------------------------------------------------------------- prefetches


@executor(fx.Prefetches)
def _prefetches(c: Operands, op: Op, effect: fx.Prefetches) -> Act:
    """Nothing happens, but the operands have to be what a copy would ask for (B13)."""
    box = None if effect.box is None else map_end(c, op, effect.box)
    view = None if effect.view is None else c.view(effect.view)

    def step(w: Warp) -> None:
        if box is not None:
            box(w)
        if view is not None:
            require_contiguous(op, view, view.footprint(w))

    return Act(each_lane(step))


# ------------------------------------------------------- copies by asynchronous threads (section C)


#: where a copy reads or writes
_At = tuple[Memory, Footprint]


@dataclass(frozen=True)
class _Copy:
    """One instruction: a box that lanes share out ``piece`` by ``piece`` (``shares``), or one each.

    ``most``: bytes of a box; ``limit``: how many of them are read, the rest is zero.
    """

    op: Op
    source: ViewAccess
    target: ViewAccess
    dtype: DType
    most: int
    limit: Evaluate | None
    piece: int
    shares: bool
    real: bool

    def of_one_box(self, w: Warp) -> None:
        """All lanes name one box: they share it out, or each of them copies it, which in practice
        counts as one copy that is over once each lane has waited for its own (H23).

        Raises:
            NotUniform: they do not, or their copies need an order; nothing has been done.
        """
        several = w.lanes > 1
        if several and not self.shares and w.machine.options.ptx:
            raise NotUniform
        nbytes = self.most if self.limit is None else uniform(self.limit(w), w)
        target = self.target.memory(w), self.target.footprint(w)
        # a copy of nothing has no source: kernels fill with zeros where an address means nothing
        origin = (self.source.memory(w), self.source.footprint(w)) if nbytes else None
        among = w.mask if several and self.shares else EVERY
        if several and not self.shares:
            w.machine.lean("H23", self.op)
        self._record(w, origin, target, (w.mask, among), among, self.piece)
        if not 0 <= nbytes <= self.most:
            raise BarrierError(
                "out-of-bounds",
                f"{self.op.mnemonic} with src-size {nbytes} of {self.most} bytes (C2)",
                "give a src-size between 0 and the copy size",
            )
        if self.real:
            self._move(origin, target, np.array([nbytes]))

    def of_each(self, w: Warp) -> None:
        """Each lane copies the box that it names, all in one operation.

        Boxes that do not overlap may be written in any order, and the records say which lane has
        which bytes. Only an arrival that some of the lanes let their own copies make needs an
        operation of each (C6).

        Raises:
            NotUniform: lane by lane it has to be; nothing has been done.
        """
        if w.may_divide and w.machine.plan.tracks_copies:
            raise NotUniform
        limit = self.most if self.limit is None else plain(self.limit(w))
        sizes = np.full(32, limit) if type(limit) is int else np.broadcast_to(limit, 32)
        if type(limit) is int and 0 <= limit <= self.most:
            reading = w.mask if limit else 0
        else:
            active = mask_array(w.mask)
            if ((sizes < 0) | (sizes > self.most))[active].any():
                raise NotUniform
            reading = mask_bits((sizes > 0) & active)
        memory, target, _ = self.target.lane_footprint(w)
        if target.bytes.nbytes != w.lanes * self.most:
            raise NotUniform
        origin = self._sources(w, reading) if reading else None
        self._record(w, origin, (memory, target), (reading, reading), w.mask, 0)
        if self.real:
            self._move(origin, (memory, target), sizes[mask_array(w.mask)])

    def _sources(self, w: Warp, reading: int) -> _At:
        """What the lanes read that read anything, which is in one memory."""
        with acting(w, reading):
            return self.source.lane_footprint(w)[:2]

    def _move(self, origin: _At | None, target: _At, sizes: NDArray[np.int64]) -> None:
        """The bytes of each box, ``sizes`` of them and zeros after them, if they are known."""
        lost = None if origin is None else unknown_in(*origin, self.op)
        if lost is not None:
            target[0].forget(target[1].bytes, lost)
            return
        each = self.most // self.dtype.bytes
        values = np.zeros((len(sizes), each), numpy_dtype(self.dtype))
        if origin is not None:
            values[sizes > 0] = read_elements(*origin, self.dtype).reshape(-1, each)
        values[np.arange(each) >= sizes[:, None] // self.dtype.bytes] = 0
        new = values.reshape(target[1].addresses.shape)
        write_elements(*target, self.target.view.dtype, new)

    def _record(
        self, w: Warp, origin: _At | None, target: _At, reading: tuple[int, int], among: int,
        piece: int,
    ) -> None:  # fmt: skip
        """One operation of the active lanes; ``reading``: those that have a source, and how they
        share it (as `Access.lanes` and `Access.among`)."""
        for memory, footprint in filter(None, (origin, target)):
            self._require_aligned(memory, footprint)
        races = w.machine.races
        component, sequence = w.lane_groups["cp.async"].issue_by(w.mask)
        w.last_issue["cp.async"] = self.op
        access = Access(
            w, self.op, component, sequence, False, True, engine=True, lanes=w.mask, among=among,
            piece=piece,
        )  # fmt: skip
        if origin is not None and origin[0].tracked:
            lanes, sharing = reading
            source = replace(access, write=False, lanes=lanes, among=sharing)
            races.read(*origin, source, w.clock)
        races.write(*target, access, w.clock)
        # switch cpasync_proxy: once complete, the write is visible to the async proxy too
        access.asynchronous = not w.machine.options.ptx
        w.effects += 1

    def _require_aligned(self, memory: Memory, footprint: Footprint) -> None:
        """What a lane copies at a time begins at a multiple of its size at both ends (C1)."""
        starts = footprint.addresses.ravel()[:: max(1, self.piece // footprint.itemsize)]
        wrong = starts[starts % self.piece != 0]
        if wrong.size:
            raise BarrierError(
                "out-of-bounds",
                f"{self.op.mnemonic} of {self.piece} bytes at byte {wrong[0]} of {memory.label}: "
                f"its address must be a multiple of {self.piece} (C1)",
                "align both ends to the size of the copy, or copy fewer bytes at a time",
            )


@operation(with_effect(fx.Issues, group="cp.async"))
def _copy(c: Operands, op: Op, effects: Effects) -> Step:
    match effects:
        case (fx.Reads(view=src), fx.Writes(view=dst), fx.Issues() as issues):
            piece, given, shares = issues.piece, issues.real, issues.shared_out
        case _:
            raise TypeError(f"{op.mnemonic}: such a copy reads, writes, and joins its group")
    limit = None if given is None else c.expr(given)
    real = c.real(dst.tensor)
    copy = _Copy(op, c.view(src), c.view(dst), src.dtype, src.nbytes, limit, piece, shares, real)

    def step(w: Warp) -> None:
        if not copy.target.differs(w):
            try:
                copy.of_one_box(w)
                return
            except NotUniform:
                pass
        copy.of_each(w)

    return each_lane(step)


# ---------------------------------------------------------- remote asynchronous stores (D11 to D13)


@operation(with_effect(fx.RemoteStore))
def _remote_store(c: Operands, op: Op, effects: Effects) -> Step:
    """A store that lands later and then completes its bytes on the peer's mbarrier (D11-D13)."""
    match effects:
        case (fx.RemoteStore() as store, fx.Completes(asynchronous=True) as completes):
            pass
        case _:
            raise TypeError(f"{op.mnemonic}: a remote store completes its bytes on an mbarrier")
    view, mbar, value = c.view(store.view), c.mbar(completes.mbar), c.expr(store.value)
    dtype, real = store.view.dtype, c.real(store.view.tensor)
    combine = None if store.combine is None else COMBINE[store.combine]

    def step(w: Warp) -> None:
        machine, barrier, cta = w.machine, mbar(w), view.cta(w)
        _require_peer_of_store(w, op, cta is w.cta and combine is not None, barrier.cta is cta)
        require_live(barrier, w, op)
        assert barrier.engine is not None
        memory, footprint, addresses = view.lane_footprint(w)
        access = Access(
            w, op, barrier.engine, NEVER, False, True, scope=None if combine is None else "cluster",
            engine=True, lanes=w.mask, among=w.mask,
        )  # fmt: skip
        new = cells_of(w, value(w), dtype)
        if combine is None:
            judge_lanes_that_overlap(access, footprint, addresses, new)
        else:
            machine.races.unwritten.note(memory, footprint, access)
        machine.races.write(memory, footprint, access, w.clock)
        machine.peers.note(cta, access)
        lanes = w.lanes
        credit = Credit(w, op, 0, -dtype.bytes * lanes, 0, asynchronous=True, lanes=lanes)
        moves = (
            partial(leave, op, memory, footprint, addresses, dtype, new, combine) if real else None
        )
        landing = Landing(w, op, barrier, credit, w.clock.copy(), moves, [access])
        landing.launch(machine.copy_cycles(0))
        w.advance()
        w.effects += 1

    return each_lane(step)


def _require_peer_of_store(w: Warp, op: Op, own: bool, together: bool) -> None:
    if not together:
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic}: destination and mbarrier are in different CTAs (D11)",
            "name the same CTA rank for both",
        )  # fmt: skip
    if len(w.cta.cluster.ctas) == 1:
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic} in a cluster of one CTA (D11)",
            "launch clusters of at least two CTAs, or use an ordinary store",
        )  # fmt: skip
    if own:
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic} to the executing CTA's own shared memory (D12)",
            "use red (an atomic) on the own CTA",
        )  # fmt: skip
