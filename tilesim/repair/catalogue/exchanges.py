"""Instructions that should be another one of their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilesim.ir import effects as fx
from tilesim.ir.edits import Instead
from tilesim.ir.expr import Const
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Mbar
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import Setmaxnreg
from tilesim.ir.ops.cp_async import CpAsyncMbarrierArrive
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierExpectTx
from tilesim.ir.ops.tcgen05 import Tcgen05Commit, Tcgen05Fence, Tcgen05Wait
from tilesim.repair.catalogue.operands import copied
from tilesim.repair.edit import Edit, family, of_places
from tilesim.repair.facts import Facts, Place
from tilesim.repair.focus import Focus

#: what one instruction may have been meant to be
Exchange = Callable[[Facts, Place], Iterator[Op]]


def _lines(facts: Facts, kind: type[Op]) -> Iterator[list[Place]]:
    """The instructions of a class, those of one line together."""
    found: dict[Loc, list[Place]] = {}
    for place in facts.ops:
        if type(place.what) is kind:
            found.setdefault(place.loc, []).append(place)
    yield from found.values()


def _exchanged(facts: Facts, name: str, kind: type[Op], exchange: Exchange) -> Iterator[Edit]:
    for places in _lines(facts, kind):
        options = [list(exchange(facts, place)) for place in places]
        for choice in range(min(map(len, options))):
            new: list[tuple[Place, Instead]] = [
                (place, (o[choice],)) for place, o in zip(places, options, strict=True)
            ]
            other = options[0][choice]
            what = f"{_brief(other)} instead of {places[0].op.mnemonic}"
            yield of_places(name, what, new, 2)


def _brief(op: Op) -> str:
    bytes_ = getattr(op, "bytes", None)
    return f"{op.mnemonic} of {bytes_} bytes" if bytes_ is not None else op.mnemonic


@family("arrival")
def _arrival(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Arrivals with and without bytes, bytes with and without an arrival, commits."""
    for kind, exchange in (
        (MbarrierArrive, _of_arrive), (MbarrierExpectTx, _of_expect),
        (MbarrierArriveExpectTx, _of_both), (CpAsyncMbarrierArrive, _of_cp_async),
        (Tcgen05Commit, _of_commit),
    ):  # fmt: skip
        yield from _exchanged(facts, "arrival", kind, exchange)


def _of_arrive(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, MbarrierArrive)
    for n in copied(facts, place):
        yield MbarrierArriveExpectTx(
            mbar=op.mbar, bytes=Const(n), sem=op.sem, scope=op.scope, token=op.token, loc=op.loc
        )
    if any(isinstance(e, fx.Issues) and e.group == "tcgen05" for p in facts.ops
           for e in p.op.effects()) and _is_own(op.mbar):  # fmt: skip
        yield Tcgen05Commit(mbar=op.mbar, loc=op.loc)
    if any(isinstance(e, fx.Issues) and e.group == "cp.async" for p in facts.ops
           for e in p.op.effects()) and _is_own(op.mbar):  # fmt: skip
        yield CpAsyncMbarrierArrive(mbar=op.mbar, noinc=True, loc=op.loc)


def _is_own(mbar: Mbar) -> bool:
    return not mbar.remote


def _of_expect(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, MbarrierExpectTx)
    yield MbarrierArriveExpectTx(mbar=op.mbar, bytes=op.bytes, scope=op.scope, loc=op.loc)


def _of_both(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, MbarrierArriveExpectTx)
    if op.token is None:
        yield MbarrierExpectTx(mbar=op.mbar, bytes=op.bytes, scope=op.scope, loc=op.loc)
    yield MbarrierArrive(mbar=op.mbar, sem=op.sem, scope=op.scope, token=op.token, loc=op.loc)


def _of_cp_async(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, CpAsyncMbarrierArrive)
    yield replace(op, noinc=not op.noinc)


def _of_commit(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, Tcgen05Commit)
    yield replace(op, cta_group=1 if op.cta_group == 2 else 2)


@family("side")
def _side(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The other one of two: before or after, loads or stores, more or fewer registers."""
    for kind, exchange in (
        (Tcgen05Fence, _other_fence), (Tcgen05Wait, _other_wait), (Setmaxnreg, _other_action),
    ):  # fmt: skip
        yield from _exchanged(facts, "side", kind, exchange)


def _other_fence(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, Tcgen05Fence)
    before = op.side == "before_thread_sync"
    yield replace(op, side="after_thread_sync" if before else "before_thread_sync")


def _other_wait(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, Tcgen05Wait)
    yield replace(op, kind="st" if op.kind == "ld" else "ld")


def _other_action(facts: Facts, place: Place) -> Iterator[Op]:
    op = place.op
    assert isinstance(op, Setmaxnreg)
    yield replace(op, action="dec" if op.action == "inc" else "inc")
