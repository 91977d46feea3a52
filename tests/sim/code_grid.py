"""A program of several clusters made flat: lines with jumps."""

from __future__ import annotations

from tests.sim import steps as s
from tests.sim.code_lanes import IllFormed
from tests.sim.steps import Small, Step

#: where a warp is that has ended
END = -1


class Line:
    """A step, and where its warp goes on (``no``: if a condition does not hold)."""

    __slots__ = ("after", "no", "step")

    def __init__(self, step: Step, after: int, no: int = END) -> None:
        self.step = step
        self.after = after
        self.no = no


class Code:
    """The lines of all warps and where each begins; places of global memory; slots per CTA."""

    def __init__(self, program: Small) -> None:
        self.lines: list[list[Line]] = []
        self.start: list[int] = []
        self.places = self.slots = 0
        tickets = sum(isinstance(x, (s.Ticket, s.Tiles)) for w in program.warps for x in s.every(w))
        limits = [x.limit for w in program.warps for x in s.every(w) if isinstance(x, s.Tiles)]
        # a number that was drawn is below this
        furthest = max(program.clusters * program.ctas, tickets + sum(limits))
        for steps in program.warps:
            lines: list[Line] = []
            self.start.append(_lay(lines, steps, END, None))
            self.lines.append(lines)
            for step in s.every(steps):
                if isinstance(step, (s.Put, s.Get)):
                    self.places = max(self.places, step.place + (furthest if step.by else 1))
                elif isinstance(step, (s.Cancel, s.Query)):
                    self.slots = max(self.slots, step.slot + step.stages)


def _lay(lines: list[Line], steps: tuple[Step, ...], follow: int, leave: int | None) -> int:
    """Appends lines for ``steps``, after which the warp is at ``follow``, or at ``leave`` if it
    leaves the loop; returns the first."""
    for step in reversed(steps):
        match step:
            case s.If(body=body):
                lines.append(Line(step, _lay(lines, body, follow, leave), follow))
            case s.Tiles(body=body):
                head = Line(step, END, follow)
                lines.append(head)
                place = len(lines) - 1
                head.after = _lay(lines, body, place, leave)
                follow = place
                continue
            case s.Forever(body=body):
                again = Line(step, END)
                lines.append(again)
                follow = again.after = _lay(lines, body, len(lines) - 1, follow)
                continue
            case s.Leave():
                if leave is None:
                    raise IllFormed
                lines.append(Line(step, leave, follow))
            case _:
                lines.append(Line(step, follow))
        follow = len(lines) - 1
    return follow
