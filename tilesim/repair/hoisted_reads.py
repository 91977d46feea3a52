"""Reads where the source has them: loads that a compiler made early, at the lines that use them.

Where nothing holds a read, a compiler makes it before a write of another thread that the source has
first, and one of several lines that read the same. A barrier that is put between the lines would
have kept them apart, so a repair has to be looked for in the program that the source says.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.ssa import reaching
from tilesim.errors import Diagnostic
from tilesim.findings.finding import Finding
from tilesim.ir.declarations import View
from tilesim.ir.expr import Var, walk
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.ops.scalar import Load, Store
from tilesim.records import replace
from tilesim.repair.source_order import comes_to, races_of, uses_of, writes_first
from tilesim.transforms.rewrite import Instead, edited


def with_reads_at_uses(mir: Mir, findings: Sequence[Finding | Diagnostic]) -> Mir:
    """The program with the reads of these races at the lines that use what they read, of those that
    stand before a write that the source has first; the same if there are none, or that cannot be
    done."""
    early = dict.fromkeys(
        read for write, read in races_of(findings, mir)
        if comes_to(mir, read, write) and writes_first(mir, write, read)
    )  # fmt: skip
    instead: dict[int, Instead] = {}
    for number in early:
        instead.update(_at_uses(mir, number) or {})
    return edited(mir, instead) if instead else mir


def _at_uses(mir: Mir, number: int) -> dict[int, Instead] | None:
    """A load in front of the first use of its number in each block; None: it cannot stand there."""
    load, code = mir.code[number].what, mir.code
    if not isinstance(load, Load) or load.sem != "weak" or code[number].guard is not None:
        return None
    graph = graph_of(mir)
    instead: dict[int, Instead] = {number: ()}
    seen: set[int] = set()
    for use in uses_of(mir, number):
        if graph.block_of[use] in seen:
            continue
        seen.add(graph.block_of[use])
        if code[use].guard is not None or not _holds(mir, number, load, use):
            return None
        behind = code[use].loc
        instead[use] = (replace(load, loc=_with(behind, load.loc)), code[use].what)
    return instead if len(instead) > 1 else None


def _with(line: Loc, load: Loc) -> Loc:
    """A line of the source, with that of the load in the PTX behind it."""
    return line if line.behind is None else replace(line, behind=load.innermost)


def _holds(mir: Mir, number: int, load: Load, use: int) -> bool:
    """Whether memory holds at an instruction what the register of the load does for its thread: the
    address is the same, and whatever else has set the register was stored there as well."""
    setters = reaching(graph_of(mir)).setters
    for name in _address(load.src):
        if setters(use, name) != setters(number, name):
            return False
    return all(
        setter == number or _stored(mir, setter, load) for setter in setters(use, load.var.name)
    )


def _address(view: View) -> frozenset[str]:
    return frozenset(v.name for e in view.operands for v in walk(e) if isinstance(v, Var))


def _stored(mir: Mir, setter: int, load: Load) -> bool:
    """Whether what an instruction sets is stored, later in its block, where the load reads."""
    graph = graph_of(mir)
    block = graph.blocks[graph.block_of[setter]]
    return any(
        isinstance(what := mir.code[n].what, Store)
        and what.value == load.var
        and repr(what.dst) == repr(load.src)
        for n in range(setter + 1, block.stop)
    )
