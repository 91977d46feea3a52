"""Puts ``fence.proxy.async`` between generic accesses and asynchronous ones (SEMANTICS H.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tilesim.ir import effects as fx
from tilesim.ir.declarations import GlobalTensor, View
from tilesim.ir.ops.fence import FenceProxyAsync
from tilesim.ir.program import Program, Strict
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
    hoisted,
    mbarrier_keys,
    one_of,
    view_overlap,
)
from tilesim.transforms.fence_places import handovers, smallest

#: an access: what, whether it writes
Access = tuple[View | GlobalTensor, bool]


def inject_proxy_fence(program: Program, *, strict: Strict = "practice") -> Program:
    """``program`` with the ``fence.proxy.async`` that its hand-overs to the async proxy lack.

    The fence goes after generic writes, before the synchronisation that hands them over, in the
    threads that made them; where they are asynchronous themselves (cp.async, st.async) or nothing
    is handed over, before the instruction that reads them. At ``ptx`` generic reads of what the
    async proxy overwrites later count too. Fences that are there count, none is removed.
    """
    if "tma" not in program.target.features:
        return program
    tree = Tree.of(program)
    analysis = _Analysis(tree, strict)
    places = analysis.places()
    space: Literal["shared::cta"] | None = "shared::cta" if analysis.local else None
    return tree.insert(
        {n: FenceProxyAsync(space=space, loc=tree.nodes[n].stmt.loc) for n in places}, {}
    )


class _Analysis:
    """The places of one program; ``local``: only shared memory of the executing CTA is involved."""

    def __init__(self, tree: Tree, strict: Strict) -> None:
        self._tree = tree
        self._ptx = strict == "ptx"
        self._meetings = Meetings(tree)
        classes = Classes(tree, self._meetings.acquired)
        self._flow = Flow(classes, self._transfer, self._fence)
        self._generic = {n.number: found for n in tree.nodes if (found := _generic(n))}
        self._proxied = {n.number: found for n in tree.nodes if (found := _proxied(n))}
        self._relations: dict[tuple[int, int, bool], bool] = {}
        self._sites = {
            site
            for site in self._generic
            if any(self._clash(site, number, far=False) for number in self._proxied)
            or any(self._clash(site, number, far=True) for number in self._proxied)
        }
        #: the warps that make asynchronous accesses
        self._issuers = [
            own
            for own in classes.agents
            if any(executes(own, tree.nodes[number]) for number in self._proxied)
        ]
        self.local = all(_is_local(what) for what in self._shared_with_async())

    def places(self) -> frozenset[int]:
        """Statements before which a fence is needed."""
        if not self._sites:
            return frozenset()
        carried = {own: self._flow.carried_to(own) for own in self._issuers}
        bad = {lack for own in carried for lack in self._bad(self._flow, own, carried[own])}
        if not bad:
            return frozenset()
        nodes, sites = self._tree.nodes, {fact.site for _, fact in bad}
        issuing = [nodes[number] for number, _ in bad]
        every = [hoisted(nodes[number], [nodes[fact.site]]) for number, fact in bad]
        every = [node for node in every if node not in issuing]
        first: list[Node] = []
        for own in self._flow.classes.agents:
            load = carried.get(own) or self._flow.carried_to(own)
            found = handovers(self._flow, own, load, self._hands_over, sites)
            every += found[0]
            first += found[1]
        best = self._lacking(frozenset(n.number for n in [*issuing, *every]))
        return smallest(
            [*issuing, *every],
            lambda chosen: self._lacking(chosen, best) == best,
            first,
            frozenset(node.number for node in issuing),
        )

    def _lacking(self, before: frozenset[int], most: int | None = None) -> int:
        """How many accesses lack a fence if some stand there, counted to one more than ``most``."""
        flow, bad = replace(self._flow, before=before), set[tuple[int, Fact]]()
        for own in self._issuers:
            bad |= self._bad(flow, own, flow.carried_to(own))
            if most is not None and len(bad) > most:
                break
        return len(bad)

    def _bad(self, flow: Flow, own: Agent, carried: Carried) -> set[tuple[int, Fact]]:
        """The asynchronous accesses of one warp of a class, with what is not fenced before each."""
        bad: set[tuple[int, Fact]] = set()

        def visit(node: Node, state: State) -> None:
            bad.update((node.number, fact) for fact in self._unfenced(one_of(own), node, state))

        flow.visit(own, carried, visit)
        return bad

    def _unfenced(self, agent: Agent, node: Node, state: State) -> list[Fact]:
        if node.number not in self._proxied:
            return []
        return [
            fact
            for fact in state.bad
            if fact.flavour == "complete"
            and self._clash(fact.site, node.number, far=fact.agent.cta != agent.cta)
        ]

    def _clash(self, site: int, number: int, *, far: bool) -> bool:
        """Whether a generic access and an asynchronous one (in another CTA: ``far``) conflict."""
        pair = (site, number, far)
        if pair not in self._relations:
            reach = not far or _multicast(self._tree.nodes[number])
            self._relations[pair] = any(
                (writes or (self._ptx and overwrites))
                and (reach or not (_is_local(what) and _is_local(other)))
                and self._overlap(what, other)
                for what, writes in self._generic[site]
                for other, overwrites in self._proxied[number]
            )
        return self._relations[pair]

    def _shared_with_async(self) -> list[View | GlobalTensor]:
        others = [other for found in self._proxied.values() for other, _ in found]
        mine = [what for site in self._sites for what, _ in self._generic[site]]
        return [what for what in mine if any(self._overlap(what, other) for other in others)]

    def _overlap(self, a: View | GlobalTensor, b: View | GlobalTensor) -> bool:
        if isinstance(a, View) and isinstance(b, View):
            return view_overlap(self._tree.program, a, b)
        return _tensor_name(a) == _tensor_name(b)

    # ------------------------------------------------------------------ the effect of instructions

    @staticmethod
    def _fence(_number: int, state: State, agent: Agent) -> State:
        """A fence to be inserted, before a hand-over or after it (H11).

        The agent that is asked about issues what is fenced: for it, all that it has learned counts.
        For others a fence is for what they did themselves.
        """
        if agent.one:
            return _publish(state)
        return state.publish(
            frozenset(f for f in state.bad if f.agent == agent and f.flavour == "complete")
        )

    def _transfer(self, node: Node, state: State, walk: Walk) -> State:
        agent = walk.agent
        for effect in node.effects:
            state = self._own(node, effect, state, walk)
        for key in self._meetings.released(agent, node):
            state = walk.release(key, state) if _publishes(node) else state
        for key in self._meetings.acquired(agent, node):
            state = walk.acquire(key, state).see()  # no fence is needed on this side
        return state

    def _hands_over(self, agent: Agent, node: Node) -> bool:
        return _publishes(node) and bool(self._meetings.released(agent, node))

    def _own(self, node: Node, effect: fx.Effect, state: State, walk: Walk) -> State:
        agent = walk.agent
        match effect:
            case fx.Reads(proxy="generic") | fx.Writes(proxy="generic"):
                if node.number not in self._sites:
                    return state
                flavour: Literal["issued", "complete"] = (
                    "issued" if effect.asynchronous else "complete"
                )
                return state.gain(frozenset({Fact(agent, node.number, flavour)}))
            case fx.WaitsGroup(group="cp.async"):
                issued = _issued(agent, state)
                return state.drop(issued).gain(completed(issued))
            case fx.Arrives(mbar=mbar, asynchronous=True) if not _commits(node):
                facts = completed(_issued(agent, state))
                for key in mbarrier_keys(agent, mbar):
                    walk.signal(key, Load(own_bad=facts))
                return state
            case fx.Completes(mbar=mbar) if node.number in self._sites:
                facts = frozenset({Fact(agent, node.number)})
                for key in mbarrier_keys(agent, mbar):
                    walk.signal(key, Load(own_bad=facts))
                return state
            case fx.Crosses():
                return _publish(state)
            case _:
                return state


def _publish(state: State) -> State:
    return state.publish(frozenset(f for f in state.bad if f.flavour == "complete"))


def _issued(agent: Agent, state: State) -> Facts:
    known = state.good | state.bad
    return frozenset(f for f in known if f.agent == agent and f.flavour == "issued")


def _commits(node: Node) -> bool:
    return any(isinstance(e, fx.Commits) for e in node.effects)


def _publishes(node: Node) -> bool:
    """Whether memory is released: what completes asynchronously publishes only itself (A28)."""
    return not any(isinstance(e, fx.Arrives) and e.asynchronous for e in node.effects)


# ---------------------------------------------------------------------- accesses


def _generic(node: Node) -> list[Access]:
    result: list[Access] = []
    for effect in node.effects:
        match effect:
            case fx.Reads(view=view, proxy="generic"):
                result.append((view, False))
            case fx.Writes(view=view, proxy="generic") | fx.RemoteStore(view=view):
                result.append((view, True))
            case _:
                pass
    return result


def _proxied(node: Node) -> list[Access]:
    result: list[Access] = []
    for effect in node.effects:
        match effect:
            case fx.Reads(view=view, proxy="async"):
                result.append((view, False))
            case fx.Writes(view=view, proxy="async"):
                result.append((view, True))
            case fx.ReadsMap(map=tensor_map):
                result.append((tensor_map.tensor, False))
            case fx.WritesMap(map=tensor_map):
                result.append((tensor_map.tensor, True))
            case _:
                pass
    return result


def _is_local(what: View | GlobalTensor) -> bool:
    return isinstance(what, View) and what.space == "shared" and what.cta is None


def _multicast(node: Node) -> bool:
    return any(isinstance(e, fx.Completes) and e.multicast is not None for e in node.effects)


def _tensor_name(what: View | GlobalTensor) -> str:
    return what.tensor.name if isinstance(what, View) else what.name
