"""Cluster launch control: taking over work of a cluster that has not started (SEMANTICS D.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.ir.declarations import Mbar, View
from tilesim.ir.effects import Cancels, Completes, Defines, Effect, Queries, Reads, Writes
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.op import Op
from tilesim.records import dataclass

#: bytes of a response
RESPONSE_BYTES = 16


def _response_problems(view: View) -> Iterator[str]:
    if view.space != "shared" or view.remote:
        yield f"{view} must be in the executing CTA's shared memory (D18)"
    if view.nbytes != RESPONSE_BYTES:
        yield f"{view} has {view.nbytes} bytes, a response has {RESPONSE_BYTES} (D18)"


@dataclass(frozen=True, kw_only=True)
class ClcTryCancel(Op):
    """Asks to cancel a cluster that has not been launched; completes 16 bytes on ``mbar`` (D18).

    The response is written through the async proxy. ``multicast``: to every CTA of the cluster,
    each with its own barrier at the same offset.
    """

    mnemonic = "clusterlaunchcontrol.try_cancel"
    ptx = (
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
        "{.multicast=multicast::cluster::all}.b128 [{response:16*b8}], [{mbar}];"
    )
    features = frozenset({"clc"})

    response: View
    mbar: Mbar
    multicast: bool = False

    def verify(self) -> Iterator[str]:
        yield from _response_problems(self.response)
        if self.mbar.remote:
            yield "the mbarrier must be in the executing CTA (D18)"

    def effects(self) -> tuple[Effect, ...]:
        every_cta: Expr | None = Const(0xFFFF) if self.multicast else None
        return (
            Cancels(),
            Writes(self.response, "async", asynchronous=True),
            Completes(self.mbar, Const(RESPONSE_BYTES), every_cta, asynchronous=True),
        )


@dataclass(frozen=True, kw_only=True)
class ClcQueryIsCanceled(Op):
    """Loads the response; ``result`` is 1 if a cluster was cancelled, 0 if the request failed."""

    mnemonic = "clusterlaunchcontrol.query_cancel.is_canceled"
    features = frozenset({"clc"})

    result: Var
    response: View

    def verify(self) -> Iterator[str]:
        yield from _response_problems(self.response)

    def effects(self) -> tuple[Effect, ...]:
        says = Queries("canceled")
        return (Reads(self.response), says, Defines(self.result, says))


@dataclass(frozen=True, kw_only=True)
class ClcQueryGetFirstCtaid(Op):
    """Loads the response; ``result`` is one coordinate of the cancelled cluster's first CTA.

    Undefined if the request failed (D19).
    """

    mnemonic = "clusterlaunchcontrol.query_cancel.get_first_ctaid"
    features = frozenset({"clc"})

    result: Var
    response: View
    axis: Literal["x", "y", "z"] = "x"

    def verify(self) -> Iterator[str]:
        yield from _response_problems(self.response)

    def effects(self) -> tuple[Effect, ...]:
        says = Queries(self.axis)
        return (Reads(self.response), says, Defines(self.result, says))
