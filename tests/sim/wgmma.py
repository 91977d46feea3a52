"""wgmma in the reference model: what the order of instructions of one warpgroup decides (F3 to F7).

Warpgroups do not branch in the programs of this family, so this can be said of their lines.
"""

from __future__ import annotations

from tests.sim import steps as s
from tests.sim.code import END, Line


def note_groups(lines: list[Line], at: int) -> int:
    """Sets what the waits of a warpgroup learn and which lines break a rule; returns the reads that
    nobody waits for."""
    open_: list[Line] = []
    closed: list[list[Line]] = []
    flying: list[Line] = []
    # all accumulators are filled at the start, so the first mma needs a fence (F3)
    touched, fenced = set[int](), False
    while at != END:
        line = lines[at]
        match line.step:
            case s.WgFence():
                fenced, touched = True, set()
            case s.WgMma(acc=acc):
                if not fenced or acc in touched:
                    line.breaks = "wgmma-order"
                open_.append(line)
                flying.append(line)
            case s.WgCommit():
                closed.append(open_)
                open_ = []
            case s.WgWait(pending=pending):
                over = [x for group in closed[: max(0, len(closed) - pending)] for x in group]
                line.events = (sum(x.events[0] for x in over),)
                flying = [x for x in flying if x not in over]
            case s.WgUse(acc=acc):
                if any(isinstance(x.step, s.WgMma) and x.step.acc == acc for x in flying):
                    line.breaks = "wgmma-order"
                touched.add(acc)
            case _:
                pass
        at = line.after
    return sum(x.events[0] for x in flying)
