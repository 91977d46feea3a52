"""Control flow of a kernel in PTX or SASS as a graph of events, and what every path passes.

Events are numbers: one for the instructions of one kind on one line of the PTX, the same number in
both texts. Sets of events are integers, bit by bit. A relation holds on *every path of the graph*,
which has at least the paths that can be run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tilesim.cubin.operands import written
from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.ptx.inline import Kernel
from tilesim.ptx.liveness import targets
from tilesim.translation.conditions import Condition

#: what stands before an instruction of cluster barriers
_OF_CLUSTER = frozenset({"MEMBAR", "ERRBAR", "CGAERRBAR"})
#: nodes of a graph, with code that is called counted at each call
MOST_NODES = 1 << 18


class Node(NamedTuple):
    """A place in a text (number of the PTX instruction, pc of SASS) and where it can go on."""

    place: int
    successors: tuple[int, ...]


def ptx_nodes(kernel: Kernel) -> list[Node]:
    """The instructions of a kernel in PTX, by number; those that end it go on nowhere."""
    found = []
    for number, step in enumerate(kernel.code):
        following = {number + 1} if number + 1 < len(kernel.code) else set()
        if step.base in ("bra", "brx"):
            following = {*targets(step), *(following if step.guard is not None else ())}
        elif step.base in ("ret", "exit", "trap") and step.guard is None:
            following = set()
        inside = sorted(one for one in following if one < len(kernel.code))
        found.append(Node(number, tuple(inside)))
    return found


def of_clusters(function: Function, lines: Collection[int]) -> dict[int, int]:
    """Where branches go on in a launch with clusters: those by which ptxas selects what a cluster
    barrier is (``lines``: theirs, of the PTX), in a launch with clusters and in one without."""
    code = function.code

    def has_barrier(pc: int) -> bool | None:
        """Whether a cluster barrier begins at a place; None of what is no part of one."""
        place = pc
        while (one := code.get(place)) is not None and one.ptx in lines:
            if one.base.startswith("UCGABAR"):
                return True
            if one.base not in _OF_CLUSTER:
                return False if place == pc and one.base in ("NOP", "BAR") else None
            place += WIDTH
        return None

    found: dict[int, int] = {}
    for pc, one in code.items():
        after = function.successors[pc]
        if one.base == "BRA" and len(after) == 2:
            arms = [has_barrier(place) for place in after]
            if {*arms} == {True, False}:
                found[pc] = after[arms.index(True)]
    return found


def sass_nodes(function: Function, selected: Mapping[int, int]) -> list[Node]:
    """The instructions of a kernel in SASS that can be reached; code that is called stands there
    once for each place that it is called from. ``selected``: the only place that some go on at.

    ``BRA.U.ANY`` ends the loop in which each lane in turn is elected for an instruction of the
    uniform datapath: the instruction is executed once or more, as one.
    """
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    todo: deque[tuple[int, tuple[int, ...]]] = deque()
    found: list[Node | None] = []

    def number(pc: int, calls: tuple[int, ...]) -> int:
        key = pc, calls
        if key not in numbers:
            numbers[key] = len(found)
            found.append(None)
            todo.append(key)
        return numbers[key]

    number(next(iter(function.code)), ())
    while todo:
        pc, calls = todo.popleft()
        one = function.code[pc]
        following: Iterable[tuple[int, tuple[int, ...]]]
        after = pc + WIDTH
        if pc in selected:
            following = [(selected[pc], calls)]
        elif one.base == "CALL":
            if one.target is not None and len(calls) < 4 and after not in calls:
                following = [(one.target, (*calls, after))]
            else:
                following = [(after, calls)]
            if one.guard:
                following = [*following, (after, calls)]
        elif one.base == "RET" and calls:
            following = [(calls[-1], calls[:-1])]
            if one.guard:
                following = [*following, (after, calls)]
        elif one.base == "WARPSYNC" and "COLLECTIVE" in one.modifiers:
            following = [(after, calls)]  # one lane goes on there for all, the others behind that
        elif _is_lane_loop(one) or (one.base == "BRA" and one.operands[0] in _NEVER):
            following = [(after, calls)]
        elif one.base in _SINKS and not one.guard and not one.operands:
            following = []
        elif one.opcode == "BPT.TRAP":  # ends the grid
            following = [(after, calls)] if one.guard else []
        else:
            following = [(place, calls) for place in function.successors[pc]]
        if len(found) > MOST_NODES:
            break
        found[numbers[pc, calls]] = Node(
            pc, tuple(number(*key) for key in following if key[0] in function.code)
        )
    return [one if one is not None else Node(0, ()) for one in found]


_NEVER = ("!PT", "!UPT")
_SINKS = frozenset({"EXIT", "KILL"})
_PTX_ENDS = frozenset({"ret", "exit", "trap"})


class Text(NamedTuple):
    """What a text has at each node: the events; what guards it or decides its branch, if that is
    known, in `Condition.made` nodes; whether it is executed by every path through it; and where its
    branch leads, -1 for the kernel's end. ``ends`` are nodes where a thread ends, other than in a
    trap, ``marked`` those where a value of a condition is made."""

    nodes: Sequence[Node]
    events: Sequence[Sequence[int]]
    conditions: Mapping[int, Condition]
    certain: Sequence[bool]
    taken: Mapping[int, int]
    ends: frozenset[int]
    marked: frozenset[int]


class Graph:
    """A text as blocks with events. ``every`` is the set of all events.

    ``value`` and ``holds``: only paths on which that value is so, which begin at the entry and
    where the value is computed anew (``made``), and end there.
    """

    def __init__(
        self, text: Text, every: int, value: Hashable = None, *, holds: bool = True,
        made: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self.text = text
        self.every = every
        self.made = frozenset(made)
        self._value, self._holds = value, holds
        self.successors = [self._successors(number, node) for number, node in enumerate(text.nodes)]
        self.live = self._reached([0, *sorted(self.made)])
        self.copies: dict[int, list[int]] = {}
        for node in sorted(self.live):
            for event in text.events[node]:
                self.copies.setdefault(event, []).append(node)
        self._blocks()

    def _executes(self, node: int) -> bool | None:
        """Whether a node takes effect, or its branch is taken; None if it may."""
        condition = self.text.conditions.get(node)
        if condition is None or self._value is None or condition.value != self._value:
            return None
        if node in self.made:  # its guard is the value before
            return None
        return condition.holds == self._holds

    def _successors(self, number: int, node: Node) -> tuple[int, ...]:
        executes = self._executes(number)
        if executes is None or number not in self.text.taken:
            return node.successors
        taken = self.text.taken[number]
        if executes:
            return (taken,) if taken >= 0 else ()
        return tuple(one for one in node.successors if one != taken) or node.successors

    def _reached(self, starts: Iterable[int]) -> set[int]:
        seen: set[int] = set()
        todo = list(starts) if self.text.nodes else []
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += self.successors[node]
        return seen

    def _blocks(self) -> None:
        before: dict[int, int] = {}
        ends = {
            node
            for node in self.text.ends
            if node in self.live and self._executes(node) is not False
        }
        leaders = {0, *self.made}
        for node in self.live:
            following = self.successors[node]
            if len(following) != 1 or node in ends:
                leaders |= {*following}
            for one in following:
                before[one] = before.get(one, 0) + 1
        leaders |= {node for node, count in before.items() if count > 1}
        self.block_of: dict[int, int] = {}
        #: nodes of each block that have events or are marked, in order
        self.members: list[list[int]] = []
        self.ending: list[bool] = []
        first: dict[int, int] = {}
        last: list[int] = []
        for leader in sorted(leaders & self.live):
            first[leader] = len(self.members)
            members, node, ending = [], leader, False
            while True:
                self.block_of[node] = len(self.members)
                if self.text.events[node] or node in self.text.marked:
                    members.append(node)
                ending |= node in ends
                following = self.successors[node]
                if len(following) != 1 or following[0] in leaders:
                    break
                node = following[0]
            self.members.append(members)
            self.ending.append(ending)
            last.append(node)
        self.following = [tuple(sorted({first[one] for one in self.successors[n]})) for n in last]
        self.preceding: list[list[int]] = [[] for _ in self.members]
        for block, successors in enumerate(self.following):
            for one in successors:
                self.preceding[one].append(block)
        self._passed = [
            self._joined(self.bits(node) for node in members) for members in self.members
        ]
        starts = [first[node] for node in (0, *sorted(self.made)) if node in first]
        order = _reverse_postorder(self.following, starts)
        self.rank = {block: place for place, block in enumerate(order)}
        self._made_blocks = {first[node]: node for node in self.made if node in first}

    @staticmethod
    def _joined(sets: Iterable[int]) -> int:
        found = 0
        for one in sets:
            found |= one
        return found

    def bits(self, node: int) -> int:
        """The events that passing a node executes."""
        executes = self._executes(node)
        if executes or (executes is None and self.text.certain[node]):
            return self._joined(1 << event for event in self.text.events[node])
        return 0

    def possible(self, node: int) -> int:
        """The events that passing a node can execute."""
        if self._executes(node) is False:
            return 0
        return self._joined(1 << event for event in self.text.events[node])

    # ------------------------------------------------------------------ what paths pass

    def before(self, made: Mapping[int, int]) -> dict[int, int]:
        """By block: what every path from the entry has passed when it comes there. ``made``: what
        it has passed where the value is made; not there: no path comes there."""
        return self._forward({}, {0: 0} | self._at_made(made))

    def since(self, places: Iterable[int], made: Mapping[int, int]) -> dict[int, int]:
        """By block: what every path from one of these nodes has passed when it comes there; those
        paths end at these nodes."""
        sources: dict[int, int] = {}
        for block, nodes in self._by_block(places).items():
            members = self.members[block]
            behind = members[members.index(nodes[-1]) :]
            sources[block] = self._joined(self.bits(node) for node in behind)
        return self._forward(sources, self._at_made(made))

    def since_made(self, made: Mapping[int, int]) -> dict[int, int]:
        """By block, of all paths: what is passed on those from where the value is made on, which
        ``made`` says what they have passed; other paths are not looked at."""
        entry = self._at_made(made)
        todo = _Worklist(self.rank, entry)
        while (block := todo.pop()) is not None:
            self._spread(block, entry[block] | self._passed[block], entry, {}, todo)
        return entry

    def _at_made(self, made: Mapping[int, int]) -> dict[int, int]:
        return {block: made[n] for block, n in self._made_blocks.items() if n in made}

    def _by_block(self, places: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for node in places:
            if node in self.block_of:
                found.setdefault(self.block_of[node], []).append(node)
        for block, nodes in found.items():
            wanted = {*nodes}
            found[block] = [node for node in self.members[block] if node in wanted]
        return found

    def _forward(self, sources: Mapping[int, int], fixed: Mapping[int, int]) -> dict[int, int]:
        """By block, what is passed when a path comes there: ``sources`` are what is passed at the
        end of blocks that no path goes through, ``fixed`` at the beginning of blocks that other
        paths do not go through."""
        entry = dict(fixed)
        todo = _Worklist(self.rank, fixed)
        for source, out in sources.items():
            self._spread(source, out, entry, fixed, todo)
        while (block := todo.pop()) is not None:
            if block not in sources:
                self._spread(block, entry[block] | self._passed[block], entry, fixed, todo)
        return entry

    def _spread(
        self, block: int, out: int, entry: dict[int, int], fixed: Mapping[int, int],
        todo: _Worklist,
    ) -> None:  # fmt: skip
        for one in self.following[block]:
            if one in fixed:
                continue
            old = entry.get(one)
            new = out if old is None else old & out
            if new != old:
                entry[one] = new
                if self._value is None or one not in self._made_blocks:
                    todo.push(one)

    def after(self, made: Mapping[int, int]) -> dict[int, int]:
        """By block: what every path from its end to the kernel's end passes. ``made``: what every
        path passes from where the value is made on."""
        out: dict[int, int] = {b: 0 for b, ending in enumerate(self.ending) if ending}
        rank = {block: -place for block, place in self.rank.items()}
        todo = _Worklist(rank, out)
        for place, node in self._made_blocks.items():
            self._ahead(place, made.get(node, self.every), out, todo)
        while (block := todo.pop()) is not None:
            if block not in self._made_blocks:
                self._ahead(block, out[block] | self._passed[block], out, todo)
        return out

    def _ahead(self, block: int, inside: int, out: dict[int, int], todo: _Worklist) -> None:
        for one in self.preceding[block]:
            if self.ending[one]:
                continue
            old = out.get(one)
            new = inside if old is None else old & inside
            if new != old:
                out[one] = new
                todo.push(one)

    # ------------------------------------------------------------------ at nodes

    def until(self, node: int, entry: Mapping[int, int]) -> int:
        """What is passed when a path comes to a node, by what is at blocks; all if none comes."""
        block = self.block_of.get(node)
        if block is None or block not in entry:
            return self.every
        members = self.members[block]
        return entry[block] | self._joined(self.bits(n) for n in members[: members.index(node)])

    def until_since(self, node: int, places: Collection[int], entry: Mapping[int, int]) -> int:
        """The same of paths from ``places``, of which ``entry`` is what `since` says."""
        block = self.block_of.get(node)
        if block is None:
            return self.every
        passed, begun = entry.get(block), block in entry
        for one in self.members[block]:
            if one == node:
                break
            if one in places:
                passed, begun = 0, True
            if begun:
                passed = (passed or 0) | self.bits(one)
        return self.every if not begun or passed is None else passed

    def is_reached_since(
        self, node: int, places: Collection[int], entry: Mapping[int, int]
    ) -> bool:
        """Whether a path leads from ``places`` to a node."""
        block = self.block_of.get(node)
        if block is None:
            return False
        members = self.members[block]
        return block in entry or any(one in places for one in members[: members.index(node)])

    def onwards(self, node: int, out: Mapping[int, int]) -> int:
        """What every path passes behind a node, by what is behind blocks; all if none ends."""
        block = self.block_of.get(node)
        if block is None or block not in out:
            return self.every
        members = self.members[block]
        return out[block] | self._joined(self.bits(n) for n in members[members.index(node) + 1 :])


class _Worklist:
    """Blocks to visit, each once at a time, in the order of a rank."""

    def __init__(self, rank: Mapping[int, int], blocks: Iterable[int]) -> None:
        self._rank = rank
        self._heap = [(rank[block], block) for block in blocks if block in rank]
        heapify(self._heap)
        self._waiting = {block for _, block in self._heap}

    def push(self, block: int) -> None:
        if block not in self._waiting:
            self._waiting.add(block)
            heappush(self._heap, (self._rank[block], block))

    def pop(self) -> int | None:
        if not self._heap:
            return None
        _, block = heappop(self._heap)
        self._waiting.discard(block)
        return block


def reached(nodes: Sequence[Node]) -> set[int]:
    """The nodes that the first one leads to, with it."""
    seen: set[int] = set()
    todo = [0] if nodes else []
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += nodes[node].successors
    return seen


def _reverse_postorder(following: Sequence[Sequence[int]], starts: Iterable[int]) -> list[int]:
    """Blocks from the starts on, each before those that it leads to but for loops."""
    seen: set[int] = set()
    found: list[int] = []
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(following[start]))]
        while stack:
            block, rest = stack[-1]
            one = next((b for b in rest if b not in seen), None)
            if one is None:
                found.append(block)
                stack.pop()
            else:
                seen.add(one)
                stack.append((one, iter(following[one])))
    found.reverse()
    return found


def ptx_text(
    kernel: Kernel, events: Mapping[int, Sequence[int]], conditions: Mapping[int, Condition]
) -> Text:
    """A kernel in PTX; events by number of the instruction."""
    nodes = ptx_nodes(kernel)
    taken: dict[int, int] = {}
    ends: set[int] = set()
    for number, step in enumerate(kernel.code):
        if step.base == "bra":
            goal = targets(step)
            taken[number] = goal[0] if goal and goal[0] < len(nodes) else -1
            if goal and goal[0] >= len(nodes):
                ends.add(number)
        elif step.base in _PTX_ENDS:
            taken[number] = -1
            if step.base != "trap":
                ends.add(number)
    if nodes and kernel.code[-1].base not in ("bra", "brx", *_PTX_ENDS):
        ends.add(len(nodes) - 1)
    certain = [step.guard is None for step in kernel.code]
    return _contracted(nodes, events, conditions, certain, taken, ends, ())


def sass_text(
    function: Function, events: Mapping[int, Sequence[int]], conditions: Mapping[int, Condition],
    selected: Mapping[int, int], noted: Collection[int],
) -> Text:  # fmt: skip
    """A kernel in SASS; events by pc; ``selected`` as `of_clusters` says; the places ``noted`` stay
    nodes without events too."""
    nodes = sass_nodes(function, selected)
    executed = _certain_guards(function)
    at: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        at.setdefault(node.place, []).append(number)
    taken: dict[int, int] = {}
    ends: set[int] = set()
    certain: list[bool] = []
    for number, node in enumerate(nodes):
        one = function.code[node.place]
        certain.append(not one.guard or node.place in executed)
        if one.base in _SINKS:
            ends.add(number)
            taken[number] = -1
        elif one.base == "BRA" and len(node.successors) == 2:
            goal = [n for n in node.successors if nodes[n].place == one.target]
            if len(goal) == 1:
                taken[number] = goal[0]
    nodes_of = {
        made: frozenset(n for pc in made for n in at.get(pc, ()))
        for made in {condition.made for condition in conditions.values()}
    }
    known = {
        number: Condition(found.value, found.holds, nodes_of[found.made])
        for number, node in enumerate(nodes)
        if (found := conditions.get(node.place)) is not None
    }
    by_node = {n: events[node.place] for n, node in enumerate(nodes) if node.place in events}
    stay = {number for number, node in enumerate(nodes) if node.place in noted}
    return _contracted(nodes, by_node, known, certain, taken, ends, stay)


def _is_lane_loop(one: Instruction) -> bool:
    return one.base == "BRA" and "ANY" in one.modifiers and "U" in one.modifiers


def _certain_guards(function: Function) -> set[int]:
    """The guarded instructions that every path through them executes: the guard is constant, or
    comes from ``ELECT`` alone, and one elected lane of the warp executes them, or it is made in a
    loop in which each lane has its turn. Instructions of the uniform datapath, which are for the
    warp, lose that guard, and are executed in order with that lane's. Of an atomic operation ptxas
    lets one lane do it for all."""
    found: set[int] = set()
    makers: dict[str, set[int]] = {}
    for pc, one in function.code.items():
        for name in written(one):
            if "P" in name:
                makers.setdefault(name, set()).add(pc)
    loops = [
        range(one.target, pc)
        for pc, one in function.code.items()
        if _is_lane_loop(one) and one.target is not None
    ]
    for pc, one in function.code.items():
        if not one.guard or one.base == "BRA":
            continue
        made = makers.get(one.guard.lstrip("!"), set())
        if not made:
            continue
        atomic = one.base.startswith(("ATOM", "RED"))
        around = next((loop for loop in loops if pc in loop), range(0))

        def holds(
            place: int, one: Instruction = one, atomic: bool = atomic, around: range = around
        ) -> bool:
            maker = function.code[place]
            if place in around and maker.ptx == one.ptx:
                return True
            if maker.base == "ELECT":
                return one.guard[0] != "!" and one.guard != maker.guard
            if atomic and maker.ptx == one.ptx and maker.base in ("ISETP", "UISETP"):
                return one.guard[0] != "!"
            return not maker.guard and _constant(maker) == (one.guard[0] != "!")

        if any(map(holds, made)) and _comes_from(function, pc, made, holds):
            found.add(pc)
    return found


def _constant(one: Instruction) -> bool | None:
    """The constant that an instruction sets a predicate to; None of others."""
    if one.base in ("PLOP3", "UPLOP3") and {*one.operands[1:-2]} <= {"PT", "UPT"}:
        return bool(int(one.operands[-2], 0) >> 7 & 1)
    return None


def _comes_from(
    function: Function, pc: int, made: Collection[int], holds: Callable[[int], bool]
) -> bool:
    """Whether every path to a place has come last, of these, to one that is as wanted."""
    entry = next(iter(function.code))
    seen: set[int] = set()
    todo = [*function.predecessors[pc]]
    if not todo or pc == entry:
        return False
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        if place in made:
            if not holds(place):
                return False
        elif place == entry:
            return False
        else:
            todo += function.predecessors[place]
    return True


def _contracted(
    nodes: Sequence[Node], events: Mapping[int, Sequence[int]],
    conditions: Mapping[int, Condition], certain: Sequence[bool], taken: Mapping[int, int],
    ends: Iterable[int], noted: Iterable[int],
) -> Text:  # fmt: skip
    """The text without the nodes at which nothing is to be seen; node 0 stays, and ``noted``."""
    used: dict[Hashable, int] = {}
    for condition in conditions.values():
        used[condition.value] = used.get(condition.value, 0) + 1
    conditions = {n: one for n, one in conditions.items() if used[one.value] > 1 or not one.made}
    marked = frozenset(n for one in {c.made for c in conditions.values()} for n in one)
    marked |= {*noted}
    ends = frozenset(ends)

    def stays(number: int) -> bool:
        return (
            not number
            or number in events
            or number in marked
            or number in ends
            or number in taken
            or len(nodes[number].successors) != 1
        )

    kept = [number for number in range(len(nodes)) if stays(number)]
    renamed = {number: place for place, number in enumerate(kept)}
    goal: dict[int, int] = {}

    def behind(number: int) -> int:
        """The first node from one on that stays; a loop of none that does stays at itself."""
        passed: list[int] = []
        at = number
        while at not in renamed and at not in goal and len(passed) <= len(nodes):
            passed.append(at)
            at = nodes[at].successors[0]
        end = renamed[at] if at in renamed else goal.get(at, -1)
        for one in passed:
            goal[one] = end
        return end

    contracted = []
    for number in kept:
        following = {behind(one) for one in nodes[number].successors}
        contracted.append(Node(nodes[number].place, tuple(sorted(following - {-1}))))
    made = {
        one: frozenset(renamed[n] for n in one if n in renamed)
        for one in {condition.made for condition in conditions.values()}
    }
    moved = {
        renamed[n]: Condition(one.value, one.holds, made[one.made])
        for n, one in conditions.items()
        if n in renamed
    }
    return Text(
        contracted,
        [events.get(number, ()) for number in kept],
        moved,
        [certain[number] for number in kept],
        {renamed[n]: behind(to) if to >= 0 else -1 for n, to in taken.items()},
        frozenset(renamed[n] for n in ends),
        frozenset(renamed[n] for n in marked),
    )
