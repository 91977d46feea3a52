"""Multimem addresses: only multimem operations go there (SEMANTICS H20)."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.errors import Diagnostic
from tilesim.ir.expr import Base, walk
from tilesim.ir.memory import TensorMap, View
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.program import Program, instructions
from tilesim.ir.registers import operands


def check_multimem(program: Program) -> Iterator[Diagnostic]:
    """Nothing else names a tensor that lies in several devices."""
    there = {t.name for t in program.tensors if t.devices != 1}
    for tensor in program.tensors:
        if tensor.devices < 1:
            text = f"{tensor.name} lies in {tensor.devices} devices"
            yield Diagnostic("operand", text, tensor.loc)
    if not there:
        return
    for op in instructions(program):
        wrong = next((name for name in _named(op) if name in there), None)
        if wrong is not None:
            yield Diagnostic(
                "operand",
                f"{op.mnemonic}: {wrong} is a multimem address, which only multimem operations may "
                "access (H20)",
                op.loc,
                "access the memory of this device through an address of its own",
            )


def _named(op: Op) -> Iterator[str]:
    """The declarations that an instruction may not name if they lie in several devices."""
    allowed = op.mnemonic.startswith("multimem.")
    for name, value in vars(op).items():
        if name in ANNOTATIONS:
            continue
        if isinstance(value, TensorMap) or (isinstance(value, View) and not allowed):
            tensor = value.tensor
            yield tensor.name
    for operand in operands(op):
        yield from (part.name for part in walk(operand) if isinstance(part, Base))
