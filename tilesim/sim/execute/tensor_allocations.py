"""Allocations of tensor memory (SEMANTICS G4-G9)."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.tmem import COLUMNS
from tilesim.sim.execute.compose import Act, Give, Operands, executor
from tilesim.sim.execute.tensor_memory import issuer_of, tmem_of
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.cta import Cta, ctas_of_sm
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.misuse import BarrierError, Side
from tilesim.sim.machine.tmem import Allocation, Request, Tmem, TmemAccess, fitting, free_tag


@executor(fx.AllocatesTmem)
def _allocates(c: Operands, op: Op, effect: fx.AllocatesTmem) -> Give:
    """Blocks until the columns are free; answers their address, which may be any that fits."""
    decides = effect.columns < COLUMNS and any(
        isinstance(e, fx.Writes) and e.value == effect and e.view.tensor.name in c.flow.branching
        for e in op.effects()
    )

    def read(w: Warp) -> int | None:
        issuer, _ = issuer_of(w)
        if decides:
            w.machine.outcome.allocated[op.number] = op
        if issuer.granted is None:
            if tmem_of(w.cta).request is None:
                _check_alloc(w, effect)
            if not _grant(w, op, effect):
                _wait(w, op, effect)
                return None
        address, issuer.granted = issuer.granted, None
        return address

    return Give(effect, read, blocks=True)


def _check_alloc(w: Warp, effect: fx.AllocatesTmem) -> None:
    tmem = tmem_of(w.cta)
    gone = tmem.relinquished
    if gone is not None:
        raise BarrierError(
            "tmem-lifetime",
            f"tcgen05.alloc of {w} after tcgen05.relinquish_alloc_permit in its CTA (G7)",
            "relinquish after the last allocation",
            gone,
        )
    before = tmem.latest
    if before is not None and effect.columns > before.columns:
        raise BarrierError(
            "tmem-lifetime",
            f"tcgen05.alloc of {effect.columns} columns after one of {before.columns}: allocations "
            "of a CTA must not grow (G5)",
            "allocate the largest number of columns first, or everything at once",
            Side(before.warp, before.op),
        )


def _grant(w: Warp, op: Op, effect: fx.AllocatesTmem) -> bool:
    """Takes the columns if they are free (in both CTAs of a pair, once both ask)."""
    tmem, columns = tmem_of(w.cta), effect.columns
    partner = None
    if effect.pair:
        partner = _meet(w, Request(w, op, 0, columns))
        if partner is None:
            return False
    places = [tmem] if partner is None else [tmem, tmem_of(_peer_cta(w))]
    first = fitting([t.pool for t in places], columns)
    if first is None:
        return False
    _note_order(w, tmem, op)
    if any(_may_wait_for_others(w.machine, t) for t in places):
        what = "whether CTAs of other clusters on its SM leave columns for a tcgen05.alloc (G6)"
        w.machine.nondeterministic(what, op, explorable=False)
    if any(_may_share(w.machine, t, pair=effect.pair) for t in places):
        w.machine.outcome.spread[op.loc] = None
    if not all(t.pool.always_fits(columns) for t in places):
        what = "whether the columns that are free hold those of a tcgen05.alloc in a row"
        w.machine.nondeterministic(what, op, explorable=False)
    tag = free_tag(places, columns)
    new = tmem.take(first, columns, tag, w, op, None if partner is None else partner.warp)
    issuer_of(w)[0].granted = new.address
    if partner is not None:
        other = tmem_of(_peer_cta(w))
        other.take(first, columns, tag, partner.warp, partner.op, w)
        assert partner.warp.tcgen05 is not None
        partner.warp.tcgen05.granted = new.address
        tmem.request = other.request = None
        partner.warp.gather()
        w.machine.wake(partner.warp)
    # whoever follows one of its lanes from here on follows it
    w.gather()
    return True


def _may_wait_for_others(machine: Machine, tmem: Tmem) -> bool:
    """Whether an alloc that now gets its columns may wait in another schedule for a cluster on the
    same SM that waits for this one: clusters there can fill the columns, and this one holds some
    while it asks again, or while another of its CTAs does. Where all clusters are run together,
    the pool that they share shows it."""
    program = machine.program
    clusters = min(program.ctas // program.cluster_size, ctas_of_sm(program))
    if clusters == 1 or len(machine.clusters) == program.ctas // program.cluster_size:
        return False
    times = len(tmem.live) + 1
    return program.cluster_size * times > 1 and clusters * times * _most_columns(machine) > COLUMNS


def _may_share(machine: Machine, tmem: Tmem, *, pair: bool) -> bool:
    """Whether CTAs of one cluster, of which the CTAs of a pair are on two SMs, fill the columns of
    an SM if it has as many of them as fit: then one may wait for what another holds."""
    program = machine.program
    ctas = min(program.cluster_size // (1 + pair), ctas_of_sm(program))
    times = len(tmem.live) + len(tmem.dead) + 1
    return ctas > 1 and ctas * times * _most_columns(machine) > COLUMNS


def _most_columns(machine: Machine) -> int:
    return max(e.columns for _, e in machine.loaded.mir.all_of(fx.AllocatesTmem))


def _note_order(w: Agent, tmem: Tmem, op: Op) -> None:
    """Which columns an alloc gets depends on the allocs and deallocs before it."""
    machine, pool = w.machine, tmem.pool
    if pool.last is not None and all(w.clock[c] < tick for c, tick in pool.last):
        machine.nondeterministic("which columns tcgen05.alloc returns", op)
    pool.last = w.positions
    if machine.trace is not None:
        machine.trace.note("write", ("tmem", pool.number), 0, w, op, f"executes {op.mnemonic}")


def _wait(w: Warp, op: Op, effect: fx.AllocatesTmem) -> bool:
    tmem = tmem_of(w.cta)
    if effect.pair and tmem_of(_peer_cta(w)).request is None:
        return _wait_for_pair(w, op)
    tmem.pool.waiters.append(w)
    return w.machine.block(
        w, tmem.pool, f"waits for {effect.columns} columns of tensor memory ({op.mnemonic})", op
    )


def _wait_for_pair(w: Warp, op: Op) -> bool:
    text = f"waits for the other CTA of the pair in {op.mnemonic}"
    return w.machine.block(w, tmem_of(w.cta), text, op)


def _peer_cta(w: Warp) -> Cta:
    return w.cta.cluster.ctas[w.cta.rank ^ 1]


def _met(w: Warp, partner: Request) -> None:
    """Both warps of a pair have executed it: the one that waited goes on."""
    for tmem in (tmem_of(w.cta), tmem_of(_peer_cta(w))):
        tmem.request = None
    assert partner.warp.tcgen05 is not None
    partner.warp.tcgen05.met = True
    w.machine.wake(partner.warp)


def _meet(w: Warp, request: Request) -> Request | None:
    """The partner's request in a pair's collective, once there is one; registers this one (G9)."""
    w.machine.peers.meet(w, _peer_cta(w), request.op)
    own, other = tmem_of(w.cta), tmem_of(_peer_cta(w))
    if own.request is not None and own.request.warp is not w:
        raise _mismatch(w, request, own.request, "another warp of the CTA executes")
    own.request = request
    partner = other.request
    if partner is None:
        return None
    same = (partner.op.mnemonic, partner.first, partner.columns)
    if same != (request.op.mnemonic, request.first, request.columns):
        raise _mismatch(w, request, partner, "the other CTA of the pair executes")
    return partner


def _mismatch(w: Warp, request: Request, other: Request, who: str) -> BarrierError:
    return BarrierError(
        "tmem-lifetime",
        f"{_called(request)} by {w}, while {who} {_called(other)} (G9)",
        "execute the same allocs and deallocs in the same order in one warp of each CTA",
        Side(other.warp, other.op),
    )


def _called(request: Request) -> str:
    columns = f" of {request.columns} columns" if request.columns else ""
    return f"{request.op.mnemonic}.cta_group::2{columns}"


@executor(fx.FreesTmem)
def _frees(c: Operands, op: Op, effect: fx.FreesTmem) -> Act:
    address, columns = c.expr(effect.address), effect.columns

    def step(w: Warp) -> bool | None:
        issuer, _ = issuer_of(w)
        if issuer.met:
            issuer.met = False
            return None
        request = Request(w, op, uniform(address(w), w), columns)
        if not effect.pair:
            _give_back(w.machine, request, _freed(w.machine, request, pair=False)[0])
            return None
        partner = _meet(w, request)
        if partner is None:
            return _wait_for_pair(w, op)
        _free_pair(w.machine, request, partner)
        _met(w, partner)
        return None

    return Act(step, blocks=True)


def _free_pair(machine: Machine, request: Request, partner: Request) -> None:
    """Frees both halves of a pair's allocation, which both CTAs have made by then (G9)."""
    sides = request, partner
    halves = [_freed(machine, side, pair=True) for side in sides]
    for side, (allocation, _) in zip(sides, halves, strict=True):
        _give_back(machine, side, allocation)
    if all(complete for _, complete in halves):
        for side, (allocation, _) in zip(sides, halves, strict=True):
            _check_peer_has_allocated(side.warp, side.op, allocation)


