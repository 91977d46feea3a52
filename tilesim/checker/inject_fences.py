"""Puts in the fences that a check misses: ``tcgen05.fence`` (G22), ``fence.proxy.async`` (H.4).

What a check reports says which accesses lack a fence. It may stand before each hand-over of the
warps that make the earlier one, and after each wait of those that make the later one. All of these
places get a fence; then one after another is taken out again without which no more is reported than
with all of them, those in inner loops first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from tilesim.checker.verdict import first_run
from tilesim.findings.finding import Finding, Participant
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, SyncWarp
from tilesim.ir.ops.fence import FenceProxyAsync
from tilesim.ir.ops.tcgen05 import Tcgen05Fence
from tilesim.ir.program import For, If, Program, Strict, While
from tilesim.mistakes.context import DATA, Facts, Place, has
from tilesim.mistakes.edits import changed
from tilesim.sim.machine.simulate import Run, Simulation, check_inputs
from tilesim.transforms.rewrite import edited

Inputs: TypeAlias = Mapping[str, NDArray[Any]]
#: where a fence may stand: the number of a statement, and whether it is behind that
Spot: TypeAlias = tuple[int, bool]
#: the numbers of two accesses, the later one first, between which there is no fence
Lack: TypeAlias = tuple[int, int]

#: more findings than a run has
_EVERY = 1 << 20


def inject_tcgen05_fence(program: Program, *, inputs: Inputs | None = None) -> Program:
    """``program`` with the ``tcgen05.fence`` instructions that strictness ``ptx`` asks for.

    A ``before_thread_sync`` goes before a hand-over of completed loads and stores, or of the order
    of what was issued; an ``after_thread_sync`` goes after a wait through which the thread learns
    of an access that conflicts with a later one of its own. Fences that are there count, none is
    removed, and programs that lack none are returned as they are. ``inputs``: what tensors hold
    that decides about control flow, zeros where missing.
    """
    if "tcgen05" not in program.target.features:
        return program
    rules = ("tcgen05-order", "tmem-lifetime")
    before, after = (Tcgen05Fence(side=s) for s in ("before_thread_sync", "after_thread_sync"))
    fences = _Fences(program, "ptx", inputs or {}, rules, before, after)
    if not fences.lacking(()):
        return program
    users = [p for p in fences.facts.ops if has(p, fx.UsesTmem, fx.FreesTmem)]
    spots = {(number, False) for number in fences.handing_over(users)}
    spots |= {(number, True) for number in fences.waiting(users)}
    return fences.put(fences.needed(spots))


def inject_proxy_fence(
    program: Program, *, strict: Strict = "practice", inputs: Inputs | None = None
) -> Program:
    """``program`` with the ``fence.proxy.async`` that its hand-overs to the async proxy lack.

    The fence goes after generic accesses, before the synchronisation that hands them over, in the
    warps that made them, whatever others fence (H11); where they are asynchronous themselves
    (cp.async, st.async) or nothing is handed over, before the instruction of the async proxy. At
    ``practice`` these are writes, at ``ptx`` also reads of what the async proxy overwrites. Fences
    that are there count, none is removed. ``inputs``: as `inject_tcgen05_fence` takes them.
    """
    if "tma" not in program.target.features:
        return program
    fences, for_all_memory = (
        _Fences(program, strict, inputs or {}, ("proxy-fence",), FenceProxyAsync(space=space))
        for space in ("shared::cta", None)
    )
    by_warps: dict[tuple[int, ...], set[Spot]] = {}
    known: set[Lack] = set()
    while more := fences.lacking(set[Spot]().union(*by_warps.values())) - known:
        known |= more  # some show only once others have a fence
        for lack in more:
            by_warps.setdefault(fences.of(lack), set()).update(fences.before(lack))
    everywhere = set[Spot]().union(*by_warps.values())
    left = fences.lacking(everywhere)
    if left and for_all_memory.lacking(everywhere) < left:
        fences = for_all_memory
    found = (fences.needed(spots, warps) for warps, spots in by_warps.items())
    return fences.put(set[Spot]().union(*found))


class _Fences:
    """Places in a program for fences of one kind, which are ``early`` before a statement and
    ``late`` behind one; findings of some ``rules`` may say that they are missing."""

    def __init__(
        self, program: Program, strict: Strict, inputs: Inputs, rules: tuple[str, ...],
        early: Op, late: Op | None = None,
    ) -> None:  # fmt: skip
        self.facts = Facts(program)
        self._program = program
        self._strict: Strict = strict
        self._inputs = inputs
        self._rules = rules
        self._early, self._late = early, late
        self._known: dict[frozenset[Spot], frozenset[Lack]] = {}

    def put(self, spots: Collection[Spot]) -> Program:
        """The program with fences there; itself if there are none."""
        instead = {}
        for number in {number for number, _ in spots}:
            what = self.facts.places[number].stmt
            early = [changed(self._early, loc=what.loc)] if (number, False) in spots else []
            late = [changed(self._late, loc=what.loc)] if (number, True) in spots else []
            instead[number] = (*early, what, *late)
        return edited(self._program, instead) if instead else self._program

    def lacking(self, spots: Iterable[Spot]) -> frozenset[Lack]:
        """The pairs of accesses that still lack a fence with fences there."""
        there = frozenset(spots)
        if there not in self._known:
            found = (
                self._lack(f) for f in self._findings(self.put(there)) if f.rule in self._rules
            )
            self._known[there] = frozenset(lack for lack in found if lack is not None)
        return self._known[there]

    def _findings(self, program: Program) -> tuple[Finding, ...]:
        """All findings of the timed run."""
        simulation = Simulation(program, numbers=False, strict=self._strict)
        simulation.set_options(most_findings=_EVERY)
        inputs, clusters = check_inputs(program, self._inputs), list(range(simulation.groups))

        def run(some: list[int], patience: int | None) -> Run:
            return simulation.run(inputs, lambda cluster: None, some, patience=patience)

        return first_run(simulation, inputs, clusters, run, lambda survey: None).run.findings

    def _lack(self, finding: Finding) -> Lack | None:
        """The two accesses of a finding that is about two."""
        match [self._access(side) for side in finding.participants]:
            case [int(later), int(earlier)]:
                return later, earlier
            case _:
                return None

    def _access(self, side: Participant) -> int | None:
        """The number of the statement that makes an access."""
        return next(
            (p.number for p in self.facts.ops if p.loc == side.loc and has(p, *DATA, fx.FreesTmem)
             and side.warp in (None, *p.warps)), None,
        )  # fmt: skip

    def of(self, lack: Lack) -> tuple[int, ...]:
        """The warps that make the earlier access."""
        return self.facts.places[lack[1]].warps

    def needed(self, spots: Collection[Spot], warps: tuple[int, ...] | None = None) -> set[Spot]:
        """Some of the ``spots``, each of which is needed so that no more is lacking than with
        fences at all of them: of accesses of these ``warps``, or of all."""

        def left(chosen: Collection[Spot]) -> set[Lack]:
            return {x for x in self.lacking(chosen) if warps is None or self.of(x) == warps}

        def rank(spot: Spot) -> tuple[bool, int, int]:
            place = self.facts.places[spot[0]]
            loops = sum(isinstance(self.facts.places[n].what, For | While) for n in place.within)
            return not has(place, *_ACCESSES), -loops, -place.number

        chosen, best = {*spots}, left(spots)
        for spot in sorted(spots, key=rank):
            if left(chosen - {spot}) <= best:
                chosen.remove(spot)
        return chosen

    def before(self, lack: Lack) -> set[Spot]:
        """Before the hand-overs of the warps that make the earlier access, and before the later
        one."""
        later, earlier = (self.facts.places[number] for number in lack)
        found = {*self.handing_over([earlier]), later.number, self._hoisted(later, [earlier])}
        return {(number, False) for number in found}

    def handing_over(self, accesses: Sequence[Place]) -> Iterator[int]:
        """Where to put fences that belong before what the warps that make some accesses know is
        handed over; what completes asynchronously hands over nothing else (A28)."""
        for place in self._of_warps(accesses):
            if has(place, *_GIVES) and not has(place, fx.Arrives, asynchronous=True):
                yield self._hoisted(place, accesses)

    def waiting(self, accesses: Sequence[Place]) -> Iterator[int]:
        """Where to put fences that belong after waits of the warps that make some accesses."""
        for place in self._of_warps(accesses):
            if has(place, *_TAKES):
                yield self._sunk(place, accesses)

    def _of_warps(self, accesses: Sequence[Place]) -> Iterator[Place]:
        """The instructions of the warps that make some accesses."""
        warps = {warp for access in accesses for warp in access.warps}
        return (p for p in self.facts.ops if not warps.isdisjoint(p.warps))

    def _hoisted(self, place: Place, accesses: Sequence[Place]) -> int:
        """Where to put a fence that belongs before a statement, and covers accesses: all threads
        that make them execute it, not only the lane that was elected to arrive for them. It is
        outside of every branch without an access, and before the election and the warp barrier that
        lead there."""
        place = self._outside(place, accesses)
        block = self.facts.block_of[place.number]
        at = block.index(place)
        while at and isinstance(block[at - 1].what, ElectSync | SyncWarp):
            at -= 1
        return block[at].number

    def _sunk(self, place: Place, accesses: Sequence[Place]) -> int:
        """Where to put a fence that belongs after a statement and before accesses."""
        place = self._outside(place, accesses)
        block = self.facts.block_of[place.number]
        at = block.index(place)
        while at + 1 < len(block) and isinstance(block[at + 1].what, SyncWarp):
            at += 1
        return block[at].number

    def _outside(self, place: Place, accesses: Sequence[Place]) -> Place:
        """The outermost branch around a statement without an access, or the statement."""
        for number in reversed(place.within):
            around = self.facts.places[number]
            if not isinstance(around.what, If) or any(number in a.within for a in accesses):
                break
            place = around
        return place


#: effects by which a thread hands over what it knows, and by which it learns what others know
_GIVES = (fx.Arrives, fx.JoinsBarrier, fx.JoinsCluster)
_TAKES = (fx.Waits, fx.JoinsBarrier, fx.JoinsCluster)
#: effects of what a fence stands before if no hand-over will do
_ACCESSES = (fx.Reads, fx.Writes, fx.ReadsMap, fx.WritesMap)
