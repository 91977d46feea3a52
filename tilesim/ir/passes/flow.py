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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, Exit
from tilesim.ir.passes.tree import Node, Tree
from tilesim.ir.passes.warps import lanes_taking
from tilesim.ir.program import Break, For, If, Role, While

Flavour = Literal["complete", "issued"]


@dataclass(frozen=True)
class Agent:
    """Warps that execute the same statements, in one CTA; ``one`` marks a single one of them."""

    cta: int
    warps: tuple[int, ...]
    one: bool = False

    def __hash__(self) -> int:
        return self.cta << 8 | self.warps[0] << 1 | self.one


@dataclass(frozen=True)
class Fact:
    """``agent`` has made (``issued``) or completed the access of instruction ``site``."""

    agent: Agent
    site: int
    flavour: Flavour = "complete"

    def __hash__(self) -> int:
        return hash((self.site, self.flavour, self.agent))


Facts = frozenset[Fact]
NOTHING: Facts = frozenset()


@dataclass(frozen=True)
class Key:
    """A barrier: its CTA (None: the cluster's), name and index (None: not constant).

    ``place`` is the statement at which all its threads meet, None if that is not known.
    """

    cta: int | None
    name: str
    index: int | None = None
    place: int | None = None

    def matches(self, other: Key) -> bool:
        """Whether the two may be one barrier, in one round."""
        return (
            (self.cta, self.name) == (other.cta, other.name)
            and (self.index == other.index or None in (self.index, other.index))
            and (self.place == other.place or None in (self.place, other.place))
        )


@dataclass(frozen=True)
class State:
    """What an agent knows at one place.

    ``direct`` are facts that came from the barrier into which their own agent had arrived, and
    ``settled`` those that an access of this agent has followed. Until this agent hands over to
    theirs, they cannot have happened again in a way that matters, so what comes by other ways
    (``direct``) or by any way (``settled``) is no news.
    """

    good: Facts = NOTHING
    bad: Facts = NOTHING
    unseen: Facts = NOTHING
    direct: Facts = NOTHING
    settled: Facts = NOTHING

    def join(self, other: State | None) -> State:
        """What may be known where two paths meet."""
        if other is None or other == self:
            return self
        bad = self.bad | other.bad
        return State(
            (self.good | other.good) - bad,
            bad,
            self.unseen | other.unseen,
            self.direct & other.direct,
            self.settled & other.settled,
        )

    def gain(self, facts: Facts) -> State:
        """The agent's own new facts, not fenced yet."""
        return replace(self, good=self.good - facts, bad=self.bad | facts)

    def drop(self, facts: Facts) -> State:
        """The agent starts these accesses again: nothing is known of the new ones."""
        return State(
            self.good - facts,
            self.bad - facts,
            self.unseen - facts,
            self.direct - facts,
            self.settled - facts,
        )

    def publish(self, facts: Facts) -> State:
        """A fence makes these facts good."""
        done = self.bad & facts
        if not done:
            return self
        return replace(self, good=self.good | done, bad=self.bad - done)

    def learn(self, good: Facts, bad: Facts, direct: Facts) -> State:
        """What an acquire delivers.

        What an agent said itself, unfenced, is the latest: that others know of a fence is older.
        """
        stale = self.settled | ((self.direct - self.unseen) - direct)
        stale |= (self.direct & self.bad) - direct
        good, bad = good - stale, bad - good - stale
        return State(
            (self.good | good) - bad,
            (self.bad - good) | bad,
            self.unseen | good | bad,
            (self.direct - good - bad) | (direct - stale),
            self.settled,
        )

    def see(self) -> State:
        """A fence on the receiving side."""
        return replace(self, unseen=NOTHING) if self.unseen else self

    def settle(self, facts: Facts) -> State:
        """The agent makes an access that follows these facts."""
        return replace(self, settled=self.settled | (facts - self.unseen))

    def reopen(self, agents: frozenset[Agent]) -> State:
        """The agent hands over to ``agents``, which may then make their accesses again."""
        gone = frozenset(f for f in self.direct | self.settled if f.agent in agents)
        if not gone:
            return self
        return replace(self, direct=self.direct - gone, settled=self.settled - gone)


@dataclass(frozen=True)
class Load:
    """What a barrier carries: facts from their own agents, and what others know of them.

    What its own agent says of a fact counts; where there are several ways, bad wins.
    """

    good: Facts = NOTHING
    bad: Facts = NOTHING
    own_good: Facts = NOTHING
    own_bad: Facts = NOTHING

    def __or__(self, other: Load) -> Load:
        return Load(
            self.good | other.good,
            self.bad | other.bad,
            self.own_good | other.own_good,
            self.own_bad | other.own_bad,
        )

    @property
    def direct(self) -> Facts:
        """Facts that their own agents have released."""
        return self.own_good | self.own_bad

    @property
    def facts(self) -> Facts:
        """All facts, fenced or not."""
        return self.good | self.bad | self.direct

    @property
    def unfenced(self) -> Facts:
        """The facts that arrive without their fence."""
        return self.own_bad | (self.bad - self.direct)


