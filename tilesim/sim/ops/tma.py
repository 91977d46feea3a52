"""Bulk asynchronous copies (SEMANTICS section B).

A copy's source and destination are checked when it is issued, with the issuer's clock (B1); its
completion is published by the phase or group that tracks it (B2, A28).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.memory import SharedTensor, TensorMap
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.ops.tma import (
    BulkCommitGroup,
    BulkCopy,
    BulkLoad,
    BulkPrefetch,
    BulkReduce,
    BulkReducePeer,
    BulkStore,
    BulkWaitGroup,
    TmaLoad,
    TmaPrefetch,
    TmaReduce,
    TmaStore,
)
from tilesim.ir.types import DType, numpy_dtype
from tilesim.sim.compile import RULES, Compiler, require_live
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.latency import copy_cycles
from tilesim.sim.machine.access import EVERY, NEVER, Access
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import (
    Memory,
    ViewAccess,
    array_of,
    box_footprint,
    read_elements,
    uniform,
    write_elements,
)
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.warp import Step, Warp


class MapBox:
    """The box of a tensor map at run-time coordinates: its footprint and its numbers."""

    def __init__(self, c: Compiler, tensor_map: TensorMap, coords: tuple[Any, ...]) -> None:
        self.map = tensor_map
        self.tensor = tensor_map.tensor
        self.shape = tensor_map.box_shape
        self.steps = tensor_map.element_strides or (1,) * len(self.shape)
        self._coords = [c.expr(x) for x in coords]

    def at(self, w: Warp) -> tuple[int, ...]:
        """The coordinates for this warp, slowest dimension first."""
        values = [f(w) for f in self._coords]
        return tuple(v if type(v) is int else uniform(v, w) for v in values)

    def _spans(self, coords: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """Per dimension: first and last valid box index, and where the first lies."""
        spans = []
        for start, count, step, limit in zip(
            coords, self.shape, self.steps, self.tensor.shape, strict=True
        ):
            first = max(0, -(start // step)) if start < 0 else 0
            last = min(count, -(-(limit - start) // step)) if limit > start else 0
            spans.append((first, max(first, last), start + first * step))
        return spans

    def memory(self, w: Warp) -> Memory:
        """The global tensor's memory."""
        return w.machine.globals.memories[self.tensor.name]

    def footprint(self, w: Warp, coords: tuple[int, ...]) -> Footprint | None:
        """The part of the box inside the tensor; None if there is none."""
        spans = self._spans(coords)
        if any(first >= last for first, last, _ in spans):
            return None
        return self.memory(w).table.get(("map", self.map.name, coords), lambda: self._make(spans))

    def _make(self, spans: list[tuple[int, int, int]]) -> Footprint:
        box = tuple(
            range(at, at + (last - first - 1) * step + 1, step)
            for (first, last, at), step in zip(spans, self.steps, strict=True)
        )

        def addresses() -> NDArray[np.int64]:
            result = np.zeros((), dtype=np.int64)
            for span, stride in zip(box, self.tensor.byte_strides, strict=True):
                result = result[..., None] + np.array(span, dtype=np.int64) * stride
            return result

        return box_footprint(self.tensor, 0, box, addresses)

    def load(self, w: Warp, coords: tuple[int, ...]) -> NDArray[Any]:
        """The box as an array; outside elements read as the fill value (B19)."""
        dtype = numpy_dtype(self.tensor.dtype)
        fill = np.nan if self.map.fill == "nan" else 0
        result = np.full(self.shape, fill, dtype=dtype)
        inner, outer = self._slices(coords)
        result[inner] = array_of(self.tensor, self.memory(w))[outer]
        return result

    def store(
        self, w: Warp, coords: tuple[int, ...], values: NDArray[Any],
        combine: Callable[[Any, Any], Any] | None,
    ) -> None:  # fmt: skip
        """Writes the inside part of the box (B19), combined with the old values if asked."""
        inner, outer = self._slices(coords)
        array = array_of(self.tensor, self.memory(w))
        new = values.reshape(self.shape)[inner]
        array[outer] = new if combine is None else combine(array[outer], new)

    def _slices(self, coords: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        spans = self._spans(coords)
        inner = tuple(slice(first, last) for first, last, _ in spans)
        outer = tuple(
            slice(at, at + (last - first - 1) * step + 1 if last > first else at, step)
            for (first, last, at), step in zip(spans, self.steps, strict=True)
        )
        return inner, outer


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
    w: Warp, op: Op, target: ViewAccess, places: list[tuple[Cta, Mbarrier]], nbytes: int,
    source: tuple[Memory, Footprint] | None, fetch: Callable[[], NDArray[Any]] | None,
    combine: Callable[[Any, Any], Any] | None = None,
) -> None:  # fmt: skip
    """Issues a copy into shared memory that completes ``nbytes`` on a barrier per destination.

    ``combine`` makes it a reduction.
    """
    machine = w.machine
    issued = w.clock.copy()
    records: list[tuple[Cta, Mbarrier, Footprint, list[Access]]] = []
    for cta, tracked in places:
        require_live(tracked, w, op)
        memory = cta.memory
        footprint = target.footprint_in(w, memory)
        check_alignment(op, target, footprint)
        scope: FenceScope | None = None if combine is None else "gpu"
        write = Access(
            w, op, tracked.component, NEVER, True, True, scope, lanes=w.mask, among=EVERY
        )
        machine.races.write(memory, footprint, write, w.clock)
        accesses = [write]
        if source is not None:
            read = Access(w, op, tracked.component, NEVER, True, False, lanes=w.mask, among=EVERY)
            machine.races.read(*source, read, w.clock)
            accesses.append(read)
            if source[0] is w.cta.memory:
                machine.peers.note(w.cta, read)
        tracked.last_load = (op, w, write)
        for place in {cta, tracked.cta} - {w.cta}:
            machine.peers.note(place, write)
        records.append((cta, tracked, footprint, accesses))
    for cta, tracked, footprint, accesses in records:

        def land(
            cta: Cta = cta, tracked: Mbarrier = tracked, footprint: Footprint = footprint,
            accesses: list[Access] = accesses,
        ) -> None:  # fmt: skip
            require_live(tracked, w, op)
            if fetch is not None:
                new, dtype = fetch(), target.view.dtype
                if combine is not None:
                    new = combine(read_elements(cta.memory, footprint, dtype), new)
                write_elements(cta.memory, footprint, dtype, new)
            tracked.landed.extend(accesses)
            tracked.credit(Credit(w, op, 0, -nbytes, 0, asynchronous=True), issued, visible=False)
            machine.changed()

        machine.launch_async(op, w, copy_cycles(nbytes), land)
    w.advance()
    w.effects += 1


