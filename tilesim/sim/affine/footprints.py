"""What clusters access in global memory, and which of them access the same bytes.

Accesses are boxes of elements, for all clusters of a class at once, and are compared as arrays.
Boxes of one tensor cover cells between all their edges, so two that share a cell
overlap, and only those do. That is exact where different elements are different bytes; tensors
whose strides overlap are compared by their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import u8
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.records import dataclass, field, replace
from tilesim.sim.affine.cluster_plan import Integers
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.memory import elements_apart
from tilesim.sim.machine.moving_boxes import Box

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Kind:
    """How an instruction accesses memory: what decides whether two accesses conflict."""

    op: Op
    write: bool
    scope: FenceScope | None
    asynchronous: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return id(self.op), self.write, self.scope, self.asynchronous


@dataclass(frozen=True, eq=False)
class Move:
    """By how many elements the accesses of every cluster of a class are shifted against those of
    the cluster that was run, and by how many more where they end (at the end of the tensor, some
    are cut off): (clusters, dimensions). ``where``: the clusters that make them."""

    by: Integers
    more: Integers | None = None
    where: Mask | None = None

    def among(self, members: Mask) -> Mask:
        """Those of some clusters that make them."""
        return members if self.where is None else members & self.where

    def ends(self, which: Any) -> Integers:
        """By how many elements the ends are shifted, in some clusters."""
        by: Integers = self.by[which]
        return by if self.more is None else by + self.more[which]


@dataclass(frozen=True)
class Boxes:
    """The elements that one access of the cluster that was run touches, and how the others' lie."""

    kind: Kind
    boxes: tuple[Box, ...]
    move: Move


