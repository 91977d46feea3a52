"""Instructions that should be another one of their kind, or access less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from tilesim.arith.types import s32
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import View
from tilesim.ir.expr import Const, Expr, Var, all_of, binary, constant
from tilesim.ir.op import Op, operand_names
from tilesim.ir.ops.bar import Setmaxnreg
from tilesim.ir.ops.cp_async import CpAsyncMbarrierArrive
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierExpectTx
from tilesim.ir.ops.tcgen05 import Tcgen05Commit, Tcgen05Fence, Tcgen05Wait
from tilesim.ir.program import For, If, Stmt
from tilesim.mistakes.context import Facts, Focus, Place, has
from tilesim.mistakes.edits import Edit, by_line, changed, family, of_places
from tilesim.mistakes.operands import copied
from tilesim.transforms.rewrite import Instead

#: what one instruction may have been meant to be
Exchange = Callable[[Facts, Place], Iterator[Op]]


def _exchanged(facts: Facts, name: str, kind: type[Op], exchange: Exchange) -> Iterator[Edit]:
    for places in by_line(p for p in facts.ops if type(p.what) is kind):
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
    if any(has(p, fx.Issues, group="tcgen05") for p in facts.ops) and not op.mbar.remote:
        yield Tcgen05Commit(mbar=op.mbar, loc=op.loc)
    if any(has(p, fx.Issues, group="cp.async") for p in facts.ops) and not op.mbar.remote:
        yield CpAsyncMbarrierArrive(mbar=op.mbar, noinc=True, loc=op.loc)


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


#: the rule that accesses outside of an allocation break
_RULE = "out-of-bounds"


def _out(facts: Facts, focus: Focus) -> Iterator[Place]:
    """The instructions that leave their allocation."""
    if focus.rule == _RULE:
        yield from (p for p in facts.ops if focus.distance(p) == 0)


def _views(op: Op) -> dict[str, View]:
    """By name, the operands that are boxes of tensors."""
    found = {name: getattr(op, name) for name in operand_names(type(op))}
    return {
        name: view for name, view in found.items()
        if isinstance(view, View) and not isinstance(view.tensor, AddressedTensor)
    }  # fmt: skip


@family("edge")
def _edge(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Nothing beyond the end: elements only where they are inside, of a box at the edge the part
    that is."""
    for place in _out(facts, focus):
        for name, view in _views(place.op).items():
            if view.tensor.name not in focus.names:
                continue
            ends = [
                (dim, binary("+", offset, extent), size)
                for dim, (offset, extent, size) in enumerate(
                    zip(view.offsets, view.extents, view.tensor.shape, strict=True)
                )
                if constant(offset) is None
            ]  # fmt: skip
            if not ends:
                continue
            inside = reduce(all_of, (binary("<=", end, size) for _, end, size in ends))
            what = f"{place.op.mnemonic} if {facts.shown(inside)}"
            rest: tuple[Stmt, ...] = ()
            if any(view.extents[dim] > 1 for dim, _, _ in ends):
                part = _part(place.op, name, [dim for dim, _, _ in ends])
                if part is None:
                    continue
                rest = (part,)
                what += f", else {facts.shown(_views(part)[name])}"
            region = If(cond=inside, then=(place.op,), orelse=rest, loc=place.loc)
            yield of_places("edge", what, [(place, (region,))], 2)


def _part(op: Op, name: str, dims: Sequence[int]) -> Op | None:
    """An instruction with the part of a box at the edge that is inside of its tensor; None if there
    is more than one edge, or none that all boxes there have."""
    view = _views(op)[name]
    partial = [d for d in dims if view.tensor.shape[d] % view.extents[d]]
    if len(partial) != 1:
        return None
    (dim,) = partial
    rest = view.tensor.shape[dim] % view.extents[dim]
    return _narrowed(op, name, dim, None, rest)


@family("rows")
def _rows(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A copy of one range, of a box that is none: a copy for each of its rows."""
    for place in _out(facts, focus):
        if not has(place, fx.Reads, asynchronous=True):
            continue
        for name, view in _views(place.op).items():
            full = [e == s for e, s in zip(view.extents, view.tensor.shape, strict=True)]
            outer = [d for d in range(len(full)) if view.extents[d] > 1 and not all(full[d + 1 :])]
            if len(outer) != 1:
                continue
            row = Var(facts.fresh("row"), s32)
            single = _narrowed(place.op, name, outer[0], row, 1)
            if single is None:
                continue
            loop = For(
                var=row, start=Const(0), stop=Const(view.extents[outer[0]]), step=Const(1),
                body=(single,), loc=place.loc,
            )  # fmt: skip
            what = f"{place.op.mnemonic} of each of {view.extents[outer[0]]} rows"
            edit = of_places("rows", what, [(place, (loop,))], 2)
            yield replace(edit, variables=(row,))


def _narrowed(op: Op, name: str, dim: int, by: Expr | None, extent: int) -> Op | None:
    """An instruction all of whose boxes are ``extent`` wide where one is wider, from ``by`` on;
    None if the others have no such dimension."""
    views = _views(op)
    which = [d for d, e in enumerate(views[name].extents) if e > 1].index(dim)
    new: dict[str, View] = {}
    for other, view in views.items():
        wide = [d for d, e in enumerate(view.extents) if e > 1]
        if which >= len(wide) or view.extents[wide[which]] != views[name].extents[dim]:
            return None
        there = wide[which]
        offsets, extents = list(view.offsets), list(view.extents)
        extents[there] = extent
        if by is not None:
            offsets[there] = binary("+", offsets[there], by)
        new[other] = replace(view, offsets=tuple(offsets), extents=tuple(extents))
    return changed(op, **new)
