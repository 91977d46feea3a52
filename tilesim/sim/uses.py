"""What a program needs of the machine: barriers, components of clocks, kinds of groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.dataflow import reached
from tilesim.ir.memory import Mbar, Mbarriers
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import Op
from tilesim.sim.machine.machine import Code

#: mbarriers at addresses that there is room for: in any case, per instruction that makes some, and
#: more if it is in a loop
_FEW, _EACH, _REPEATED = 4, 2, 16


def note_uses(code: Code, mir: Mir) -> None:
    """What the machine must have for the program: barriers, components of its clocks."""
    effects = [e for op in mir.ops() for e in op.effects()]
    kernel = mir.kernel
    kinds = [(i.warps, _group_kinds(i.what)) for i in mir.code if isinstance(i.what, Op)]
    code.group_kinds = tuple(sorted(set[str]().union(*(own for _, own in kinds))))
    code.group_warps = frozenset((w, kind) for warps, own in kinds for w in warps for kind in own)
    code.mbarrier_addresses = tuple(
        sorted(
            {
                kernel.placement[s.name] + 8 * i
                for s in kernel.shared if isinstance(s, Mbarriers)
                for i in range(s.count)
            }
        )
    )  # fmt: skip
    code.spare_mbarriers = _spare_mbarriers(mir)
    code.fences_own = _reaches_peers(effects) and any(
        isinstance(e, fx.Crosses) and {"async.own", "half.own"} & {*e.targets} for e in effects
    )
    code.forgets = any(t.contents is not None for t in kernel.tensors) or any(
        isinstance(e, fx.Defines) and e.unknown for e in effects
    )
    code.fences_near = any(isinstance(e, fx.Orders) and e.near for e in effects)
    named = frozenset(_asynchronous(effects))
    code.async_tensors = named.union(name for at, name in reached(mir) if at in named)
    maps = frozenset(
        e.view.tensor.name for e in effects if isinstance(e, fx.Reads) and e.proxy == "tensormap"
    )
    code.map_tensors = maps.union(name for at, name in reached(mir) if at in maps)
    code.fence_inits = frozenset(
        warp
        for i in mir.code if isinstance(i.what, Op) and _hands_over_inits(i.what)
        for warp in i.warps
    )  # fmt: skip
    code.uses_named = any(isinstance(e, fx.JoinsBarrier) for e in effects)
    code.uses_cluster = any(isinstance(e, fx.JoinsCluster) for e in effects)
    code.uses_tcgen05 = any("tcgen05" in op.features for op in mir.ops())
    code.uses_remote_stores = any(isinstance(e, fx.RemoteStore) for e in effects)
    code.exchanges = any(isinstance(e, fx.Writes) and e.proxy == "generic" for e in effects)
    code.tracks_copies = any(isinstance(e, fx.Arrives) and e.group == "cp.async" for e in effects)
    code.has_loose_credits = any(_is_loose(op) for op in mir.ops())


def _spare_mbarriers(mir: Mir) -> int:
    """How many mbarriers ``mbarrier.init`` may make at addresses: an estimate."""
    operands = (value for op in mir.ops() for value in vars(op).values())
    if not any(isinstance(v, Mbar) and isinstance(v.array, AddressedMbarriers) for v in operands):
        return 0
    inits = [
        n
        for n, i in enumerate(mir.code)
        if isinstance(i.what, Op) and any(isinstance(e, fx.InitsMbarrier) for e in i.what.effects())
    ]
    ways_back = [(i.what.target, n) for n, i in enumerate(mir.code) if isinstance(i.what, Branch)]
    repeated = sum(any(head <= n <= end for head, end in ways_back) for n in inits)
    return _FEW + _EACH * len(inits) + _REPEATED * repeated


def _hands_over_inits(op: Op) -> bool:
    return any(isinstance(effect, fx.Orders) and effect.inits for effect in op.effects())


def _is_loose(op: Op) -> bool:
    """True if the order of such credits matters within a phase: bytes or arrivals that are expected
    apart from an arrival, and arrivals that see how many are pending."""
    for effect in op.effects():
        match effect:
            case fx.Expects() | fx.Arrives(lent=True) | fx.Arrives(partial=True):
                return True
            case _:
                pass
    return False


def _reaches_peers(effects: Iterable[fx.Effect]) -> bool:
    """True if the generic proxy accesses the shared memory of another CTA."""
    for effect in effects:
        match effect:
            case fx.RemoteStore():
                return True
            case fx.Reads(view=view, proxy="generic") | fx.Writes(view=view, proxy="generic"):
                if view.remote:
                    return True
            case _:
                pass
    return False


def _asynchronous(effects: Iterable[fx.Effect]) -> Iterator[str]:
    """The tensors that are accessed by the async proxy."""
    for effect in effects:
        match effect:
            case fx.Reads(view=view, proxy="async") | fx.Writes(view=view, proxy="async"):
                yield view.tensor.name
            case fx.ReadsMap(map=map_) | fx.WritesMap(map=map_):
                yield map_.tensor.name
            case _:
                pass


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