class Touches:
    """The accesses of one class to one tensor, each once."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()
        self._moves: dict[tuple[bytes | None, ...], Move] = {}
        #: by identity, with the array so that it stays what it is
        self._names: dict[int, tuple[Integers, bytes]] = {}
        self.boxes: list[Boxes] = []

    def add(
        self, kind: Kind, boxes: tuple[Box, ...], by: Integers, where: Mask | None = None,
        more: Integers | None = None,
    ) -> None:  # fmt: skip
        """An access whose boxes lie ``by`` elements further in the other clusters, and end at
        ``more``; ``where``: which clusters make it, if it is not all of them."""
        name = tuple(None if x is None else self._name(x) for x in (by, more, where))
        if (kind, boxes, name) not in self._seen:
            self._seen.add((kind, boxes, name))
            move = self._moves.setdefault(name, Move(by, more, where))
            self.boxes.append(Boxes(kind, boxes, move))

    def _name(self, array: Any) -> bytes:
        """The bytes of an array that does not change, taken once."""
        known = self._names.get(id(array))
        if known is None:
            known = self._names[id(array)] = array, array.tobytes()
        return known[1]

    def only(self, kept: Mask) -> Touches:
        """The accesses of some of the clusters, relative to the first of them."""
        result = Touches()
        for one in self.boxes:
            move = one.move
            by, where = move.by[kept], None if move.where is None else move.where[kept]
            if where is not None and not where.any():
                continue
            own = None if where is None or where.all() else where
            ends = move.ends(kept)
            boxes = _further(one.boxes, by[0], ends[0])
            more = None if move.more is None else ends - by - (ends - by)[0]
            result.add(one.kind, boxes, by - by[0], own, more)
        return result


def _further(boxes: tuple[Box, ...], by: Integers, ends: Integers) -> tuple[Box, ...]:
    """Boxes that lie so many elements further, and end so many further."""
    ways = list(zip(by.tolist(), ends.tolist(), strict=True))
    return tuple(
        tuple((a + d, b + e) for (a, b), (d, e) in zip(box, ways, strict=True)) for box in boxes
    )


def elements_of(footprint: Footprint) -> tuple[Box, ...] | None:
    """The elements of a footprint as boxes; None if they are no progressions of indices."""
    indices = footprint.bytes.indices
    if indices is None:
        return None
    spans = (
        [(s.start, s[-1] + 1)] if s.step == 1 else [(index, index + 1) for index in s]
        for s in indices
    )
    return tuple(product(*spans))


def bytes_of(footprint: Footprint) -> tuple[Box, ...]:
    """The bytes of a footprint as intervals."""
    return tuple((pair,) for pair in footprint.bytes.pairs)


# ------------------------------------------------------------- which clusters access the same bytes


#: boxes, and cells that boxes cover, of one tensor at most
MAX_BOXES = 20_000_000


@dataclass(frozen=True)
class Part:
    """The accesses of one class to a tensor: its clusters, and which of them are its members."""

    clusters: Integers
    members: Mask
    boxes: Sequence[Boxes]


@dataclass
class Contacts:
    """What the comparison of a tensor found.

    ``pairs``: per two kinds of access, one of which writes, two clusters of which one accesses
    what the other does. ``irregular``: clusters of which accesses overlap that may not do so in
    the cluster that was run. ``too_many``: the tensor could not be compared.
    """

    pairs: dict[tuple[Kind, Kind], tuple[int, int]] = field(default_factory=dict)
    irregular: set[int] = field(default_factory=set)
    too_many: bool = False


@dataclass(frozen=True)
class _BoxTable:
    """Many boxes: bounds (boxes, dimensions), and per box its cluster, kind, and group.

    Boxes of one group and class have one shift, so how they overlap is the same in all clusters.
    """

    lows: Integers
    highs: Integers
    cluster: Integers
    kind: Integers
    group: Integers


def contacts(tensor: GlobalTensor, parts: Sequence[Part], far: Sequence[Part] = ()) -> Contacts:
    """Compares what the clusters of all classes access in one tensor.

    ``parts`` have boxes of its elements, ``far`` have intervals of its bytes.
    """
    kinds: dict[Kind, int] = {}
    for part in (*parts, *far):
        for boxes in part.boxes:
            kinds.setdefault(boxes.kind, len(kinds))
    result = Contacts()
    if not any(kind.write for kind in kinds):
        return result
    table = _table(tensor, parts, kinds, in_bytes=bool(far))
    if far and table is not None:
        as_bytes = GlobalTensor(tensor.name, u8, (tensor.nbytes,))
        others = _table(as_bytes, far, kinds, in_bytes=bool(parts))
        table = None if others is None else _joined([table, others])
    cells = None if table is None else _cells(table)
    if table is None or cells is None:
        result.too_many = True
        return result
    _judge(table, *cells, list(kinds), result)
    return result


# ------------------------------------------------------------------ groups of boxes


def _table(
    tensor: GlobalTensor, parts: Sequence[Part], kinds: dict[Kind, int], *, in_bytes: bool
) -> _BoxTable | None:
    """The boxes of all clusters that may overlap others; None if they are too many.

    ``in_bytes``: they are compared with others, by their bytes.
    """
    groups = [g for part in parts for g in _groups(part, kinds)]
    if not groups:
        return _none()
    hulls = _hulls(groups)
    # elements that share bytes may be far from each other
    alone = elements_apart(tensor) and not in_bytes
    touching = _touching(hulls) if alone else np.ones(len(hulls.cluster), dtype=bool)
    if alone and hulls.lows.shape[1] == 1:
        touching &= _intervals_touch(groups, touching)
    return _all_boxes(tensor, groups, touching, in_bytes=not alone)


def _none() -> _BoxTable:
    """No boxes of bytes."""
    nothing = np.zeros(0, dtype=np.int64)
    return _BoxTable(nothing[:, None], nothing[:, None], nothing, nothing, nothing)


@dataclass(frozen=True)
class _Group:
    """Boxes of a class with one shift: (boxes, dimensions) bounds with their kinds, and by
    how much they begin and end further: (clusters, dimensions)."""

    number: int
    clusters: Integers
    lows: Integers
    highs: Integers
    kinds: Integers
    by: Integers
    ends: Integers

    def hull(self) -> tuple[Integers, Integers]:
        """Per cluster the smallest box around all of them: (clusters, dimensions)."""
        return self.lows.min(axis=0) + self.by, self.highs.max(axis=0) + self.ends


def _groups(part: Part, kinds: dict[Kind, int]) -> Iterator[_Group]:
    by_move: dict[Move, list[Boxes]] = {}
    for boxes in part.boxes:
        by_move.setdefault(boxes.move, []).append(boxes)
    for move, several in by_move.items():
        mine = move.among(part.members)
        if not mine.any():
            continue
        bounds = np.array([box for b in several for box in b.boxes], dtype=np.int64)
        names = np.array([kinds[b.kind] for b in several for _ in b.boxes], dtype=np.int64)
        lows, highs, by = bounds[:, :, 0], bounds[:, :, 1], move.by[mine]
        yield _Group(id(move), part.clusters[mine], lows, highs, names, by, move.ends(mine))


def _hulls(groups: Sequence[_Group]) -> _BoxTable:
    hulls = [g.hull() for g in groups]
    sizes = [len(g.clusters) for g in groups]
    return _BoxTable(
        np.concatenate([low for low, _ in hulls]),
        np.concatenate([high for _, high in hulls]),
        np.concatenate([g.clusters for g in groups]),
        np.zeros(sum(sizes), dtype=np.int64),
        np.repeat(np.arange(len(groups), dtype=np.int64), sizes),
    )


def _touching(hulls: _BoxTable) -> Mask:
    """Per hull: whether another one may overlap it."""
    cells = _cells(hulls)
    if cells is None:
        return np.ones(len(hulls.cluster), dtype=bool)
    box, cell = cells
    _, where, counts = np.unique(cell, return_inverse=True, return_counts=True)
    result = np.zeros(len(hulls.cluster), dtype=bool)
    result[box[counts[where] > 1]] = True
    return result


def _intervals_touch(groups: Sequence[_Group], touching: Mask) -> Mask:
    """Per hull in one dimension: whether the intervals in it may overlap those of others.

    Rows of tiles lie between those of other tiles, and so do their hulls. Intervals of a cluster
    that have one shift and follow each other are one; of all clusters these are few.
    """
    sizes = [len(g.clusters) for g in groups]
    firsts: Integers = np.cumsum(sizes, dtype=np.int64) - sizes
    sets: dict[tuple[bytes, ...], list[int]] = {}
    for number, group in enumerate(groups):
        shifts = group.by.tobytes(), group.ends.tobytes()
        sets.setdefault((group.clusters.tobytes(), *shifts), []).append(number)
    table: list[_BoxTable] = []
    asked: list[Integers] = []
    for members in sets.values():
        hulls: Integers = firsts[members][:, None] + np.arange(sizes[members[0]], dtype=np.int64)
        lows, highs = _merged([groups[m] for m in members])
        kinds = np.zeros(len(lows), dtype=np.int64)
        group = groups[members[0]]
        group = replace(group, number=len(asked), lows=lows, highs=highs, kinds=kinds)
        mine: Mask = np.logical_or.reduce(touching[hulls], axis=0)
        if sum(len(d.cluster) for d in table) + int(mine.sum()) * len(group.kinds) > MAX_BOXES:
            return touching
        table.append(_expand(replace(group, clusters=np.arange(len(mine))), mine))
        asked.append(hulls)
    whole = _joined(table)
    meets = _touching(whole)
    result = np.zeros(len(touching), dtype=bool)
    for number, hulls in enumerate(asked):
        result[hulls[:, whole.cluster[meets & (whole.group == number)]]] = True
    return result


def _merged(groups: Sequence[_Group]) -> tuple[Integers, Integers]:
    """The intervals of groups in one dimension, those that touch as one."""
    lows = np.concatenate([g.lows[:, 0] for g in groups])
    highs = np.concatenate([g.highs[:, 0] for g in groups])
    order = np.argsort(lows, kind="stable")
    lows, ends = lows[order], np.maximum.accumulate(highs[order])
    new = np.concatenate([[True], lows[1:] > ends[:-1]])
    last = np.concatenate([new[1:], [True]])
    return lows[new][:, None], ends[last][:, None]


def _all_boxes(
    tensor: GlobalTensor, groups: Sequence[_Group], touching: Mask, *, in_bytes: bool
) -> _BoxTable | None:
    """The boxes of all clusters whose hulls touch; None if they are too many."""
    table: list[_BoxTable] = []
    first = count = 0
    for group in groups:
        mine = touching[first : first + len(group.clusters)]
        first += len(group.clusters)
        count += int(mine.sum()) * len(group.kinds)
        if count > MAX_BOXES:
            return None
        table.append(_expand(group, mine))
    whole = _joined(table)
    return _as_bytes(tensor, whole) if in_bytes else whole


def _expand(group: _Group, mine: Mask) -> _BoxTable:
    clusters, dims = group.clusters[mine], group.lows.shape[1]
    lows = (group.lows + group.by[mine][:, None, :]).reshape(-1, dims)
    highs = (group.highs + group.ends[mine][:, None, :]).reshape(-1, dims)
    kinds = np.tile(group.kinds, len(clusters))
    owner = np.repeat(clusters, len(group.kinds))
    return _BoxTable(lows, highs, owner, kinds, np.full(len(owner), group.number, dtype=np.int64))


def _joined(parts: Sequence[_BoxTable]) -> _BoxTable:
    return _BoxTable(
        np.concatenate([p.lows for p in parts]), np.concatenate([p.highs for p in parts]),
        np.concatenate([p.cluster for p in parts]), np.concatenate([p.kind for p in parts]),
        np.concatenate([p.group for p in parts]),
    )  # fmt: skip


def _as_bytes(tensor: GlobalTensor, table: _BoxTable) -> _BoxTable | None:
    """The boxes as intervals of bytes, one per row of elements that are neighbours in memory."""
    sizes, strides, length = table.highs - table.lows, tensor.byte_strides, tensor.dtype.bytes
    lengths = np.full(len(sizes), length)
    if strides and strides[-1] == length:
        lengths = sizes[:, -1] * length
        sizes = np.concatenate([sizes[:, :-1], np.minimum(sizes[:, -1:], 1)], axis=1)
    counts = sizes.prod(axis=1)
    if counts.sum() > MAX_BOXES:
        return None
    box = np.repeat(np.arange(len(counts)), counts)
    left = _positions(counts)
    address = np.zeros(len(box), dtype=np.int64)
    for d in reversed(range(sizes.shape[1])):
        address += (table.lows[box, d] + left % sizes[box, d]) * strides[d]
        left = left // sizes[box, d]
    low = address[:, None]
    high = low + lengths[box, None]
    return _BoxTable(low, high, table.cluster[box], table.kind[box], table.group[box])


# ------------------------------------------------------------------ cells


def _positions(counts: Integers) -> Integers:
    """0, 1, ... anew for every box that is repeated ``counts`` times."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(starts, counts)


