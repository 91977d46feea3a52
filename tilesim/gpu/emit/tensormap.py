"""Tensor maps that are made on the device (PTX 9.7.9.28)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter
from tilesim.gpu.emit.memory import asm_address, pointer
from tilesim.ir.declarations import View
from tilesim.ir.ops.tensormap import TensormapCopy, TensormapReplace
from tilesim.ir.spelling import space_of
from tilesim.ir.tensormap import CODES, NBYTES


@EMIT.rule(TensormapReplace)
def _replace(e: Emitter, op: TensormapReplace) -> None:
    inputs: list[AsmOperand] = [asm_address(e, op.map)[1]]
    new, wide = op.new_val, op.bits == 64
    if op.field in CODES:
        value = str(new)
    elif isinstance(new, View):
        inputs.append(("l", f"(u64){pointer(e, new)}"))
        value = "%1"
    else:
        inputs.append(("l" if wide else "r", e.cast(new, "u64" if wide else "u32")))
        value = "%1"
    place = "" if op.ord is None else f" {op.ord},"
    form = f"tensormap.replace.tile.{op.field}{space_of(op.map)}.b1024.b{op.bits}"
    e.asm(f"{form} [%0],{place} {value};", inputs)


@EMIT.rule(TensormapCopy)
def _copy(e: Emitter, op: TensormapCopy) -> None:
    words = f"((const u64*)&{e.names.names[op.map.name]})"
    space, address = space_of(op.dst), asm_address(e, op.dst)[1]
    for at in range(0, NBYTES, 16):
        pair: list[AsmOperand] = [
            address, ("l", f"{words}[{at // 8}]"), ("l", f"{words}[{at // 8 + 1}]"),
        ]  # fmt: skip
        e.asm(f"st{space}.v2.b64 [%0 + {at}], {{%1, %2}};", pair)