@dataclass
class Carried:
    """Facts that have been released into barriers, and who acquires from them."""

    waiters: Mapping[Key, frozenset[Agent]]
    by_key: dict[Key, Load] = field(default_factory=dict)
    changed: bool = False
    _waiting: dict[Key, frozenset[Agent]] = field(default_factory=dict)

    def put(self, key: Key, load: Load) -> None:
        """Adds facts to a barrier."""
        old = self.by_key.get(key, Load())
        new = old | load
        if new != old:
            self.by_key[key] = new
            self.changed = True

    def get(self, key: Key) -> Load:
        """Facts that an acquire of the barrier may deliver."""
        result = Load()
        for other, load in self.by_key.items():
            if key.matches(other):
                result |= load
        return result

    def waiting(self, key: Key) -> frozenset[Agent]:
        """The agents that acquire from a barrier."""
        if key not in self._waiting:
            found = (agents for other, agents in self.waiters.items() if key.matches(other))
            self._waiting[key] = frozenset(agent for agents in found for agent in agents)
        return self._waiting[key]


@dataclass
class Walk:
    """One agent's way through the program, with the barriers it releases into.

    ``asked``: it is the agent that the analysis asks about, whose releases carry nothing.
    """

    agent: Agent
    carried: Carried
    tree: Tree
    asked: bool = False

    def release(self, key: Key, state: State) -> State:
        """Hands over everything known."""
        if not self.asked:
            facts = state.good | state.bad
            own = frozenset(f for f in facts if f.agent == self.agent)
            good, bad = state.good, state.bad
            self.carried.put(key, Load(good - own, bad - own, good & own, bad & own))
        return state.reopen(self.carried.waiting(key))

    def signal(self, key: Key, load: Load) -> None:
        """The completion of the agent's own asynchronous operations, also its own news."""
        self.carried.put(key, load)

    def acquire(self, key: Key, state: State) -> State:
        """Learns what the barrier carries."""
        load = self.carried.get(key)
        mine = NOTHING
        if not self.asked:
            mine = frozenset(f for f in state.good | state.bad if f.agent == self.agent)
        mine |= frozenset(f for f in state.good - state.unseen if self._once(f))
        bad = load.unfenced - mine
        return state.learn(load.facts - mine - bad, bad, load.direct - mine)

    def _once(self, fact: Fact) -> bool:
        """Whether one warp makes the access, and once: what is known of it is never out of date."""
        one = fact.agent.one or len(fact.agent.warps) == 1
        return one and self.tree.nodes[fact.site].depth == 0


#: what an instruction does to the state of the agent that executes it; called in program order
Transfer = Callable[[Node, State, Walk], State]
#: called with the state before every instruction of the agent the analysis asks about
Visit = Callable[[Node, State], None]


#: barriers from which an agent learns at an instruction
Waits = Callable[[Agent, Node], Iterable[Key]]

#: whether an agent hands over what it knows at an instruction
Releases = Callable[[Agent, Node], bool]


@dataclass(frozen=True)
class Classes:
    """The classes of warps of one program, and what is known of each."""

    tree: Tree
    waits: Waits

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        """The classes of warps of one CTA."""
        classes: dict[tuple[object, ...], list[int]] = {}
        for warp in range(self.tree.program.warps):
            taken = (_taken(node, warp) for node in self.tree.nodes)
            classes.setdefault(tuple(t for t in taken if t is not None), []).append(warp)
        return tuple(Agent(0, tuple(warps)) for warps in classes.values())

    @cached_property
    def branches(self) -> Mapping[tuple[int, int], tuple[bool, bool]]:
        """What is known of branches, by number and first warp of the agent; see `lanes_taking`."""
        return {
            (node.number, agent.warps[0]): taken
            for agent in self.agents
            for node in self.tree.nodes
            if isinstance(node.stmt, If)
            and (taken := lanes_taking(node.stmt.cond, agent.warps[0])) is not None
        }

    @cached_property
    def elected(self) -> frozenset[str]:
        """Predicates that hold in one lane of every warp."""
        ops = (node.stmt for node in self.tree.nodes)
        return frozenset(op.result.name for op in ops if isinstance(op, ElectSync))

    @cached_property
    def waiters(self) -> Mapping[Agent, Mapping[Key, frozenset[Agent]]]:
        """By the class that is asked about, the others that acquire from barriers."""
        return {who: self._waiters(who) for who in self.agents}

    def others(self, who: Agent) -> Iterator[Agent]:
        """All agents beside one warp of the class ``who``."""
        for agent in self.agents:
            if agent != who or len(agent.warps) > 1:
                yield agent
            if self.tree.program.cluster_size > 1:
                yield Agent(1, agent.warps)

    def _waiters(self, who: Agent) -> Mapping[Key, frozenset[Agent]]:
        result: dict[Key, frozenset[Agent]] = {}
        others = tuple(self.others(who))
        for node in self.tree.nodes:
            for agent in others if node.effects else ():
                for key in self.waits(agent, node) if executes(agent, node) else ():
                    result[key] = result.get(key, frozenset()) | {agent}
        return result


