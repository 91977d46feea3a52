"""Which accesses each warp may know of at every place of a program, and whether through fences.

The analysis behind the fence passes. Agents are the classes of warps that take the same roles, in
two CTAs if there are clusters. A *fact* is an access of an agent that can be known elsewhere; it
travels with every release (arrive, barrier) to the acquires (wait, barrier) of the same barrier.
What one agent B knows is computed by a fixed point over all others in which B's own releases carry
nothing: knowledge that has gone through B is not new to B.

A fact is *good* where the fence on its way has been executed and *bad* where it is missing; a fact
that is in neither set is not known. Where paths meet, bad wins. *Unseen* are facts learned since
the agent's last fence on the receiving side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.memory import Mbar
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, Exit
from tilesim.ir.passes.tree import Node, Tree
from tilesim.ir.program import Break, For, If, Role, While, instructions

Flavour = Literal["complete", "issued"]


@dataclass(frozen=True)
class Agent:
    """Warps that execute the same statements, in one CTA; ``one`` marks a single one of them."""

    cta: int
    warps: tuple[int, ...]
    one: bool = False


@dataclass(frozen=True)
class Fact:
    """``agent`` has made (``issued``) or completed the access of instruction ``site``."""

    agent: Agent
    site: int
    flavour: Flavour = "complete"


Facts = frozenset[Fact]
NOTHING: Facts = frozenset()


@dataclass(frozen=True)
class Key:
    """A barrier: its CTA (None: the cluster's), kind, name and index (None: not constant)."""

    cta: int | None
    kind: str
    name: str = ""
    index: int | None = None

    def matches(self, other: Key) -> bool:
        """Whether the two may be one barrier."""
        same = (self.cta, self.kind, self.name) == (other.cta, other.kind, other.name)
        return same and (self.index == other.index or None in (self.index, other.index))


@dataclass(frozen=True)
class State:
    """What an agent knows at one place."""

    good: Facts = NOTHING
    bad: Facts = NOTHING
    unseen: Facts = NOTHING

    def join(self, other: State | None) -> State:
        """What may be known where two paths meet."""
        if other is None or other == self:
            return self
        bad = self.bad | other.bad
        return State((self.good | other.good) - bad, bad, self.unseen | other.unseen)

    def gain(self, facts: Facts) -> State:
        """The agent's own new facts, not fenced yet."""
        return State(self.good - facts, self.bad | facts, self.unseen)

    def drop(self, facts: Facts) -> State:
        """The agent starts these accesses again: the new ones are not known to be complete."""
        return State(self.good - facts, self.bad - facts, self.unseen)

    def publish(self, facts: Facts) -> State:
        """A fence makes these facts good."""
        done = self.bad & facts
        return State(self.good | done, self.bad - done, self.unseen)

    def learn(self, good: Facts, bad: Facts) -> State:
        """What an acquire delivers."""
        bad = bad - good
        return State((self.good | good) - bad, (self.bad - good) | bad, self.unseen | good | bad)

    def see(self) -> State:
        """A fence on the receiving side."""
        return State(self.good, self.bad)


@dataclass
class Carried:
    """Facts that have been released into barriers."""

    by_key: dict[Key, tuple[Facts, Facts]] = field(default_factory=dict)
    changed: bool = False

    def put(self, key: Key, good: Facts, bad: Facts) -> None:
        """Adds facts to a barrier."""
        old_good, old_bad = self.by_key.get(key, (NOTHING, NOTHING))
        if good <= old_good and bad <= old_bad:
            return
        self.by_key[key] = (old_good | good, old_bad | bad)
        self.changed = True

    def get(self, key: Key) -> tuple[Facts, Facts]:
        """Facts that an acquire of the barrier may deliver."""
        good, bad = NOTHING, NOTHING
        for other, (more_good, more_bad) in self.by_key.items():
            if key.matches(other):
                good, bad = good | more_good, bad | more_bad
        return good, bad


@dataclass
class Walk:
    """One agent's way through the program, with the barriers it releases into."""

    agent: Agent
    carried: Carried
    releases: bool = True

    def release(self, key: Key, state: State) -> None:
        """Hands over everything known, unless this is the agent the analysis asks about."""
        if self.releases:
            self.carried.put(key, state.good, state.bad)

    def acquire(self, key: Key, state: State) -> State:
        """Learns what the barrier carries."""
        own = frozenset(f for f in state.good | state.bad if f.agent == self.agent)
        good, bad = self.carried.get(key)
        signalled = frozenset(f for f in good | bad if f.agent == self.agent and not self.releases)
        keep = own - signalled
        return state.learn(good - keep, bad - keep)


#: what an instruction does to the state of the agent that executes it; called in program order
Transfer = Callable[[Node, State, Walk], State]
#: called with the state before every instruction of the agent the analysis asks about
Visit = Callable[[Node, State], None]


@dataclass(frozen=True)
class Flow:
    """The analysis of one program; ``transfer`` is the effect of its instructions."""

    tree: Tree
    transfer: Transfer

    def agents(self) -> tuple[Agent, ...]:
        """The classes of warps of one CTA."""
        program = self.tree.program
        roles = [n.stmt for n in self.tree.nodes if isinstance(n.stmt, Role)]
        classes: dict[tuple[bool, ...], list[int]] = {}
        for warp in range(program.warps):
            classes.setdefault(tuple(warp in role.warps for role in roles), []).append(warp)
        return tuple(Agent(0, tuple(warps)) for warps in classes.values())

    def carried_to(self, who: Agent) -> Carried:
        """What the barriers carry for one warp of the class ``who``."""
        carried = Carried()
        walks = [Walk(agent, carried) for agent in self._others(who)]
        walks.append(Walk(one_of(who), carried, releases=False))
        while True:
            carried.changed = False
            for walk in walks:
                self._run(walk, None)
            if not carried.changed:
                return carried

    def visit(self, who: Agent, carried: Carried, visit: Visit) -> None:
        """Follows one warp of the class ``who`` and shows every state to ``visit``."""
        self._run(Walk(one_of(who), carried, releases=False), visit)

    def _others(self, who: Agent) -> Iterator[Agent]:
        for agent in self.agents():
            if agent != who or len(agent.warps) > 1:
                yield agent
            if self.tree.program.cluster_size > 1:
                yield Agent(1, agent.warps)

    def _run(self, walk: Walk, visit: Visit | None) -> None:
        chosen = frozenset(
            op.result.name for op in instructions(self.tree.program) if isinstance(op, ElectSync)
        )
        _Path(self.transfer, walk, visit, chosen).region(self.tree.body, State())


def one_of(agent: Agent) -> Agent:
    """A single warp of a class."""
    return Agent(agent.cta, agent.warps, one=True)


@dataclass
class _Path:
    """Structured execution of a body; None is the state after a break or an exit."""

    transfer: Transfer
    walk: Walk
    visit: Visit | None
    elected: frozenset[str]
    breaks: list[State] = field(default_factory=list)

    def region(self, body: Iterable[Node], state: State | None) -> State | None:
        for node in body:
            if state is None:
                return None
            state = self._node(node, state)
        return state

    def _node(self, node: Node, state: State) -> State | None:
        match node.stmt:
            case Op():
                if self.visit is not None:
                    self.visit(node, state)
                after = self.transfer(node, state, self.walk)
                return None if isinstance(node.stmt, Exit) and not self._partial(node) else after
            case For(start=start, stop=stop):
                return self._loop(node, state, skips=not _runs(start, stop))
            case While():
                return self._loop(node, state, skips=True)
            case If(cond=cond):
                then = self.region(node.regions[0], state)
                if isinstance(cond, Var) and cond.name in self.elected:
                    return then
                return _join(then, self.region(node.regions[1], state))
            case Role(warps=warps):
                inside = self.walk.agent.warps[0] in warps
                return self.region(node.regions[0], state) if inside else state
            case Break():
                self.breaks.append(state)
                return None

    def _loop(self, node: Node, state: State, *, skips: bool) -> State | None:
        outer, self.breaks = self.breaks, []
        head, out = state, None
        while True:
            self.breaks.clear()
            out = self.region(node.regions[0], head)
            again = head.join(out)
            if again == head:
                break
            head = again
        result = _join(head if skips else out, None)
        for left in self.breaks:
            result = _join(result, left)
        self.breaks = outer
        return result

    @staticmethod
    def _partial(node: Node) -> bool:
        """Whether only some lanes may execute the instruction."""
        parent = node.parent
        while parent is not None and not isinstance(parent.stmt, If):
            parent = parent.parent
        return parent is not None


def _join(one: State | None, other: State | None) -> State | None:
    return other if one is None else one.join(other)


def _runs(start: Expr, stop: Expr) -> bool:
    first, last = constant(start), constant(stop)
    return first is not None and last is not None and first < last


# ---------------------------------------------------------------------- barriers


def mbarrier_keys(agent: Agent, mbar: Mbar, *, everywhere: bool = False) -> tuple[Key, ...]:
    """The barriers an operation on ``mbar`` reaches: with a CTA or a mask, those of both CTAs."""
    ctas = (0, 1) if everywhere or mbar.cta is not None else (agent.cta,)
    return tuple(Key(cta, "mbarrier", mbar.array.name, constant(mbar.index)) for cta in ctas)


def released(agent: Agent, effect: fx.Effect) -> tuple[Key, ...]:
    """Barriers into which an instruction with this effect hands over what its thread knows."""
    match effect:
        case fx.Arrives(mbar=mbar, multicast=mask):
            return mbarrier_keys(agent, mbar, everywhere=mask is not None)
        case fx.JoinsBarrier(id=barrier):
            return (Key(agent.cta, "barrier", "", constant(barrier)),)
        case fx.JoinsCluster(arrives=True):
            return (Key(None, "cluster"),)
        case _:
            return ()


def acquired(agent: Agent, effect: fx.Effect) -> tuple[Key, ...]:
    """Barriers from which an instruction with this effect learns."""
    match effect:
        case fx.Waits(mbar=mbar):
            return mbarrier_keys(agent, mbar)
        case fx.JoinsBarrier(id=barrier, waits=True):
            return (Key(agent.cta, "barrier", "", constant(barrier)),)
        case fx.JoinsCluster(arrives=False):
            return (Key(None, "cluster"),)
        case _:
            return ()


# ---------------------------------------------------------------------- choosing places


def smallest(places: Iterable[Node], enough: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """A subset of ``places`` that is ``enough`` and of which every element is needed.

    Places in inner loops are given up first, then those that come later in the program.
    """
    order = sorted({p.number: p for p in places}.values(), key=lambda n: (-n.depth, -n.number))
    chosen = frozenset(node.number for node in order)
    for node in order:
        if enough(chosen - {node.number}):
            chosen -= {node.number}
    return chosen


