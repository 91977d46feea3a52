"""Warp barriers, election, exit (SEMANTICS section E): what CUDA C++ has itself."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.ir.expr import constant
from tilesim.ir.ops.bar import ElectSync, Exit, SyncWarp


@EMIT.rule(SyncWarp)
def _sync_warp(e: Emitter, op: SyncWarp) -> None:
    known = constant(op.mask)
    mask = e.cast(op.mask, "u32") if known is None else f"{known:#x}"
    e.line(f"__syncwarp({mask});")


@EMIT.rule(ElectSync)
def _elect(e: Emitter, op: ElectSync) -> None:
    helper = "elect_sync" if op.warp_sync else "elect_lane"
    e.use(helper)
    e.line(f"{e.var(op.result)} = {helper}({op.mask:#x});")


@EMIT.rule(Exit)
def _exit(e: Emitter, op: Exit) -> None:
    e.line("return;")
