"""What is found by going round in a graph until nothing changes any more.

Nodes are numbers or names of anything; ``after`` and ``before`` say what follows a node, or what it
follows. A state only grows, so each of these ends, and what it finds does not depend on the order
in which nodes are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

N = TypeVar("N")
S = TypeVar("S")


def closure(seeds: Iterable[N], after: Callable[[N], Iterable[N]]) -> set[N]:
    """``seeds`` and all that follows one of them, near or far."""
    found, left = set[N](), [*seeds]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += after(node)
    return found


class Worklist(Iterator[int]):
    """Nodes that are yet to be looked at: at first all, then those that are named `again`.

    They come in the order of ``nodes``, and from its beginning again while any is left.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes, self._left, self._at = nodes, {*nodes}, 0

    def again(self, nodes: Iterable[int]) -> None:
        """These have to be looked at once more: what they were looked at with has grown."""
        self._left.update(nodes)

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        nodes, left, at = self._nodes, self._left, self._at
        while nodes[at % len(nodes)] not in left:
            at += 1
        self._at = (at + 1) % len(nodes)
        node = nodes[at % len(nodes)]
        left.remove(node)
        return node


def states(
    order: Sequence[int], after: Sequence[Iterable[int]], through: Callable[[int, S], S],
    join: Callable[[S, S], S], nothing: S,
) -> dict[int, S]:  # fmt: skip
    """By node of ``order``, what holds before it: what ``through`` one that it follows leaves of
    what holds before that, joined for all of these with ``nothing``, which holds everywhere.

    ``through`` and ``join`` change none of their arguments.
    """
    found = dict.fromkeys(order, nothing)
    work = Worklist(order)
    for node in work:
        left = through(node, found[node])
        for other in after[node]:
            joined = join(found[other], left)
            if joined != found[other]:
                found[other] = joined
                work.again((other,))
    return found


def bits(
    order: Sequence[int], before: Sequence[Iterable[int]], kept: Sequence[int], added: Sequence[int]
) -> list[int]:
    """By node, the bits that hold before it: those of any node of ``order`` that it follows which
    it adds, or keeps of the ones that hold before that."""
    found, ends = [0] * len(before), [0] * len(before)
    left = True
    while left:
        left = False
        for node in order:
            state = 0
            for source in before[node]:
                state |= ends[source]
            found[node] = state
            end = state & kept[node] | added[node]
            if end != ends[node]:
                ends[node], left = end, True
    return found
