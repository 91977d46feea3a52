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
from tilesim.mistakes.context import Facts, Focus, Place, effects_of, has
from tilesim.mistakes.edits import Edit, by_line, changed, family, of_places
from tilesim.mistakes.operands import copied
from tilesim.transforms.rewrite import Instead

#: what an instruction may have been meant to be
Options = Callable[[Facts, Op, Place], Iterator[Op]]


def _exchanged(facts: Facts, name: str, options: Options) -> Iterator[Edit]:
    """Every option for all instructions that one line makes."""
    for places in by_line(facts.ops):
        for choice in zip(*(options(facts, p.op, p) for p in places), strict=False):
            new: list[tuple[Place, Instead]] = [
                (p, (op,)) for p, op in zip(places, choice, strict=True)
            ]
            what = f"{_brief(choice[0])} instead of {places[0].op.mnemonic}"
            yield of_places(name, what, new, 2)


def _brief(op: Op) -> str:
    bytes_ = getattr(op, "bytes", None)
    return f"{op.mnemonic} of {bytes_} bytes" if bytes_ is not None else op.mnemonic


@family("arrival")
def _arrival(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Arrivals with and without bytes, bytes with and without an arrival, commits."""
    yield from _exchanged(facts, "arrival", _arrivals)


def _arrivals(facts: Facts, op: Op, place: Place) -> Iterator[Op]:
    match op:
        case MbarrierArrive(mbar=mbar, sem=sem, scope=scope, token=token, loc=loc):
            for n in copied(facts, place):
                yield MbarrierArriveExpectTx(
                    mbar=mbar, bytes=Const(n), sem=sem, scope=scope, token=token, loc=loc
                )
            issued = {e.group for p in facts.ops for e in effects_of(p) if isinstance(e, fx.Issues)}
            if "tcgen05" in issued and not mbar.remote:
                yield Tcgen05Commit(mbar=mbar, loc=loc)
            if "cp.async" in issued and not mbar.remote:
                yield CpAsyncMbarrierArrive(mbar=mbar, noinc=True, loc=loc)
        case MbarrierExpectTx(mbar=mbar, bytes=bytes_, scope=scope, loc=loc):
            yield MbarrierArriveExpectTx(mbar=mbar, bytes=bytes_, scope=scope, loc=loc)
        case MbarrierArriveExpectTx(mbar=mbar, sem=sem, scope=scope, token=token, loc=loc):
            if token is None:
                yield MbarrierExpectTx(mbar=mbar, bytes=op.bytes, scope=scope, loc=loc)
            yield MbarrierArrive(mbar=mbar, sem=sem, scope=scope, token=token, loc=loc)
        case CpAsyncMbarrierArrive():
            yield replace(op, noinc=not op.noinc)
        case Tcgen05Commit():
            yield replace(op, cta_group=1 if op.cta_group == 2 else 2)
        case _:
            pass


@family("side")
def _side(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The other one of two: before or after, loads or stores, more or fewer registers."""
    yield from _exchanged(facts, "side", _others)


def _others(facts: Facts, op: Op, place: Place) -> Iterator[Op]:
    match op:
        case Tcgen05Fence():
            before = op.side == "before_thread_sync"
            yield replace(op, side="after_thread_sync" if before else "before_thread_sync")
        case Tcgen05Wait():
            yield replace(op, kind="st" if op.kind == "ld" else "ld")
        case Setmaxnreg():
            yield replace(op, action="dec" if op.action == "inc" else "inc")
        case _:
            pass


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
