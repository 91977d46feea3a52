"""Warps as reports call them, several of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilesim.words import ranges

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.agent import Agent


def names_of(warps: Sequence[Agent], op: Op | None = None, cta: int | None = None) -> str:
    """``consumer (warps 0-3)``: several warps that execute ``op``, and the role whose region that
    is in; those of further CTAs go with the range of their CTAs, ``consumer (warps 0-3 of CTA
    0-7)``. In a text that speaks of one ``cta`` that goes without saying."""
    if len(warps) == 1:
        return warps[0].at(op, cta)
    first = warps[0]
    numbers = tuple(sorted({w.number for w in warps}))
    ctas = tuple(sorted({w.cta.number for w in warps}))
    text = f"warp{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
    if len(ctas) > 1:
        text += f" of CTA {ranges(ctas)}"
    elif first.machine.program.ctas > 1 and first.cta.number != cta:
        text = f"CTA {first.cta.number} {text}"
    role = first.machine.role_at(first, op)
    return text if role == f"warp {first.number}" else f"{role} ({text})"


def made_by(what: str, warps: Sequence[Agent], op: Op, cta: int | None = None) -> str:
    """What each of some warps has contributed by ``op``: ``1 arrival each by ...``."""
    each = " each" if len(warps) > 1 else ""
    return f"{what}{each} by {op.mnemonic} of {names_of(warps, op, cta)} at {op.loc}"
