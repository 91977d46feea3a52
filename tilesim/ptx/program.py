"""PTX and a launch description to MIR."""

from __future__ import annotations

from dataclasses import replace

from tilesim.ir.expr import Expr, Unary
from tilesim.ir.joins import joined
from tilesim.ir.mir import Branch, Instruction, Mir, Switch
from tilesim.ir.op import Op
from tilesim.ir.registers import machine_typing
from tilesim.ptx import rules_barriers, rules_copies, rules_memory, rules_registers, rules_wgmma
from tilesim.ptx.arithmetic import is_data, operation
from tilesim.ptx.flat import Items, Not, Register, Step, Target
from tilesim.ptx.inlining import flatten
from tilesim.ptx.launch import Launch
from tilesim.ptx.launching import launched
from tilesim.ptx.lowering import Lowering, rule_of
from tilesim.ptx.syntax import Function, Module

#: modules whose rules are used here
FAMILIES = (rules_barriers, rules_copies, rules_memory, rules_registers, rules_wgmma)


def lower(module: Module, entry: Function, launch: Launch) -> Mir:
    """The kernel ``entry`` of a module with a launch, in machine form.

    Raises:
        PtxError: what it contains is no PTX.
        Unsupported: an instruction is not modelled; the message has its line.
        LaunchError: the launch contradicts the kernel.
    """
    kernel = flatten(module, entry)
    prepared = launched(kernel, launch, module.target)
    low = Lowering(prepared, module.file)
    warps = tuple(range(prepared.program.warps))
    code: list[Instruction] = []
    starts: list[int] = []
    for step in kernel.code:
        starts.append(len(code))
        low.at(step)
        guard = _guard(low, step)
        code += (Instruction(op, guard, "", warps) for op in _lowered(low, step, guard))
    starts.append(len(code))
    code = [_placed(instruction, starts) for instruction in code]
    program = replace(
        prepared.program, variables=tuple(low.variables.values()),
        fragments=tuple(low.fragments.values()),
    )  # fmt: skip
    numbered = tuple(
        replace(i, what=replace(i.what, number=n)) if isinstance(i.what, Op) else i
        for n, i in enumerate(code)
    )
    ops = [i.what for i in numbered if isinstance(i.what, Op)]
    roles = tuple(f"warp {warp}" for warp in warps)
    return joined(Mir(program, numbered, roles, machine_typing(program, ops, {})))


def _guard(low: Lowering, step: Step) -> Expr | None:
    match step.guard:
        case Register() as register:
            return low.value(register, 1)
        case Not(register):
            return Unary("not", low.value(register, 1))
        case _:
            return None


def _lowered(low: Lowering, step: Step, guard: Expr | None) -> list[Op | Branch | Switch]:
    """What an instruction becomes; targets are numbers of instructions of the kernel."""
    if step.base == "bra":
        return [_branch(low, step)]
    if step.base == "brx":
        return [_switch(low, step)]
    rule = rule_of(step.opcode)
    if rule is not None:
        return list(rule(low, step))
    if operation(step.opcode) is not None:
        return list(rules_registers.compute(low, step))
    if is_data(step.opcode):
        return list(rules_registers.data(low, step))
    raise low.unsupported(
        "this instruction is not modelled", "see the page on PTX for what is"
    )
