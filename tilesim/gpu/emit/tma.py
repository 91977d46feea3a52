"""Bulk asynchronous copies as inline PTX (PTX 9.7.9.25 and .27; SEMANTICS section B)."""

from __future__ import annotations

from tilesim.arith.types import DType
from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter
from tilesim.gpu.emit.memory import mbar_address, pointer, shared_address
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Expr
from tilesim.ir.ops.bulk import (
    BulkCommitGroup,
    BulkCopy,
    BulkLoad,
    BulkLoadIgnoring,
    BulkPrefetch,
    BulkReduce,
    BulkReducePeer,
    BulkStore,
    BulkWaitGroup,
)
from tilesim.ir.ops.multimem import MultimemCpAsyncBulk, MultimemCpReduceAsyncBulk
from tilesim.ir.ops.tma import TmaLoad, TmaPrefetch, TmaReduce, TmaStore
from tilesim.ir.tensormap import ROWS_OF_FOUR, WIDE

_TRACKED = "mbarrier::complete_tx::bytes"


class _Operands:
    """Numbers operands as they are added: ``add`` returns ``%n``."""

    def __init__(self) -> None:
        self.inputs: list[AsmOperand] = []

    def add(self, constraint: str, text: str) -> str:
        self.inputs.append((constraint, text))
        return f"%{len(self.inputs) - 1}"


def _box(
    e: Emitter, o: _Operands, tensor_map: TensorMap, coords: tuple[Expr, ...], mode: str = "tile",
    at: View | None = None,
) -> str:  # fmt: skip
    """``[map, {c0, c1...}]``: PTX counts dimensions from the innermost on, rows in order."""
    text = f"&{e.names.names[tensor_map.name]}" if at is None else pointer(e, at)
    address = o.add("l", text)
    order = (coords[-1], *coords[:-1]) if mode in ROWS_OF_FOUR else coords[::-1]
    numbers = ", ".join(o.add("r", e.cast(c, "s32")) for c in order)
    return f"[{address}, {{{numbers}}}]"


def _info(e: Emitter, o: _Operands, mode: str, info: tuple[Expr, ...]) -> str:
    """The operands of the im2col modes: offsets from the innermost dimension on, or the halo."""
    if not info:
        return ""
    order = info if mode in WIDE else info[::-1]
    return f", {{{', '.join(o.add('h', f'(u16)({e.expr(x)})') for x in order)}}}"


@EMIT.rule(TmaLoad)
def _load(e: Emitter, op: TmaLoad) -> None:
    o = _Operands()
    target = o.add("r", shared_address(e, op.dst))
    box = _box(e, o, op.map, op.coords, op.mode, op.at)
    mbar = o.add("r", mbar_address(e, op.mbar))
    info = _info(e, o, op.mode, op.info)
    cast, mask = _multicast(e, o, op.multicast)
    pair = "" if op.cta_group == 1 else f".cta_group::{op.cta_group}"
    tensor = f"cp.async.bulk.tensor.{_rank(op.map)}.shared::cluster.global.{op.mode}"
    e.asm(f"{tensor}.{_TRACKED}{cast}{pair} [{target}], {box}, [{mbar}]{info}{mask};", o.inputs)


def _rank(tensor_map: TensorMap) -> str:
    return f"{len(tensor_map.tensor.shape)}d"


def _multicast(e: Emitter, o: _Operands, mask: Expr | None) -> tuple[str, str]:
    if mask is None:
        return "", ""
    return ".multicast::cluster", f", {o.add('h', f'(u16)({e.expr(mask)})')}"


@EMIT.rule(TmaStore)
def _store(e: Emitter, op: TmaStore) -> None:
    o = _Operands()
    box = _box(e, o, op.map, op.coords, op.mode, op.at)
    source = o.add("r", shared_address(e, op.src))
    form = f"cp.async.bulk.tensor.{_rank(op.map)}.global.shared::cta.{op.mode}.bulk_group"
    e.asm(f"{form} {box}, [{source}];", o.inputs)


@EMIT.rule(TmaReduce)
def _reduce(e: Emitter, op: TmaReduce) -> None:
    o = _Operands()
    box = _box(e, o, op.map, op.coords, op.mode, op.at)
    source = o.add("r", shared_address(e, op.src))
    form = f"cp.reduce.async.bulk.tensor.{_rank(op.map)}.global.shared::cta.{op.op}.{op.mode}"
    e.asm(f"{form}.bulk_group {box}, [{source}];", o.inputs)


@EMIT.rule(TmaPrefetch)
def _prefetch(e: Emitter, op: TmaPrefetch) -> None:
    o = _Operands()
    box = _box(e, o, op.map, op.coords, op.mode)
    form = f"cp.async.bulk.prefetch.tensor.{_rank(op.map)}.L2.global.{op.mode}"
    e.asm(f"{form} {box}{_info(e, o, op.mode, op.info)};", o.inputs)