def _freed(machine: Machine, request: Request, *, pair: bool) -> tuple[Allocation, bool]:
    """The allocation that is freed, and whether every use of it, in a pair also the peer's, is over
    (G8, G9); that it is not is reported."""
    warp, op, first, columns = request.warp, request.op, request.first, request.columns
    cta, order = machine.ctas[warp.cta.index], machine.tmem
    assert order is not None
    tmem = tmem_of(cta)
    allocation = tmem.named(first, columns, warp, op)
    _check_same_warp(warp, op, allocation.warp, allocation.op)
    access = TmemAccess(warp, op, "dealloc", True, warp.tick, 0, warp.component, 0)
    complete = order.free(tmem, allocation, access)
    if pair:
        peer = tmem_of(cta.cluster.ctas[cta.rank ^ 1])
        for other in peer.live:
            if (other.address, other.columns) == (first, columns):
                complete &= order.free(peer, other, access)
    return allocation, complete


def _give_back(machine: Machine, request: Request, allocation: Allocation) -> None:
    """Ends an allocation, for which others may wait."""
    warp, op = request.warp, request.op
    tmem = tmem_of(machine.ctas[warp.cta.index])
    _note_order(warp, tmem, op)
    tmem.give_back(allocation, Side(warp, op))
    warp.gather()
    warp.effects += 1
    waiters, tmem.pool.waiters = tmem.pool.waiters, []
    for waiter in waiters:
        machine.wake(waiter)


