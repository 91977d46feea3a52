"""Branches by which data makes all threads of a CTA end: ``if (blockIdx.x >= *n) return;``.

All of them go one way (`tilesim.analysis.uniformity`), and nobody in another CTA learns of it. In
the run they stay; that they end is a run of its own for each time that they come to such a branch
(docs/soundness.md, "Branches on which a CTA agrees").
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.uniformity import agreed
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.scalars import communicates
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown
from tilesim.sim.skipped import led_to

#: how often a CTA may come to such a branch
_MOST = 16


@dataclass(frozen=True)
class Leaving:
    """A branch: who ends goes on at ``end``, where nothing else is done, the others at ``stay``."""

    number: int
    end: int
    stay: int

    def decide(self, w: Warp, value: Unknown) -> bool:
        """The active lanes end or stay, as the run is told; False if that would not be what all
        threads of the CTA do, as far as one knows."""
        if w.mask != w.live_mask or w.origin is not w or w.stayed >= _MOST:
            return False
        machine, turn = w.machine, w.stayed
        number, _ = machine.outcome.leaves.setdefault(turn, (self.number, value))
        if number != self.number:
            return False  # another warp has come to another branch
        machine.irregular += 1
        w.stayed += 1
        w.pc = self.end if turn == machine.options.leaves else self.stay
        return True


def leaving(graph: FlowGraph, number: int, target: int) -> Leaving | None:
    """What a branch is by which all threads of a CTA end, or none."""
    mir = graph.mir
    if mir.kernel.cluster_size > 1 or communicates(mir) or mir.all_of(fx.Cancels):
        return None
    ways = ((number + 1, target), (target, number + 1))
    found = [Leaving(number, end, stay) for end, stay in ways if _ends(graph, led_to(graph, end))]
    return found[0] if len(found) == 1 and number in agreed(graph) else None


def _ends(graph: FlowGraph, number: int) -> bool:
    """Whether threads end at an instruction."""
    if number == len(graph.mir.code):
        return True
    instruction = graph.mir.code[number]
    what = instruction.what
    exits = isinstance(what, Op) and any(isinstance(e, fx.Exits) for e in what.effects())
    return exits and instruction.guard is None