@EMIT.rule(BulkLoad)
def _bulk_load(e: Emitter, op: BulkLoad) -> None:
    o = _Operands()
    target = o.add("r", shared_address(e, op.dst))
    source = o.add("l", pointer(e, op.src))
    size = o.add("r", str(op.dst.nbytes))
    mbar = o.add("r", mbar_address(e, op.mbar))
    cast, mask = _multicast(e, o, op.multicast)
    form = f"cp.async.bulk.shared::cluster.global.{_TRACKED}{cast}"
    e.asm(f"{form} [{target}], [{source}], {size}, [{mbar}]{mask};", o.inputs)


@EMIT.rule(BulkLoadIgnoring)
def _bulk_load_ignoring(e: Emitter, op: BulkLoadIgnoring) -> None:
    o = _Operands()
    target = o.add("r", shared_address(e, op.dst))
    source = o.add("l", pointer(e, op.src))
    size = o.add("r", str(op.dst.nbytes))
    left, right = (o.add("r", e.cast(x, "u32")) for x in (op.left, op.right))
    mbar = o.add("r", mbar_address(e, op.mbar))
    form = f"cp.async.bulk.shared::cta.global.{_TRACKED}.ignore_oob"
    e.asm(f"{form} [{target}], [{source}], {size}, {left}, {right}, [{mbar}];", o.inputs)


@EMIT.rule(BulkCopy)
def _bulk_copy(e: Emitter, op: BulkCopy) -> None:
    _to_peer(e, op, f"cp.async.bulk.shared::cluster.shared::cta.{_TRACKED}")


@EMIT.rule(BulkReducePeer)
def _bulk_reduce_peer(e: Emitter, op: BulkReducePeer) -> None:
    form = f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_TRACKED}"
    _to_peer(e, op, f"{form}.{reduction_type(op.op, op.dst.dtype)}")


def _to_peer(e: Emitter, op: BulkCopy | BulkReducePeer, form: str) -> None:
    operands: list[AsmOperand] = [
        ("r", shared_address(e, op.dst)), ("r", shared_address(e, op.src)),
        ("r", str(op.dst.nbytes)), ("r", mbar_address(e, op.mbar)),
    ]  # fmt: skip
    e.asm(f"{form} [%0], [%1], %2, [%3];", operands)


def _everywhere(op: BulkStore | BulkReduce) -> str:
    """What goes to all devices has the name of what goes to one, behind this."""
    everywhere = isinstance(op, MultimemCpAsyncBulk | MultimemCpReduceAsyncBulk)
    return "multimem." if everywhere else ""


@EMIT.rule(BulkStore, MultimemCpAsyncBulk)
def _bulk_store(e: Emitter, op: BulkStore) -> None:
    o = _Operands()
    target = o.add("l", pointer(e, op.dst))
    source = o.add("r", shared_address(e, op.src))
    size = o.add("r", str(op.dst.nbytes))
    form = f"{_everywhere(op)}cp.async.bulk.global.shared::cta.bulk_group"
    mask = ""
    if op.mask is not None:
        form += ".cp_mask"
        mask = f", {o.add('h', f'(u16)({e.expr(op.mask)})')}"
    e.asm(f"{form} [{target}], [{source}], {size}{mask};", o.inputs)


def reduction_type(op: str, dtype: DType) -> str:
    """The ``.op.type`` qualifiers of a bulk reduction."""
    if op in ("and", "or", "xor"):
        return f"{op}.b{dtype.bits}"
    if op == "add" and dtype.bits == 16:
        return f"add.noftz.{dtype}"
    if op == "add" and dtype.name == "s64":
        return "add.u64"
    return f"{op}.{dtype}"


@EMIT.rule(BulkReduce, MultimemCpReduceAsyncBulk)
def _bulk_reduce(e: Emitter, op: BulkReduce) -> None:
    o = _Operands()
    target = o.add("l", pointer(e, op.dst))
    source = o.add("r", shared_address(e, op.src))
    size = o.add("r", str(op.dst.nbytes))
    form = f"{_everywhere(op)}cp.reduce.async.bulk.global.shared::cta.bulk_group"
    e.asm(f"{form}.{reduction_type(op.op, op.dst.dtype)} [{target}], [{source}], {size};", o.inputs)


@EMIT.rule(BulkPrefetch)
def _bulk_prefetch(e: Emitter, op: BulkPrefetch) -> None:
    o = _Operands()
    source = o.add("l", pointer(e, op.src))
    e.asm(f"cp.async.bulk.prefetch.L2.global [{source}], {op.src.nbytes};", o.inputs)


@EMIT.rule(BulkCommitGroup)
def _commit(e: Emitter, op: BulkCommitGroup) -> None:
    e.asm("cp.async.bulk.commit_group;")


@EMIT.rule(BulkWaitGroup)
def _wait_group(e: Emitter, op: BulkWaitGroup) -> None:
    e.asm(f"cp.async.bulk.wait_group{'.read' if op.read else ''} {op.pending};")
