"""Memory and proxy fences (SEMANTICS H.3, H.5)."""

from __future__ import annotations

from tilesim.ir.ops.fence import Fence, FenceProxyAsync, FenceProxyAsyncGeneric
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.machine.clock import GENERIC, GLOBAL, HALF, SHARED, join
from tilesim.sim.machine.warp import Step, Warp


def _learn(w: Warp, source: int, row: int) -> None:
    size = w.machine.components.size
    join(w.clock[row * size : (row + 1) * size], w.clock[source * size : (source + 1) * size])


def _move(w: Warp, source: int, *targets: int) -> None:
    """Rows ``targets`` of the warp's clock learn row ``source``."""
    for row in targets:
        _learn(w, source, row)
    # what the warp does after the fence is not covered by it
    w.advance()


def cross_proxies(w: Warp) -> None:
    """What the generic proxy sees becomes visible to the async proxy, in all memory (H9)."""
    _move(w, GENERIC, SHARED, GLOBAL)


def _here(w: Warp) -> None:
    """What the generic proxy sees in the executing CTA's shared memory (H9)."""
    rows = w.machine.components
    _move(w, GENERIC, rows.own_row(w.cta.rank) if rows.own else SHARED)


@RULES.rule(FenceProxyAsync)
def _proxy_async(c: Compiler, op: FenceProxyAsync) -> Step:
    match op.space:
        case None:
            return cross_proxies
        case "global":
            return lambda w: _move(w, GENERIC, GLOBAL)
        case "shared::cta":
            return _here
        case _:
            return lambda w: _move(w, GENERIC, SHARED)


@RULES.rule(FenceProxyAsyncGeneric)
def _proxy_async_generic(c: Compiler, op: FenceProxyAsyncGeneric) -> Step:
    """Half a fence for shared memory: the release, of the executing CTA's, begins what the acquire
    of the cluster's ends (H10)."""

    def release(w: Warp) -> None:
        rows = w.machine.components
        _move(w, GENERIC, rows.own_half(w.cta.rank) if rows.own else HALF)

    def acquire(w: Warp) -> None:
        rows = w.machine.components
        for rank in range(rows.own):
            _learn(w, rows.own_half(rank), rows.own_row(rank))
        _move(w, HALF, SHARED)

    return release if op.sem == "release" else acquire


@RULES.rule(Fence)
def _fence(c: Compiler, op: Fence) -> Step:
    acquires = op.sem in ("acquire", "acq_rel", "sc")
    releases = op.sem in ("release", "acq_rel", "sc")

    def step(w: Warp) -> None:
        if acquires:
            w.fences.acquire(op.scope, w)
        if releases:
            w.fences.release(op.scope, w.clock)
            w.advance()

    return step
