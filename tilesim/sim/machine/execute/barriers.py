"""Named barriers, the cluster barrier, and the end of earlier grids (SEMANTICS D.1, D17, E.1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesim.findings.finding import Deed, Stated
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import counts_threads
from tilesim.sim.machine.clock import join
from tilesim.sim.machine.compose import Act, Give, executor
from tilesim.sim.machine.errors import BarrierError, Side
from tilesim.sim.machine.execute.fences import lean_on_fences
from tilesim.sim.machine.execute.lanes import per_lane, require_converged
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.named_barrier import (
    Gathering,
    Generation,
    Join,
    NamedBarrier,
    round_of,
    votes,
)
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import Unknown
from tilesim.sim.machine.view_access import uniform


def _named(w: Warp, number: int) -> NamedBarrier:
    if not 0 <= number <= 15:
        raise BarrierError(
            "named-barrier", f"named barrier id {number} is outside 0..15 (E1)",
            "use ids 0 to 15; allocate them from one counter",
        )  # fmt: skip
    return w.cta.named[number]


def _require_one_site(barrier: NamedBarrier, w: Warp, op: Op, *, waits: bool) -> None:
    """Strict reading of .aligned (U16): those that wait for one round execute one static
    instruction, and so do those that only arrive. That some of each are in a round is what
    bar.arrive is for: PTX's own example has them in two branches."""
    other = next((j for j in barrier.current.joins if j.waits is waits and j.aligned), None)
    if other is None or other.op is op:
        return
    twin = w.machine.plan.twin
    if twin(other.op.number) != twin(op.number):
        if w.machine.accepts("U16", op, other.op):
            return
        action, deed = f"joins {barrier.label}", Deed("touches", barrier.named)
        w.machine.report(
            "participation",
            f"one round of {barrier.label} is joined by aligned barriers at two places in the "
            "code (E8)",
            ((w, action, op, deed), (other.warp, action, other.op, deed)),
            fix="use the non-aligned form (aligned=False) when roles share a barrier",
            facts=Stated((barrier.named,)),
        )


def _wait_for(
    w: Warp, barrier: NamedBarrier, generation: Generation | Gathering, op: Op
) -> bool | None:
    """Parks until ``generation`` completes, then joins what it published."""
    found = round_of(generation)
    if found is not None and found.complete:
        w.generation = None
        w.learns(found.joined)
        if found.fences is not None:
            w.fences.learn(found.fences)
            if w.machine.plan.fencing:
                lean_on_fences(w, op)
        barrier.note("leave", w, op, "leaves", found.number)
        return None
    w.generation = generation
    return w.block(barrier, "waits at", op, named=barrier.named)


def _wait_for_lanes(
    w: Warp, barrier: NamedBarrier, joined: Generation | Gathering, op: Op
) -> bool | None:
    """Parks until all lanes of the warp that have not exited have come to the barrier: an arrival
    waits for no other warp, but for these (E2, D3)."""
    if round_of(joined) is None:
        w.generation = joined
        return w.block(barrier, f"waits for lanes of its warp at {barrier.label}", op)
    w.generation = None
    return None


def _join(
    w: Warp, barrier: NamedBarrier, op: Op, effect: fx.JoinsBarrier, threads: int | None,
    own: int | Unknown = 0,
) -> Generation | Gathering:  # fmt: skip
    if effect.aligned:
        require_converged(w, op)
    total = 32 * w.machine.program.warps
    if threads is not None and not counts_threads(threads):
        raise barrier.misuse(
            "named-barrier",
            f"{barrier.label} is joined with {threads} threads, which is not a multiple of 32 in "
            "32..1024 (E1)",
            "count whole warps",
        )
    if threads is not None and threads > total:
        raise barrier.misuse(
            "named-barrier",
            f"{barrier.label} is joined with {threads} threads, the CTA has {total} (E1)",
            "the count cannot exceed the threads of the CTA",
        )
    if effect.aligned:
        _require_one_site(barrier, w, op, waits=effect.waits)
    if effect.waits:
        w.meet()
    entry = Join(
        w.origin, op, w.component, w.moment, effect.waits, effect.vote is not None, w.lanes, own,
        effect.aligned,
    )  # fmt: skip
    generation = barrier.gather(entry, threads, w.published, w.mask, visible=True)
    w.advance()
    w.effects += 1
    w.machine.changed()
    return generation


def _threads(c: Operands, effect: fx.JoinsBarrier) -> Callable[[Warp], int | None]:
    """How many threads a round waits for; None: all of the CTA."""
    if effect.threads is None:
        return lambda w: None
    count = c.expr(effect.threads)
    return lambda w: uniform(count(w), w)


