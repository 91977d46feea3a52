"""What a grid writes that those it lets start may read too early (SEMANTICS D16).

``griddepcontrol.launch_dependents`` publishes nothing: the next grid may run from then on, and sees
what this one writes when it has completed, which is what ``griddepcontrol.wait`` there waits for. A
dependent that does not wait is another program, and not looked at. So a proof names the writes that
come after the instruction, or that are perhaps not performed when it is executed.
"""

from __future__ import annotations

from tilesim.analysis.cfg import FlowGraph
from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.leaning import Leaning

_LAUNCHES = "griddepcontrol.launch_dependents"
#: scopes of fences behind which another grid sees what was written
_WIDE = ("gpu", "sys")


def early_dependents(graph: FlowGraph) -> Leaning | None:
    """What a proof takes for granted of the grids that a kernel lets start, if it is anything."""
    launches = [
        n for n, i in enumerate(graph.mir.code)
        if isinstance(i.what, Op) and i.what.mnemonic == _LAUNCHES
    ]  # fmt: skip
    writes = _writes(graph.mir) if launches else []
    found: dict[Loc, None] = {}
    for launch in launches:
        late = [w for w in writes if not _performed(graph, w, launch)]
        if late:
            places = (launch, *late)
            found |= dict.fromkeys(graph.mir.code[number].loc for number in places)
    if not found:
        return None
    first = next(iter(found))
    text = (
        f"if grids that may start at {first} (griddepcontrol.launch_dependents) read nothing that "
        "this one writes before it has completed"
    )
    return Leaning("dependents", text, tuple(found), "assumption")


def _writes(mir: Mir) -> list[int]:
    """The instructions that write what another grid can read."""
    return [
        number for number, effects in enumerate(mir.effects)
        if any(
            isinstance(e, fx.WritesMap) or (isinstance(e, fx.Writes) and e.view.space != "shared")
            for e in effects
        )
    ]  # fmt: skip


def _performed(graph: FlowGraph, write: int, launch: int) -> bool:
    """Whether all that a CTA does by ``write`` is done, and visible to the GPU, when one of its
    threads comes to ``launch``: a barrier of the CTA lies between, and a fence on the way."""
    effects = graph.mir.effects
    if graph.reaches(launch, write) or any(_completes_later(e) for e in effects[write]):
        return False
    barriers = [n for n, e in graph.mir.all_of(fx.JoinsBarrier) if e.waits and e.threads is None]
    fences = [n for n, e in graph.mir.all_of(fx.Orders) if _is_wide(e)]
    return any(
        _must_precede(graph, barrier, launch)
        and not graph.reaches(barrier, write)
        and any(
            graph.must_follow(write, fence)
            or (_must_precede(graph, fence, launch) and graph.must_follow(barrier, fence))
            for fence in fences
            if graph.mir.code[fence].guard is None and not graph.reaches(fence, write)
        )
        for barrier in barriers
        if graph.mir.code[barrier].guard is None
    )


def _is_wide(fence: fx.Orders) -> bool:
    return fence.releases and fence.scope in _WIDE and not (fence.near or fence.inits)


def _completes_later(effect: fx.Effect) -> bool:
    return isinstance(effect, fx.WritesMap) or (
        isinstance(effect, fx.Writes) and effect.asynchronous
    )


def _must_precede(graph: FlowGraph, number: int, other: int) -> bool:
    """Whether an instruction is executed on every way to another one."""
    block, last = graph.block_of[number], graph.block_of[other]
    return number < other if block == last else graph.dominates(block, last)
