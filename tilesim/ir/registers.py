"""What is known of a program's registers without running it: uses, types, ranges of counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilesim.arith.intervals import Interval
from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import INT_MAX, Typing
from tilesim.ir.declarations import Mbar, View
from tilesim.ir.expr import Const, Expr, ScalarParam, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.frozen import cached
from tilesim.ir.op import Op, operand_names
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import For, If, Program, Stmt, While, children, instructions
from tilesim.ir.tensor_memory import TmemView


def operands(stmt: Stmt) -> Iterator[Expr]:
    """The expressions a statement evaluates itself (those of its regions left out)."""
    match stmt:
        case For():
            yield from (stmt.start, stmt.stop, stmt.step)
        case While() | If():
            yield stmt.cond
        case Op():
            for name in operand_names(type(stmt)):
                yield from _expressions(getattr(stmt, name))
        case _:
            pass


def _expressions(value: object) -> Iterator[Expr]:
    match value:
        case Expr():
            yield value
        case View() | Mbar():
            yield from value.operands
        case TmemView(address=address):
            yield address
        case tuple():
            for item in value:
                yield from _expressions(item)
        case _:
            pass


def defined(op: Op) -> list[Var]:
    """The variables an instruction writes."""
    return [e.var for e in op.effects() if isinstance(e, fx.Defines)]


def token_variables(program: Program) -> frozenset[str]:
    """Variables that receive an mbarrier state token, which has 64 bits, or a copy of one."""
    return _tokens(instructions(program))


def _tokens(ops: Iterable[Op]) -> frozenset[str]:
    found = set[str]()
    copies: list[tuple[str, str]] = []
    for op in ops:
        if isinstance(op, Assign):
            if isinstance(op.value, Var):
                copies.append((op.value.name, op.var.name))
            continue
        for effect in op.effects():
            if isinstance(effect, fx.Defines) and isinstance(effect.value, fx.Arrives):
                found.add(effect.var.name)
    while more := {copy for source, copy in copies if source in found} - found:
        found |= more
    return frozenset(found)


def escaping_counters(program: Program) -> frozenset[str]:
    """Loop variables that are read outside their loop and keep the value of the last turn.

    One that the body assigns is the loop's own register instead, whatever else reads it.
    """
    return outliving_counters(program) - assigned(program)


def outliving_counters(program: Program) -> frozenset[str]:
    """Loop variables that are read outside their loop."""
    counters = {s.var.name for s in program.statements if isinstance(s, For)}
    found: set[str] = set()

    def visit(body: tuple[Stmt, ...], bound: frozenset[str]) -> None:
        for stmt in body:
            used = {x.name for o in operands(stmt) for x in walk_expr(o) if isinstance(x, Var)}
            found.update((used & counters) - bound)
            inner = bound | {stmt.var.name} if isinstance(stmt, For) else bound
            for region in children(stmt):
                visit(region, inner)

    visit(program.body, frozenset())
    return frozenset(found)


@cached
def assigned(program: Program) -> frozenset[str]:
    """Variables that an instruction writes, not only a loop."""
    return frozenset(
        var.name for stmt in program.statements if isinstance(stmt, Op) for var in defined(stmt)
    )


def _special_ranges(program: Program) -> dict[str, Interval]:
    """What special registers can be in this launch."""
    gx, gy, gz = program.grid
    in_cluster = max(program.cluster_size, 1)  # a text may say 0: `verify` has not been there yet
    return {
        "warp_id": (0, program.warps - 1), "lane_id": (0, 31),
        "thread_id": (0, 32 * program.warps - 1),
        "cta_x": (0, gx - 1), "cta_y": (0, gy - 1), "cta_z": (0, gz - 1),
        "grid_x": (gx, gx), "grid_y": (gy, gy), "grid_z": (gz, gz),
        "cluster_rank": (0, program.cluster_size - 1),
        "cluster_size": (program.cluster_size, program.cluster_size),
        "cluster_id": (0, program.ctas // in_cluster - 1),
    }  # fmt: skip


def machine_typing(kernel: Program, ops: Iterable[Op], ranges: Mapping[str, Interval]) -> Typing:
    """Types of the registers of machine code, whose counters have these ``ranges``."""
    return Typing(_tokens(ops), ranges, _special_ranges(kernel))


def typing_of(program: Program) -> Typing:
    """Types of the program's registers, and ranges of counters that nothing but their loop sets."""
    ranges: dict[str, Interval] = {}
    typing = Typing(token_variables(program), ranges, _special_ranges(program))
    written = assigned(program)
    seen: set[str] = set()
    for stmt in program.statements:
        if not isinstance(stmt, For):
            continue
        name = stmt.var.name
        found = None if name in written or name in seen else _counter_range(stmt, typing)
        ranges.pop(name, None)
        seen.add(name)
        if found is not None:
            ranges[name] = found
    return typing


def _counter_range(loop: For, typing: Typing) -> Interval | None:
    """What a loop variable can be, its value after the last turn included."""
    start, stop = typing.interval(loop.start), typing.interval(loop.stop)
    step = loop.step.value if isinstance(loop.step, Const | ScalarParam) else None
    if start is None or stop is None or not isinstance(step, int) or step <= 0:
        return None
    high = max(start[1], stop[1] - 1 + step)
    return (start[0], high) if high <= INT_MAX else None
