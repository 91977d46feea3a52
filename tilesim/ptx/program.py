"""PTX and a launch description to MIR that is small: what checks run on.

The plain form (`tilesim.ptx.plain`) with waits in place of loops that only poll, instructions that
do the same in place of several, and without detours. None of this is trusted (docs/trust.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesim.analysis.uses_defs import only_computes, operand_expressions, registers_set
from tilesim.ir.mir import Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import AccessTile, Data
from tilesim.limits import patient
from tilesim.ptx.launch import Launch
from tilesim.ptx.liveness import entered
from tilesim.ptx.passes.simplify import Together, simple, without_null_tests
from tilesim.ptx.plain import beginning, begun, finished, steps
from tilesim.ptx.syntax import Function, Module
from tilesim.records import replace
from tilesim.transforms.await_condition import with_awaits
from tilesim.transforms.rewrite import joined

#: what uses the registers of a tile otherwise, or goes where other instructions have used them
_TOUCHES = ("bra", "brx", "wgmma")


@patient()
def lower(module: Module, entry: Function, launch: Launch) -> Mir:
    """The kernel ``entry`` of a module with a launch, in machine form.

    Raises:
        PtxError: what it contains is no PTX.
        Unsupported: an instruction is not modelled; the message has its line.
        LaunchError: the launch contradicts the kernel.
    """
    low = begun(module, entry, launch)
    places = entered(low.kernel)
    together, starts = Together(), list[int]()
    together.code += beginning(low)
    #: accesses of tiles since their registers may have become others'
    accessed: set[AccessTile] = set()
    for number, (step, made) in enumerate(steps(low)):
        starts.append(len(together.code))
        if number in places:
            together.end()
        if number in places or step.base in _TOUCHES:
            accessed.clear()
        for instruction in _of_tiles(made):
            what = instruction.what
            if isinstance(what, AccessTile) and what.variable:
                if what in accessed:
                    continue
                if instruction.guard is None:
                    accessed.add(what)
            together.add(instruction)
    together.end()
    mir = finished(low, together.code, starts)
    return joined(simple(with_awaits(without_null_tests(mir)), low.given))


def _of_tiles(made: Sequence[Instruction]) -> Iterator[Instruction]:
    """What sets a register of a tile and nothing else is one instruction that makes data."""
    left = [*made]
    for number, instruction in enumerate(made):
        op = instruction.what
        match left[number + 1 : number + 2]:
            case [Instruction(what=Data(partly=True, results=results, sources=sources) as data)]:
                whole = isinstance(op, Op) and not isinstance(op, Data) and only_computes(op)
                if isinstance(op, Op) and whole and results == sources:
                    merged = replace(
                        data, results=registers_set(op), sources=operand_expressions(op)
                    )
                    left[number + 1] = replace(instruction, what=merged)
                    continue
            case _:
                pass
        yield left[number]
