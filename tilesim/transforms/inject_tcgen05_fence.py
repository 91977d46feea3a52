"""Puts the tcgen05 fences where accesses to tensor memory cross a thread synchronisation (G22)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.ops.tcgen05 import Tcgen05Dealloc, Tcgen05Fence
from tilesim.ir.ops.tcgen05_mma import Tcgen05Product
from tilesim.ir.program import Program
from tilesim.records import dataclass, replace
from tilesim.transforms.fence_flow import (
    Agent,
    Carried,
    Classes,
    Fact,
    Facts,
    Flow,
    Load,
    Meetings,
    Node,
    State,
    Tree,
    Walk,
    completed,
    executes,
    one_of,
    sunk,
    tmem_overlap,
)
from tilesim.transforms.fence_places import handovers, smallest

Side = Literal["before_thread_sync", "after_thread_sync"]

#: pairs of different kinds that execute in issue order (G19)
_PIPELINED = frozenset({("cp", "mma"), ("shift", "mma"), ("mma", "shift")})
_TRACKED_BY_COMMIT = ("mma", "cp", "shift")


def inject_tcgen05_fence(program: Program) -> Program:
    """``program`` with the ``tcgen05.fence`` instructions that strictness ``ptx`` asks for.

    A ``before_thread_sync`` goes before a hand-over of completed loads and stores, or of the order
    of what was issued; an ``after_thread_sync`` goes after a wait through which the thread learns
    of an access that conflicts with a later one of its own. Fences that are there count, none is
    removed, and programs that need none (or have no tcgen05) are returned as they are.
    """
    if "tcgen05" not in program.target.features:
        return program
    tree = Tree.of(program)
    if not any(isinstance(e, fx.UsesTmem) for node in tree.nodes for e in node.effects):
        return program
    analysis = _Analysis(tree)
    before = analysis.places_before()
    after = analysis.places_after(before)
    before = analysis.still_needed(before, after)
    return tree.insert(
        {n: _fence(tree, n, "before_thread_sync") for n in before},
        {n: _fence(tree, n, "after_thread_sync") for n in after},
    )


def _fence(tree: Tree, number: int, side: Side) -> Op:
    return Tcgen05Fence(side=side, loc=tree.nodes[number].stmt.loc)


@dataclass
class _Missing:
    """What an agent's accesses lack: facts with no fence on either side, and their agents."""

    bad: set[tuple[int, Fact]]
    unseen: set[tuple[int, Fact]]


