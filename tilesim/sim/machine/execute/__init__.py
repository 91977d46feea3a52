"""Effects at run time: one executor per kind, composed into the step of an instruction.

An instruction of which every effect has an executor here needs no rule of its own. What judges, for
each kind, whether its outcome is the same on every schedule is listed here, too: the certificate
takes one run for all where no condition fails and nothing else is noted, so an executor that notes
nothing would be taken for one whose outcome no schedule changes. A kind that is not listed leaves
every schedule open: no program with such an effect is proved.
"""

from tilesim.ir import effects as fx
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir
from tilesim.sim.machine.compose import EXECUTORS, execute
from tilesim.sim.machine.execute import (
    barriers,
    copies,
    fences,
    groups,
    lanes,
    launch_control,
    mbarrier,
    memory,
    register_pool,
    tensor_memory,
    tensormaps,
    wgmma,
    words,
)

__all__ = [
    "EXECUTORS", "JUDGED", "barriers", "launch_control", "mbarrier", "execute", "fences", "wgmma",
    "groups", "not_judged",
    "copies", "lanes", "memory", "register_pool", "words", "tensor_memory", "tensormaps",
]  # fmt: skip

#: by what judges them (docs/soundness.md, "The conditions"): kinds of effects
JUDGED: dict[str, tuple[type[fx.Effect], ...]] = {
    "conditions A to C2, I, T, R and P; a poll or a pending count that decides is noted": (
        fx.InitsMbarrier, fx.InvalidatesMbarrier, fx.Arrives, fx.Expects, fx.Completes, fx.Waits,
        fx.PendingCount,
    ),
    "condition N, and the round that a cluster barrier names": (fx.JoinsBarrier, fx.JoinsCluster),
    "races, and the order of strong accesses to a word": (
        fx.Reads, fx.Writes, fx.RemoteStore, fx.ReadsMap, fx.WritesMap, fx.UsesFragment,
        fx.ReleasesMaps, fx.AcquiresMap, fx.Orders, fx.Crosses,
    ),
    "the order of accesses to tensor memory (G.5, G.6)": (fx.UsesTmem, fx.OrdersTmem),
    "the addresses of allocations, where they decide": (
        fx.AllocatesTmem, fx.FreesTmem, fx.RelinquishesTmem,
    ),
    "the grants of the register pool": (fx.Registers,),
    "the answers of launch control": (fx.Cancels, fx.Queries),
    "which lane is elected, and a chance that is named": (fx.Elects, fx.Defines),
    "nothing: they concern the executing warpgroup and what it has issued, or the grids before": (
        fx.Issues, fx.Commits, fx.WaitsGroup, fx.FencesFragments, fx.Gathers, fx.GathersWarps,
        fx.Shuffles, fx.Agrees, fx.Exits, fx.Prefetches, fx.WaitsGrids,
    ),
}  # fmt: skip
_KINDS = frozenset(kind for kinds in JUDGED.values() for kind in kinds)


@cached
def not_judged(mir: Mir) -> dict[int, str]:
    """By number: instructions with effects of which nothing judges the outcome, and their kind."""
    return {
        number: type(effect).__name__
        for number, effects in enumerate(mir.effects)
        for effect in effects
        if type(effect) not in _KINDS
    }