@dataclass(frozen=True)
class Flow:
    """The analysis of one program; ``transfer`` is the effect of its instructions.

    ``fence`` is the effect of the fences to be put before the statements ``before``; those after
    the statements ``after`` make the agent see what it has learned.
    """

    classes: Classes
    transfer: Transfer
    fence: Callable[[int, State, Agent], State]
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()

    @property
    def tree(self) -> Tree:
        """The statements of the program."""
        return self.classes.tree

    def carried_to(self, who: Agent) -> Carried:
        """What the barriers carry for one warp of the class ``who``."""
        carried = Carried(self.classes.waiters[who])
        walks = [Walk(agent, carried, self.tree) for agent in self.classes.others(who)]
        walks.append(Walk(one_of(who), carried, self.tree, asked=True))
        while True:
            carried.changed = False
            for walk in walks:
                self._run(walk, None)
            if not carried.changed:
                return carried

    def visit(self, who: Agent, carried: Carried, visit: Visit) -> None:
        """Follows one warp of the class ``who`` and shows every state to ``visit``."""
        self._run(Walk(one_of(who), carried, self.tree, asked=True), visit)

    def _run(self, walk: Walk, visit: Visit | None) -> None:
        _Path(self, walk, visit).region(self.tree.body, State())


def executes(agent: Agent, node: Node) -> bool:
    """Whether the roles around an instruction have the agent's warps."""
    parent = node.parent
    while parent is not None:
        if isinstance(parent.stmt, Role) and agent.warps[0] not in parent.stmt.warps:
            return False
        parent = parent.parent
    return True


def _taken(node: Node, warp: int) -> object:
    """What a branch or role means for a warp, None for other statements."""
    match node.stmt:
        case Role(warps=warps):
            return warp in warps
        case If(cond=cond):
            return lanes_taking(cond, warp) or "unknown"
        case _:
            return None


def one_of(agent: Agent) -> Agent:
    """A single warp of a class."""
    return Agent(agent.cta, agent.warps, one=True)


@dataclass
class _Path:
    """Structured execution of a body; None is the state after a break or an exit."""

    flow: Flow
    walk: Walk
    visit: Visit | None
    breaks: list[State] = field(default_factory=list)

    def region(self, body: Iterable[Node], state: State | None) -> State | None:
        for node in body:
            if state is None:
                return None
            state = self._node(node, state)
        return state

    def _node(self, node: Node, state: State) -> State | None:
        if node.number in self.flow.before:
            state = self.flow.fence(node.number, state, self.walk.agent)
        result = self._statement(node, state)
        if result is not None and node.number in self.flow.after:
            return result.see()
        return result

    def _statement(self, node: Node, state: State) -> State | None:
        match node.stmt:
            case Op():
                if self.visit is not None:
                    self.visit(node, state)
                if not node.effects and not isinstance(node.stmt, Exit):
                    return state
                after = self.flow.transfer(node, state, self.walk)
                return None if isinstance(node.stmt, Exit) and not self._partial(node) else after
            case For(start=start, stop=stop):
                return self._loop(node, state, skips=not _runs(start, stop))
            case While():
                return self._loop(node, state, skips=True)
            case If():
                return self._branch(node, state)
            case Role(warps=warps):
                inside = self.walk.agent.warps[0] in warps
                return self.region(node.regions[0], state) if inside else state
            case Break():
                self.breaks.append(state)
                return None

    def _branch(self, node: Node, state: State) -> State | None:
        assert isinstance(node.stmt, If)
        then, orelse = node.regions
        taken = self.flow.classes.branches.get((node.number, self.walk.agent.warps[0]))
        if isinstance(node.stmt.cond, Var) and node.stmt.cond.name in self.flow.classes.elected:
            taken = (True, False)
        match taken:
            case (True, False):  # the lanes of a warp go both ways, one after the other
                return self.region(orelse, self.region(then, state))
            case (True, True):
                return self.region(then, state)
            case (False, _):
                return self.region(orelse, state)
            case _:
                return _join(self.region(then, state), self.region(orelse, state))

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
