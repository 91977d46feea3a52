"""Where programs of a family access global memory: boxes that move with turns and programs.

Two that move alike, in the same turn, lie to each other as in the program that is executed, where
they are compared. All others have to be apart, in all turns of all programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import gcd
from typing import Any, NamedTuple

from tilesim.ir.declarations import GlobalTensor, View
from tilesim.ir.expr import Expr
from tilesim.proof.forms import Form, Number, formed, plus
from tilesim.proof.operands import Operands, lane_of
from tilesim.proof.rules import NotCovered, rule

#: boxes of tensors that are written, of which all pairs are compared
MOST_BOXES = 2_000


class Box(NamedTuple):
    """What lanes access together: ``extents`` elements from ``lows`` on. ``within``: the class of
    clusters, its repetition, and of that the turns for each further program; None: in none."""

    tensor: str
    cluster: int
    within: tuple[int, int, int] | None
    write: bool
    lows: tuple[Form, ...]
    extents: tuple[int, ...]

    @property
    def growth(self) -> list[tuple[int, ...]]:
        """By how much it moves from turn to turn, and from program to program."""
        return [low[1:] for low in self.lows]


def at_view(
    m: Any, view: View, s: Any, lanes: Sequence[int], *, write: bool, multiple: int
) -> None:
    """An access of a view in global memory, in all programs of a family: inside of its tensor, and
    at a ``multiple`` of bytes where it is at one in the program that is executed.

    Raises: NotCovered: that is not shown."""
    v, t = m.operands, view.tensor
    if not isinstance(t, GlobalTensor):
        raise NotCovered("an address in global memory, for every value of a parameter")
    starts, shape = [*_places(v, view.offsets, s, lanes)], sizes(v, t)
    larger = replace(t, shape=tuple(formed(n).at(0, 1) for n in shape)).byte_strides
    for offsets in starts:
        for o, n, size, stride, then in zip(
            offsets, view.extents, shape, t.byte_strides, larger, strict=True
        ):
            base, *moves = formed(o)
            further = then - stride
            steps = [*(step * stride for step in moves), *(x * further for x in (base, *moves))]
            kept = not any(step % multiple for step in steps) and (n == 1 or not further)
            _shown(_fits(v, o, n, size) and (multiple == 1 or kept), t)
    if t.name not in m.read_only:
        _touches(m, t, s, write, starts, view.extents)


def sizes(v: Operands, t: GlobalTensor) -> list[Number]:
    """The shape of a tensor in all programs."""
    assert v.family is not None
    growths = v.family.tensors[t.name]
    return [plus(n, Form(0, 0, grows)) for n, grows in zip(t.shape, growths, strict=True)]


def _places(
    v: Operands, operands: Sequence[Expr], s: Any, lanes: Sequence[int]
) -> Iterator[list[Number]]:
    """Where what each lane accesses begins."""
    values = [v.value(e, s) for e in operands]
    for lane in lanes:
        row: list[Any] = [lane_of(value, lane) for value in values]
        if any(type(x) not in (int, Form) for x in row):
            raise NotCovered("a place in global memory that is not known for every value")
        yield row


def _fits(v: Operands, low: Number, extent: int, size: Number) -> bool:
    end = plus(size, plus(low, extent), -1)
    return v.cone.limits(low)[0] >= 0 and v.cone.limits(end)[0] >= 0


def _shown(holds: bool, t: GlobalTensor) -> None:
    if not holds:
        raise NotCovered(f"a place in {t.name} that is not shown to be right for every value")


def _touches(
    m: Any, t: GlobalTensor, s: Any, write: bool, starts: Iterable[Sequence[Number]],
    extents: Sequence[int],
) -> None:  # fmt: skip
    """Notes boxes of a tensor that is written, whose elements lie apart in all programs."""
    _shown(t.strides is None and t.dtype.bits % 8 == 0, t)
    alike: dict[Any, list[list[Form]]] = {}
    for start in starts:
        lows = [formed(low) for low in start]
        alike.setdefault(tuple(low[1:] for low in lows), []).append(lows)
    for some in alike.values():
        first = [min(lows, key=lambda low: low.base) for lows in zip(*some, strict=True)]
        last = [max(low.base for low in lows) for lows in zip(*some, strict=True)]
        wide = tuple(z + n - a.base for a, z, n in zip(first, last, extents, strict=True))
        m.boxes[Box(t.name, s.cluster, m.within, write, tuple(first), wide)] = None
    if len(m.boxes) > MOST_BOXES:
        raise NotCovered(f"more than {MOST_BOXES} places in global memory")


@rule("every", "what moves with a parameter is accessed in one iteration of a cluster, or read")
def apart(boxes: Iterable[Box], most: int) -> None:
    """Raises: NotCovered: two boxes may meet, of which one is written, in some program."""
    for x, y in combinations_with_replacement(list(boxes), 2):
        if x.tensor != y.tensor or not (x.write or y.write):
            continue
        same_iteration_known = x.within == y.within and x.growth == y.growth
        if same_iteration_known and x.within is None:
            continue
        orders = [(x, y), (y, x)] if same_iteration_known else [(x, y)]
        for a, b in orders:
            if not any(
                _apart(a, b, d, most, later=same_iteration_known) for d in range(len(a.lows))
            ):
                raise NotCovered(f"accesses of {x.tensor} that may meet for some value")


def _apart(x: Box, y: Box, d: int, most: int, *, later: bool) -> bool:
    """Whether two boxes are apart in a dimension, in all turns i and j; ``later``: in all i < j."""
    a, b = x.lows[d], y.lows[d]
    p, q = (0 if one.within is None else one.within[2] for one in (x, y))
    if later:
        iterations = [
            (i, j, k) for k in (1, most) for i, j in ((0, 1), (0, q * k), (q * k - 1, q * k))
        ]
    else:
        iterations = [(i, j, k) for k in (0, most) for i in (0, p * k) for j in (0, q * k)]
    between = [b.at(j, k) - a.at(i, k) for i, j, k in iterations]
    step = gcd(a.iteration, b.iteration, b.more - a.more)
    beyond = (b.base - a.base) % step if step else 0
    return (
        min(between) >= x.extents[d] or max(between) <= -y.extents[d]
        or (step > 0 and x.extents[d] <= beyond <= step - y.extents[d])
    )  # fmt: skip
