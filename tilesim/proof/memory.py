"""Bytes: which accesses touch them, whether these are in order, and which integers lie there.

Each access is compared, byte by byte, with the last write and with what else has touched the bytes
since: reads, and writes that a later one does not cover for certain. What lies there is known only
where one store of a known integer has left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.proof.counters import Word
from tilesim.proof.order import Lanes, Positions
from tilesim.proof.rules import NotCovered, Refuted, rule
from tilesim.proof.state import State
from tilesim.records import dataclass

#: byte numbers, (elements, bytes of one)
Bytes: TypeAlias = NDArray[np.int64]
#: of each byte that is stored a number that only the same data has, or -1
Names: TypeAlias = NDArray[np.int64]
#: size in bytes and scope of a strong access
Strong: TypeAlias = tuple[int, str]
#: whether bytes ``own`` of a later record come after the positions ``theirs`` of an earlier one
Ordered: TypeAlias = "Callable[[Record, Record, Any, tuple[Lanes, Positions] | None], bool]"

#: bytes of the longest integer: what one lane stores at once
_WORD = 16
#: how clusters access a byte of a tensor: only read it; write it, or access it in several ways; a
#: number from _STRONG on: by strong operations of one form, which is their size in bytes and
#: whether their proxy is the asynchronous one
_READ, _ALONE, _STRONG, _ASYNC = 1, 2, 3, 128
#: what this has besides where data decides whether there is an access
_UNSURE = 1 << 12
#: ranges of bytes that are compared between clusters
MOST_RANGES = 1 << 24
#: bytes of a memory that are kept track of; what is not accessed takes no memory
LARGEST = 1 << 29


class MayBeEqual(NotCovered):
    """Stores that nothing orders, which is right only if they are of the same data."""


class Meets(NotCovered):
    """Accesses that are compared only as far as each cluster makes them all moved by the same."""


class Where(NamedTuple):
    """An executed instruction, for messages."""

    number: int
    what: str
    cta: int
    warp: int

    def __str__(self) -> str:
        return f"instruction {self.number} ({self.what}) of warp {self.warp} of CTA {self.cta}"


class Record:
    """An access. ``lane`` and ``position`` are given for each byte; None: it is asynchronous, in so
    many ``parts``, each over for whatever knows one of its facts. ``instance``: which cluster or
    repetition has made it, in global memory. ``number``: what each of its lanes stores, if that is
    one number; ``names``: of each byte, a number that only the same data has, negative if it is not
    known to be any other; ``over``: what such stores come after, and later accesses are not
    compared with any more.
    ``adds``: it is an addition; ``decides``: a strong read of which it is counted on what it finds;
    ``may``: data decides which of the lanes make it."""

    __slots__ = (
        "adds", "asynchronous", "bytes", "decides", "end", "facts", "first", "instance", "key",
        "lane", "may", "names", "number", "over", "position", "proxy", "strong", "tmem", "where",
        "whole", "write",
    )  # fmt: skip

    def __init__(
        self, at: NDArray[np.int64], write: bool, proxy: str, strong: Strong | None, where: Where,
        lane: Lanes | None = None, position: Positions | None = None, instance: object = None,
        number: int | None = None, *, may: bool = False, names: Names | None = None, parts: int = 1,
    ) -> None:  # fmt: skip
        self.number, self.over, self.may, self.names = number, list[Record](), may, names
        self.adds = self.decides = False
        self.bytes, self.write, self.proxy, self.where = at, write, proxy, where
        self.strong, self.lane, self.position, self.instance = strong, lane, position, instance
        self.first, self.end = (int(at.min()), int(at.max()) + 1) if at.size else (0, 0)
        self.asynchronous = lane is None
        self.tmem: Any = None  # of tensor memory: what `tensor_memory` knows of it
        self.whole: Record = self
        #: of the whole access, by part, the facts by which it is known to be over
        self.facts = [0] * parts
        #: of an access that is over, and leaves nothing for certain: what those have that are made
        #: again by the same lanes
        self.key: object = None
        if lane is not None and (not write or (may and strong is None)):
            by = write and (where.number, number)
            self.key = proxy, strong, instance, at.tobytes(), lane.tobytes(), by

    def is_over(self, facts: int) -> bool:
        """Whether whatever knows these facts knows that an asynchronous access is over."""
        return all(facts & known for known in self.whole.facts)

    def ends_with(self, fact: int, part: int | None = None) -> None:
        """One more fact by which all of it, or a part, is."""
        facts = self.whole.facts
        for n in range(len(facts)) if part is None else (part,):
            facts[n] |= fact

    def state(self, s: State) -> None:
        """Tells all but its bytes and lanes."""
        s.access(self)
        s.same(self.where.number, self.write, self.proxy, self.strong, self.instance, self.number,
               self.adds, self.decides, self.may)  # fmt: skip
        if self.tmem is not None:
            self.tmem.state(s)
        s.same([x.bytes.tobytes() for x in self.over])
        for x in self.over:
            x.state(s)
            if x.lane is not None:
                s.numbers(x.lane, x.position)

    def without(self, hit: NDArray[np.bool_]) -> Record:
        """The same access of the other bytes."""
        keep = ~hit
        lane = None if self.lane is None else self.lane[keep]
        position = None if self.position is None else self.position[keep]
        rest = Record(
            self.bytes[keep], self.write, self.proxy, self.strong, self.where, lane, position,
            self.instance, self.number, may=self.may,
            names=None if self.names is None else self.names[keep],
        )  # fmt: skip
        rest.whole, rest.tmem, rest.over = self.whole, self.tmem, self.over
        rest.adds, rest.decides = self.adds, self.decides
        return rest

    def covers(self, x: Record, at: Bytes, lanes: tuple[Lanes, Positions] | None) -> None:
        """It may store the same as others, and is the last write of these bytes of an earlier
        access."""
        if self.number is not None or self.names is not None:
            part = Record(at, x.write, x.proxy, x.strong, x.where, *(lanes or ()))
            part.instance, part.whole = x.instance, x.whole if x.asynchronous else part
            self.over.append(part)


@rule("out-of-bounds", "an access lies inside of its memory")
def exists(holds: bool | np.bool_, what: object) -> None:
    """Raises: Refuted: something that is named does not."""
    if not holds:
        raise Refuted("out-of-bounds", what)


@rule("uninitialised", "memory of a CTA, or of a thread, is written before it is read")
def written_before(written: NDArray[np.bool_], where: object, *, may: bool = False) -> None:
    """``may``: data may have decided that it is written.

    Raises: Refuted: some bytes are not."""
    if not written.all():
        if may:
            raise NotCovered(f"{where}: bytes that may have been written")
        raise Refuted("uninitialised", f"{where}: bytes that nothing has written")


class Ranges(NamedTuple):
    """Ranges of bytes that clusters access, each in one way."""

    first: NDArray[np.int64]
    end: NDArray[np.int64]
    how: NDArray[np.int16]


@dataclass
class Beside:
    """Accesses of the same bytes that no later write covers for certain; ``behind``: the numbers of
    such of some of the bytes before it."""

    records: list[Record]
    behind: Sequence[int]

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Those of each of them."""
        return self.records[0].bytes


