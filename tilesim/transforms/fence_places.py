"""Choosing the places of fences: where they could stand, and which of those are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tilesim.transforms.fence_flow import (
    NOTHING,
    Agent,
    Carried,
    Facts,
    Flow,
    Node,
    Releases,
    State,
    Walk,
    hoisted,
    one_of,
)


def handovers(
    flow: Flow, own: Agent, carried: Carried, releases: Releases, sites: set[int]
) -> tuple[list[Node], list[Node]]:
    """Places before hand-overs of the agent's own bad facts about ``sites``.

    All of them, and those of the first hand-over after the access.
    """
    agent, nodes = one_of(own), flow.tree.nodes
    every: list[Node] = []
    first: list[Node] = []

    def handed(node: Node, state: State) -> Facts:
        if not releases(agent, node):
            return NOTHING
        return frozenset(f for f in state.bad if f.agent == agent and f.site in sites)

    def note(node: Node, state: State) -> None:
        if facts := handed(node, state):
            every.append(hoisted(node, [nodes[fact.site] for fact in facts]))

    def transfer(node: Node, state: State, walk: Walk) -> State:
        if facts := handed(node, state):
            first.append(hoisted(node, [nodes[fact.site] for fact in facts]))
            state = state.publish(facts)
        return flow.transfer(node, state, walk)

    flow.visit(own, carried, note)
    replace(flow, transfer=transfer).visit(own, carried, note)
    return every, first


def smallest(
    places: Iterable[Node],
    enough: Callable[[frozenset[int]], bool],
    preferred: Iterable[Node] = (),
    last_resort: frozenset[int] = frozenset(),
) -> frozenset[int]:
    """A subset of ``places`` that is ``enough`` and of which every element is needed.

    Given up first are the places of ``last_resort``, then those in inner loops, then those that
    are not ``preferred``, then those that come later in the program.
    """
    favoured = {node.number for node in preferred}

    def rank(node: Node) -> tuple[bool, int, bool, int]:
        return node.number not in last_resort, -node.depth, node.number in favoured, -node.number

    order = sorted({p.number: p for p in places}.values(), key=rank)
    chosen = frozenset(node.number for node in order)
    for node in order:
        if enough(chosen - {node.number}):
            chosen -= {node.number}
    return chosen
