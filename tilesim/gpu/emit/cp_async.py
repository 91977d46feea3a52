"""Non-bulk cp.async as inline PTX (PTX 9.7.9.25.3; SEMANTICS section C)."""

from __future__ import annotations

from math import prod

from tilesim.analysis.divergence import is_divergent
from tilesim.gpu.emit.emitter import EMIT, AsmOperand, Emitter, asm
from tilesim.gpu.emit.memory import Index, pointer, shared_offset
from tilesim.ir.declarations import View
from tilesim.ir.ops.cp_async import CpAsync
from tilesim.ir.registers import operands


@EMIT.rule(CpAsync)
def _copy(e: Emitter, op: CpAsync) -> None:
    chunks = op.dst.nbytes // op.size
    first, step = _share(e, op)
    head = f"for (u32 chunk_ = {first}; chunk_ < {chunks}; chunk_ += {step}) {{"
    with e.block(head):
        target = f"smem + {shared_offset(e, op.dst, _place(e, op, op.dst), swizzle=True)}"
        source = pointer(e, op.src, _place(e, op, op.src))
        cache = "cg" if op.size == 16 else "ca"
        inputs: list[AsmOperand] = [("r", target), ("l", source)]
        real = ""
        if op.src_bytes is not None:
            e.use("minimum")
            e.use("maximum")
            left = f"{e.cast(op.src_bytes, 's32')} - (s32)chunk_ * {op.size}"
            inputs.append(("r", f"maximum<s32>(0, minimum<s32>({op.size}, {left}))"))
            real = ", %2"
        e.line(asm(f"cp.async.{cache}.shared::cta.global [%0], [%1], {op.size}{real};", inputs))


def _share(e: Emitter, op: CpAsync) -> tuple[str, str]:
    """First chunk of a lane and the distance to its next: chunks go round the active lanes, unless
    each lane copies all of them, or has an operand of its own."""
    if not op.shared_out or any(is_divergent(x, e.divergent) for x in operands(op)):
        return "0", "1"
    match e.lanes:
        case "all":
            e.names.specials.add("lane_id")
            return e.names.names["lane_id"], "32"
        case "one":
            return "0", "1"
        case _:
            e.define(
                "active_lanes",
                """
// (number of active lanes below this one, number of active lanes)
DEVICE u32 active_rank() {
  u32 below;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  return __popc(__activemask() & below);
}""",
            )
            return "active_rank()", "__popc(__activemask())"


def _place(e: Emitter, op: CpAsync, view: View) -> Index:
    """Indices of the first element of ``chunk_``, in the view's row-major order."""
    each = op.size // view.dtype.bytes
    index: dict[int, str] = {}
    for d, extent in enumerate(view.extents):
        below = prod(view.extents[d + 1 :])
        if extent == 1:
            continue
        element = f"chunk_ * {each}" if below == 1 else f"chunk_ * {each} / {below}"
        outer = prod(view.extents[:d])
        index[d] = f"(s32)({element}{f' % {extent}' if outer > 1 else ''})"
    return index