class Memory:
    """The shared memory or tensor memory of a CTA, or a tensor in global memory."""

    def __init__(
        self, name: str, nbytes: int, *, shared_by_clusters: bool = False, private: bool = False
    ) -> None:
        if nbytes > LARGEST:
            raise NotCovered(f"{name} has {nbytes} bytes")
        self.name, self.nbytes = name, nbytes
        self.written = np.zeros(nbytes, bool)
        #: where threads have a part each, what they have stored for certain
        self.stored = np.zeros(nbytes, bool) if private else None
        self.mbarriers = np.zeros(nbytes, bool)  # bytes of live ones
        self._constant = np.zeros(nbytes, bool)  # what is read without coherence
        self.asynchronous: list[Record] = []
        self._writes: list[Record] = []
        self._last = np.zeros(nbytes, np.int32)  # number of the last write, from 1 on
        self._lane = np.zeros(nbytes, np.int32)  # of the last write
        self._position = np.zeros(nbytes, np.int32)
        self._beside: dict[int, Beside] = {}  # by number, from 1 on
        self._latest = np.zeros(nbytes, np.int32)  # of a byte, the last of them that has it
        self._entered = 0  # how many there were
        self._conflicting = False  # whether a read has to be compared with some of them
        #: while bytes are compared: an index + 1
        self._mark: NDArray[Any] = np.zeros(nbytes, np.int32)
        self._changes = 0
        self.changed = np.zeros(nbytes, np.int32)  # by how manieth write
        self._integers: dict[int, tuple[int, Any]] = {}  # byte -> (size, value)
        #: what is known to lie there before the first write
        self.begins = b""
        #: words that are waited for, by their first bytes
        self.words: dict[int, Word] = {}
        self.by_clusters = shared_by_clusters
        #: how each byte was ever accessed, and outside of which none was
        self._how = np.zeros(nbytes if shared_by_clusters else 0, np.int16)
        self._first, self._end = nbytes, 0

    def in_bounds(self, at: Bytes, where: object) -> None:
        """Raises: Refuted: some byte is outside."""
        exists(not at.size or (at.min() >= 0 and at.max() < self.nbytes),
               f"{where}: outside of {self.name}")  # fmt: skip

    def access(self, y: Record, ordered: Ordered) -> None:
        """One more access, after those so far."""
        self.in_bounds(y.bytes, y.where)
        if self.stored is not None and not y.write:
            may = bool(y.may) or bool(self.written[y.bytes].all())
            written_before(self.stored[y.bytes], y.where, may=may)
        layers = self._distinct(y.bytes) if y.write or self._conflicting else []
        vouched = self._against_others(y, layers, ordered)
        in_order = self._against_writes(y, ordered, vouched)
        if y.asynchronous:
            self.asynchronous.append(y)
        if self.by_clusters and y.bytes.size:
            self._across_clusters(y)
        # of several bytes at one place, which one stays is not known
        single = not y.write or len(layers) <= 1
        if y.write and y.strong is None and single and in_order and not y.may:
            self._writes.append(y)
            self._last[y.bytes] = len(self._writes)
            if y.lane is not None and y.position is not None:
                self._lane[y.bytes], self._position[y.bytes] = y.lane, y.position
        else:
            self._keep(y)
            self._conflicting |= y.write
        if y.write:
            self._coherent(self._constant[y.bytes], y.where)
            # of shared memory, what is written for certain; of a tensor, what may be
            self.written[y.bytes] |= not y.may or self.by_clusters
            if self.stored is not None:
                self.stored[y.bytes] |= not y.may
            self._forget(y)
            self._ends_words(y)
            self._changes += 1
            self.changed[y.bytes] = self._changes

    @rule("counter-life", "a word that is waited for is changed as a word, or behind all its waits")
    def _ends_words(self, y: Record) -> None:
        """A write that does not count. One that is not strong comes after all waits (H6)."""
        for first, word in list(self.words.items()):
            if ((first <= y.bytes) & (y.bytes < first + word.bits // 8)).any():
                if y.strong and word.waits:
                    raise NotCovered(f"{y.where}: a change of another kind of {word.name}")
                del self.words[first]

    def read_as_constant(self, at: Bytes, where: Where) -> None:
        """Some bytes are read, not necessarily as other instructions of the launch leave them."""
        self.in_bounds(at, where)
        self._coherent(self.written[at], where)
        self._constant[at] = True

    @rule("H25", "what ld.global.nc reads is not written by the launch, in whatever order")
    def _coherent(self, both: NDArray[np.bool_], where: Where) -> None:
        """Raises: Refuted: some bytes are read so, and written."""
        if both.any():
            raise Refuted("H25", f"{where}: {self.name} is written, and read by ld.global.nc")

    @rule("H6", "of two accesses that conflict, one comes before the other, or both are strong")
    def _race(self, y: Record, x: Record) -> None:
        if x.decides and y.strong:
            raise NotCovered(f"{y.where} may come before {x.where}, where what is found decides")
        alike = y.write and x.write and y.where.number == x.where.number
        if alike and not y.asynchronous and not y.strong:
            raise MayBeEqual(f"{y.where} and before {x.where}: stores that may be of equal values")
        if x.may or y.may:
            raise NotCovered(f"{y.where} and before {x.where}, where data decides")
        raise Refuted("H6", f"{y.where} and before {x.where} in {self.name}")

    def forget_names(self) -> None:
        """No later store is known to be of the data of an earlier one."""
        for x in (x for x in (*self._writes, *_records(self._beside)) if x.names is not None):
            x.names, x.over = None, []

    @rule("H23-equal", "in practice, stores of the same data by one instruction need no order")
    def _unordered(self, y: Record, x: Record, ordered: Ordered) -> None:
        """Nothing orders two accesses that conflict. What comes later is compared with both.

        Raises: Refuted, NotCovered: a race; the later store need not come after what the earlier
        one comes after."""
        alike = y.where.number == x.where.number and not (self.by_clusters or y.asynchronous)
        parts, same = self._distinct(y.bytes), y.number == x.number
        if not alike or not (same if y.number is not None else self._same(y, x, parts)):
            self._race(y, x)
        for z in x.over:
            if not self._after(y, z, ordered, parts):
                self._race(y, z)

    def _same(self, y: Record, x: Record, parts: Sequence[NDArray[np.int64]]) -> bool:
        """Whether two stores leave the same data in each byte that both write."""
        if y.names is None or x.names is None:
            return False
        for own, here in self._shared(y, x.bytes, parts):
            mine, theirs = y.names[own], x.names[here]
            if (mine != theirs).any() or (mine < 0).any():
                return False
        return True

    def _meeting(self, at: NDArray[np.int64]) -> dict[int, Beside]:
        """All that may have one of these bytes, by number. What covers one of them at a byte covers
        all of them there, so none that is left is behind one that is gone."""
        found, left = dict[int, Beside](), list(_values(self._latest[at]))
        while left:
            number = left.pop()
            if number not in found and number in self._beside:
                found[number] = self._beside[number]
                left += found[number].behind
        return found

    def _keep(self, y: Record) -> None:
        """An access with which later ones are compared. Whatever comes after a lane's read comes
        after its earlier ones."""
        for same in self._meeting(y.bytes).values():
            if np.array_equal(same.bytes, y.bytes):
                again = y.key is not None
                same.records = [x for x in same.records if not (again and x.key == y.key)]
                same.records.append(y)
                return
        if y.bytes.size:
            self._entered += 1
            self._beside[self._entered] = Beside([y], _values(self._latest[y.bytes]))
            self._latest[y.bytes] = self._entered

    def _against_others(
        self, y: Record, layers: Sequence[NDArray[np.int64]], ordered: Ordered
    ) -> NDArray[np.bool_]:
        """Compares with what has touched the bytes since their last write. Returns which bytes need
        not be compared with that write, as something in between came after it."""
        vouched, in_order = np.zeros(len(y.bytes), bool), True
        hits = dict[int, NDArray[np.bool_]]()
        for number, some in self._meeting(y.bytes).items() if layers else ():
            if parts := self._shared(y, some.bytes, layers):
                hits[number] = np.logical_or.reduce([here for _, here in parts])
            for x in some.records if parts else ():
                if not (y.write or x.write):
                    continue
                if not all(ordered(y, x, own, _lanes(x, here)) for own, here in parts):
                    self._unordered(y, x, ordered)
                    in_order = False
                    continue
                for own, _ in parts if x.asynchronous and not x.write and y.write else ():
                    # it came after that write, and y after its end, which hands on no memory: a
                    # read has to know of the write itself
                    vouched[own] = True
        if y.write and y.strong is None and not y.may and in_order:
            self._cover(y, hits)
        return vouched

    def _cover(self, y: Record, hits: dict[int, NDArray[np.bool_]]) -> None:
        """A write that comes after all that is beside the last writes: of its bytes, which these
        share as said by number, none of it need be kept."""
        for number, hit in hits.items():
            some = self._beside[number]
            for x in some.records:
                y.covers(x, x.bytes[hit], _lanes(x, hit))
            some.records = [x.without(hit) for x in some.records]
            if hit.all():
                del self._beside[number]
        self._latest[y.bytes] = 0

    def _distinct(self, at: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Indices of bytes, in parts of which none has a byte twice: lanes may share bytes, and
        each of them is compared."""
        parts, left = [], np.arange(len(at))
        while len(left):
            self._mark[at[left]] = left + 1
            first = self._mark[at[left]] == left + 1
            self._mark[at[left]] = 0
            parts.append(left[first])
            left = left[~first]
        return parts

    def _shared(
        self, y: Record, at: Bytes, parts: Sequence[NDArray[np.int64]]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """By part of a record, the indices of its bytes that are among bytes of earlier records,
        and which of those these are."""
        found = []
        for part in parts:
            self._mark[y.bytes[part]] = part + 1
            own = self._mark[at] - 1
            self._mark[y.bytes[part]] = 0
            if (here := own >= 0).any():
                found.append((own[here], here))
        return found

    def _after(
        self, y: Record, x: Record, ordered: Ordered, parts: Sequence[NDArray[np.int64]]
    ) -> bool:
        """Whether a record comes after an earlier one, wherever they share bytes."""
        shared = self._shared(y, x.bytes, parts)
        return all(ordered(y, x, own, _lanes(x, here)) for own, here in shared)

    def _against_writes(self, y: Record, ordered: Ordered, vouched: NDArray[np.bool_]) -> bool:
        """Compares with the last writes. Returns whether it comes after them."""
        in_order = True
        for x, own, theirs in self._last_writes(y, vouched):
            if ordered(y, x, own, theirs):
                y.covers(x, y.bytes[own], theirs)
            else:
                self._unordered(y, x, ordered)
                in_order = False
        return in_order

    def _last_writes(self, y: Record, vouched: NDArray[np.bool_]) -> Iterator[tuple[Any, ...]]:
        """Each last write of bytes that need be compared: it, the bytes' indices, its lanes."""
        last = self._last[y.bytes] - 1
        for number in _values(last):
            own = np.flatnonzero((last == number) & ~vouched)
            if number < 0 or not len(own):
                continue
            at = y.bytes[own]
            x = self._writes[number]
            yield x, own, None if x.asynchronous else (self._lane[at], self._position[at])

    @rule(
        "data-order", "what a strong read finds is known if all writes there are in order with it"
    )
    def settled(self, y: Record, ordered: Ordered, *, adds: bool) -> bool:
        """Whether ``y`` comes after all writes of its bytes so far, strong ones too; an addition,
        after all but other additions, with which it leaves the same in any order. Those that come
        later have to come after a read on which something depends (`_race`)."""
        layers, near = self._distinct(y.bytes), _records(self._meeting(y.bytes))
        writes = (x for x in near if x.write and not (adds and x.adds))
        if not all(self._after(y, x, ordered, layers) for x in writes):
            return False
        every = np.zeros(len(y.bytes), bool)
        return all(ordered(y, x, own, theirs) for x, own, theirs in self._last_writes(y, every))

    def _across_clusters(self, y: Record) -> None:
        self._first, self._end = min(self._first, y.first), max(self._end, y.end)
        how = _ALONE if y.write else _READ
        if y.strong is not None and y.strong[1] in ("gpu", "sys"):
            how = _STRONG + y.strong[0] + (_ASYNC if y.proxy == "async" else 0)
        before = self._how[y.bytes]
        known = before & (_UNSURE - 1)
        now = np.where((known == 0) | (known == how), how, _ALONE)
        self._how[y.bytes] = now | before & _UNSURE | y.may * _UNSURE

    def ranges(self, moves: NDArray[np.int64]) -> Ranges:
        """What all clusters access of it, of which each accesses what is said here moved by so
        many bytes.

        Raises: NotCovered: these are too many."""
        how = self._how[self._first : self._end]
        first = np.flatnonzero(np.append(True, how[1:] != how[:-1]))[: len(how)]
        end, is_any = np.append(first, len(how))[1:], how[first] != 0
        first, end, how = first[is_any], end[is_any], how[first[is_any]]
        if len(how) * len(moves) > MOST_RANGES:
            raise Meets(f"clusters that access {self.name} in too many places")
        first, end = ((self._first + x[:, None] + moves).reshape(-1) for x in (first, end))
        return Ranges(first, end, np.repeat(how, len(moves)))

    def state(self, s: State, under_way: Sequence[Record]) -> None:
        """Tells all that later accesses are compared with, and those ``under_way`` (B34)."""
        numbers, first, index = np.unique(self._last, return_index=True, return_inverse=True)
        iteration = np.argsort(first)  # of the writes, by their first bytes
        rank = np.empty_like(iteration)
        rank[iteration] = np.arange(len(iteration))
        plain = [n > 0 and not self._writes[n - 1].asynchronous for n in numbers]
        over = np.array(plain, bool)[index]
        s.same(rank[index].tobytes(), over.tobytes(), self.written.tobytes(),
               self.mbarriers.tobytes(), self._conflicting, sorted(self._integers.items()),
               [type(value) for _, (_, value) in sorted(self._integers.items())])  # fmt: skip
        s.numbers(self._lane[over], self._position[over])
        for n in numbers[iteration]:
            if n > 0:
                self._writes[n - 1].state(s)
        others = _records(self._beside)
        for x in sorted((*others, *under_way), key=_first_byte):
            x.state(s)
            s.same(x.bytes.tobytes())
            if x.lane is not None:
                s.numbers(x.lane, x.position)

    # ------------------------------------------------------------------ what is known to lie there

    def integer(self, first: int, size: int) -> Any:
        """What so many bytes hold, an integer, part of one or several, if it is known, that of
        each cluster of a class, or an answer of launch control; None: it is not known."""
        for start in range(first, first - _WORD, -1) if self._integers else ():
            length, value = self._integers.get(start, (0, None))
            if (start, length) == (first, size):
                return value
            if first + size <= start + length and type(value) is int:
                return value >> 8 * (first - start) & ((1 << 8 * size) - 1)
        if (joined := self._joined(first, size)) is not None:
            return joined
        found = self.begins[first : first + size]
        untouched = len(found) == size and not self.written[first : first + size].any()
        return int.from_bytes(found, "little") if untouched else None

    def _joined(self, first: int, size: int) -> int | None:
        """What so many bytes hold that whole known integers fill."""
        at, joined = first, 0
        while at < first + size:
            length, value = self._integers.get(at, (0, None))
            if type(value) is not int or at + length > first + size:
                return None
            joined |= value << 8 * (at - first)
            at += length
        return joined

    def holds(self, first: int, size: int, value: Any) -> None:
        """From now on these bytes hold it."""
        self._integers[first] = size, value

    def _forget(self, y: Record) -> None:
        """What some write may change is not known any more."""
        for first, (size, _) in list(self._integers.items()):
            near = first < y.end and y.first < first + size
            if near and ((first <= y.bytes) & (y.bytes < first + size)).any():
                del self._integers[first]


class Work:
    """Of each byte of a tensor, for which cluster's work it is written, or only read, in all runs
    of a launch of which launch control may hand out clusters."""

    def __init__(self, nbytes: int) -> None:
        self.touched, self.wrote = np.full((2, nbytes), -1, np.int32)

    @rule("D21", "the work of two clusters accesses no byte of which one writes it")
    def access(self, y: Record, cluster: Any) -> None:
        """One more access. Any cluster may do the work of any other one, in no order.

        Raises: Refuted: another cluster's work conflicts with it."""
        before = self.touched[y.bytes] if y.write else self.wrote[y.bytes]
        others = (before != -1) & (before != cluster)
        if others.any():
            byte = int(y.bytes[others][0])
            raise Refuted("D21", f"{y.where}: byte {byte} for cluster {cluster}, and for others")
        seen = self.touched[y.bytes]
        self.touched[y.bytes] = np.where((seen == -1) | (seen == cluster), cluster, -2)
        if y.write:
            self.wrote[y.bytes] = cluster


def _records(some: Mapping[int, Beside]) -> list[Record]:
    return [x for one in some.values() for x in one.records]


def _values(numbers: NDArray[np.int32]) -> list[int]:
    """The different ones."""
    one = numbers.size and (numbers == numbers[0]).all()
    found: list[int] = (numbers[:1] if one else np.unique(numbers)).tolist()
    return found


def all_apart(at: Bytes) -> bool:
    """Whether no number is there twice."""
    flat = np.sort(at, axis=None)
    return not (flat[1:] == flat[:-1]).any()


def _first_byte(x: Record) -> tuple[int, int, int]:
    return int(x.bytes.min(initial=0)), len(x.bytes), x.where.number


def _lanes(x: Record, hit: NDArray[np.bool_]) -> tuple[Lanes, Positions] | None:
    if x.lane is None or x.position is None:
        return None
    return x.lane[hit], x.position[hit]


@rule("clusters", "two clusters access no byte of which one writes it, but by strong operations")
def apart(name: str, some: Sequence[Ranges], *, exact: bool) -> None:
    """Compares what is accessed of a tensor, of which each of ``some`` may be that of several
    clusters. In the order of their first bytes, a range meets one before it if some of those that
    it conflicts with ends behind its first byte; ranges of one cluster that it compares itself do
    not meet. ``exact``: all others are of several clusters.

    Raises: Refuted: two accesses conflict, and nothing orders clusters; NotCovered: data decides
    whether they are made, or they may be of one cluster."""
    first, end, how = (np.concatenate(x) for x in zip(*some, strict=True))
    by_first = np.argsort(first, kind="stable")
    first, end, how = first[by_first], end[by_first], how[by_first]
    for sure in (True, False):
        at = np.flatnonzero(how < _UNSURE) if sure else np.arange(len(how))
        kinds = how[at] & (_UNSURE - 1)
        for kind in np.unique(kinds):
            reached = np.maximum.accumulate(np.where(kinds == kind, end[at], 0))[:-1]
            meets = (kinds[1:] != kind) | (kind == _ALONE)
            meets &= first[at][1:] < reached
            if not meets.any():
                continue
            byte = f"byte {first[at][1:][meets][0]} of {name}"
            if not exact:
                raise Meets(f"{byte}, which clusters access in several ways")
            if sure:
                raise Refuted("clusters", byte)
            raise NotCovered(f"{byte}, which clusters access where data decides")
