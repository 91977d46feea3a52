"""What an instruction that cannot be executed as it stands means as a finding."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.op import MeaninglessOperand, Op
from tilesim.sim.findings import Rule
from tilesim.sim.machine.errors import NotUniform, OutOfBounds, UnassignedVariable
from tilesim.sim.machine.misuse import BarrierError, Side


def explain_fault(
    fault: Exception, what: str, origin: Op | Loc
) -> tuple[Rule, str, str, Side | None]:
    """(rule, message, fix, other side) of a fault of an instruction, or of control flow."""
    match fault:
        case BarrierError():
            return fault.rule, fault.message, fault.fix, fault.other
        case MeaninglessOperand(rule, message, fix):
            return rule, message, fix, None
        case OutOfBounds():
            return "out-of-bounds", f"{what} touches {fault}", "keep the index inside", None
        case NotUniform() if isinstance(origin, Op) and _is_collective(origin):
            return (
                "participation",
                f"{what} has an operand that differs between the lanes of the warp, which execute "
                "it together (E2, F1, G13)",
                "make the operand warp-uniform",
                None,
            )
        case NotUniform():
            return (
                "unsupported",
                f"{what} with an operand that differs between the lanes of a warp is not modelled",
                "make it warp-uniform, execute it in one lane at a time, or write a loop as while_",
                None,
            )
        case UnassignedVariable():
            return "uninitialised-read", f"{what} reads %{fault} before it is assigned", "", None
        case _:
            return "unsupported", f"{what}: {fault or type(fault).__name__}", "", None


def _is_collective(op: Op) -> bool:
    """Whether the lanes of a warp execute it together, with the same operands (E2, F1, G13)."""
    return any(map(_is_made_together, op.effects()))


def _is_made_together(effect: fx.Effect) -> bool:
    match effect:
        case fx.JoinsBarrier() | fx.GathersWarps() | fx.Gathers(whole=True):
            return True
        case _:
            return False
