"""Accesses beyond the end of what they access, and copies of what is no one range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from tilesim.arith.types import s32
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.expr import Const, Expr, Var, all_of, binary, constant
from tilesim.ir.memory import View
from tilesim.ir.op import Op, operand_names
from tilesim.ir.program import For, If, Stmt
from tilesim.repair.edit import Edit, changed, family, of_places
from tilesim.repair.facts import Facts, Place
from tilesim.repair.focus import Focus

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
        if not any(isinstance(e, fx.Reads) and e.asynchronous for e in place.op.effects()):
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
