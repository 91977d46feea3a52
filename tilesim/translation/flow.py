"""Control flow of a kernel in PTX or SASS as a graph of events, and what every path passes.

Events are numbers: one for the instructions of one kind on one line of the PTX, the same number in
both texts. Sets of events are integers, bit by bit. A relation holds on *every path of the graph*,
which has at least the paths that can be run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tilesim.cubin.sass import WIDTH, Function
from tilesim.ptx.inline import Kernel
from tilesim.ptx.liveness import targets

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


def sass_nodes(function: Function) -> list[Node]:
    """The instructions of a kernel in SASS that can be reached; code that is called stands there
    once for each place that it is called from.

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
        if one.base == "CALL":
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
        elif one.base == "BRA" and "ANY" in one.modifiers and "U" in one.modifiers:
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


_SINKS = frozenset({"EXIT", "KILL"})


class Graph:
    """A text as blocks with events.

    ``events`` are those of each node, in order; ``passed`` are the events of a node that every
    path through it executes (not under a guard that is not known to hold).
    """

    def __init__(
        self, nodes: Sequence[Node], events: Sequence[Sequence[int]], certain: Sequence[bool],
        ends: Iterable[int],
    ) -> None:  # fmt: skip
        """``certain``: which nodes are executed by every path through them; ``ends``: where the
        kernel ends (a thread's exit, not a trap)."""
        self.nodes = nodes
        self.events = events
        self.certain = certain
        self.live = _reached(nodes, [0])
        self.ends = [node for node in ends if node in self.live]
        self.copies: dict[int, list[int]] = {}
        for node in sorted(self.live):
            for event in events[node]:
                self.copies.setdefault(event, []).append(node)
        self._blocks()

    def _blocks(self) -> None:
        before: dict[int, int] = {}
        for node in self.live:
            for one in self.nodes[node].successors:
                before[one] = before.get(one, 0) + 1
        leaders = {0}
        for node in self.live:
            following = self.nodes[node].successors
            if len(following) != 1:
                leaders |= {*following}
        leaders |= {node for node, count in before.items() if count > 1}
        leaders |= {one for node in self.ends for one in self.nodes[node].successors}
        self.block_of: dict[int, int] = {}
        #: nodes of each block that have events, in order
        self.members: list[list[int]] = []
        self.following: list[tuple[int, ...]] = []
        self.ending: list[bool] = []
        ends = {*self.ends}
        first: dict[int, int] = {}
        last: list[int] = []
        for leader in sorted(leaders & self.live):
            first[leader] = len(self.members)
            members, node, ending = [], leader, False
            while True:
                self.block_of[node] = len(self.members)
                if self.events[node]:
                    members.append(node)
                ending |= node in ends
                following = self.nodes[node].successors
                if len(following) != 1 or following[0] in leaders:
                    break
                node = following[0]
            self.members.append(members)
            self.ending.append(ending)
            last.append(node)
        self.following = [
            tuple(sorted({first[one] for one in self.nodes[node].successors})) for node in last
        ]
        self.preceding: list[list[int]] = [[] for _ in self.members]
        for block, following in enumerate(self.following):
            for one in following:
                self.preceding[one].append(block)
        self.passed = [
            _bits(event for node in members if self.certain[node] for event in self.events[node])
            for members in self.members
        ]
        self.order = _reverse_postorder(self.following)
        self.rank = {block: place for place, block in enumerate(self.order)}

    def bits(self, node: int) -> int:
        """The events that passing a node executes."""
        return _bits(self.events[node]) if self.certain[node] else 0

    # ------------------------------------------------------------------ relations

    def before(self, every: int) -> dict[int, int]:
        """By event: those that every path from the entry to a copy of it has passed."""
        entry = self._passed_before()
        found: dict[int, int] = {}
        for block, inside in entry.items():
            for node in self.members[block]:
                for event in self.events[node]:
                    found[event] = found.get(event, every) & inside
                inside |= self.bits(node)
        return found

    def after(self, every: int) -> dict[int, int]:
        """By event: those that every path from a copy of it to the kernel's end passes; all of
        what no such path leaves from."""
        out = self._passed_after(every)
        found: dict[int, int] = {}
        for block, outside in out.items():
            for node in reversed(self.members[block]):
                for event in reversed(self.events[node]):
                    found[event] = found.get(event, every) & outside
                outside |= self.bits(node)
        return found

    def between(self, places: Sequence[int]) -> int | None:
        """What every path from one of these nodes to the next one of them passes; None if no path
        leads from one to one."""
        by_block: dict[int, list[int]] = {}
        for node in places:
            by_block.setdefault(self.block_of[node], []).append(node)
        result: int | None = None
        sources: dict[int, int] = {}
        heads: dict[int, int] = {}
        for block, inside in by_block.items():
            wanted, passed, seen = {*inside}, 0, False
            for node in self.members[block]:
                if node in wanted:
                    if seen:
                        result = passed if result is None else result & passed
                    else:
                        heads[block] = passed
                    seen, passed = True, 0
                passed |= self.bits(node)
            sources[block] = passed
        entry = self._passed_from(sources)
        for block, passed in heads.items():
            if block in entry:
                whole = entry[block] | passed
                result = whole if result is None else result & whole
        return result

    def _passed_before(self) -> dict[int, int]:
        """What every path from the entry has passed when it comes to each block."""
        entry = {0: 0}
        todo = _Worklist(self.rank, entry)
        while (block := todo.pop()) is not None:
            self._spread(block, entry[block] | self.passed[block], entry, todo)
        return entry

    def _passed_from(self, sources: Mapping[int, int]) -> dict[int, int]:
        """The same from the ends of blocks, of which that has been passed; paths end where they
        come to one of these blocks again."""
        entry: dict[int, int] = {}
        todo = _Worklist(self.rank, ())
        for block, out in sources.items():
            self._spread(block, out, entry, todo)
        while (block := todo.pop()) is not None:
            if block not in sources:
                self._spread(block, entry[block] | self.passed[block], entry, todo)
        return entry

    def _spread(self, block: int, out: int, entry: dict[int, int], todo: _Worklist) -> None:
        for one in self.following[block]:
            old = entry.get(one)
            new = out if old is None else old & out
            if new != old:
                entry[one] = new
                todo.push(one)

    def _passed_after(self, every: int) -> dict[int, int]:
        """What every path from the end of each block to the kernel's end passes."""
        out: dict[int, int] = {b: 0 for b, ending in enumerate(self.ending) if ending}
        rank = {block: -place for block, place in self.rank.items()}
        todo = _Worklist(rank, out)
        while (block := todo.pop()) is not None:
            inside = out[block] | self.passed[block]
            for one in self.preceding[block]:
                if self.ending[one]:
                    continue
                old = out.get(one)
                new = inside if old is None else old & inside
                if new != old:
                    out[one] = new
                    todo.push(one)
        return {block: out.get(block, every) for block in range(len(self.members))}


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


def _bits(events: Iterable[int]) -> int:
    found = 0
    for event in events:
        found |= 1 << event
    return found


def _reached(nodes: Sequence[Node], starts: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    todo = list(starts) if nodes else []
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += nodes[node].successors
    return seen


def _reverse_postorder(following: Sequence[Sequence[int]]) -> list[int]:
    seen = {0}
    found: list[int] = []
    stack = [(0, iter(following[0]))] if following else []
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