def check_alignment(op: Op, target: ViewAccess, footprint: Footprint) -> None:
    """Shared addresses of tensor copies are 128-byte aligned, of bulk copies 16 (B6, U10)."""
    need = 128 if "tensor" in op.mnemonic else 16
    start = footprint.start
    if target.shared and start % need:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} at shared address {start}, which is not {need}-byte aligned (U10, B6)",
            f"align the tensor and its stages to {need} bytes",
        )


@RULES.rule(TmaLoad)
def _load(c: Compiler, op: TmaLoad) -> Step:
    target, box, mbar = c.view(op.dst), MapBox(c, op.map, op.coords), c.mbar(op.mbar)
    mask = None if op.multicast is None else c.expr(op.multicast)
    real, nbytes = c.real(op.dst.tensor), op.map.box_bytes
    shape = op.dst.extents

    def step(w: Warp) -> None:
        coords = box.at(w)
        memory = box.memory(w)
        source = None
        if memory.tracked:
            read = box.footprint(w, coords)
            source = None if read is None else (memory, read)
        chosen = None if mask is None else uniform(mask(w), w)
        places = destinations(w, op, target.cta(w), mbar(w), chosen)
        if op.cta_group == 2:
            places = _paired(w, op, places, mbar(w))
        fetch = (lambda: box.load(w, coords).reshape(shape)) if real else None
        for _ in range(w.lanes):
            tracked_load(w, op, target, places, nbytes, source, fetch)

    return each_lane(step)


def _paired(
    w: Warp, op: Op, places: list[tuple[Cta, Mbarrier]], barrier: Mbarrier
) -> list[tuple[Cta, Mbarrier]]:
    """In the pair of every destination, the barrier of the CTA that ``barrier`` has in its own
    (B26, B27)."""
    parity = barrier.cta.rank & 1
    if len(places) == 1 and barrier.cta.rank | 1 != places[0][0].rank | 1:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic}.cta_group::2 of {w} into CTA {places[0][0].number} completes on a "
            f"barrier of CTA {barrier.cta.number}, which is not of that pair (B26)",
            "name the barrier of the tile's CTA or of the one whose rank differs in bit 0",
        )
    ctas = w.cta.cluster.ctas
    signalled = [(cta, ctas[cta.rank & ~1 | parity]) for cta, _ in places]
    return [(cta, other.mbarriers[barrier.address]) for cta, other in signalled]


