"""Memory and proxy fences (SEMANTICS H.3, H.5)."""

from __future__ import annotations

from tilesim.ir.ops.fence import Fence, FenceProxyAsync, FenceProxyAsyncGeneric
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.machine.clock import join
from tilesim.sim.machine.warp import Step, Warp


def cross_proxies(w: Warp) -> None:
    """What the generic proxy sees becomes visible to the async proxy: row A learns row G."""
    size = w.machine.components.size
    join(w.clock[2 * size :], w.clock[size : 2 * size])
    # what the warp does after the fence is not covered by it
    w.advance()


@RULES.rule(FenceProxyAsync)
def _proxy_async(c: Compiler, op: FenceProxyAsync) -> Step:
    return cross_proxies


@RULES.rule(FenceProxyAsyncGeneric)
def _proxy_async_generic(c: Compiler, op: FenceProxyAsyncGeneric) -> Step:
    return cross_proxies


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
