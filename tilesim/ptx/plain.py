"""PTX and a launch description to MIR, one instruction after the other.

Each instruction of the text becomes those of MIR that its rule says, in the order of the text, with
its predicate; a branch stays a branch, a loop that polls a loop. Calls of functions are inlined.
What makes MIR small and fast to check are passes behind this (`tilesim.ptx.program`). The proof
kernel runs on this form, so this package is trusted but for them (docs/trust.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from tilesim.arith.opcodes import operation
from tilesim.errors import TilesimError
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Const, Expr, Special, Unary
from tilesim.ir.mir import Branch, Instruction, Mir, Switch, Trap
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import Exit
from tilesim.ir.ops.compute import Data
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.registers import machine_typing
from tilesim.limits import patient
from tilesim.ptx import grid_workspace
from tilesim.ptx.bind import launched
from tilesim.ptx.constants import ADDRESSING, naming
from tilesim.ptx.demangle import readable
from tilesim.ptx.inline import Items, Kernel, Not, Register, Step, Target, flatten
from tilesim.ptx.launch import Launch
from tilesim.ptx.liveness import only_padding
from tilesim.ptx.lowering_context import RULES, Lowering, Rule
from tilesim.ptx.rules import clc, copies, memory, registers, tcgen05, wgmma
from tilesim.ptx.rules.by_spelling import spelled
from tilesim.ptx.syntax import Function, Module
from tilesim.ptx.types_of_instructions import wrong_type
from tilesim.records import replace
from tilesim.wording import count

#: modules whose rules are used here
FAMILIES = (clc, copies, memory, registers, tcgen05, wgmma)

_What: TypeAlias = Op | Branch | Switch | Trap

#: what ends the kernel wherever a lane executes it; without a debugger `brkpt` is an error as well
_TRAPS = ("trap", "brkpt")


@patient()
def plain(module: Module, entry: Function, launch: Launch) -> Mir:
    """The kernel ``entry`` of a module with a launch in machine form, instruction by instruction.

    Raises:
        PtxError: what it contains is no PTX.
        Unsupported: an instruction is not modelled; the message has its line.
        LaunchError: the launch contradicts the kernel.
    """
    low = begun(module, entry, launch)
    code, starts = beginning(low), list[int]()
    for _, made in steps(low):
        starts.append(len(code))
        code += made
    return finished(low, code, starts)


def begun(module: Module, entry: Function, launch: Launch) -> Lowering:
    """A kernel with its launch before any instruction is lowered; raises like `plain`."""
    kernel = flatten(module, entry)
    low = Lowering(launched(kernel, launch, module.target), module.file)
    for step in kernel.code:
        if step.base == "wgmma" and step.opcode.startswith("wgmma.mma_async"):
            low.at(step)
            with _of_this_form(low, step):
                wgmma.declare(low, step)
    return low


def beginning(low: Lowering) -> list[Instruction]:
    """What comes before the first instruction of the text."""
    never = _never_set(low, low.kernel)
    return [*_missing(low), *(Instruction(what) for what in never)]


def steps(low: Lowering) -> Iterator[tuple[Step, list[Instruction]]]:
    """Each instruction of the text with what it becomes; targets of branches are numbers of
    instructions of the text. Raises like `plain`."""
    rules = _Rules(low)
    for number, step in enumerate(low.kernel.code):
        low.at(step)
        yield step, [*_instructions(rules, number, step)]


def _instructions(rules: _Rules, number: int, step: Step) -> Iterator[Instruction]:
    low, guard = rules.low, None
    if step.base == "mov" and low.tiles.renamed(step):
        return  # the assembler leaves it out
    if step.guard is not None and not _jumps(step) and step.base not in _TRAPS:
        guard = _guard(low, step)
    lowered = _lowered(rules, low.tiles.with_number(number, step))
    if number in low.tiles.numbers:
        lowered = [*low.accesses(step), *_in_tiles(low, lowered)]
    if guard is not None and _meets_lanes(step):
        yield Instruction(Branch(target=number + 1, cond=guard, sense=False, loc=low.loc))
        guard = None
    for what in lowered:
        yield Instruction(what, guard)


def _meets_lanes(step: Step) -> bool:
    """Whether it waits for other lanes of its warp, which may execute another such instruction:
    those that a guard leaves out go on meanwhile."""
    if step.opcode == "bar.warp.sync":
        return True
    return step.base == "barrier" and "aligned" not in step.qualifiers


def finished(low: Lowering, code: Sequence[Instruction], starts: Sequence[int]) -> Mir:
    """The program; ``starts``: by number of an instruction of the text, and of its end, where what
    it has become begins."""
    prepared = low.launched
    program = replace(
        prepared.program, variables=tuple(low.variables.values()),
        fragments=tuple(low.fragments.values()),
        maps=(*prepared.program.maps, *low.maps.values()),
    )  # fmt: skip
    places = (*starts, len(code))
    placed = tuple([
        _placed(i, places) if isinstance(i.what, Branch | Switch) else i for i in code
    ])  # fmt: skip
    ops = [i.what for i in placed if isinstance(i.what, Op)]
    roles = (readable(prepared.launch.entry),) * prepared.program.warps
    return Mir(program, placed, roles, machine_typing(program, ops, {}))


def _missing(low: Lowering) -> Iterator[Instruction]:
    """Threads that the last warp of a CTA lacks have ended when the kernel begins: a barrier counts
    its warp whole, and what lanes do together is done by those that live (SEMANTICS E2, E11)."""
    threads = low.launched.launch.threads
    if threads % 32:
        lacks = Special("thread_id") >= threads
        yield Instruction(Exit(loc=low.loc), lacks)


def _never_set(low: Lowering, kernel: Kernel) -> Iterator[Op]:
    """Registers that are used and that no instruction sets hold unknown values: compilers pack
    them where half of a register does not matter. Where no instruction takes that half, it may be
    0."""
    where = naming(kernel)
    never = [register for name, register in where.registers.items() if name not in where.setters]
    padding = only_padding(kernel, never)
    for register in never:
        low.at(kernel.code[0])
        # of one of 128 bits instructions name the halves, or are refused at their own lines
        results = tuple(map(low.register, low.items(clc.halves(register))))
        if register in padding:
            yield from (Assign(var=var, value=Const(0), loc=low.loc) for var in results)
        else:
            why = f"{register.name}, which no instruction sets"
            yield Data(opcode="", results=results, sources=(), why=why, loc=low.loc)


def _placed(instruction: Instruction, starts: Sequence[int]) -> Instruction:
    """Targets are numbers of instructions of the kernel until all are lowered."""
    match instruction.what:
        case Branch(target=target) as branch:
            return replace(instruction, what=replace(branch, target=starts[target]))
        case Switch(targets=targets) as switch:
            places = tuple(starts[t] for t in targets)
            return replace(instruction, what=replace(switch, targets=places))
        case _:
            return instruction


def _guard(low: Lowering, step: Step) -> Expr | None:
    match step.guard:
        case Register() as register:
            return low.value(register, 1)
        case Not(register):
            return Unary("not", low.value(register, 1))
        case _:
            return None


def _in_tiles(low: Lowering, ops: Iterable[_What]) -> Iterator[_What]:
    """What sets one of the registers for which a variable stands leaves the others as they are: of
    none of them is it known what it holds, but what that is made of."""
    for op in ops:
        effects = op.effects() if isinstance(op, Op) else ()
        results = [e.var for e in effects if isinstance(e, Defines)]
        tiled = tuple(var for var in results if var.name in low.of_tiles)
        if tiled and isinstance(op, Data):
            yield replace(op, partly=True)
            continue
        yield op
        if tiled and isinstance(op, Op):
            yield Data(opcode=op.mnemonic, results=tiled, sources=tiled, partly=True, loc=op.loc)


class _Rules(dict[str, Rule]):
    """By opcode what makes its instructions: the rule of its longest beginning that has one, or
    else the spelling of an instruction of MIR, or arithmetic."""

    def __init__(self, low: Lowering) -> None:
        super().__init__()
        self.low = low

    def __missing__(self, opcode: str) -> Rule:
        if kind := wrong_type(opcode):
            raise self.low.unsupported(f"{opcode} of .{kind} is not modelled")
        parts = opcode.split(".")
        beginnings = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        own = next((RULES[b] for b in beginnings if b in RULES), None)
        self[opcode] = found = own or self._without_one(opcode)
        return found

    def _without_one(self, opcode: str) -> Rule:
        if self.low.forms.of(opcode) is not None:
            return spelled
        if operation(opcode) is not None:
            return registers.compute
        if registers.is_data(opcode):
            return registers.data
        raise self.low.unsupported(
            "this instruction is not modelled", "see the page on PTX for what is"
        )


def _lowered(rules: _Rules, step: Step) -> Sequence[_What]:
    """What an instruction becomes; targets are numbers of instructions of the kernel.

    Raises:
        PtxError: it has not the operands of the instruction.
    """
    with _of_this_form(rules.low, step):
        return _by_its_rule(rules, step)


@contextmanager
def _of_this_form(low: Lowering, step: Step) -> Iterator[None]:
    """Rules take qualifiers and operands apart by their number.

    Raises:
        PtxError: it has not those of the instruction.
    """
    try:
        yield
    except TilesimError:
        raise
    except (IndexError, ValueError) as error:
        raise low.malformed(
            f"this form does not take {count(len(step.operands), 'operand')} of these kinds"
        ) from error


def _by_its_rule(rules: _Rules, step: Step) -> Sequence[_What]:
    """As `_lowered`, of an instruction with the operands that it has."""
    low = rules.low
    if step.base == "bra":
        return [_branch(low, step)]
    if _jumps(step) and step.base == "ret":
        return [_goes_to(len(low.kernel.code), low, step)]
    if step.base == "brx":
        return [_switch(low, step)]
    if step.base in _TRAPS:
        guard = _guard(low, step)
        cond = Const(1) if guard is None else guard
        what = f"the kernel executes {step.base}"
        return [Trap(cond=cond, what=what, aborts=True, loc=low.loc)]
    first = step.operands[0] if step.operands else None
    if isinstance(first, Register):
        place = low.constants.parameter(first) if step.base in ADDRESSING else None
        if place is not None and place.variable.name not in low.launched.variables:
            return []  # the address of a parameter is followed by `Constants`
        if first.name in low.workspace:
            return [_workspace(low, step, low.workspace[first.name])]
    if "b128" in step.qualifiers:
        step = clc.in_halves(step)
    made = [*rules[step.opcode](low, step)]
    before, low.before = low.before, []
    return before + made if before else made


def _workspace(low: Lowering, step: Step, part: grid_workspace.Part) -> Op:
    """A register that gets the address of what a grid waits with, or a part of it."""
    var = low.register(step.operands[0])
    if part == "whole":
        address = grid_workspace.address(low.launched.workspace)
        return Assign(var=var, value=address, loc=low.loc)
    why = "half of the address with which a cooperative grid waits"
    return Data(opcode="", results=(var,), sources=(), why=why, loc=low.loc)


def _branch(low: Lowering, step: Step) -> Branch:
    match step.operands:
        case (Target(number),):
            pass
        case _:
            raise low.unsupported("a branch goes to a label")
    return _goes_to(number, low, step)


def _jumps(step: Step) -> bool:
    """Whether an instruction is a jump: a return, with a predicate, if all lanes take it together,
    or none does."""
    return step.base in ("bra", "brx") or (step.guard is not None and step.opcode == "ret.uni")


def _goes_to(number: int, low: Lowering, step: Step) -> Branch:
    if step.guard is None:
        return Branch(target=number, loc=low.loc)
    negated = isinstance(step.guard, Not)
    inner = step.guard.operand if isinstance(step.guard, Not) else step.guard
    return Branch(
        target=number, cond=low.value(inner, 1), sense=not negated,
        uniform="uni" in step.qualifiers, loc=low.loc,
    )  # fmt: skip


def _switch(low: Lowering, step: Step) -> Switch:
    match step.operands:
        case (index, Items(items)) if step.guard is None:
            targets = tuple(item.number for item in items if isinstance(item, Target))
            uniform = "uni" in step.qualifiers
            return Switch(index=low.value(index, 32), targets=targets, uniform=uniform, loc=low.loc)
        case _:
            raise low.unsupported("a branch by index has a list of labels and no predicate")