@RULES.rule(BulkLoad)
def _bulk_load(c: Compiler, op: BulkLoad) -> Step:
    target, view, mbar = c.view(op.dst), c.view(op.src), c.mbar(op.mbar)
    mask = None if op.multicast is None else c.expr(op.multicast)
    real, nbytes, shape = c.real(op.dst.tensor), op.dst.nbytes, op.dst.extents

    def step(w: Warp) -> None:
        memory, read = view.memory(w), view.footprint(w)
        require_contiguous(op, view, read)
        require_contiguous(op, target, target.footprint(w))
        chosen = None if mask is None else uniform(mask(w), w)
        places = destinations(w, op, target.cta(w), mbar(w), chosen)
        dtype = op.src.dtype
        fetch = (lambda: read_elements(memory, read, dtype).reshape(shape)) if real else None
        for _ in range(w.lanes):
            tracked_load(w, op, target, places, nbytes, (memory, read), fetch)

    return each_lane(step)


def _peer_copy(c: Compiler, op: BulkCopy | BulkReducePeer, combine: str | None) -> Step:
    target, source, mbar = c.view(op.dst), c.view(op.src), c.mbar(op.mbar)
    real, nbytes, shape = c.real(op.dst.tensor), op.dst.nbytes, op.dst.extents
    function = None if combine is None else COMBINE[combine]

    def step(w: Warp) -> None:
        memory, read = source.memory(w), source.footprint(w)
        cta, barrier = target.cta(w), mbar(w)
        if cta is w.cta or barrier.cta is not cta:
            raise BarrierError(
                "out-of-bounds",
                f"{op.mnemonic} of {w} with destination and mbarrier in CTA {cta.number} and "
                f"{barrier.cta.number}: both must be in one other CTA of the cluster (B.2)",
                "use .at(rank) of one peer on both; copy inside a CTA with ordinary stores",
            )
        require_contiguous(op, source, read)
        require_contiguous(op, target, target.footprint_in(w, cta.memory))
        dtype = op.src.dtype
        fetch = (lambda: read_elements(memory, read, dtype).reshape(shape)) if real else None
        for _ in range(w.lanes):
            places = [(cta, barrier)]
            tracked_load(w, op, target, places, nbytes, (memory, read), fetch, function)

    return each_lane(step)


@RULES.rule(BulkCopy)
def _bulk_copy(c: Compiler, op: BulkCopy) -> Step:
    return _peer_copy(c, op, None)


@RULES.rule(BulkReducePeer)
def _bulk_reduce_peer(c: Compiler, op: BulkReducePeer) -> Step:
    return _peer_copy(c, op, op.op)


def require_contiguous(op: Op, view: ViewAccess, footprint: Footprint) -> None:
    """A non-tensor bulk copy moves one contiguous, unswizzled, 16-byte aligned range (B6)."""
    size = footprint.addresses.size * footprint.itemsize
    straight = footprint.high - footprint.low == size
    swizzled = isinstance(view.tensor, SharedTensor) and view.tensor.swizzle
    if not straight or swizzled:
        raise BarrierError(
            "unsupported" if swizzled else "out-of-bounds",
            f"{op.mnemonic} of {footprint.name}, which is not one contiguous range (B.3)",
            "copy row by row, or through a tensor map",
        )
    if footprint.low % 16:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {footprint.name} at byte {footprint.low}, not 16-byte aligned (B6)",
            "align both ends to 16 bytes",
        )


