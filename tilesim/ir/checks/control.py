"""Control flow of a machine program: guards, jumps that lanes take together, and joins at which all
lanes of a warp meet."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.uniformity import diverging
from tilesim.errors import Diagnostic
from tilesim.ir.mir import Branch, Join, Mir, Switch
from tilesim.ir.op import Op


def check_guards(mir: Mir) -> Iterator[Diagnostic]:
    """What goes on elsewhere says itself in which lanes; a guard is none of its operands."""
    for number, instruction in enumerate(mir.code):
        if instruction.guard is not None and not isinstance(instruction.what, Op):
            what = type(instruction.what).__name__.lower()
            yield Diagnostic(
                "operand", f"instruction {number}, a {what}, has a guard", instruction.loc,
                "give a branch or a trap its condition, and jump past a switch",
            )  # fmt: skip


def check_one_way(mir: Mir) -> Iterator[Diagnostic]:
    """At a jump at which the program says that lanes go one way it can be seen that they do (PTX
    ``bra.uni``)."""
    for number, instruction in enumerate(mir.code):
        match instruction.what:
            case Branch(uniform=True, cond=cond) | Switch(uniform=True, index=cond):
                if diverging(graph_of(mir)).differs(cond, number):
                    yield Diagnostic(
                        "participation",
                        "lanes of a warp may go different ways at this jump, of which .uni says "
                        "that they do not",
                        instruction.loc, "leave .uni out where lanes may differ",
                    )  # fmt: skip
            case _:
                pass


def check_meetings(mir: Mir) -> Iterator[Diagnostic]:
    """To a join at which the lanes of a warp meet (`Join.syncs`) come all of them, or none."""
    meetings = [n for n, i in enumerate(mir.code) if isinstance(i.what, Join) and i.what.syncs]
    if not meetings:
        return
    graph = graph_of(mir)
    found = diverging(graph)
    for number in (n for n in meetings if n in found.inside):
        by = next(b for b in sorted(found.splits) if number in graph.inside(b))
        yield Diagnostic(
            "region",
            f"instruction {number} is a join at which all lanes of a warp meet, and instruction "
            f"{by} may send some of them past it",
            mir.code[number].loc,
            "place the join where all ways from that branch come together, or leave out syncs",
        )
