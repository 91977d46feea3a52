"""Regions, names and control flow of a program.

Checked are roles, loops, operands that the kernel does not declare, waits that every launch
executes and no instruction can end, and the control flow of a machine program: guards, jumps that
lanes take together, and joins at which all lanes of a warp meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.uniformity import diverging
from tilesim.errors import Diagnostic
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.arithmetic import INT_MAX, INT_MIN, is_float
from tilesim.ir.declarations import Fragment, Mbar, Mbarriers, TensorMap, View
from tilesim.ir.expr import (
    Base,
    Const,
    Expr,
    ScalarParam,
    Var,
    constant,
    fraction,
)
from tilesim.ir.expr import (
    walk as walk_expr,
)
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Join, Mir, Switch
from tilesim.ir.op import Op, operand_names
from tilesim.ir.ops.bar import ElectSync, Exit
from tilesim.ir.ops.mbarrier import MbarrierWait
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While, instructions, walk
from tilesim.ir.tensor_memory import TmemView


def check_regions(program: Program) -> Iterator[Diagnostic]:
    """Roles name warps of the CTA once; `Break` is in a loop; steps are not zero."""
    yield from _regions(program.body, frozenset(range(program.warps)), "the CTA", in_loop=False)


def check_not_empty(program: Program) -> Iterator[Diagnostic]:
    """A program that is to run has an instruction."""
    if not any(True for _ in instructions(program)):
        yield Diagnostic(
            "region", f"kernel {program.name} has no instructions", program.loc,
            "record instructions with the builder, inside of the `with` blocks of their regions",
        )  # fmt: skip


def _regions(
    body: tuple[Stmt, ...], warps: frozenset[int], parent: str, *, in_loop: bool
) -> Iterator[Diagnostic]:
    for stmt in body:
        match stmt:
            case Role():
                yield from _role_problems(stmt, warps, parent)
                inside = frozenset(stmt.warps) & warps
                yield from _regions(stmt.body, inside, f"role {stmt.name}", in_loop=in_loop)
            case For():
                yield from _bound_problems(stmt)
                yield from _regions(stmt.body, warps, parent, in_loop=True)
            case While():
                yield from _regions(stmt.body, warps, parent, in_loop=True)
            case If(then=then, orelse=orelse):
                yield from _regions(then, warps, parent, in_loop=in_loop)
                yield from _regions(orelse, warps, parent, in_loop=in_loop)
            case Break() if not in_loop:
                yield Diagnostic("operand", "break outside a loop", stmt.loc)
            case _:
                pass


def _bound_problems(loop: For) -> Iterator[Diagnostic]:
    """A loop counts in s32: its bounds and its counter stay inside."""
    for what, bound in (("start", loop.start), ("stop", loop.stop), ("step", loop.step)):
        if is_float(bound):
            said = f"the loop's {what} {bound} is a floating-point number, not an integer"
            yield Diagnostic("operand", said, loop.loc, "divide integers with //")
            return
    start, stop, step = (constant(e) for e in (loop.start, loop.stop, loop.step))
    if step == 0:
        yield Diagnostic("operand", "the loop's step is zero", loop.loc)
    for what, value in (("start", start), ("stop", stop), ("step", step)):
        if value is not None and not INT_MIN <= value <= INT_MAX:
            yield Diagnostic(
                "operand", f"the loop's {what} is {value}, outside of s32", loop.loc,
                "count in s32, and compute wider numbers from the counter",
            )  # fmt: skip
    if stop is not None and step and not INT_MIN <= stop + step <= INT_MAX:
        yield Diagnostic(
            "operand", f"the loop's counter leaves s32 behind {stop} in steps of {step}", loop.loc,
            "end the loop at least one step before the type does",
        )  # fmt: skip


def _role_problems(role: Role, warps: frozenset[int], parent: str) -> Iterator[Diagnostic]:
    twice = sorted({w for w in role.warps if role.warps.count(w) > 1})
    if twice:
        yield Diagnostic(
            "role", f"role {role.name} names warp {_list(twice)} twice", role.loc,
            "name every warp once",
        )  # fmt: skip
    if not role.warps:
        yield Diagnostic("role", f"role {role.name} has no warps", role.loc)
    outside = sorted(set(role.warps) - warps)
    if outside:
        yield Diagnostic(
            "role",
            f"role {role.name} names warp {_list(outside)}, {parent} has {_list(sorted(warps))}",
            role.loc,
            "a role is a subset of the warps that reach it",
        )


def _list(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}..{numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def check_names(program: Program) -> Iterator[Diagnostic]:
    """Every operand is declared by this kernel, boxes fit their tensors, and every variable is
    assigned somewhere."""
    declared: dict[type[object], frozenset[object]] = {
        Mbar: frozenset(program.shared),
        View: frozenset((*program.shared, *program.tensors)),
        TensorMap: frozenset(program.maps),
        Fragment: frozenset(program.fragments),
        Base: frozenset(_bases(program)),
        Var: frozenset(program.variables),
        ScalarParam: frozenset(program.params),
    }
    reported: set[object] = set()
    first: dict[int, tuple[Loc, object]] = {}
    for loc, operand in _operands(program):
        if type(operand) in declared:
            first.setdefault(id(operand), (loc, operand))
    operands = [*first.values()]
    for loc, operand in operands:
        found: object = operand
        if isinstance(operand, Mbar | View) and any(
            fraction(e) is not None for e in operand.operands
        ):
            yield Diagnostic("operand", f"the address of {operand} is not an integer", loc,
                             "divide integers with //")  # fmt: skip
        if isinstance(operand, View):
            yield from _box_problems(operand, loc)
        if isinstance(operand, Mbar):
            if isinstance(operand.array, AddressedMbarriers):
                continue
            found = operand.array
        elif isinstance(operand, View):
            if isinstance(operand.tensor, AddressedTensor):
                continue
            found = operand.tensor
        if found in declared[type(operand)] or found in reported:
            continue
        reported.add(found)
        name = getattr(found, "name", str(found))
        yield Diagnostic(
            "operand",
            f"unknown {_KIND[type(operand)]} {name}: kernel {program.name} does not declare it",
            loc,
            "use the handles of this kernel's own builder",
        )
    yield from _unassigned(program, operands)


#: what lies at an address is not declared: each of its bytes is looked up
_MAX_BYTES_AT_AN_ADDRESS = 1 << 26


def _box_problems(box: View, loc: Loc) -> Iterator[Diagnostic]:
    """A box has an element or more in each dimension, and no more than its tensor; at an address it
    has strides that fit, and ends near it."""
    if isinstance(box.tensor, AddressedTensor):
        shape, strides = box.tensor.shape, box.tensor.strides
        if strides is not None and (len(strides) != len(shape) or any(s < 0 for s in strides)):
            yield Diagnostic(
                "operand", f"{box} has {len(shape)} dimensions and strides {strides}", loc,
                "give one non-negative stride in elements per dimension",
            )  # fmt: skip
            return
        reach = sum((n - 1) * s for n, s in zip(shape, box.tensor.byte_strides, strict=True))
        if reach >= _MAX_BYTES_AT_AN_ADDRESS:
            yield Diagnostic(
                "operand", f"{box} reaches {reach} bytes beyond its address, at most 64 MiB", loc,
                "declare a tensor, and access a box of it",
            )  # fmt: skip
    for dim, (size, limit) in enumerate(zip(box.extents, box.tensor.shape, strict=True)):
        if not 1 <= size <= limit:
            yield Diagnostic(
                "out-of-bounds",
                f"{box} has {size} elements in dimension {dim}, of which there are {limit}", loc,
                f"access 1 to {limit} elements at once",
            )  # fmt: skip


def _bases(program: Program) -> Iterator[Base]:
    """The addresses of what the program declares."""
    for item in program.shared:
        yield Base(item.name, "shared")
    for tensor in program.tensors:
        yield Base(tensor.name, "global")
    for map_ in program.maps:
        yield Base(map_.name, "global")


_KIND: dict[type[object], str] = {
    Base: "address of",
    Mbar: "barrier",
    View: "tensor",
    TensorMap: "tensor map",
    Fragment: "fragment",
    Var: "variable",
    ScalarParam: "parameter",
}


def _operands(program: Program) -> Iterator[tuple[Loc, object]]:
    """Everything instructions and regions refer to, expressions taken apart."""
    for stmt in program.statements:
        values: tuple[object, ...] = ()
        match stmt:
            case For():
                values = (stmt.var, stmt.start, stmt.stop, stmt.step)
            case While() | If():
                values = (stmt.cond,)
            case Op():
                values = tuple([getattr(stmt, name) for name in operand_names(type(stmt))])
            case _:
                pass
        loc = stmt.loc
        for value in values:
            if isinstance(value, Var):
                yield loc, value
            elif not isinstance(value, _PLAIN):
                for part in _parts(value):
                    yield loc, part


#: operands that refer to nothing
_PLAIN = (int, str, Const, type(None))


def _parts(value: object) -> Iterable[object]:
    match value:
        case Expr():
            return walk_expr(value)
        case View() | Mbar():
            return chain((value,), *map(walk_expr, value.operands))
        case TmemView():
            return walk_expr(value.address)
        case tuple():
            return chain.from_iterable(map(_parts, value))
        case _:
            return (value,)


def _unassigned(program: Program, operands: list[tuple[Loc, object]]) -> Iterator[Diagnostic]:
    assigned: set[Var] = {s.var for s in program.statements if isinstance(s, For)}
    for op in instructions(program):
        for effect in op.effects():
            var = getattr(effect, "var", None)
            if isinstance(var, Var):
                assigned.add(var)
    seen: set[Var] = set()
    for loc, operand in operands:
        if isinstance(operand, Var) and operand not in assigned and operand not in seen:
            seen.add(operand)
            if operand in program.variables:
                yield Diagnostic(
                    "operand", f"variable {operand.name} is used but never assigned", loc
                )


# ---------------------------------------------------------------- waits that no instruction can end


def check_waits(program: Program) -> Iterator[Diagnostic]:
    """A wait that blocks is on a barrier array that something arrives on (B003).

    Only waits that are executed for certain: not in a branch that may be empty, nor in a loop that
    may have no trips. Whether others are is for the run to say.
    """
    signalled = {
        _place(program, effect.mbar.array)
        for op in instructions(program)
        for effect in op.effects()
        if isinstance(effect, fx.Arrives)
    }
    if any(isinstance(e, fx.Arrives) and isinstance(e.mbar.array, AddressedMbarriers)
           for op in instructions(program) for e in op.effects()):  # fmt: skip
        return
    waits: dict[Mbarriers | AddressedMbarriers, MbarrierWait] = {}
    for op in _Certain(program).block(program.body):
        if isinstance(op, MbarrierWait) and constant(op.phase) == 0 and op.parity:
            waits.setdefault(op.mbar.array, op)
    for array, wait in waits.items():
        first, end = _place(program, array)
        if array in program.shared and not any(a < end and first < b for a, b in signalled):
            yield Diagnostic(
                "deadlock",
                f"{wait.mnemonic} on {wait.mbar}, but no instruction of the kernel arrives on "
                f"{array.name}",
                wait.loc,
                f"add the arrive that completes {array.name}, or remove the wait",
            )


def _place(program: Program, array: Mbarriers | AddressedMbarriers) -> tuple[int, int]:
    """Where the barriers of an array begin and end: arrays may share them."""
    base = program.placement.get(array.name)
    if base is None or isinstance(array, AddressedMbarriers):
        return 0, 0
    return base, base + array.nbytes


class _Certain:
    """Finds the instructions that some thread executes in every launch."""

    def __init__(self, program: Program) -> None:
        writers: dict[Var, set[type[Op]]] = {}
        for op in instructions(program):
            for effect in op.effects():
                if isinstance(var := getattr(effect, "var", None), Var):
                    writers.setdefault(var, set()).add(type(op))
        self._elected = {var for var, kinds in writers.items() if kinds == {ElectSync}}

    def block(self, body: tuple[Stmt, ...]) -> Iterator[Op]:
        """Those of a region that is entered for certain, up to where threads may leave it."""
        for stmt in body:
            match stmt:
                case Op():
                    yield stmt
                case Role(warps=warps, body=inner) if warps:
                    yield from self.block(inner)
                case For() if _has_trips(stmt):
                    yield from self.block(stmt.body)
                case If() if self._holds(stmt.cond):
                    yield from self.block(stmt.then)
                case _:
                    pass
            if any(isinstance(inner, (Exit, Break)) for inner in walk((stmt,))):
                return

    def _holds(self, cond: Expr) -> bool:
        """True if the condition is true in some lane of whatever warp comes here."""
        return bool(constant(cond)) or cond in self._elected


def _has_trips(loop: For) -> bool:
    start, stop, step = map(constant, (loop.start, loop.stop, loop.step))
    if start is None or stop is None or not step:
        return False
    return start < stop if step > 0 else start > stop


# ---------------------------------------------------------------- control flow of a machine program


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
                        "lanes of a warp may diverge at this jump, and its .uni excludes that",
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
            f"instruction {number} is a join at which all lanes of a warp reconverge, and "
            f"instruction "
            f"{by} may send some of them past it",
            mir.code[number].loc,
            "place the join where all paths from that branch reconverge, or leave out syncs",
        )