def _store_group(
    w: Warp, op: Op, source: ViewAccess, target: tuple[Memory, Footprint] | None, *, reduces: bool
) -> None:
    """Issues a shared-to-global copy into the warp's open bulk group."""
    machine = w.machine
    reads, writes = w.lane_groups["bulk"], w.lane_groups["bulk.write"]
    w.last_issue["bulk"] = op
    memory, footprint = source.memory(w), source.footprint(w)
    check_alignment(op, source, footprint)
    read = Access(w, op, *reads.issue_by(w.mask), True, False, lanes=w.mask, among=EVERY)
    machine.races.read(memory, footprint, read, w.clock)
    place = writes.issue_by(w.mask)
    if target is not None:
        scope: FenceScope | None = "gpu" if reduces else None
        write = Access(w, op, *place, True, True, scope, lanes=w.mask, among=EVERY)
        machine.races.write(*target, write, w.clock)
    finish = machine.env.now + copy_cycles(source.view.nbytes)
    reads.finish = writes.finish = max(reads.finish, finish)
    w.effects += 1


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda a, b: np.where(a >= b, 0, a + 1),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _tensor_store(c: Compiler, op: TmaStore | TmaReduce, combine: str | None) -> Step:
    source, box = c.view(op.src), MapBox(c, op.map, op.coords)
    real = c.real(op.map.tensor)
    function = None if combine is None else COMBINE[combine]

    def step(w: Warp) -> None:
        coords = box.at(w)
        if any(x < 0 for x in coords):
            raise BarrierError(
                "out-of-bounds", f"{op.mnemonic} at negative coordinates {coords} (B19)",
                "stores may stick out past the end of the tensor, not before its start",
            )  # fmt: skip
        footprint = box.footprint(w, coords)
        target = None if footprint is None else (box.memory(w), footprint)
        for _ in range(w.lanes):
            _store_group(w, op, source, target, reduces=combine is not None)
        if real:
            values = read_elements(source.memory(w), source.footprint(w), op.src.dtype)
            box.store(w, coords, values, function)

    return each_lane(step)


@RULES.rule(TmaStore)
def _store(c: Compiler, op: TmaStore) -> Step:
    return _tensor_store(c, op, None)


@RULES.rule(TmaReduce)
def _reduce(c: Compiler, op: TmaReduce) -> Step:
    return _tensor_store(c, op, op.op)


def _bulk_store(c: Compiler, op: BulkStore | BulkReduce, combine: str | None) -> Step:
    source, target = c.view(op.src), c.view(op.dst)
    real = c.real(op.dst.tensor)
    dtype: DType = op.dst.dtype

    def step(w: Warp) -> None:
        memory, footprint = target.memory(w), target.footprint(w)
        require_contiguous(op, target, footprint)
        require_contiguous(op, source, source.footprint(w))
        for _ in range(w.lanes):
            _store_group(w, op, source, (memory, footprint), reduces=combine is not None)
        if real:
            values = read_elements(source.memory(w), source.footprint(w), op.src.dtype)
            values = values.reshape(footprint.addresses.shape)
            if combine is not None:
                values = COMBINE[combine](read_elements(memory, footprint, dtype), values)
            write_elements(memory, footprint, dtype, values)

    return each_lane(step)


@RULES.rule(BulkStore)
def _store_bulk(c: Compiler, op: BulkStore) -> Step:
    return _bulk_store(c, op, None)


@RULES.rule(BulkReduce)
def _reduce_bulk(c: Compiler, op: BulkReduce) -> Step:
    return _bulk_store(c, op, op.op)


@RULES.rule(TmaPrefetch)
def _prefetch(c: Compiler, op: TmaPrefetch) -> Step:
    box = MapBox(c, op.map, op.coords)

    def step(w: Warp) -> None:
        box.at(w)

    return each_lane(step)


@RULES.rule(BulkPrefetch)
def _bulk_prefetch(c: Compiler, op: BulkPrefetch) -> Step:
    view = c.view(op.src)

    def step(w: Warp) -> None:
        view.footprint(w)

    return each_lane(step)


@RULES.rule(BulkCommitGroup)
def _commit(c: Compiler, op: BulkCommitGroup) -> Step:
    def step(w: Warp) -> None:
        w.lane_groups["bulk"].commit_by(w.mask)
        w.lane_groups["bulk.write"].commit_by(w.mask)

    return step


@RULES.rule(BulkWaitGroup)
def _wait_group(c: Compiler, op: BulkWaitGroup) -> Step:
    kinds = ("bulk",) if op.read else ("bulk", "bulk.write")

    def step(w: Warp) -> bool | None:
        machine = w.machine
        reads = w.lane_groups["bulk"]
        if reads.must_wait(w.mask, op.pending) and machine.sleep_until(w, reads.finish):
            return True
        size = machine.components.size
        for kind in kinds:
            for component, done in w.lane_groups[kind].wait_by(w.mask, op.pending):
                w.clock[size + component] = w.clock[2 * size + component] = done
        return None

    return step
