"""Instructions that are there once too often. None that moves data is ever taken out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Mbar
from tilesim.ir.sites import sites
from tilesim.repair.edit import Edit, family, of_places
from tilesim.repair.facts import DATA, Facts, Place, has, variables
from tilesim.repair.focus import Focus

_ARRIVES = (fx.Arrives, fx.Expects)
_MEETS = (fx.JoinsBarrier, fx.JoinsCluster)
_ENDS = (fx.InvalidatesMbarrier, fx.Registers, fx.RelinquishesTmem, fx.FreesTmem)


def _taken_out(facts: Facts, name: str, kinds: tuple[type, ...], size: int) -> Iterator[Edit]:
    """Instructions with such an effect, those of one line together."""
    lines: dict[tuple[Loc, type], list[Place]] = {}
    for place in facts.ops:
        if has(place, *kinds) and not has(place, *DATA):
            lines.setdefault((place.loc, type(place.what)), []).append(place)
    for places in lines.values():
        what = f"without {places[0].op.mnemonic}"
        yield of_places(name, what, [(place, ()) for place in places], size)
        if 1 < len(places) <= 4:
            for place in places:
                yield of_places(name, what, [(place, ())], size + 1)


@family("repeated")
def _repeated(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival that is made twice."""
    for block in facts.blocks:
        for one, again in pairwise(block):
            if one.what == again.what and has(again, *_ARRIVES) and not has(again, *DATA):
                what = f"{again.op.mnemonic} once, not twice"
                yield of_places("repeated", what, [(again, ())], 1)


@family("arrival too many")
def _arrival(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """An arrival, or bytes that nobody copies."""
    yield from _taken_out(facts, "arrival too many", _ARRIVES, 2)


@family("meeting too many")
def _meeting(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A barrier that not everybody comes to."""
    yield from _taken_out(facts, "meeting too many", _MEETS, 2)


@family("step too many")
def _step(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """What sets a register anew, in a loop, of which slots or parities are made."""
    used = {
        name for place in facts.ops for site in sites(place.op)
        if site.kind in ("phase", "barrier") for name in _registers(site.value)
    }  # fmt: skip
    for place in facts.ops:
        sets = [e.var.name for e in place.op.effects() if isinstance(e, fx.Defines)]
        value = getattr(place.op, "value", None)
        alone = len(sets) == len(place.op.effects()) == 1 and isinstance(value, Expr)
        if alone and place.loops and sets[0] in used:
            what = f"{sets[0]} not set to {facts.shown(value)}"
            yield of_places("step too many", what, [(place, ())], 1)


def _registers(value: object) -> frozenset[str]:
    """The registers that a parity, or the slot of a barrier, is made of."""
    expr = value.index if isinstance(value, Mbar) else value
    return variables([expr]) if isinstance(expr, Expr) else frozenset()


@family("end too many")
def _end(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The end of a barrier's life, registers, columns given back."""
    yield from _taken_out(facts, "end too many", _ENDS, 2)


@family("wait too many")
def _wait(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """A wait for what nobody does."""
    yield from _taken_out(facts, "wait too many", (fx.Waits,), 3)
