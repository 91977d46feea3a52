"""Cluster launch control as inline PTX (PTX 9.7.13.17; SEMANTICS D.7)."""

from __future__ import annotations

from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.memory import shared_address
from tilesim.ir.ops.clc import ClcQueryGetFirstCtaid, ClcQueryIsCanceled

_QUERY = "clusterlaunchcontrol.query_cancel"


def _query(e: Emitter, op: ClcQueryIsCanceled | ClcQueryGetFirstCtaid, text: str) -> None:
    """Loads the response into a 128-bit register, which ``text`` turns into ``%0``."""
    load = "{\n.reg .b128 response;\n.reg .pred p;\nld.shared::cta.b128 response, [%1];\n"
    address = ("r", shared_address(e, op.response))
    e.asm(f"{load}{text}\n}}", [address], [("=r", e.var(op.result))])


@EMIT.rule(ClcQueryIsCanceled)
def _is_canceled(e: Emitter, op: ClcQueryIsCanceled) -> None:
    text = f"{_QUERY}.is_canceled.pred.b128 p, response;\nselp.s32 %0, 1, 0, p;"
    _query(e, op, text)


@EMIT.rule(ClcQueryGetFirstCtaid)
def _first_ctaid(e: Emitter, op: ClcQueryGetFirstCtaid) -> None:
    _query(e, op, f"{_QUERY}.get_first_ctaid::{op.axis}.b32.b128 %0, response;")
