"""Copies by a tensor map as inline PTX (PTX 9.7.9.27; SEMANTICS section B)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, Emitter, Operands
from tilesim.gpu.emit.memory import mbar_address, pointer, shared_address
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Expr
from tilesim.ir.ops.tma import TmaLoad, TmaPrefetch, TmaReduce, TmaStore
from tilesim.ir.tensormap import ROWS_OF_FOUR, WIDE

_TRACKED = "mbarrier::complete_tx::bytes"


def _box(
    e: Emitter, o: Operands, tensor_map: TensorMap, coords: tuple[Expr, ...], mode: str = "tile",
    at: View | None = None,
) -> str:  # fmt: skip
    """``[map, {c0, c1...}]``: PTX counts dimensions from the innermost on, rows in order."""
    text = f"&{e.names.names[tensor_map.name]}" if at is None else pointer(e, at)
    address = o.add("l", text)
    order = (coords[-1], *coords[:-1]) if mode in ROWS_OF_FOUR else coords[::-1]
    numbers = ", ".join(o.add("r", e.cast(c, "s32")) for c in order)
    return f"[{address}, {{{numbers}}}]"


def _info(e: Emitter, o: Operands, mode: str, info: tuple[Expr, ...]) -> str:
    """The operands of the im2col modes: offsets from the innermost dimension on, or the halo."""
    if not info:
        return ""
    order = info if mode in WIDE else info[::-1]
    return f", {{{', '.join(o.add('h', f'(u16)({e.expr(x)})') for x in order)}}}"


@EMIT.rule(TmaLoad)
def _load(e: Emitter, op: TmaLoad) -> None:
    o = Operands()
    target = o.add("r", shared_address(e, op.dst))
    box = _box(e, o, op.map, op.coords, op.mode, op.at)
    mbar = o.add("r", mbar_address(e, op.mbar))
    info = _info(e, o, op.mode, op.info)
    cast, mask = "", ""
    if op.multicast is not None:
        cast, mask = ".multicast::cluster", f", {o.add('h', f'(u16)({e.expr(op.multicast)})')}"
    pair = "" if op.cta_group == 1 else f".cta_group::{op.cta_group}"
    tensor = f"cp.async.bulk.tensor.{_rank(op.map)}.shared::cluster.global.{op.mode}"
    e.asm(f"{tensor}.{_TRACKED}{cast}{pair} [{target}], {box}, [{mbar}]{info}{mask};", o.inputs)


def _rank(tensor_map: TensorMap) -> str:
    return f"{len(tensor_map.tensor.shape)}d"


@EMIT.rule(TmaStore)
def _store(e: Emitter, op: TmaStore) -> None:
    o = Operands()
    box = _box(e, o, op.map, op.coords, op.mode, op.at)
    source = o.add("r", shared_address(e, op.src))
    form = f"cp.async.bulk.tensor.{_rank(op.map)}.global.shared::cta.{op.mode}.bulk_group"
    e.asm(f"{form} {box}, [{source}];", o.inputs)


@EMIT.rule(TmaReduce)
def _reduce(e: Emitter, op: TmaReduce) -> None:
    o = Operands()
    box = _box(e, o, op.map, op.coords, op.mode, op.at)
    source = o.add("r", shared_address(e, op.src))
    form = f"cp.reduce.async.bulk.tensor.{_rank(op.map)}.global.shared::cta.{op.op}.{op.mode}"
    e.asm(f"{form}.bulk_group {box}, [{source}];", o.inputs)


@EMIT.rule(TmaPrefetch)
def _prefetch(e: Emitter, op: TmaPrefetch) -> None:
    o = Operands()
    box = _box(e, o, op.map, op.coords, op.mode)
    form = f"cp.async.bulk.prefetch.tensor.{_rank(op.map)}.L2.global.{op.mode}"
    e.asm(f"{form} {box}{_info(e, o, op.mode, op.info)};", o.inputs)