def _check_peer_has_allocated(warp: Agent, op: Op, allocation: Allocation) -> None:
    """The two allocs of a pair are not known to end together: who frees must know that the other
    CTA's is done (G9; a B300 fails otherwise)."""
    assert allocation.partner is not None
    partner, at = allocation.partner
    size = warp.machine.components.size
    if any(warp.clock[size + component] >= tick for component, tick in at):
        return
    warp.machine.report(
        "tmem-lifetime",
        f"tcgen05.dealloc.cta_group::2 of {warp} is not ordered after the alloc of {partner}, "
        "the other half of the pair's (G9)",
        (
            warp.machine.participant(warp, "frees the columns", op),
            warp.machine.participant(partner, "allocates them", allocation.op),
        ),
        fix="put a cluster barrier between the allocs and the deallocs of a pair",
    )


def _check_same_warp(w: Agent, op: Op, owner: Agent, alloc: Op) -> None:
    """Strict reading: the warp that allocated frees; practice hands the address to another."""
    if owner is w:
        return
    if not w.machine.options.ptx:
        w.machine.lean("G8", op, alloc)
        return
    w.machine.report(
        "tmem-lifetime",
        f"{w} frees columns that {owner} allocated (G8, G9)",
        (
            w.machine.participant(w, "frees the columns", op),
            w.machine.participant(owner, "allocated them", alloc),
        ),
        fix="let the warp that allocated free, after it has synchronised with all users",
    )


@executor(fx.RelinquishesTmem)
def _relinquishes(c: Operands, op: Op, effect: fx.RelinquishesTmem) -> Act:
    def step(w: Warp) -> bool | None:
        issuer, _ = issuer_of(w)
        if issuer.met:
            issuer.met = False
            return None
        tmem = tmem_of(w.cta)
        last = tmem.pool.last
        if last is not None and all(w.clock[c] < tick for c, tick in last):
            w.machine.nondeterministic("whether an alloc comes before relinquish_alloc_permit", op)
        if w.machine.trace is not None:
            text = f"executes {op.mnemonic}"
            w.machine.trace.note("write", ("tmem", tmem.pool.number), 0, w, op, text)
        if tmem.relinquished is None:
            tmem.relinquished = Side(w, op)
        w.effects += 1
        return _relinquish_pair(w, op) if effect.pair else None

    return Act(step, blocks=True)


def _relinquish_pair(w: Warp, op: Op) -> bool | None:
    """By the text one warp of each CTA does it, and the first may wait for the second (G9); in
    practice it does not."""
    if not w.machine.options.ptx:
        w.machine.peers.meet(w, _peer_cta(w), op)
        w.machine.lean("G9", op)
        return None
    partner = _meet(w, Request(w, op))
    if partner is None:
        return _wait_for_pair(w, op)
    _met(w, partner)
    return None
