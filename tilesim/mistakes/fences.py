"""Fences, commits and waits for groups that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesim.ir import effects as fx
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarSync
from tilesim.ir.ops.bulk import BulkCommitGroup, BulkWaitGroup
from tilesim.ir.ops.cluster import GriddepWait
from tilesim.ir.ops.cp_async import CpAsyncCommitGroup, CpAsyncWaitGroup
from tilesim.ir.ops.fence import Fence, FenceProxyAsync
from tilesim.ir.ops.mbarrier import FenceMbarrierInit
from tilesim.ir.ops.tcgen05 import Tcgen05Fence, Tcgen05Wait
from tilesim.ir.ops.tensormap import FenceProxyTensormapAcquire, FenceProxyTensormapRelease
from tilesim.ir.ops.wgmma import WgmmaCommitGroup, WgmmaFence, WgmmaWaitGroup
from tilesim.ir.program import For, While
from tilesim.mistakes.context import DATA, Facts, Focus, Place, effects_of, has
from tilesim.mistakes.edits import Edit, beside, by_line, changed, family, of_places
from tilesim.transforms.rewrite import Instead


def inserted(ops: tuple[Op, ...], where: Iterable[Place], *, late: bool = False) -> Iterator[Edit]:
    """The instructions put in before (``late``: after) some; those of one line at once."""
    said = " and ".join(dict.fromkeys(_said(op) for op in ops))
    side = "after" if late else "before"
    for places in by_line(where):
        new = [
            (p, beside(p, late, *(changed(op, loc=p.loc) for op in ops))[0]) for p in places
        ]  # fmt: skip
        yield of_places(f"{said} {side} {brief(places[0])}", new, 2)


def _said(op: Op) -> str:
    for detail in ("side", "kind", "space"):
        if getattr(op, detail, None):
            return f"{op.mnemonic}.{getattr(op, detail)}"
    return op.mnemonic


def brief(place: Place) -> str:
    """A statement in a few words: a region by its line, as it may have no other name."""
    if isinstance(place.what, Op):
        return place.op.mnemonic
    kind = "loop" if isinstance(place.what, For | While) else "block"
    return f"the {kind} at {place.loc.short}"


def statements_near(facts: Facts, focus: Focus, most: int) -> list[Place]:
    """The statements that are not farther from the finding than ``most``, or in a block with one on
    its lines, or with a region that has one."""
    hit = {n for p in facts.places if focus.distance(p) == 0 for n in (p.number, *p.within)}
    close = {p.number for b in facts.blocks if any(p.number in hit for p in b) for p in b}
    return [p for p in facts.places if p.number in close or focus.distance(p) <= most]


def regions(facts: Facts, numbers: set[int]) -> list[Place]:
    """The regions with some of these statements in them."""
    return [
        p for p in facts.places
        if not isinstance(p.what, Op) and any(q.number in numbers for q in facts.inside(p.number))
    ]  # fmt: skip


@family("proxy fence")
def _proxy(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """fence.proxy.async behind generic accesses, or before what hands them over."""
    asynchronous = any(has(p, fx.Reads, fx.Writes, proxy="async") for p in facts.ops)
    if not asynchronous:
        return
    close = statements_near(facts, focus, 2)
    around = [p for p in close if not isinstance(p.what, Op)]
    generic = [
        p for p in close
        if any(isinstance(e, fx.Reads | fx.Writes) and e.proxy == "generic"
               and e.view.space == "shared" for e in effects_of(p))
    ]  # fmt: skip
    for fence in ((FenceProxyAsync(space="shared::cta"),), (FenceProxyAsync(),)):
        yield from inserted(fence, generic, late=True)
        yield from inserted(fence, filter(_hands_over, close))
        yield from inserted(fence, around, late=True)
        yield from inserted(fence, around)


@family("map fence")
def _maps(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """fence.proxy.tensormap: the acquire before copies by maps in memory, the release behind what
    writes these, or before what hands that over."""
    uses = [
        (place, effect.view) for place in facts.ops for effect in place.op.effects()
        if isinstance(effect, fx.Reads) and effect.proxy == "tensormap"
    ]  # fmt: skip
    for place, view in uses:
        yield from inserted((FenceProxyTensormapAcquire(map=view),), [place])
    maps = {view.tensor.name for _, view in uses}
    written = [
        place for place in facts.ops for effect in place.op.effects()
        if isinstance(effect, fx.Writes) and effect.view.tensor.name in maps
    ]  # fmt: skip
    release = (FenceProxyTensormapRelease(),)
    yield from inserted(release, written, late=True)
    if uses:
        yield from inserted(release, filter(_hands_over, statements_near(facts, focus, 2)))


def _hands_over(place: Place) -> bool:
    return has(place, fx.Arrives, fx.JoinsBarrier, fx.JoinsCluster, fx.Gathers)


@family("init fence")
def _init(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """fence.mbarrier_init behind the inits."""
    inits = [p for p in facts.ops if has(p, fx.InitsMbarrier)]
    yield from inserted((FenceMbarrierInit(),), inits[-1:], late=True)


@family("memory fence")
def _memory(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """fence.acq_rel around accesses that the finding names."""
    fence = Fence(scope="cluster") if facts.kernel.cluster_size > 1 else Fence(scope="gpu")
    close = [p for p in statements_near(facts, focus, 0) if isinstance(p.what, Op)]
    for late in (False, True):
        yield from inserted((fence,), close, late=late)


@family("grid wait")
def _grid(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """griddepcontrol.wait before accesses, where the grid before may still use what they access."""
    if any(tensor.dependent for tensor in facts.kernel.tensors):
        close = [p for p in statements_near(facts, focus, 0) if isinstance(p.what, Op)]
        yield from inserted((GriddepWait(),), close)


@family("tcgen05 fence")
def _tcgen05(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """tcgen05.fence before what hands over, after what takes over, tcgen05.wait after loads."""
    if "tcgen05" not in {f for p in facts.ops for f in p.op.features}:
        return
    close = statements_near(facts, focus, 2)
    gives = list(filter(_hands_over, close))
    takes = [p for p in close if has(p, fx.Waits, fx.JoinsBarrier, fx.JoinsCluster)]
    yield from inserted((Tcgen05Fence(side="before_thread_sync"),), gives)
    yield from inserted((Tcgen05Fence(side="after_thread_sync"),), takes, late=True)
    for wait in (Tcgen05Wait(kind="ld"), Tcgen05Wait(kind="st")):
        moves = [p for p in close if has(p, fx.UsesTmem, kind=wait.kind)]
        yield from inserted((wait,), moves, late=True)
        yield from inserted((wait,), gives)
    yield from _both_sides(facts)


def _both_sides(facts: Facts) -> Iterator[Edit]:
    """Both fences of what hands tensor memory over, where they are missing: one without the other
    orders nothing. Of each barrier, then of all of them."""
    users = {p.role for p in facts.ops if has(p, fx.UsesTmem)}
    sides: dict[object, list[tuple[Place, Instead]]] = {}
    for place in facts.ops:
        if place.role in users and not has(place, *DATA):
            for effect in place.op.effects():
                on, gives, takes = _side_of(effect)
                new = _fenced(facts, place, gives, takes)
                if len(new) > 1:
                    sides.setdefault(on, []).append((place, new))
                    break
    every = [side for places in sides.values() for side in places]
    for places in (*sides.values(), every):
        if len(places) > 1 or any(len(new) > _ONE for _, new in places):
            where = " and ".join(dict.fromkeys(brief(place) for place, _ in places))
            yield of_places(f"tcgen05.fence around {where}", places, 2)


#: an instruction and a fence
_ONE = 2


def _side_of(effect: fx.Effect) -> tuple[object, bool, bool]:
    """What is handed over by: a barrier, and whether this effect gives and takes."""
    match effect:
        case fx.Arrives(mbar=mbar, group=None):
            return mbar.array, True, False
        case fx.Waits(mbar=mbar):
            return mbar.array, False, True
        case fx.JoinsBarrier(id=number, waits=waits):
            return number, True, waits
        case fx.JoinsCluster(arrives=arrives):
            return fx.JoinsCluster, arrives, not arrives
        case _:
            return None, False, False


def _fenced(facts: Facts, place: Place, gives: bool, takes: bool) -> Instead:
    """What hands over, with the fences that are not there already."""
    block = facts.block_of[place.number]
    here = block.index(place)
    around = [p.what for p in (*block[max(0, here - 1) : here], *block[here + 1 : here + 2])]
    there = {op.side for op in around if isinstance(op, Tcgen05Fence)}
    first = changed(Tcgen05Fence(side="before_thread_sync"), loc=place.loc)
    last = changed(Tcgen05Fence(side="after_thread_sync"), loc=place.loc)
    return (
        *((first,) if gives and "before_thread_sync" not in there else ()),
        place.what,
        *((last,) if takes and "after_thread_sync" not in there else ()),
    )


@family("wgmma")
def _wgmma(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """wgmma.fence before, commit and wait behind products."""
    numbers = {p.number for p in facts.ops if has(p, fx.Issues) and has(p, fx.GathersWarps)}
    if not numbers:
        return
    runs = [[p for p in block if p.number in numbers] for block in facts.blocks]
    first, last = ([run[n] for run in runs if run] for n in (0, -1))
    ends = [p for p in facts.ops if isinstance(p.what, WgmmaCommitGroup)]
    commit, wait = WgmmaCommitGroup(), WgmmaWaitGroup()
    yield from inserted((WgmmaFence(),), first)
    yield from inserted((commit,), last, late=True)
    yield from inserted((wait,), ends, late=True)
    yield from inserted((commit, wait), last, late=True)
    uses = [p for p in statements_near(facts, focus, 2) if has(p, fx.Arrives, fx.UsesFragment)]
    yield from inserted((wait,), uses)
    yield from inserted((wait,), regions(facts, numbers), late=True)


@family("group")
def _group(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """Commits and waits of copies that go in groups."""
    gives = list(filter(_hands_over, facts.places))
    kinds: tuple[tuple[str, Op, tuple[Op, ...]], ...] = (
        ("bulk", BulkCommitGroup(), (BulkWaitGroup(read=True), BulkWaitGroup())),
        ("cp.async", CpAsyncCommitGroup(), (CpAsyncWaitGroup(),)),
    )
    for group, commit, waits in kinds:
        issues = [p for p in facts.ops if has(p, fx.Issues, group=group)]
        if not issues:
            continue
        around = regions(facts, {p.number for p in issues})
        closes = [p for p in facts.ops if type(p.what) is type(commit)]
        yield from inserted((commit,), issues, late=True)
        common = [
            p for p in statements_near(facts, focus, 1)
            if len(p.warps) == facts.kernel.warps and not p.one and not p.within
        ]  # fmt: skip
        meeting = BarSync(id=Const(0))
        # before what all threads do: those that have issued wait, and the others for them
        for wait in waits:
            yield from inserted((wait, meeting), common)
        for wait in waits:
            yield from inserted((wait,), closes, late=True)
            yield from inserted((commit, wait), issues, late=True)
            yield from inserted((wait,), gives)
            yield from inserted((wait,), around, late=True)
