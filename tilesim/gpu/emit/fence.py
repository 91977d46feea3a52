"""Memory and proxy fences as inline PTX (PTX 9.7.13.4; SEMANTICS H.3)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.ir.ops.fence import Fence, FenceProxyAsync, FenceProxyAsyncGeneric


@EMIT.rule(FenceProxyAsync)
def _proxy_async(e: Emitter, op: FenceProxyAsync) -> None:
    e.asm(f"fence.proxy.async{'' if op.space is None else f'.{op.space}'};")


@EMIT.rule(FenceProxyAsyncGeneric)
def _proxy_async_generic(e: Emitter, op: FenceProxyAsyncGeneric) -> None:
    space = "shared::cta" if op.sem == "release" else "shared::cluster"
    e.asm(f"fence.proxy.async::generic.{op.sem}.sync_restrict::{space}.cluster;")


@EMIT.rule(Fence)
def _fence(e: Emitter, op: Fence) -> None:
    e.asm(f"fence.{op.sem}.{op.scope};")
