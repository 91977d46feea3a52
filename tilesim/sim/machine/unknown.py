"""Values that are not known: data that is not computed, contents of memory that are not given, and
numbers that are open.

An unknown value goes through arithmetic at no cost and through memory byte by byte. Where its
number is needed, `UnknownSteers` is raised, and the run ends without a verdict on what comes
behind.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.sums import Sums
from tilesim.findings.finding import Finding
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.records import dataclass
from tilesim.sim.machine.lanes import FULL, Lanes, mask_array


class UnknownSteers(Exception):
    """A value that is not known decides what the kernel does: a branch, an address, a count; or
    whether there is ``finding``."""

    def __init__(self, value: Unknown, finding: Finding | None = None) -> None:
        super().__init__(value)
        self.value = value
        self.finding = finding


class Unknown:
    """A register's value that is not known, in all lanes, and where it came from.

    Where the number is needed, `UnknownSteers` is raised. In some ``lanes`` it may be open besides
    (`Open`).
    """

    __slots__ = ("_loaded", "_opened", "fix", "lanes", "loc", "source")

    #: for code that looks at results of NumPy
    dtype = np.dtype(object)

    def __init__(self, source: str, fix: str = "", loc: Loc = UNKNOWN) -> None:
        #: what gave it, in words, and where that is written
        self.source = source
        self.loc = loc
        #: what makes it known, in words
        self.fix = fix
        self._loaded: dict[tuple[str, Loc], Unknown] = {}
        self.lanes = 0
        self._opened = {0: self}

    def opened(self, lanes: int) -> Unknown:
        """It, open in ``lanes`` and no others."""
        found = self._opened.get(lanes)
        if found is None:
            found = self._opened[lanes] = Unknown(self.source, self.fix, self.loc)
            found.lanes, found._opened = lanes, self._opened
        return found

    def read_by(self, mnemonic: str, loc: Loc) -> Unknown:
        """It, as an instruction has read it from memory; the first one is the one that is told."""
        if self.loc is not UNKNOWN:
            return self
        found = self._loaded.get((mnemonic, loc))
        if found is None:
            text = f"{self.source}, which {mnemonic} reads"
            found = self._loaded[mnemonic, loc] = Unknown(text, self.fix, loc)
        return found

    def same(self, *_others: object, **_options: object) -> Unknown:
        """The result of any operation on it."""
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __invert__ = same
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = same
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = same
    __array_ufunc__ = astype = same

    def needed(self, *_how: object, **_options: object) -> NoReturn:
        """The number has to be known.

        Raises:
            UnknownSteers: always.
        """
        raise UnknownSteers(self)

    __bool__ = __int__ = __index__ = __float__ = __array__ = needed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = needed
    __getitem__ = __len__ = __iter__ = needed

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return f"{self.source} ({', '.join(self.loc.chain)})"


def require_known(*values: Unknown | None) -> None:
    """Where something depends on values, all of them have to be known.

    Raises:
        UnknownSteers: one is not.
    """
    value = first_of(*values)
    if value is not None:
        raise UnknownSteers(value)


def first_of(*values: Unknown | None) -> Unknown | None:
    """The first that there is."""
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True, eq=False, slots=True)
class Open:
    """A register's value of which some ``lanes`` hold any number, as PTX leaves it open. Nothing
    may depend on these."""

    lanes: int
    #: of all 32 lanes
    values: NDArray[Any]


def open_lanes(value: object) -> int:
    """The lanes in which a value is open."""
    return value.lanes if isinstance(value, Open | Unknown) else 0


def unset_lanes(register: object) -> int:
    """The lanes that have not set a register, or in which it is open."""
    return FULL if register is None else open_lanes(register)


def opened(lanes: int, values: Any) -> Any:
    """``values``, which are open in ``lanes``.

    Raises:
        ZeroDivisionError: they are those of several clusters.
    """
    if type(values) is Unknown:
        return values.opened(lanes)
    if not lanes:
        return values
    if np.ndim(values) > 1:
        raise ZeroDivisionError("0 divides in some cluster")
    return Open(lanes, np.broadcast_to(values, 32))


def plain(value: Any) -> Any:
    """A value as a number or array (a lane mask becomes an array of 0 and 1)."""
    kind = type(value)
    if kind is Lanes:
        return mask_array(value.bits).astype(np.int64)
    if kind is Open:
        return value.values
    return value.dense if kind is Sums else value


def content(value: Any, *, one_unknown: bool = False) -> Hashable:
    """A register's value in a form that compares by content: bit by bit, with the lanes in which it
    is open. What is not known equals only itself, or (``one_unknown``) anything else like it."""
    if type(value) is int or value is None:
        return value
    if type(value) is Unknown:
        return "unknown", value.lanes if one_unknown else id(value)
    array = np.asarray(plain(value))
    held = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return open_lanes(value), array.dtype.str, array.shape, held


#: marks of bytes: as at the start, known, and from this one on the numbers of unknown values
_START, _KNOWN, _FIRST = 0, 1, 2
#: bytes of memories of which marks cost next to nothing
_SMALL = 1 << 16


class Marks:
    """Which bytes of a memory of ``nbytes`` are not known; None as ``start``: all are at first."""

    __slots__ = ("_bytes", "_nbytes", "_numbers", "_unknown", "start")

    def __init__(self, nbytes: int, start: Unknown | None) -> None:
        self._nbytes = nbytes
        self.start = start
        #: by byte; nothing while all are as at the start
        self._bytes: NDArray[np.uint16] | None = None
        self._unknown: list[Unknown] = []
        self._numbers: dict[Unknown, int] = {}

    @property
    def none_known(self) -> bool:
        """Whether nothing is known of any byte."""
        return self._bytes is None and self.start is not None

    def first_in(self, held: ByteSet) -> Unknown | None:
        """What the first of these bytes is of which it is not known what it is."""
        if self._bytes is None:
            return self.start
        for low, high in held.pairs:
            found = self._first(self._bytes[low:high])
            if found is not None:
                return found
        return None

    def _first(self, marks: NDArray[np.uint16]) -> Unknown | None:
        if self.start is None:
            most = int(marks.max(initial=_START))
            return None if most < _FIRST else self._unknown[most - _FIRST]
        wrong = marks[marks != _KNOWN]
        if not wrong.size:
            return None
        number = int(wrong.flat[0])
        return self.start if number == _START else self._unknown[number - _FIRST]

    def set(self, held: ByteSet, value: Unknown | None) -> None:
        """Bytes become known, or ``value``."""
        mark = self._mark(value)
        if mark is None:
            return
        cells = self._cells()
        for low, high in held.pairs:
            cells[low:high] = mark

    def _mark(self, value: Unknown | None) -> int | None:
        """The mark of a value; None if all bytes are as they become anyhow."""
        if value is None:
            return None if self._bytes is None and self.start is None else _KNOWN
        if self._bytes is None and self.start is not None and self._nbytes > _SMALL:
            return None  # one is as unknown as the other, and reports name the first
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._unknown) + _FIRST
            self._unknown.append(value)
        return number

    def _cells(self) -> NDArray[np.uint16]:
        if self._bytes is None:
            self._bytes = np.zeros(self._nbytes, dtype=np.uint16)
        return self._bytes
