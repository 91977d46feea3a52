"""Asynchronous copies, from their effects (SEMANTICS section B).

A copy is one operation of several effects: it reads its source, writes its destination, and then
completes bytes on an mbarrier or is done as a member of a group. Both ends are checked when it is
issued, with the issuer's clock (B1); its completion is published by the phase or group that tracks
it (B2, A28).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.combine import COMBINE
from tilesim.sim.execute.compose import OPERATIONS, Act, Effects, Operands, executor
from tilesim.sim.execute.credits import require_initialised, require_live
from tilesim.sim.execute.ends import (
    End,
    Piece,
    as_elements,
    byte_mask,
    map_end,
    masked,
    numbers,
    range_end,
    require_contiguous,
)
from tilesim.sim.execute.inner import Inner, inner_end
from tilesim.sim.machine.access import EVERY, Access
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import (
    ViewAccess,
    read_elements,
    uniform,
    unknown_in,
    write_elements,
)
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.storage import Memory

E = TypeVar("E")


def transfers(effects: Effects) -> bool:
    """Whether these are the effects of one asynchronous copy of the async proxy."""
    if any(isinstance(e, fx.RemoteStore | fx.Cancels) for e in effects):
        return False
    return any(
        (isinstance(e, fx.Issues) and e.group == "bulk")
        or (isinstance(e, fx.Completes) and e.asynchronous)
        for e in effects
    )


def transfer(c: Operands, op: Op, effects: Effects) -> Step:
    """The step of an asynchronous copy."""
    completes = _only(effects, fx.Completes)
    step = _grouped(c, op, effects) if completes is None else _tracked(c, op, effects, completes)
    return each_lane(step)


OPERATIONS.append((transfers, transfer))


def _only(effects: Effects, kind: type[E]) -> E | None:
    return next((e for e in effects if isinstance(e, kind)), None)


def _end(c: Operands, op: Op, effects: Effects, effect: fx.Effect | None) -> End:
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
    source = _end(c, op, effects, read_map or read)
    target, mbar = c.view(writes.view), c.mbar(completes.mbar)
    mask = None if completes.multicast is None else c.expr(completes.multicast)
    real, pair = c.real(writes.view.tensor), completes.pair
    combine = None if writes.combine is None else COMBINE[writes.combine]
    boxed = read_map is not None
    to_peer = read is not None and read.view.space == "shared"

    def step(w: Warp) -> None:
        piece, cta, barrier = source(w), target.cta(w), mbar(w)
        if to_peer:
            _require_peer(w, op, cta, barrier)
        if not boxed:
            require_contiguous(op, target, target.footprint_in(w, cta.memory))
        places = destinations(w, op, cta, barrier, None if mask is None else uniform(mask(w), w))
        if pair:
            places = _paired(w, op, places, barrier)
        origin = None if piece.footprint is None else (piece.memory, piece.footprint)
        fetch = piece.load if real else None
        for _ in range(w.lanes):
            tracked_load(w, op, target, places, piece.nbytes, origin, fetch, combine, piece)

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
    combine: Callable[[Any, Any], Any] | None = None, piece: Piece | None = None,
) -> None:  # fmt: skip
    """Issues a copy into shared memory that completes ``nbytes`` on a barrier per destination.

    ``combine`` makes it a reduction. ``piece`` is the other end, if it is one of several kinds.
    """
    machine = w.machine
    issued = w.clock.copy()
    through = None if piece is None else piece.through
    also = None if through is None else w.lane_groups["bulk.map"].issue_by(w.mask)
    dtype = target.view.dtype if piece is None or through is None else piece.dtype
    records: list[tuple[Cta, Mbarrier, Footprint, list[Access]]] = []
    for cta, tracked in places:
        require_live(tracked, w, op)
        memory, component = cta.memory, tracked.tracks(w.cta)
        footprint = (
            target.footprint_in(w, memory) if piece is None else piece.other(w, target, memory)
        )
        check_alignment(op, target, footprint)
        scope: fx.Scope | None = None if combine is None else "gpu"
        write = Access(w, op, component, NEVER, True, True, scope, lanes=w.mask, among=EVERY)
        if combine is not None:
            machine.races.unwritten.note(memory, footprint, write)
        machine.races.write(memory, footprint, write, w.clock)
        accesses = [write]
        if through is not None:
            accesses.append(through.read(w, op, (component, NEVER), also))
        if source is not None:
            read = Access(w, op, component, NEVER, True, False, lanes=w.mask, among=EVERY)
            machine.races.read(*source, read, w.clock)
            accesses.append(read)
            if source[0] is w.cta.memory:
                machine.peers.note(w.cta, read)
        tracked.last_load = (op, w, write)
        for place in {cta, tracked.cta} - {w.cta}:
            machine.peers.note(place, write)
        records.append((cta, tracked, footprint, accesses))
    for cta, tracked, footprint, accesses in records:
        credit = Credit(w, op, 0, -nbytes, 0, asynchronous=True)

        def land(
            cta: Cta = cta, tracked: Mbarrier = tracked, footprint: Footprint = footprint,
            accesses: list[Access] = accesses, credit: Credit = credit,
        ) -> None:  # fmt: skip
            require_initialised(tracked, op)
            lost = None if source is None or fetch is None else unknown_in(*source, op)
            if combine is not None and fetch is not None:
                lost = lost or unknown_in(cta.memory, footprint, op)
            if lost is not None:
                cta.memory.forget(footprint, lost)
            elif fetch is not None:
                new = fetch()
                if piece is not None:
                    new = as_elements(new, dtype, footprint.addresses.shape)
                if combine is not None:
                    new = combine(read_elements(cta.memory, footprint, dtype), new)
                write_elements(cta.memory, footprint, dtype, new)
            if isinstance(piece, Inner) and fetch is not None:
                piece.spoil(op, cta.memory, footprint)
            tracked.landed.extend(accesses)
            tracked.credit(credit, issued, visible=False)
            machine.changed()

        machine.launch_async(op, w, machine.copy_cycles(nbytes), land)
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


# ---------------------------------------------------------------------- in a bulk group


def _grouped(c: Operands, op: Op, effects: Effects) -> Step:
    """A copy from shared to global memory, in the bulk group of its thread."""
    reads = _only(effects, fx.Reads)
    effect = _only(effects, fx.WritesMap) or _only(effects, fx.Writes)
    assert reads is not None
    assert effect is not None
    boxed = isinstance(effect, fx.WritesMap)
    source, target = c.view(reads.view), _end(c, op, effects, effect)
    written = effect.map.tensors if isinstance(effect, fx.WritesMap) else (effect.view.tensor,)
    observed = any(map(c.real, written))
    combine = None if effect.combine is None else COMBINE[effect.combine]
    mask = None if isinstance(effect, fx.WritesMap) else byte_mask(c, effect)
    times = 1 if isinstance(effect, fx.WritesMap) else effect.times

    def step(w: Warp) -> None:
        piece = target(w)
        memory = source.memory(w)
        footprint = piece.other(w, source, memory)
        if not boxed:
            require_contiguous(op, source, footprint)
        check_alignment(op, source, footprint)
        moved = footprint if mask is None else masked(memory, footprint, mask(w))
        copies = w.lanes
        if combine is None and copies > 1 and not w.machine.options.ptx:
            # they write the same bytes from one place: one copy, over once each lane has waited
            w.machine.lean("H23", op)
            copies = 1
        for _ in range(copies):
            _issue(w, op, memory, moved, piece, reduces=combine is not None)
        real = observed and bool(piece.memory.data.size)
        lost = unknown_in(memory, footprint, op) if real else None
        if combine is not None and real and piece.footprint is not None:
            lost = lost or unknown_in(piece.memory, piece.footprint, op)
        if lost is not None and piece.footprint is not None:
            piece.memory.forget(piece.footprint, lost)
        elif real and lost is None:
            kind = source.view.dtype if piece.through is None else piece.dtype
            values = read_elements(memory, footprint, kind)
            for _ in range(times if combine is None else times * w.lanes):
                piece.store(values, combine)

    return step


def _issue(
    w: Warp, op: Op, memory: Memory, footprint: Footprint | None, piece: Piece, *, reduces: bool
) -> None:
    """Issues a copy of shared memory to global memory into the warp's open bulk group."""
    machine = w.machine
    reads, writes = w.lane_groups["bulk"], w.lane_groups["bulk.write"]
    w.last_issue["bulk"] = op
    number = reads.issue_by(w.mask)
    if piece.through is not None:
        piece.through.read(w, op, number)
    read = Access(w, op, *number, True, False, lanes=w.mask, among=EVERY)
    if footprint is not None:
        machine.races.read(memory, footprint, read, w.clock)
    place = writes.issue_by(w.mask)
    if piece.footprint is not None:
        scope: fx.Scope | None = "gpu" if reduces else None
        write = Access(w, op, *place, True, True, scope, lanes=w.mask, among=EVERY)
        machine.races.write(piece.memory, piece.footprint, write, w.clock)
    finish = machine.env.now + machine.copy_cycles(piece.nbytes)
    reads.finish = writes.finish = max(reads.finish, finish)
    w.effects += 1


# ---------------------------------------------------------------------- prefetches


@executor(fx.Prefetches)
def _prefetches(c: Operands, op: Op, effect: fx.Prefetches) -> Act:
    """Nothing happens, but the operands have to be what a copy would ask for (B13)."""
    coords = numbers(c, effect.coords)
    view = None if effect.view is None else c.view(effect.view)

    def step(w: Warp) -> None:
        coords(w)
        if view is not None:
            require_contiguous(op, view, view.footprint(w))

    return Act(each_lane(step))