def _cells(table: _BoxTable) -> tuple[Integers, Integers] | None:
    """Every cell of every box, as (box, cell); None if there are too many."""
    firsts, spans, widths = [], [], []
    for d in range(table.lows.shape[1]):
        edges = np.unique(np.concatenate([table.lows[:, d], table.highs[:, d]]))
        first = np.searchsorted(edges, table.lows[:, d])
        firsts.append(first)
        spans.append(np.searchsorted(edges, table.highs[:, d]) - first)
        widths.append(len(edges))
    counts = np.prod(np.stack(spans), axis=0, dtype=np.int64)
    if counts.sum() > MAX_BOXES or prod(widths) >= 1 << 62:
        return None
    box = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    left = _positions(counts)
    cell = np.zeros(len(box), dtype=np.int64)
    scale = 1
    for d in reversed(range(len(widths))):
        here = spans[d][box]
        cell += (firsts[d][box] + left % here) * scale
        left //= here
        scale *= widths[d]
    return box, cell


def _judge(
    table: _BoxTable, box: Integers, cell: Integers, kinds: Sequence[Kind], result: Contacts
) -> None:
    """Notes the pairs of clusters that meet in a cell that is written."""
    _, cell, counts = np.unique(cell, return_inverse=True, return_counts=True)
    shared = counts[cell] > 1
    box, cell = box[shared], cell[shared]
    if not len(box):
        return
    writes = np.array([kind.write for kind in kinds])
    kind, cluster, group = table.kind[box], table.cluster[box], table.group[box]
    written = np.zeros(len(counts), dtype=bool)
    written[cell[writes[kind]]] = True
    kept = written[cell]
    cell, kind, cluster, group = cell[kept], kind[kept], cluster[kept], group[kept]
    if not len(cell):
        return
    result.irregular |= _irregular(cell, cluster, group, writes[kind])
    spans = {k: _extremes(cell[kind == k], cluster[kind == k]) for k in np.unique(kind).tolist()}
    for a, b in combinations_with_replacement(spans, 2):
        if writes[a] or writes[b]:
            met = _meeting(spans[a], spans[b])
            if met is not None:
                result.pairs[kinds[a], kinds[b]] = met


