"""What an instruction raises when its operation has no meaning in the state it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilesim.findings.finding import NOTHING_STATED, Rule, Stated
from tilesim.sim.machine.errors import Fault

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.warp import Agent


class Side(NamedTuple):
    """The other operation of a misuse."""

    warp: Agent
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
