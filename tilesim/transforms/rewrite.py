"""Programs with statements or instructions put in, taken out or replaced.

Faults and repairs (`tilesim.mistakes`) say of one statement what stands there instead; where
statements are, and how a program is put together again, is said here, for a tree and for machine
code, in which jumps lead to where they led.

`joined` finds where lanes go on together in code whose branches make any graph (docs/mir.md).
`bare` leaves out what a listing claims besides its instructions: that lanes on both sides of a
branch synchronise, that a loop only waits, within which bounds a counter stays, and that it is not
read after its loop. Lowering knows them; of a text written by hand they would have to be believed,
and a wrong one could make a wrong proof. So they are found again as for PTX, which has none.

`lanes_apart` lets some lanes of a warp go their own way from the start: PTX lets lanes that no
instruction keeps together run ahead or lag behind, also where all execute the same instructions. A
machine that moves warps shows no such schedule of the program as it is, but it does of this one:
those lanes execute a copy of it, and the sides of a branch that both synchronise are agents of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import overload

from tilesim.analysis.cfg import FlowGraph, Loop, graph_of, known
from tilesim.analysis.liveness import carried
from tilesim.analysis.uses_defs import only_computes
from tilesim.ir import effects as fx
from tilesim.ir.expr import Binary, Const, Special, Var
from tilesim.ir.mir import (
    Branch,
    Control,
    Instruction,
    Join,
    Mir,
    Switch,
    Trap,
    condition,
    targets_of,
)
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import Exit, SyncWarp
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import For, If, Program, Role, Stmt, While, children
from tilesim.ir.registers import machine_typing
from tilesim.records import dataclass, replace


def renumbered(mir: Mir, instead: Mapping[int, tuple[Instruction, ...]]) -> Mir:
    """``mir`` with some instructions, by number, replaced by others.

    Targets are numbers of ``mir``, also in what is new; a jump to an instruction that is replaced
    leads to the first of those in its place, or to what follows if there are none.
    """
    code = [instead.get(number, (old,)) for number, old in enumerate(mir.code)]
    first = [0]
    for group in code:
        first.append(first[-1] + len(group))
    moved = (instruction for group in code for instruction in group)
    return replace(mir, code=tuple(_moved(i, n, first) for n, i in enumerate(moved)))


def _moved(instruction: Instruction, number: int, first: list[int]) -> Instruction:
    match instruction.what:
        case Branch(target=target) as branch:
            return instruction.doing(replace(branch, target=first[target]))
        case Switch(targets=targets) as switch:
            return instruction.doing(replace(switch, targets=tuple(first[t] for t in targets)))
        case Op() as op if op.number != number:
            return instruction.doing(op.as_number(number))
        case _:
            return instruction


#: what stands at the place of a statement; of machine code, control flow as well
Instead = tuple[Stmt | Control, ...]


@dataclass(frozen=True)
class Patch:
    """Lines ``first`` to ``last`` of a file, as they are and as they should be."""

    file: str
    first: int
    last: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def statements(program: Program | Mir) -> tuple[Stmt | Control, ...]:
    """All statements by number: those of a tree in program order, regions before what is in them;
    those of machine code as it numbers them."""
    if isinstance(program, Program):
        return program.statements
    return tuple(instruction.what for instruction in program.code)


@overload
def edited(program: Program, instead: Mapping[int, Instead]) -> Program: ...
@overload
def edited(program: Mir, instead: Mapping[int, Instead]) -> Mir: ...
@overload
def edited(program: Program | Mir, instead: Mapping[int, Instead]) -> Program | Mir: ...
def edited(program: Program | Mir, instead: Mapping[int, Instead]) -> Program | Mir:
    """``program`` with some statements, by number, replaced.

    In a tree a region that is replaced by one with the same body has the edits of that body, too.
    In machine code what is new has the guard and role of what it replaces, and jumps to that lead
    to the first of it; what is moved keeps its own.
    """
    if isinstance(program, Mir):
        own = {id(program.code[number].what): program.code[number] for number in instead}
        return renumbered(program, {
            number: tuple(own.get(id(what)) or replace(program.code[number], what=what)
                          for what in new if isinstance(what, Op | Control))
            for number, new in instead.items()
        })  # fmt: skip
    return replace(program, body=_block(program.body, instead, 0)[0])


def _block(
    block: tuple[Stmt, ...], instead: Mapping[int, Instead], number: int
) -> tuple[tuple[Stmt, ...], int]:
    """A block that begins with statement ``number``, and the number of what follows it."""
    result: list[Stmt] = []
    for stmt in block:
        own = number
        number += 1
        inside: dict[int, tuple[Stmt, ...]] = {}
        for region in children(stmt):
            inside[id(region)], number = _block(region, instead, number)
        new = instead.get(own, (stmt,))
        result += [_within(s, inside) for s in new if not isinstance(s, Control)]
    return tuple(result), number


def _within(stmt: Stmt, inside: Mapping[int, tuple[Stmt, ...]]) -> Stmt:
    """A statement with the regions that it kept as they have become."""
    match stmt:
        case For(body=body) | While(body=body) | Role(body=body) if id(body) in inside:
            return replace(stmt, body=inside[id(body)])
        case If(then=then, orelse=orelse):
            return replace(
                stmt, then=inside.get(id(then), then), orelse=inside.get(id(orelse), orelse)
            )
        case _:
            return stmt


def stretches(program: Program | Mir) -> Iterator[tuple[int, ...]]:
    """Numbers of statements that are executed one after another: the blocks of a tree, with regions
    as one statement each, or what lies between jumps and their targets in machine code."""
    if isinstance(program, Program):
        yield from _blocks(program.body, 0)[0]
        return
    targets = {t for i in program.code for t in targets_of(i.what)}
    stretch: list[int] = []
    for number, instruction in enumerate(program.code):
        if number in targets and stretch:
            yield tuple(stretch)
            stretch = []
        if isinstance(instruction.what, Op):
            stretch.append(number)
        elif stretch and isinstance(instruction.what, Branch | Switch):
            yield tuple(stretch)
            stretch = []
    if stretch:
        yield tuple(stretch)


def _blocks(block: tuple[Stmt, ...], number: int) -> tuple[list[tuple[int, ...]], int]:
    own: list[int] = []
    inside: list[tuple[int, ...]] = []
    for stmt in block:
        own.append(number)
        number += 1
        for region in children(stmt):
            further, number = _blocks(region, number)
            inside += further
    return [tuple(own), *inside], number


def joined(mir: Mir) -> Mir:
    """``mir`` with a `Join` wherever lanes that went different ways may go on together.

    Ways back of loops that wait for others get ``polls``. The instructions are numbered anew.
    """
    graph = graph_of(mir)
    waits = {graph.blocks[x.tail][-1] for x in graph.loops if _waits(graph, x)}
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number in waits:
        branch = mir.code[number].what
        if isinstance(branch, Branch) and not branch.polls:
            instead[number] = (mir.code[number].doing(replace(branch, polls=True)),)
    for number in _places(graph):
        old = mir.code[number]
        join = Instruction(Join(loc=old.loc), None, old.role, left_out=old.left_out)
        instead[number] = (join, *instead.get(number, (old,)))
    return renumbered(mir, instead)


def _places(graph: FlowGraph) -> set[int]:
    """The instructions before which lanes come together: at the latest where those that a branch
    splits must, and early, but not in another turn of a loop."""
    code = graph.mir.code
    heads = {loop.head for loop in graph.loops}
    last = [block[-1] if block else -1 for block in graph.blocks]
    blocks = {b for b in graph.order if len(graph.predecessors[b]) > 1 and b not in heads}
    for block in graph.order:
        cond = condition(code[last[block]]) if last[block] >= 0 else None
        meet = graph.post_dominators[block]
        if len(graph.successors[block]) > 1 and cond is not None and known(cond, 0) is None:
            blocks |= set() if meet is None else {meet}
    starts = {graph.blocks[b].start for b in blocks if graph.blocks[b]}
    return {n for n in starts if not isinstance(code[n].what, Join)}


def _waits(graph: FlowGraph, loop: Loop) -> bool:
    """Whether a loop looks at what others do, and its iterations may all be equal; or at nothing,
    and they are."""
    code, effects = graph.mir.code, graph.mir.effects
    back = code[graph.blocks[loop.tail][-1]].what
    if not isinstance(back, Branch) or back.target != graph.blocks[loop.head].start:
        return False
    numbers = [n for block in loop.blocks for n in graph.blocks[block]]
    looks = any(
        isinstance(e, fx.Reads) or (isinstance(e, fx.Waits) and e.poll)
        for n in numbers
        for e in effects[n]
    )
    return not any(_counts(code[n]) for n in numbers) if looks else _repeats_itself(graph, loop)


def _repeats_itself(graph: FlowGraph, loop: Loop) -> bool:
    """Whether each turn of a loop computes what the one before it did, and does nothing else."""
    what = [graph.mir.code[n].what for block in loop.blocks for n in graph.blocks[block]]
    if any(isinstance(w, Trap) or (isinstance(w, Op) and not only_computes(w)) for w in what):
        return False
    return not carried(graph, loop.head, loop.blocks)


def _counts(instruction: Instruction) -> bool:
    match instruction.what:
        case Assign(var=Var(name), value=Binary("+" | "-", Var(same), Const())):
            return name == same
        case _:
            return False


def bare(mir: Mir) -> Mir:
    """``mir`` as if only its instructions were known, with the claims that follow from these.

    `Join.syncs` stays: it orders lanes, and so is an instruction. So do roles and source locations,
    which nothing but reports depends on.
    """
    code = tuple(_alone(instruction) for instruction in mir.code)
    ops = [i.what for i in code if isinstance(i.what, Op)]
    return joined(Mir(mir.kernel, code, mir.roles, machine_typing(mir.kernel, ops, {})))


def _alone(instruction: Instruction) -> Instruction:
    what = instruction.what
    if isinstance(what, Branch):
        what = replace(what, arms=False, polls=False)
    return replace(instruction, what=what, counts=False)


def lanes_apart(mir: Mir, warp: int, lanes: int) -> tuple[Mir, tuple[int, ...]]:
    """``mir`` in which ``lanes`` of a warp execute a copy of the code; and by number of the result,
    which instruction of ``mir`` it is, or where it was put in."""
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, old in enumerate(mir.code):
        if isinstance(old.what, Join) and old.what.syncs:
            join = replace(old, what=replace(old.what, syncs=False))
            instead[number] = (join, replace(old, what=SyncWarp(loc=old.loc)))
    whole = _without_exit(renumbered(mir, instead).code)
    places = tuple(n for n, old in enumerate(mir.code) for _ in instead.get(n, (old,)))
    size, end = len(whole), 2 * len(whole) + 2
    mine = ((Const(lanes) >> Special("lane_id")) & 1).ne(0) & Special("warp_id").eq(warp)

    def copy(begin: int) -> Iterator[Instruction]:
        """What begins there; its end is that of the program."""
        first = [*range(begin, begin + size), end]
        return (_moved(i, begin + n, first) for n, i in enumerate(whole))

    code = (
        Instruction(Branch(target=size + 2, cond=mine, loc=mir.kernel.loc)), *copy(1),
        Instruction(Branch(target=end, loc=mir.kernel.loc)), *copy(size + 2),
    )  # fmt: skip
    # lanes of both sides may be in different turns of one loop
    return replace(mir, code=code, local=frozenset()), (0, *places, 0, *places)


def _without_exit(code: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """``code`` that ends by running to its end, not by an exit: behind one that stands in the
    middle, as the first copy's would, lanes are not taken to meet."""
    last = code[-1]
    if not isinstance(last.what, Exit) or last.guard is not None:
        return code
    return (*code[:-1], replace(last, what=Branch(target=len(code), loc=last.what.loc)))