class _Analysis:
    """The places of one program."""

    def __init__(self, tree: Tree) -> None:
        _merge_products(tree)
        self._tree = tree
        self._meetings = Meetings(tree)
        classes = Classes(tree, self._meetings.acquired)
        self._flow = Flow(classes, self._transfer, _fenced)
        self._classes = tuple(filter(self._uses_tmem, classes.agents))
        self._relations: dict[tuple[Agent, int, Agent, int], tuple[bool, bool]] = {}

    def _uses_tmem(self, agent: Agent) -> bool:
        return any(_accesses(node) for node in self._tree.nodes if executes(agent, node))

    def places_before(self) -> frozenset[int]:
        """Statements before which a ``before_thread_sync`` is needed."""
        carried, missing = self._solve(frozenset())
        sites = {fact.site for _, fact in missing.bad}
        if not sites:
            return frozenset()
        every: list[Node] = []
        first: list[Node] = []
        for own in self._classes:
            found = handovers(self._flow, own, carried[own], self._hands_over, sites)
            every += found[0]
            first += found[1]
        best = len(self._solve(frozenset(n.number for n in every))[1].bad)
        return smallest(every, lambda chosen: self._lack(chosen, frozenset(), best), first)

    def places_after(self, before: frozenset[int]) -> frozenset[int]:
        """Statements after which an ``after_thread_sync`` is needed."""
        carried, missing = self._solve(before)
        if not missing.unseen:
            return frozenset()
        candidates = self._waits(carried, missing)

        def lacking(after: frozenset[int]) -> int:
            flow = replace(self._flow, before=before, after=after)
            return sum(len(self._missing(flow, own, carried[own]).unseen) for own in self._classes)

        best = lacking(frozenset(n.number for n in candidates))
        return smallest(candidates, lambda chosen: lacking(chosen) == best)

    def still_needed(self, before: frozenset[int], after: frozenset[int]) -> frozenset[int]:
        """The places of ``before`` that are needed where fences follow the waits ``after``.

        What has been seen through such a fence does not count again when it comes another way.
        """
        best = len(self._solve(before, after)[1].bad)
        places = [self._tree.nodes[number] for number in before]
        return smallest(places, lambda chosen: self._lack(chosen, after, best))

    def _lack(self, before: frozenset[int], after: frozenset[int], count: int) -> bool:
        """Whether so many accesses lack a ``before_thread_sync``, no more and no fewer."""
        flow, bad = replace(self._flow, before=before, after=after), set[tuple[int, Fact]]()
        for own in self._classes:
            bad |= self._missing(flow, own, flow.carried_to(own)).bad
            if len(bad) > count:
                return False
        return len(bad) == count

    def _solve(
        self, before: frozenset[int], after: frozenset[int] = frozenset()
    ) -> tuple[dict[Agent, Carried], _Missing]:
        flow = replace(self._flow, before=before, after=after)
        carried = {own: flow.carried_to(own) for own in self._classes}
        found = [self._missing(flow, own, carried[own]) for own in self._classes]
        return carried, _Missing(
            {item for m in found for item in m.bad}, {item for m in found for item in m.unseen}
        )

    def _missing(self, flow: Flow, own: Agent, carried: Carried) -> _Missing:
        missing = _Missing(set(), set())
        agent = one_of(own)

        def visit(node: Node, state: State) -> None:
            if not _accesses(node):
                return
            for fact in state.good | state.bad:
                if not self._concerns(agent, node, fact, state):
                    continue
                if fact in state.bad:
                    missing.bad.add((node.number, fact))
                if fact in state.unseen:
                    missing.unseen.add((node.number, fact))

        flow.visit(own, carried, visit)
        return missing

    def _concerns(self, agent: Agent, node: Node, fact: Fact, state: State) -> bool:
        """Whether the access at ``node`` must be ordered after what the fact is about."""
        site = self._tree.nodes[fact.site]
        own = fact.agent == agent
        if own and _kind(site) not in _TRACKED_BY_COMMIT:
            return False  # a thread's own wait::ld and wait::st need no fence
        conflict, pipelined = self._relation(agent, node, fact.agent, site)
        if not conflict:
            return False
        if fact.flavour == "complete":
            return not (own and pipelined)
        return pipelined and not own and replace(fact, flavour="complete") not in state.good

    def _relation(self, agent: Agent, node: Node, other: Agent, site: Node) -> tuple[bool, bool]:
        """Whether two accesses conflict, and whether they execute in issue order."""
        pair = (agent, node.number, other, site.number)
        if pair not in self._relations:
            conflict = _conflict(agent, node, other, site)
            self._relations[pair] = conflict, conflict and _pipelined(site, node)
        return self._relations[pair]

    def _hands_over(self, agent: Agent, node: Node) -> bool:
        return bool(self._meetings.released(agent, node))

    def _transfer(self, node: Node, state: State, walk: Walk) -> State:
        """The effect of an instruction on what its agent knows."""
        agent = walk.agent
        if _accesses(node):
            known = state.good | state.bad
            state = state.settle(
                frozenset(f for f in known if self._concerns(agent, node, f, state))
            )
        for effect in node.effects:
            state = self._own(node, effect, state, walk)
        for key in self._meetings.released(agent, node):
            state = walk.release(key, state)
        for key in self._meetings.acquired(agent, node):
            state = walk.acquire(key, state)
        return state.drop(_not_issued(walk, state))

    def _own(self, node: Node, effect: fx.Effect, state: State, walk: Walk) -> State:
        agent = walk.agent
        match effect:
            case fx.UsesTmem():
                state = state.drop(frozenset({Fact(agent, node.number)}))
                return state.gain(frozenset({Fact(agent, node.number, "issued")}))
            case fx.WaitsGroup(group="tcgen05.ld" | "tcgen05.st" as group):
                issued = _issued(walk, state, (group.removeprefix("tcgen05."),))
                return state.drop(issued).gain(completed(issued))
            case fx.Commits(group="tcgen05"):
                state = _publish(state, agent)
                complete = completed(_issued(walk, state, _TRACKED_BY_COMMIT))
                for key in self._meetings.released(agent, node):
                    walk.signal(key, Load(own_good=complete))
                return state
            case fx.OrdersTmem(before=True):
                return _publish(state, agent)
            case fx.OrdersTmem(before=False):
                return state.see()
            case _:
                return state

    def _waits(self, carried: dict[Agent, Carried], missing: _Missing) -> list[Node]:
        """Places after waits that deliver what accesses lack."""
        facts = {fact for _, fact in missing.unseen}
        accesses = [self._tree.nodes[number] for number, _ in missing.unseen]
        found: list[Node] = []
        for node in self._tree.nodes:
            for own in self._classes:
                delivered = map(carried[own].get, self._meetings.acquired(own, node))
                if any(facts & load.facts for load in delivered):
                    found.append(sunk(node, accesses))
        return found