@executor(fx.JoinsBarrier)
def _joins(c: Operands, op: Op, effect: fx.JoinsBarrier) -> Act | Give:
    """An arrival, a barrier that waits, or one that also answers what all threads have voted
    (E5)."""
    number, threads, reduction = c.expr(effect.id), _threads(c, effect), effect.reduction
    vote = None if effect.vote is None else c.expr(effect.vote)
    wait = _wait_for if effect.waits else _wait_for_lanes

    def come(w: Warp) -> tuple[NamedBarrier, Generation | Gathering]:
        barrier = _named(w, uniform(number(w), w))
        if w.generation is not None:
            return barrier, w.generation
        own = 0 if vote is None else vote(w)
        if vote is not None and type(own) is not Unknown:
            own = int(np.count_nonzero(per_lane(w, own)))
        return barrier, _join(w, barrier, op, effect, threads(w), own)

    def step(w: Warp) -> bool | None:
        return wait(w, *come(w), op)

    def answer(w: Warp) -> int | Unknown | None:
        barrier, joined = come(w)
        generation = round_of(joined)
        if wait(w, barrier, joined, op) or generation is None:
            return None
        found = votes(generation.joins)
        if isinstance(found, Unknown):
            return found
        total = sum(j.lanes for j in generation.joins)
        return {"popc": found, "or": int(found > 0), "and": int(found == total)}[reduction]

    return Act(step, blocks=True) if vote is None else Give(effect, answer, blocks=True)


# ------------------------------------------------------------------ the cluster


def _require_waited(w: Warp, barrier: NamedBarrier) -> None:
    """A thread arrives again only after it has waited for the round it is in (D2)."""
    pending = round_of(w.cluster_round)
    if pending is None:
        return  # of lanes of the warp that have not come yet, the barrier says whether they have
    before = next(j for j in pending.joins if j.warp is w.origin)
    raise barrier.misuse(
        "named-barrier",
        f"{w} arrives at the {barrier.label} again without having waited for the round it is in "
        "(D2)",
        "execute barrier.cluster.wait between two barrier.cluster.arrive",
        Side(w, before.op),
    )


def _hand_over_fenced(w: Warp, generation: Generation | Gathering) -> None:
    """A relaxed arrival hands over what its threads have fenced before (D4)."""
    size = w.machine.components.size
    for part in w.acting:
        fenced = part.fences.released("cluster")
        if fenced is not None:
            join(generation.joined[size:], fenced[size:])


def _came_together(w: Warp, generation: Generation | Gathering, op: Op) -> bool:
    """Whether all lanes have released what they did, and nothing since: then they have met."""
    if isinstance(generation, Gathering):
        return False
    arrival = next(j.op for j in generation.joins if j.warp is w.origin)
    released = any(isinstance(e, fx.JoinsCluster) and e.sem == "release" for e in arrival.effects())
    return released and arrival.number + 1 == op.number


@executor(fx.JoinsCluster)
def _joins_cluster(c: Operands, op: Op, effect: fx.JoinsCluster) -> Act:
    aligned, visible = effect.aligned, effect.sem == "release"

    def arrive(w: Warp) -> bool | None:
        barrier = w.cta.cluster.barrier
        assert barrier is not None
        if w.generation is not None:
            return _wait_for_lanes(w, barrier, w.generation, op)
        if aligned:
            require_converged(w, op)
        _require_waited(w, barrier)
        entry = Join(w.origin, op, w.component, w.moment, True, lanes=w.lanes)
        generation = barrier.gather(entry, None, w.published, w.mask, visible=visible)
        if not visible:
            _hand_over_fenced(w, generation)
        w.cluster_round = generation
        w.advance()
        w.effects += 1
        w.machine.changed()
        return _wait_for_lanes(w, barrier, generation, op)

    def wait(w: Warp) -> bool | None:
        if aligned:
            require_converged(w, op)
        generation = w.cluster_round
        if generation is None:
            raise BarrierError(
                "participation",
                "barrier.cluster.wait without an arrive of this warp in the round (U30)",
                "execute barrier.cluster.arrive before every barrier.cluster.wait",
            )
        barrier, found = w.cta.cluster.barrier, round_of(generation)
        assert barrier is not None
        if found is not None and not barrier.all_wait(w.origin, w.mask, found):
            return w.block(barrier, f"waits for lanes of its warp at {barrier.label}", op)
        blocked = _wait_for(w, barrier, generation, op)
        if not blocked:
            w.cluster_round = None
            if _came_together(w, generation, op):
                w.meet()
        return blocked

    return Act(arrive if effect.arrives else wait, blocks=True)


@executor(fx.WaitsGrids)
def _waits_grids(c: Operands, op: Op, effect: fx.WaitsGrids) -> Act:
    def step(w: Warp) -> None:
        component = w.machine.dependency
        if component is not None:
            w.rows(component)[:] = 1

    return Act(step)
