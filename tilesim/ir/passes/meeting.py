"""The barriers through which an instruction hands over what its thread knows, and learns."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Special, Var, constant, walk
from tilesim.ir.memory import Mbar
from tilesim.ir.passes.flow import Agent, Key
from tilesim.ir.passes.tree import Node, Tree
from tilesim.ir.program import For, If, Role

#: special registers that differ between the warps of a CTA
_PER_WARP = ("warp_id", "lane_id", "thread_id")


class Meetings:
    """The barriers of a program's instructions; looked up once per agent and statement."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._released: dict[tuple[Agent, int], tuple[Key, ...]] = {}
        self._acquired: dict[tuple[Agent, int], tuple[Key, ...]] = {}

    def released(self, agent: Agent, node: Node) -> tuple[Key, ...]:
        """Barriers into which the instruction hands over what its thread knows."""
        place = (agent, node.number)
        if place not in self._released:
            keys = (key for e in node.effects for key in _released(agent, self._tree, node, e))
            self._released[place] = tuple(keys)
        return self._released[place]

    def acquired(self, agent: Agent, node: Node) -> tuple[Key, ...]:
        """Barriers from which the instruction learns."""
        place = (agent, node.number)
        if place not in self._acquired:
            keys = (key for e in node.effects for key in _acquired(agent, self._tree, node, e))
            self._acquired[place] = tuple(keys)
        return self._acquired[place]


def _released(agent: Agent, tree: Tree, node: Node, effect: fx.Effect) -> tuple[Key, ...]:
    match effect:
        case fx.Arrives(mbar=mbar, multicast=mask):
            return mbarrier_keys(agent, mbar, everywhere=mask is not None)
        case fx.JoinsBarrier(id=barrier):
            place = node.number if _all_meet(agent, tree, node, effect) else None
            return (Key(agent.cta, "barrier", constant(barrier), place),)
        case fx.JoinsCluster(arrives=True):
            return (Key(None, "cluster", None, _cluster_round(tree, node)),)
        case _:
            return ()


def _acquired(agent: Agent, tree: Tree, node: Node, effect: fx.Effect) -> tuple[Key, ...]:
    match effect:
        case fx.Waits(mbar=mbar):
            return mbarrier_keys(agent, mbar)
        case fx.JoinsBarrier(waits=True):
            return _released(agent, tree, node, effect)
        case fx.JoinsCluster(arrives=False):
            return (Key(None, "cluster", None, _cluster_round(tree, node)),)
        case _:
            return ()


def mbarrier_keys(agent: Agent, mbar: Mbar, *, everywhere: bool = False) -> tuple[Key, ...]:
    """The barriers an operation on ``mbar`` reaches: with a CTA or a mask, those of both CTAs."""
    ctas = (0, 1) if everywhere or mbar.cta is not None else (agent.cta,)
    return tuple(Key(cta, f"mbarrier {mbar.array.name}", constant(mbar.index)) for cta in ctas)


def _all_meet(agent: Agent, tree: Tree, node: Node, effect: fx.JoinsBarrier) -> bool:
    """Whether all threads of a named barrier come to this very statement."""
    warps = tree.program.warps
    parent = node.parent
    while parent is not None:
        if isinstance(parent.stmt, Role):
            warps = min(warps, len(parent.stmt.warps))
        parent = parent.parent
    return effect.count(32 * tree.program.warps) == 32 * warps and _uniform_path(node)


def _uniform_path(node: Node) -> bool:
    """Whether all warps that come to the statement's role take the branches around it."""
    counters: set[str] = set()
    conditions: list[Expr] = []
    parent = node.parent
    while parent is not None:
        match parent.stmt:
            case If(cond=cond):
                conditions.append(cond)
            case For(var=var):
                counters.add(var.name)
            case _:
                pass
        parent = parent.parent
    return all(_same_for_all(e, counters) for cond in conditions for e in walk(cond))


def _same_for_all(expr: Expr, counters: set[str]) -> bool:
    match expr:
        case Var(name=name):
            return name in counters
        case Special(name=name):
            return name not in _PER_WARP
        case _:
            return True


def _cluster_round(tree: Tree, node: Node) -> int | None:
    """The arrive that a statement of the cluster barrier belongs to, None if not all meet there."""
    joins = [(n, e) for n in tree.nodes for e in n.effects if isinstance(e, fx.JoinsCluster)]
    if not all(_top_level(n) for n, _ in joins):
        return None
    arrives = [n for n, join in joins if join.arrives]
    before = [n.number for n in arrives if n.number <= node.number]
    return before[-1] if before else None


def _top_level(node: Node) -> bool:
    return not isinstance(node.parent.stmt, If | Role) if node.parent is not None else True
