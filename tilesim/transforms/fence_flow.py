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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal

from tilesim.analysis.cfg import LANES, known
from tilesim.arith.operators import integer
from tilesim.errors import reject
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.declarations import Mbar, SharedTensor, View
from tilesim.ir.effects import Effect
from tilesim.ir.expr import Binary, Const, Expr, Special, Var, constant
from tilesim.ir.expr import walk as walk_expression
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, Exit, SyncWarp
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While, children, instructions
from tilesim.ir.tensor_memory import TmemView
from tilesim.records import dataclass, field, replace
from tilesim.transforms.rewrite import edited

#: distance of two lanes in an address of tensor memory
LANE = 0x10000


def _apart(a: Expr, size_a: int, b: Expr, size_b: int) -> bool:
    (terms_a, first_a), (terms_b, first_b) = _terms(a), _terms(b)
    if terms_a != terms_b:
        return False
    return first_a + size_a <= first_b or first_b + size_b <= first_a


def _terms(expr: Expr) -> tuple[list[Expr], int]:
    """The terms of a sum that are not constant, and the sum of those that are."""
    match expr:
        case Const(value):
            return [], integer(value)
        case Binary("+", lhs, rhs):
            (left, first), (right, second) = _terms(lhs), _terms(rhs)
            return left + right, first + second
        case _:
            return [expr], 0


def _only_lanes(term: Expr) -> bool:
    """Whether a term of a tensor memory address changes the lane and not the column."""
    match term:
        case Binary("*", _, Const(value)):
            return integer(value) % LANE == 0
        case _:
            return False


def tmem_overlap(a: TmemView, b: TmemView) -> bool:
    """False only if the columns or the lanes are certainly different."""
    (terms_a, at_a), (terms_b, at_b) = _terms(a.address), _terms(b.address)
    lanes_a, lanes_b = (list(filter(_only_lanes, terms)) for terms in (terms_a, terms_b))
    if [t for t in terms_a if t not in lanes_a] != [t for t in terms_b if t not in lanes_b]:
        return True
    lane_a, column_a = divmod(at_a, LANE)
    lane_b, column_b = divmod(at_b, LANE)
    if column_a + a.columns <= column_b or column_b + b.columns <= column_a:
        return False
    return lanes_a != lanes_b or (lane_a < lane_b + b.shape[0] and lane_b < lane_a + a.shape[0])


def view_overlap(program: Program, a: View, b: View) -> bool:
    """False only if the two views certainly share no byte."""
    if a.space != b.space:
        return False
    if a.tensor.name != b.tensor.name:
        return a.space == "shared" and _storage_overlap(program, a, b)
    boxes = zip(a.offsets, a.extents, b.offsets, b.extents, strict=True)
    return not any(_apart(x, n, y, m) for x, n, y, m in boxes)


def _storage_overlap(program: Program, a: View, b: View) -> bool:
    assert isinstance(a.tensor, SharedTensor)
    assert isinstance(b.tensor, SharedTensor)
    first, second = program.placement[a.tensor.name], program.placement[b.tensor.name]
    return first < second + b.tensor.nbytes and second < first + a.tensor.nbytes


def lanes_taking(cond: Expr, warp: int) -> tuple[bool, bool] | None:
    """Whether some lanes of ``warp`` take the branch, and whether all do; None if not known."""
    values = [known(cond, warp, lane=lane) for lane in range(LANES)]
    if any(value is None for value in values):
        return None
    return any(values), all(values)


