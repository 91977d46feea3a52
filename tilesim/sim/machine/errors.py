"""What an instruction raises that cannot be executed, or has no meaning in the state it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilesim.findings.finding import NOTHING_STATED, Rule, Stated
from tilesim.ir.op import MeaninglessOperand
from tilesim.sim.machine.unknown import UnknownSteers

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.labels import AgentLike


class Fault(Exception):
    """An instruction cannot be executed as it stands; `Machine.fault` turns it into a finding."""


class OutOfBounds(Fault):
    """A view leaves its ``tensor``, or names a barrier that its array has not; the message says by
    how much. ``lanes``: those of which each does, where each names a place in global memory."""

    def __init__(self, message: str, tensor: str, lanes: int = 0) -> None:
        super().__init__(message)
        self.tensor = tensor
        self.lanes = lanes


class NotUniform(Fault):
    """A tile or TMA operand depends on the lane."""


class Side(NamedTuple):
    """The other operation of a misuse."""

    warp: AgentLike
    op: Op


class BarrierError(Fault):
    """Undefined behaviour of a barrier operation: the run stops with this finding."""

    def __init__(
        self,
        rule: Rule,
        message: str,
        fix: str,
        other: Side | None = None,
        notes: tuple[str, ...] = (),
        facts: Stated = NOTHING_STATED,
        noted: Stated = NOTHING_STATED,
    ) -> None:
        super().__init__(message)
        self.rule: Rule = rule
        self.message = message
        self.fix = fix
        self.other = other
        self.notes = notes
        #: what the message and the notes state
        self.facts = facts
        self.noted = noted


class UnassignedVariable(Fault):
    """A register is read before anything was assigned to it."""


class CutOff(Exception):
    """A run cannot go on, and that is no mistake of the kernel; the message says why."""


#: the message of one that goes on and on
TOO_LONG = "the run was cut off at the step limit"


class NotKnown(CutOff):
    """It needs a value that is not known: of what comes behind, nothing is known either."""


#: what a step may raise
FAULTS = (Fault, MeaninglessOperand, UnknownSteers, ZeroDivisionError)
