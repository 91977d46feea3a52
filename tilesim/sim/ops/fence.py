"""Memory and proxy fences (SEMANTICS H.3, H.5)."""

from __future__ import annotations

from tilesim.ir.ops.fence import Fence, FenceProxyAsync, FenceProxyAsyncGeneric
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.machine.clock import GENERIC, GLOBAL, HALF, SHARED, join
from tilesim.sim.machine.warp import Step, Warp


def _move(w: Warp, source: int, *targets: int) -> None:
    """Rows ``targets`` of the warp's clock learn row ``source``."""
    size = w.machine.components.size
    known = w.clock[source * size : (source + 1) * size]
    for row in targets:
        join(w.clock[row * size : (row + 1) * size], known)
    # what the warp does after the fence is not covered by it
    w.advance()


def cross_proxies(w: Warp) -> None:
    """What the generic proxy sees becomes visible to the async proxy, in all memory (H9)."""
    _move(w, GENERIC, SHARED, GLOBAL)


@RULES.rule(FenceProxyAsync)
def _proxy_async(c: Compiler, op: FenceProxyAsync) -> Step:
    match op.space:
        case None:
            return cross_proxies
        case "global":
            return lambda w: _move(w, GENERIC, GLOBAL)
        case _:
            return lambda w: _move(w, GENERIC, SHARED)


@RULES.rule(FenceProxyAsyncGeneric)
def _proxy_async_generic(c: Compiler, op: FenceProxyAsyncGeneric) -> Step:
    """Half a fence for shared memory: the release begins what the acquire ends (H10)."""
    if op.sem == "release":
        return lambda w: _move(w, GENERIC, HALF)
    return lambda w: _move(w, HALF, SHARED)


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
