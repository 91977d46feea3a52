"""What a program needs of the machine: barriers, components of clocks, kinds of groups."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.taint import Dataflow, aliases, reached
from tilesim.analysis.uniformity import diverging
from tilesim.analysis.uses_defs import mentions
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.expr import constant
from tilesim.ir.memory import Mbar, Mbarriers
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.ir.relaxed import fencing, stores_relaxed
from tilesim.ir.scalars import word_access
from tilesim.sim.drained import drained
from tilesim.sim.machine.groups import DRAINED
from tilesim.sim.machine.machine import Code

#: mbarriers at addresses that there is room for: in any case, per instruction that makes some, and
#: more if it is in a loop, or each lane makes its own
_FEW, _EACH, _REPEATED, _LANES = 4, 2, 16, 32


def note_uses(code: Code, mir: Mir) -> None:
    """What the machine must have for the program: barriers, components of its clocks."""
    kernel = mir.kernel
    warps = executing(mir)
    ops = ((n, i.what) for n, i in enumerate(mir.code) if isinstance(i.what, Op))
    kinds = [(warps[n], _group_kinds(op)) for n, op in ops]
    code.group_kinds = tuple(sorted(set[str]().union(*(own for _, own in kinds))))
    code.drained = drained(code.graph)
    if code.drained.stored or code.drained.given:
        code.group_kinds += (DRAINED,)
    code.group_warps = frozenset((w, kind) for some, own in kinds for w in some for kind in own)
    code.mbarrier_addresses = tuple(
        sorted(
            {
                kernel.placement[s.name] + 8 * i
                for s in kernel.shared if isinstance(s, Mbarriers)
                for i in range(s.count)
            }
        )
    )  # fmt: skip
    code.spare_mbarriers = _spare_mbarriers(code.graph)
    orders = mir.all_of(fx.Orders)
    own = (e for _, e in mir.all_of(fx.Crosses) if {"async.own", "half.own"} & {*e.targets})
    code.fences_own = kernel.cluster_size > 1 and any(own) and _reaches_peers(mir)
    code.forgets = any(t.contents is not None for t in kernel.tensors) or any(
        e.unknown for _, e in mir.all_of(fx.Defines)
    )
    code.forgets = code.forgets or any(e.ignored for _, e in mir.all_of(fx.Reads))
    code.fences_near = any(e.near for _, e in orders)
    code.fencing = fencing(mir)
    code.stores_relaxed = stores_relaxed(mir)
    code.elements = max((e.element[1] for _, e in mir.all_of(fx.Writes) if e.element), default=0)
    named = frozenset(_asynchronous(mir))
    code.async_tensors = named.union(name for at, name in reached(mir) if at in named)
    maps = {e.view.tensor.name for _, e in mir.all_of(fx.Reads) if e.proxy == "tensormap"}
    code.map_tensors = frozenset(maps).union(name for at, name in reached(mir) if at in maps)
    code.fence_inits = frozenset(w for n, e in orders if e.inits for w in warps[n])
    code.named_barriers = _named_barriers(mir)
    code.fences_sc = any(e.sc for _, e in mir.all_of(fx.Orders))
    code.uses_cluster = bool(mir.all_of(fx.JoinsCluster))
    code.uses_tcgen05 = any("tcgen05" in op.features for op in mir.ops())
    code.uses_remote_stores = bool(mir.all_of(fx.RemoteStore))
    code.async_accesses = frozenset(
        warp
        for number, effects in enumerate(mir.effects)
        if (access := word_access(effects)) is not None and access.asynchronous
        for warp in warps[number]
    )
    code.tracks_loads = any(e.asynchronous for _, e in mir.all_of(fx.Completes))
    code.exchanges = any(e.proxy == "generic" for _, e in mir.all_of(fx.Writes))
    code.losing = frozenset(n for n, e in mir.all_of(fx.Writes) if e.lost)
    arrivals = mir.all_of(fx.Arrives)
    code.tracks_copies = any(e.group == "cp.async" for _, e in arrivals)
    # the order of such credits matters within a phase: bytes or arrivals that are expected apart
    # from an arrival, arrivals that see how many are pending, and completions of no bytes
    code.has_loose_credits = (
        bool(mir.all_of(fx.Expects))
        or any(e.lent or e.partial for _, e in arrivals)
        or any(e.bytes is not None and not constant(e.bytes) for _, e in mir.all_of(fx.Completes))
    )


def _named_barriers(mir: Mir) -> tuple[int, ...]:
    """The numbers of the named barriers that instructions may join."""
    numbers = {constant(e.id) for _, e in mir.all_of(fx.JoinsBarrier)}
    return tuple(n for n in range(16) if None in numbers or n in numbers)


def _spare_mbarriers(graph: FlowGraph) -> int:
    """How many mbarriers ``mbarrier.init`` may make at addresses: an estimate."""
    mir = graph.mir
    operands = (value for op in mir.ops() for value in vars(op).values())
    if not any(isinstance(v, Mbar) and isinstance(v.array, AddressedMbarriers) for v in operands):
        return 0
    inits = [number for number, _ in mir.all_of(fx.InitsMbarrier)]
    ways_back = [(i.what.target, n) for n, i in enumerate(mir.code) if isinstance(i.what, Branch)]
    repeated = sum(any(head <= n <= end for head, end in ways_back) for n in inits)
    lanes, named = diverging(graph), mentions(mir)
    own = sum(lanes.any_differs(named[n].used, n) for n in inits)
    return _FEW + _EACH * len(inits) + _REPEATED * repeated + _LANES * own


def _reaches_peers(mir: Mir) -> bool:
    """True if a CTA accesses the shared memory of another one, through whichever proxy: it may be
    what a fence is for (a store there) or what comes after one (a copy over what its owner has
    accessed)."""
    return (
        bool(mir.all_of(fx.RemoteStore))
        or any(e.view.remote for e in _accesses(mir))
        or any(e.multicast is not None for _, e in mir.all_of(fx.Completes))
        or any(e.pair for _, e in mir.all_of(fx.Issues))
    )


def _asynchronous(mir: Mir) -> Iterator[str]:
    """The tensors that are accessed by the async proxy."""
    for access in _accesses(mir):
        if access.proxy == "async":
            yield access.view.tensor.name
    yield from (t.name for _, effect in mir.all_of(fx.ReadsMap) for t in effect.map.tensors)
    yield from (t.name for _, effect in mir.all_of(fx.WritesMap) for t in effect.map.tensors)


def _accesses(mir: Mir) -> Iterator[fx.Reads | fx.Writes]:
    yield from (effect for _, effect in mir.all_of(fx.Reads))
    yield from (effect for _, effect in mir.all_of(fx.Writes))


def _group_kinds(op: Op) -> set[str]:
    """Group kinds that an instruction uses: it completes through one, commits it, waits for it."""
    kinds: set[str] = set()
    for effect in op.effects():
        match effect:
            case fx.Commits(group="bulk") | fx.WaitsGroup(group="bulk") | fx.Issues(group="bulk"):
                kinds.update(("bulk", "bulk.write"))
            case fx.WaitsGroup(group=group) | fx.Commits(group=group) | fx.Issues(group=group):
                kinds.add(group)
            case fx.Reads(proxy="tensormap"):
                kinds.update(("bulk", "bulk.write", "bulk.map"))
            case fx.UsesTmem():
                kinds.update(("tcgen05", "tcgen05.ld", "tcgen05.st", "tcgen05.order"))
            case _:
                pass
    return kinds


def overlaid(program: Program, flow: Dataflow) -> frozenset[str]:
    """Shared allocations that overlap, where the contents of one of them may steer."""
    pairs = [pair for pair in aliases(program) if pair[1] in flow.steering]
    return frozenset(name for pair in pairs for name in pair)