@dataclass(eq=False)
class Node:
    """A statement: its number in program order, what encloses it and how many loops do."""

    number: int
    stmt: Stmt
    parent: Node | None
    depth: int
    previous: Node | None
    following: Node | None = None
    regions: tuple[tuple[Node, ...], ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def around(self) -> Iterator[Node]:
        """What encloses it, the innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def inside(self, ancestor: Node) -> bool:
        """Whether ``ancestor`` is this node or encloses it."""
        return any(node is ancestor for node in (self, *self.around))

    def walk(self) -> Iterator[Node]:
        """This node and everything in it, in program order."""
        yield self
        for region in self.regions:
            for node in region:
                yield from node.walk()


@dataclass(frozen=True)
class Tree:
    """The body of a program as nodes."""

    program: Program
    body: tuple[Node, ...]
    nodes: tuple[Node, ...]

    @staticmethod
    def of(program: Program) -> Tree:
        """Numbers the statements of ``program``.

        Raises:
            InvalidProgram: an operand is at an address: not known of what, before it runs.
        """
        for op in instructions(program):
            for operand in vars(op).values():
                if (isinstance(operand, View) and isinstance(operand.tensor, AddressedTensor)) or (
                    isinstance(operand, Mbar) and isinstance(operand.array, AddressedMbarriers)
                ):
                    raise reject(
                        f"{op.mnemonic} has an operand at an address, {operand}: where fences are "
                        "missing is only said for declared memory", op.loc,
                    )  # fmt: skip
        nodes: list[Node] = []
        body = _number(program.body, None, 0, nodes)
        return Tree(program, body, tuple(nodes))

    def insert(self, before: Mapping[int, Op], after: Mapping[int, Op]) -> Program:
        """The program with instructions put before and after the statements of these numbers."""
        places = before.keys() | after.keys()
        around = {n: (before.get(n), self.nodes[n].stmt, after.get(n)) for n in places}
        instead = {n: tuple(s for s in new if s is not None) for n, new in around.items()}
        return edited(self.program, instead) if instead else self.program


def _number(
    body: tuple[Stmt, ...], parent: Node | None, depth: int, nodes: list[Node]
) -> tuple[Node, ...]:
    result: list[Node] = []
    for stmt in body:
        node = Node(len(nodes), stmt, parent, depth, result[-1] if result else None)
        nodes.append(node)
        if node.previous is not None:
            node.previous.following = node
        if isinstance(stmt, Op):
            node.effects = stmt.effects()
        inner = depth + isinstance(stmt, (For, While))
        node.regions = tuple(_number(region, node, inner, nodes) for region in children(stmt))
        result.append(node)
    return tuple(result)


def hoisted(node: Node, accesses: Collection[Node]) -> Node:
    """Where to put a fence that belongs before ``node`` and covers ``accesses``.

    Every thread that made the accesses executes the fence, not only the lane that was elected to
    arrive for them: the place is outside of every branch that holds none of the accesses, and
    before the election and the warp barrier that lead to it.
    """
    node = _outside(node, accesses)
    while node.previous is not None and isinstance(node.previous.stmt, ElectSync | SyncWarp):
        node = node.previous
    return node


def sunk(node: Node, accesses: Collection[Node]) -> Node:
    """Where to put a fence that belongs after ``node`` and before ``accesses``; see `hoisted`."""
    node = _outside(node, accesses)
    while node.following is not None and isinstance(node.following.stmt, SyncWarp):
        node = node.following
    return node


def _outside(node: Node, accesses: Collection[Node]) -> Node:
    """The outermost branch around ``node`` that holds none of the accesses, or ``node``."""
    for parent in node.around:
        if not isinstance(parent.stmt, If) or any(access.inside(parent) for access in accesses):
            break
        node = parent
    return node


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


def completed(facts: Facts) -> Facts:
    """The same accesses, once they are complete."""
    return frozenset(replace(fact, flavour="complete") for fact in facts)


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
    """Facts that have been released into barriers, and which agents acquire from them."""

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
#: called with the state before every instruction of the agent that is asked about
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
        return {own: self._waiters(own) for own in self.agents}

    def others(self, own: Agent) -> Iterator[Agent]:
        """All agents beside one warp of the class ``own``."""
        for agent in self.agents:
            if agent != own or len(agent.warps) > 1:
                yield agent
            if self.tree.program.cluster_size > 1:
                yield Agent(1, agent.warps)

    def _waiters(self, own: Agent) -> Mapping[Key, frozenset[Agent]]:
        result: dict[Key, frozenset[Agent]] = {}
        others = tuple(self.others(own))
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

    def carried_to(self, own: Agent) -> Carried:
        """What the barriers carry for one warp of the class ``own``."""
        carried = Carried(self.classes.waiters[own])
        walks = [Walk(agent, carried, self.tree) for agent in self.classes.others(own)]
        walks.append(Walk(one_of(own), carried, self.tree, asked=True))
        while True:
            carried.changed = False
            for walk in walks:
                self._run(walk, None)
            if not carried.changed:
                return carried

    def visit(self, own: Agent, carried: Carried, visit: Visit) -> None:
        """Follows one warp of the class ``own`` and shows every state to ``visit``."""
        self._run(Walk(one_of(own), carried, self.tree, asked=True), visit)

    def _run(self, walk: Walk, visit: Visit | None) -> None:
        _Path(self, walk, visit).region(self.tree.body, State())


def executes(agent: Agent, node: Node) -> bool:
    """Whether the roles around an instruction have the agent's warps."""
    roles = (parent.stmt for parent in node.around if isinstance(parent.stmt, Role))
    return all(agent.warps[0] in role.warps for role in roles)


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
        return any(isinstance(parent.stmt, If) for parent in node.around)


def _join(one: State | None, other: State | None) -> State | None:
    return other if one is None else one.join(other)


def _runs(start: Expr, stop: Expr) -> bool:
    first, last = constant(start), constant(stop)
    return first is not None and last is not None and first < last


#: special registers that differ between the warps of a CTA
_PER_WARP = ("warp_id", "lane_id", "thread_id")


class Meetings:
    """The barriers of a program's instructions; looked up once per agent and statement."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[tuple[object, Agent, int], tuple[Key, ...]] = {}

    def released(self, agent: Agent, node: Node) -> tuple[Key, ...]:
        """Barriers into which the instruction hands over what its thread knows."""
        return self._keys(_released, agent, node)

    def acquired(self, agent: Agent, node: Node) -> tuple[Key, ...]:
        """Barriers from which the instruction learns."""
        return self._keys(_acquired, agent, node)

    def _keys(
        self, found: Callable[[Agent, Tree, Node, Effect], Iterable[Key]], agent: Agent, node: Node
    ) -> tuple[Key, ...]:
        place = (found, agent, node.number)
        if place not in self._known:
            keys = (key for e in node.effects for key in found(agent, self._tree, node, e))
            self._known[place] = tuple(keys)
        return self._known[place]


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
    roles = (parent.stmt for parent in node.around if isinstance(parent.stmt, Role))
    warps = min([tree.program.warps, *(len(role.warps) for role in roles)])
    return effect.count(32 * tree.program.warps) == 32 * warps and _uniform_path(node)


def _uniform_path(node: Node) -> bool:
    """Whether all warps that come to the statement's role take the branches around it."""
    around = [parent.stmt for parent in node.around]
    counters = {stmt.var.name for stmt in around if isinstance(stmt, For)}
    conditions = [stmt.cond for stmt in around if isinstance(stmt, If)]
    return all(_same_for_all(e, counters) for cond in conditions for e in walk_expression(cond))


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