def _irregular(cell: Integers, cluster: Integers, group: Integers, writes: Mask) -> set[int]:
    """Clusters with a cell that is accessed by boxes of several groups and written."""
    order = np.lexsort((cluster, cell))
    cell, cluster, group, writes = cell[order], cluster[order], group[order], writes[order]
    new = (cell[1:] != cell[:-1]) | (cluster[1:] != cluster[:-1])
    starts = np.flatnonzero(np.concatenate([[True], new]))
    several = np.minimum.reduceat(group, starts) != np.maximum.reduceat(group, starts)
    several &= np.logical_or.reduceat(writes, starts)
    return set(cluster[starts[several]].tolist())


#: cells, with the first and the last cluster that accesses each
_Extremes = tuple[Integers, Integers, Integers]


def _extremes(cell: Integers, cluster: Integers) -> _Extremes:
    order = np.argsort(cell, kind="stable")
    cell, cluster = cell[order], cluster[order]
    starts = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]]))
    return (
        cell[starts], np.minimum.reduceat(cluster, starts), np.maximum.reduceat(cluster, starts)
    )  # fmt: skip


def _meeting(one: _Extremes, other: _Extremes) -> tuple[int, int] | None:
    """Two different clusters that access one cell, each in one of two ways."""
    _, i, j = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    for a, b in ((one[1][i], other[2][j]), (one[2][i], other[1][j])):
        different = np.flatnonzero(a != b)
        if len(different):
            first = int(different[0])
            low, high = sorted((int(a[first]), int(b[first])))
            return low, high
    return None