# ---------------------------------------------------------------------- the effect of instructions


def _merge_products(tree: Tree) -> None:
    """Products that follow each other into one accumulator count as one, the first.

    Nothing can come between them, and they execute in order. It keeps the number of facts small.
    """
    first: dict[int, Node] = {}
    for node in tree.nodes:
        if not isinstance(node.stmt, Tcgen05Product):
            continue
        before = first.get(node.previous.number) if node.previous is not None else None
        if before is None or not _pipelined(before, node):
            first[node.number] = node
            continue
        first[node.number] = before
        before.effects = tuple(dict.fromkeys((*before.effects, *node.effects)))
        node.effects = ()


def _fenced(_: int, state: State, agent: Agent) -> State:
    return _publish(state, agent)


def _publish(state: State, agent: Agent) -> State:
    return state.publish(frozenset(f for f in state.bad if f.agent == agent))


def _issued(walk: Walk, state: State, kinds: Iterable[str]) -> Facts:
    """What the agent has issued of these kinds and, for loads and stores, not waited for."""
    nodes = walk.tree.nodes
    return frozenset(
        f
        for f in state.good | state.bad
        if f.agent == walk.agent and f.flavour == "issued" and _kind(nodes[f.site]) in kinds
    )


def _not_issued(walk: Walk, state: State) -> Facts:
    """Own operations that the agent cannot have issued yet: a barrier carries them later only."""
    own = frozenset(f for f in state.good | state.bad if f.agent == walk.agent)
    return frozenset(
        f
        for f in own
        if f.flavour == "complete"
        and _kind(walk.tree.nodes[f.site]) in _TRACKED_BY_COMMIT
        and replace(f, flavour="issued") not in own
    )


# ---------------------------------------------------------------------- pairs of accesses


def _uses(node: Node) -> list[fx.UsesTmem]:
    return [e for e in node.effects if isinstance(e, fx.UsesTmem)]


def _accesses(node: Node) -> bool:
    return any(isinstance(e, fx.UsesTmem | fx.FreesTmem) for e in node.effects)


def _kind(node: Node) -> str:
    return _uses(node)[0].kind


def _pipelined(first: Node, second: Node) -> bool:
    """Whether the second executes after the first if it is issued after it (G19)."""
    if isinstance(second.stmt, Tcgen05Dealloc):
        return False
    if isinstance(first.stmt, Tcgen05Product) and isinstance(second.stmt, Tcgen05Product):
        one, two = first.stmt, second.stmt
        return (one.mnemonic, one.d, one.shape) == (two.mnemonic, two.d, two.shape)
    pair = (_kind(first), _kind(second))
    if pair == ("shift", "cp"):
        return getattr(second.stmt, "shape", "") == "4x256b"
    return pair in _PIPELINED


def _pairs(first: Node, second: Node) -> list[tuple[fx.UsesTmem, fx.UsesTmem]]:
    return [(a, b) for a in _uses(first) for b in _uses(second)]


def _clash(a: fx.UsesTmem, b: fx.UsesTmem) -> bool:
    if not (a.write or b.write):
        return False
    return any(tmem_overlap(one, other) for one in a.spans for other in b.spans)


def _conflict(agent: Agent, node: Node, other: Agent, site: Node) -> bool:
    pair = 2 in (getattr(node.stmt, "cta_group", 1), getattr(site.stmt, "cta_group", 1))
    if other.cta != agent.cta and not pair:
        return False
    if other.cta != agent.cta and _kind(site) in _TRACKED_BY_COMMIT and _issues(node):
        return False  # one thread of a pair issues for both CTAs
    if isinstance(node.stmt, Tcgen05Dealloc):
        return True
    moves = ("ld", "st")
    if _kind(site) in moves and _kind(node) in moves and not _share_lanes(agent, other):
        return False
    return any(_clash(a, b) for a, b in _pairs(site, node))


def _issues(node: Node) -> bool:
    return bool(_uses(node)) and _kind(node) in _TRACKED_BY_COMMIT


def _share_lanes(one: Agent, other: Agent) -> bool:
    """Whether warps of both reach the same 32 lanes."""
    if one == other:
        return True
    if one.warps == other.warps and one.cta == other.cta:
        return len({w % 4 for w in one.warps}) < len(one.warps)
    return bool({w % 4 for w in one.warps} & {w % 4 for w in other.warps})
