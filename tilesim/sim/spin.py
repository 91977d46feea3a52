"""Loops that do nothing but wait for a word of memory to reach a value, and words that only count.

``while reg < t: reg = ld x`` is a wait if nothing else uses what it loads. The words of a tensor
are counters if every access to them is such a wait, a reduction by add, or a scalar store. Whether
one run proves what they order is for `tilesim.sim.machine.counter` to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tilesim.ir.dataflow import OPERANDS, aliases, expressions_in, tensors_read, tensors_written
from tilesim.ir.definitions import Reaching, visit
from tilesim.ir.effects import Crosses, Orders
from tilesim.ir.expr import Binary, Const, Expr, Unary, Var, walk
from tilesim.ir.memory import Mbarriers, View
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Atomic, Load, Store
from tilesim.ir.program import (
    For,
    If,
    Program,
    Role,
    Stmt,
    While,
    children,
    instructions,
    rewrite,
)
from tilesim.ir.program import walk as walk_statements

#: a spin ends when the word is ``least`` or more, exactly ``equal``, or anything ``other``
Until = Literal["least", "equal", "other"]
Poll = Load | Atomic
_INTEGERS = ("int", "uint")

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
#: by the comparison that keeps the loop going: how it ends, and what to add to the bound
_ENDS: dict[str, tuple[Until, int]] = {
    "<": ("least", 0), "<=": ("least", 1), "!=": ("equal", 0), "==": ("other", 0),
}  # fmt: skip


@dataclass(frozen=True)
class Spin:
    """What a poll waits for: until the word is ``until`` the value of ``goal``, plus ``more``.

    ``first``: the poll comes before its loop, which repeats it. ``kept``: the loop is entered again
    with what was loaded, and polls only if that is not enough.
    """

    poll: Poll
    until: Until
    goal: Expr
    more: int
    first: bool = False
    kept: bool = False


def reads_only(op: Atomic) -> bool:
    """Whether an ``atom.cas`` leaves the word as it is: it replaces a value by the same one."""
    return op.op == "cas" and op.compare is not None and op.compare == op.value


def spins(program: Program) -> dict[int, Spin]:
    """The polls of all waits on words of memory, by the identity of the instruction."""
    found: dict[int, Spin] = {}
    firsts: dict[int, int] = {}
    for body in _bodies(program.body):
        for before, stmt in zip((None, *body), body, strict=False):
            spin = _spin(stmt) if isinstance(stmt, While) else None
            if spin is None:
                continue
            found[id(spin.poll)] = spin
            if _repeated(before, spin.poll):
                assert isinstance(before, Load)
                found[id(before)] = replace(spin, poll=before, first=True)
                firsts[id(spin.poll)] = id(before)
    places = Counter(id(op) for op in instructions(program))
    used, kept = _used(program, found, firsts)
    for poll in kept - used:
        if found[poll].until == "least" and isinstance(found[poll].poll, Load):
            found[poll] = replace(found[poll], kept=True)
        else:
            used.add(poll)
    # an instruction that is in the program twice may belong to loops with different conditions
    return {k: spin for k, spin in found.items() if k not in used and places[k] == 1}


def counters(program: Program, found: dict[int, Spin]) -> frozenset[str]:
    """Integer tensors of which every access is a wait, an ``atom.add``, or a scalar store.

    Either no addition to a word uses what it finds there, or all of them do: they draw numbers.
    """
    drawing = drawn_tensors(program)
    polled = {view_of(s.poll).tensor.name for s in found.values()}
    names = {
        tensor.name
        for tensor in (*program.tensors, *program.shared)
        if not isinstance(tensor, Mbarriers) and tensor.dtype.kind in _INTEGERS
    } & (polled | drawing)
    names -= {name for pair in aliases(program) for name in pair}
    for op in instructions(program):
        touched = {n for e in op.effects() for n in (*tensors_read(e), *tensors_written(e))} & names
        if touched and id(op) not in found and not _counts(op):
            names -= touched
    return frozenset(names)


def drawn_tensors(program: Program) -> frozenset[str]:
    """Tensors with an addition whose result is used."""
    return frozenset(
        op.dst.tensor.name
        for op in instructions(program)
        if isinstance(op, Atomic) and op.op == "add" and op.result is not None
    )


def only_drawn(program: Program, name: str) -> bool:
    """Whether the result of every addition to a tensor is used."""
    return not any(
        isinstance(op, Atomic) and op.result is None and op.dst.tensor.name == name
        for op in instructions(program)
    )


def _counts(op: Op) -> bool:
    return isinstance(op, Store) or (isinstance(op, Atomic) and op.op == "add")


def view_of(poll: Poll) -> View:
    """The word that is polled."""
    return poll.src if isinstance(poll, Load) else poll.dst


def _bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    yield body
    for stmt in body:
        for region in children(stmt):
            yield from _bodies(region)


def _spin(stmt: While) -> Spin | None:
    """The wait that a loop is, if its body only polls; else None."""
    poll, *fences = stmt.body or (None,)
    if not all(_is_fence(f) for f in fences):
        return None
    match poll:
        case Load(var=var, sem="acquire" | "relaxed"):
            pass
        case Atomic(result=Var() as var) if reads_only(poll):
            pass
        case _:
            return None
    bound = _bound(stmt.cond, var)
    if bound is None or bound[0] not in _ENDS:
        return None
    operands = [bound[1], *expressions_in(view_of(poll))]
    if isinstance(poll, Atomic):
        operands.append(poll.value)
    if any(_mentions(e, var) for e in operands):
        return None
    until, more = _ENDS[bound[0]]
    return Spin(poll, until, bound[1], more)


def _is_fence(stmt: Stmt) -> bool:
    """Whether a statement does nothing but order accesses of its own thread."""
    effects = stmt.effects() if isinstance(stmt, Op) else ()
    return bool(effects) and all(
        isinstance(e, Crosses) or (isinstance(e, Orders) and (e.acquires or e.releases))
        for e in effects
    )


def _bound(cond: Expr, var: Var) -> tuple[str, Expr] | None:
    """The comparison that ``cond`` makes between the register and something else."""
    match cond:
        case Unary("not", Var() as flag) if flag == var:
            return "==", Const(0)
        case Unary("not", inner):
            found = _bound(inner, var)
            return found and (_NEGATED[found[0]], found[1])
        case Binary(op, lhs, rhs) if op in _MIRRORED and lhs == var:
            return op, rhs
        case Binary(op, lhs, rhs) if op in _MIRRORED and rhs == var:
            return _MIRRORED[op], lhs
        case Binary(op, lhs, rhs) if op in _MIRRORED and var.dtype.kind == "int":
            moved = _moved(lhs, rhs, var)
            return moved and (_MIRRORED[op] if moved[0] else op, moved[1])
        case _:
            return None


def _moved(lhs: Expr, rhs: Expr, var: Var) -> tuple[bool, Expr] | None:
    """Whether ``lhs`` has the register with a minus, and what to compare it with alone."""
    match lhs:
        case Binary("-", other, inner) if inner == var:
            return True, other - rhs
        case Binary("-", inner, other) if inner == var:
            return False, rhs + other
        case Binary("+", inner, other) | Binary("+", other, inner) if inner == var:
            return False, rhs - other
        case _:
            return None


def _mentions(expr: Expr, var: Var) -> bool:
    return any(isinstance(e, Var) and e.name == var.name for e in walk(expr))


def _repeated(before: Stmt | None, poll: Poll) -> bool:
    """Whether the statement before a loop is the same poll."""
    if not isinstance(before, Load) or not isinstance(poll, Load):
        return False
    return before == poll and poll.src.cta is None


def _used(
    program: Program, found: dict[int, Spin], firsts: dict[int, int]
) -> tuple[set[int], set[int]]:
    """The polls whose value is used by anything but the condition of their own loop, and those
    whose loop is entered again with it.

    In the program in which these loops make one trip, what a condition can see is what was there
    before the loop; it may be what the poll before it (``firsts``) has seen.
    """
    used: set[int] = set()
    kept: set[int] = set()
    for warp in _representatives(program):
        # by loop: the poll before it, and its own
        own: dict[int, tuple[int, int]] = {}

        def once(
            stmt: Stmt, warp: int = warp, own: dict[int, tuple[int, int]] = own
        ) -> tuple[Stmt, ...]:
            match stmt:
                case Role(warps=warps, body=body):
                    return body if warp in warps else ()
                case While(cond=cond, body=body) if body and id(body[0]) in found:
                    single = If(cond=cond, then=body, loc=stmt.loc)
                    own[id(single)] = firsts.get(id(body[0]), 0), id(body[0])
                    return (single,)
                case _:
                    return (stmt,)

        def look(stmt: Stmt, state: Reaching, own: dict[int, tuple[int, int]] = own) -> None:
            seen = _setters(stmt, state) & found.keys()
            first, poll = own.get(id(stmt), (0, 0))
            again = seen & {poll} if not first else set()
            kept.update(again)
            used.update(seen - {first} - again)

        visit(replace(program, body=rewrite(program.body, once)), look)
    return used, kept


def _representatives(program: Program) -> Iterable[int]:
    """A warp for each set of roles that some warps have."""
    roles = [s for s in walk_statements(program.body) if isinstance(s, Role)]
    kinds = {tuple(w in r.warps for r in roles): w for w in reversed(range(program.warps))}
    return kinds.values()


def _setters(stmt: Stmt, state: Reaching) -> set[int]:
    """What may have set the registers that a statement uses."""
    names = {e.name for expr in _operands(stmt) for e in walk(expr) if isinstance(e, Var)}
    return {setter for name in names for setter in state.get(name, ())}


def _operands(stmt: Stmt) -> Iterator[Expr]:
    """The expressions that a statement evaluates itself, results left out."""
    match stmt:
        case For():
            yield from (stmt.start, stmt.stop, stmt.step)
        case While() | If():
            yield stmt.cond
        case Op():
            for name in OPERANDS[type(stmt)]:
                yield from expressions_in(getattr(stmt, name))
        case _:
            pass
