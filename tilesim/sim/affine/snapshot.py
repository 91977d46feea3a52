"""The state of a machine in a form in which two moments of a run can be compared.

Everything that can be reached from the machine is written down, whatever class it belongs to: a
field that this module does not know has to be equal. `tilesim.sim.affine.state_fields` lists the
exceptions: what may differ by a shift, and what is left out because it follows from the rest.

A *family* is a set of numbers that are compared with each other and with nothing else: the
positions of one component of the clocks, or a count. From one snapshot to the next a number of a
family may stay as it is, or grow by what all that grow in this family do, if it is larger than
those that stay: then all comparisons between them come out the same, now and whenever it happens
again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from operator import attrgetter
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import URGENT, Event

from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.unknown import Unknown

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Machine

Family: TypeAlias = Hashable
#: writes a field of an object
FieldWriter: TypeAlias = "Callable[[Writer, Any, Any], None]"
#: writes an object
ObjectWriter: TypeAlias = "Callable[[Writer, Any], None]"
Fields: TypeAlias = "dict[type, dict[str, FieldWriter]]"
Objects: TypeAlias = "dict[type, ObjectWriter]"
#: of a class: the names of the fields that objects have without a ``__dict__``, how some of them
#: are written, and what gets all of them at once
_Layout: TypeAlias = "tuple[tuple[str, ...], dict[str, FieldWriter], Callable[[Any], Any] | None]"

#: how far positions, and other numbers, that grow have to be above those that do not: more than any
#: code adds to one before it compares it (wgmma.wait_group goes back by eight at most)
GAP, WIDE_GAP = 4, 12
_PLAIN = (int, float, str, bool, bytes, type(None))


class Glance(Event):
    """The event of an observer that looks at the state, which is no part of it."""

    def __init__(self, env: simpy.Environment, look: Callable[[Event], None]) -> None:
        super().__init__(env)
        self.callbacks.append(look)
        env.schedule(self, URGENT)


class NotPlain(Exception):
    """The state holds something of which it is not known what counts."""


@dataclass
class Snapshot:
    """The state of a machine at one time.

    ``shape`` has to be equal; ``families`` are numbers, ``clocks`` vector clocks (rows of ``size``
    components), ``registers`` those of warps, by warp and slot. ``arrays``: what these are in all
    clusters, where that differs. ``parts``: shapes and families of what is recorded at places.
    """

    size: int
    shape: list[Any] = field(default_factory=list)
    families: dict[Family, list[int]] = field(default_factory=dict)
    clocks: list[NDArray[np.int64]] = field(default_factory=list)
    registers: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    arrays: dict[tuple[int, int], NDArray[Any]] = field(default_factory=dict)
    parts: dict[int, tuple[list[Any], dict[Family, list[int]]]] = field(default_factory=dict)
    #: keeps alive what the shape names by its identity
    kept: list[object] = field(default_factory=list)

    def repeats(
        self, before: Snapshot, places: Iterable[object] = (), *, ahead: bool = False
    ) -> bool:
        """Whether this is the state ``before`` but for shifts of registers, and of numbers that
        are only compared with each other; of what is recorded that on ``places`` counts.

        ``ahead``: what follows will be, rather, if as much happens in it."""
        if self.shape != before.shape or len(self.clocks) != len(before.clocks):
            return False
        moves = self._clock_moves(before, ahead=ahead)
        now, then = self._with(places), before._with(places)
        if moves is None or now is None or then is None or now[0] != then[0]:
            return False
        return now[1].keys() == then[1].keys() and all(
            _moves_together(then[1][name], values, moves.get(name, _STILL), _gap(name), ahead=ahead)
            for name, values in now[1].items()
        )

    def _with(
        self, places: Iterable[object]
    ) -> tuple[list[list[Any]], dict[Family, list[int]]] | None:
        """The shapes of what is recorded on places, and all families; None if it is not known."""
        shapes, families = [], dict(self.families)
        for place in places:
            part = self.parts.get(id(place))
            if part is None:
                return None
            shapes.append(part[0])
            for name, values in part[1].items():
                families[name] = families.get(name, []) + values
        return shapes, families

    def _clock_moves(self, before: Snapshot, *, ahead: bool) -> dict[Family, _Moves] | None:
        if any(a.shape != b.shape for a, b in zip(self.clocks, before.clocks, strict=True)):
            return None
        now = np.concatenate(self.clocks).reshape(-1, self.size)
        then = np.concatenate(before.clocks).reshape(-1, self.size)
        difference = now - then
        by = difference.max(axis=0)
        moved = difference != 0
        if (moved & (difference != by)).any() or (by < 0).any():
            return None
        still = np.where(moved, -1, now).max(axis=0)
        least = np.where(moved, now if ahead else then, NEVER).min(axis=0)
        if (moved.any(axis=0) & (least < still + GAP)).any():
            return None
        return {
            ("clock", c): _Moves(int(by[c]), int(still[c]), int(least[c]))
            for c in np.flatnonzero(moved.any(axis=0))
        }

    def register_shifts(self, before: Snapshot) -> dict[tuple[int, int], Any] | None:
        """By warp and slot, by how much registers are larger than ``before``, where they are not
        the same: None for those that differ otherwise. None if those of turns that began earlier
        differ otherwise than the warps' own."""
        found: dict[tuple[int, int], Any] = {}
        if self.registers.keys() != before.registers.keys():
            return None
        if _shapes(self.arrays) != _shapes(before.arrays):
            return None
        for key, values in self.registers.items():
            shifts = [difference(a, b) for a, b in zip(values, before.registers[key], strict=True)]
            shift = shifts[0]
            if any(x is None or np.any(x != shift) for x in shifts):
                if len(shifts) > 1:
                    return None
                shift = None
            if key in self.arrays:
                shift = _of_all(shift, self.arrays[key] - before.arrays[key])
            if shift is None or np.any(shift):
                found[key] = shift
        return found


def _shapes(arrays: Mapping[tuple[int, int], NDArray[Any]]) -> dict[tuple[int, int], Any]:
    return {key: array.shape for key, array in arrays.items()}


def _of_all(own: Any, others: NDArray[Any]) -> Any:
    """The shift of a register, if it is the same in all clusters."""
    if own is None or not (np.broadcast_to(own, others.shape[-1]) == others).all():
        return None
    return own


@dataclass(frozen=True)
class _Moves:
    """How the numbers of a family move: by how much, and the greatest that does not, the least that
    does."""

    by: int = 0
    still: int = 0
    least: int = NEVER


_STILL = _Moves()


def _gap(family: Family) -> int:
    name = family[0] if isinstance(family, tuple) else family
    return GAP if name in ("clock", "strong") else WIDE_GAP


def _moves_together(
    before: list[int], now: list[int], clocks: _Moves, gap: int, *, ahead: bool
) -> bool:
    """Whether the numbers of one family, in and outside of clocks, keep their order for ever."""
    if len(before) != len(now):
        return False
    if before == now and not clocks.by:
        return True
    by, still, least = clocks.by, max(0, clocks.still), clocks.least
    for a, b in zip(before, now, strict=True):
        if a == b:
            still = max(still, a)
            continue
        if by and b - a != by:
            return False
        by, least = b - a, min(least, b if ahead else a)
    return by > 0 and least >= still + gap


def difference(now: Any, before: Any) -> Any:
    """By how much an integer register has changed; None if that is no number."""
    if isinstance(now, np.ndarray) or isinstance(before, np.ndarray):
        a, b = np.asarray(now), np.asarray(before)
        if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind not in "iu":
            return 0 if np.array_equal(a, b) and a.dtype == b.dtype else None
        return a - b
    if type(now) is not type(before):
        return None
    if type(now) is int:
        return now - before
    return 0 if now == before else None


class Writer:
    """Writes the state of a machine down; ``fields`` and ``objects`` are the special cases.

    ``most_pending``: how many groups of operations any wait lets remain at most.
    """

    def __init__(
        self, machine: Machine, fields: Fields, objects: Objects, most_pending: int
    ) -> None:
        self.machine = machine
        self.most_pending = most_pending
        self.now = machine.env.now
        self.snapshot = Snapshot(machine.components.size)
        self._shape = self.snapshot.shape
        self._fields = fields
        self._objects = objects
        self._writers: dict[type, ObjectWriter] = {}
        self._layouts: dict[type, _Layout] = {}
        self._numbers: dict[int, int] = {}
        #: what is written once all else is
        self.at_the_end: list[Callable[[], None]] = []

    # ------------------------------------------------------------------ numbers

    def number(self, family: Family, value: int) -> None:
        """A number that is compared with those of its family only."""
        if value == NEVER:
            self._shape.append("never")
            return
        self._shape.append(family)
        self.snapshot.families.setdefault(family, []).append(int(value))

    def position(self, component: int, value: int) -> None:
        """A position of a component of the clocks."""
        self.number(("clock", component), value)

    def positions_of(self, component: int) -> Iterator[int]:
        """The positions of a component that have been written so far, outside of clocks."""
        family = ("clock", component)
        yield from self.snapshot.families.get(family, ())
        for _, families in self.snapshot.parts.values():
            yield from families.get(family, ())

    def clock(self, clock: NDArray[np.int64] | None) -> None:
        """A vector clock, or some of its rows."""
        if clock is None:
            self._shape.append(None)
        elif self.is_new(clock):
            if clock.size % self.snapshot.size:
                raise NotPlain("a clock of another machine")
            self._shape.append(("clock", clock.size))
            self.snapshot.clocks.append(clock.copy())

    def time(self, value: float) -> None:
        """A time: what is over does not count."""
        self._shape.append(max(0.0, value - self.now))

    def token(self, value: Hashable) -> None:
        """Something that has to be equal."""
        self._shape.append(value)

    def identity(self, value: object) -> None:
        """Something that has to be the same object."""
        self._shape.append(id(value))
        self.snapshot.kept.append(value)

    def part(self, place: Any, write: Callable[[Writer, Any], None]) -> None:
        """What is recorded at a place, apart from the rest."""
        shape, families, known = self._shape, self.snapshot.families, len(self._numbers)
        clocks = len(self.snapshot.clocks)
        own: tuple[list[Any], dict[Family, list[int]]] = [], {}
        self._shape, self.snapshot.families = own
        write(self, place)
        self._shape, self.snapshot.families = shape, families
        self.snapshot.parts[id(place)] = own
        self.snapshot.kept.append(place)
        while len(self._numbers) > known:
            self._numbers.popitem()
        if len(self.snapshot.clocks) > clocks:
            raise NotPlain("a clock of an access")

    # ------------------------------------------------------------------ everything

    def is_new(self, value: object) -> bool:
        """Whether an object is met for the first time; else says which one it is."""
        number = self._numbers.get(id(value))
        if number is not None:
            self._shape.append(("@", number))
            return False
        self._numbers[id(value)] = len(self._numbers)
        self.snapshot.kept.append(value)
        return True

    def write(self, value: Any) -> None:
        """Anything."""
        kind = type(value)
        if kind in _PLAIN:
            self._shape.append(value)
            return
        how = self._writers.get(kind)
        if how is None:
            how = self._writers[kind] = self._objects.get(kind) or _way(kind)
        how(self, value)

    def _tuple(self, value: tuple[Any, ...]) -> None:
        self._shape.append(("tuple", len(value)))
        for item in value:
            self.write(item)

    def _dict(self, value: dict[Any, Any]) -> None:
        if self.is_new(value):
            self._shape.append((type(value), len(value)))
            for key, item in value.items():
                self.write(key)
                self.write(item)

    def _list(self, value: list[Any]) -> None:
        if self.is_new(value):
            self._shape.append((type(value), len(value)))
            for item in value:
                self.write(item)

    def _array(self, value: Any) -> None:
        if self.is_new(value):
            self._shape.append((str(value.dtype), value.shape, value.tobytes()))

    def _bytes(self, value: bytearray) -> None:
        if self.is_new(value):
            self._shape.append(bytes(value))

    def _unknown(self, value: Unknown) -> None:
        if self.is_new(value):
            self.identity(value)

    def _method(self, value: MethodType) -> None:
        if self.is_new(value):
            self._shape.append(value.__func__.__code__)
            self.write(value.__self__)

    def _partial(self, value: partial[Any]) -> None:
        if self.is_new(value):
            self.write((value.func, value.args, *value.keywords.items()))

    def _object(self, value: Any) -> None:
        if self.is_new(value):
            self.fields(value)

    def _not_plain(self, value: Any) -> None:
        raise NotPlain(f"a {type(value).__module__}.{type(value).__name__}")

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        """A set, whose order does not count."""
        if not self.is_new(value):
            return
        if all(_is_plain(part) for item in value for part in _flat(item)):
            self._shape.append(("set", frozenset(value)))
            return
        if not all(id(item) in self._numbers for item in value):
            raise NotPlain(f"a set of {type(next(iter(value))).__name__}")
        self._shape.append(("set", frozenset(self._numbers[id(item)] for item in value)))

    def _function(self, value: FunctionType) -> None:
        if not self.is_new(value):
            return
        self._shape.append(value.__code__)
        self.write(value.__defaults__)
        self.write(value.__kwdefaults__)
        cells: tuple[CellType, ...] = value.__closure__ or ()
        for cell in cells:
            self.write(cell.cell_contents)

    def fields(self, value: Any) -> None:
        """The fields of an object, the special ones in their way."""
        kind = type(value)
        names, special, slots = self._layout(kind)
        self._shape.append(kind)
        if slots is not None and getattr(value, "__dict__", None) is None:
            try:
                items = slots(value)
            except AttributeError:
                items = None
        else:
            items = None
        if items is None:
            named = [(n, getattr(value, n)) for n in names if hasattr(value, n)]
            named += (getattr(value, "__dict__", None) or {}).items()
            names = tuple([name for name, _ in named])
            items = tuple([item for _, item in named])
            self._shape.append(names)
        for name, item in zip(names, items, strict=True):
            how = special.get(name)
            if how is not None:
                how(self, value, item)
            elif type(item) in _PLAIN:
                self._shape.append(item)
            else:
                self.write(item)

    def _layout(self, kind: type) -> _Layout:
        known = self._layouts.get(kind)
        if known is None:
            special: dict[str, FieldWriter] = {}
            for base in reversed(kind.__mro__):
                special |= self._fields.get(base, {})
            names = cast(Any, kind)._fields if issubclass(kind, tuple) else slots_of(kind)
            several = attrgetter(*names) if len(names) > 1 else None
            known = self._layouts[kind] = names, special, several
        return known


def _way(kind: type) -> ObjectWriter:
    """How an object of this class is written if nothing else is said."""
    if kind is tuple:
        return Writer._tuple
    if issubclass(kind, Enum | type) or kind.__module__.startswith(
        ("tilesim.arith.", "tilesim.ir.")
    ):
        return Writer.identity
    for base, how in _WRITERS.items():
        if issubclass(kind, base):
            return how
    return Writer._object if kind.__module__.startswith("tilesim.sim.") else Writer._not_plain


_WRITERS: dict[type, ObjectWriter] = {
    dict: Writer._dict, list: Writer._list, set: Writer._set, frozenset: Writer._set,
    np.ndarray: Writer._array, np.generic: Writer._array, bytearray: Writer._bytes,
    Unknown: Writer._unknown, FunctionType: Writer._function, MethodType: Writer._method,
    partial: Writer._partial, BuiltinFunctionType: Writer.identity,
}  # fmt: skip


def _flat(item: Any) -> Iterator[Any]:
    """What is in tuples of tuples, with names or without."""
    if not isinstance(item, tuple):
        yield item
        return
    for part in item:
        yield from _flat(part)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


_slots: dict[type, tuple[str, ...]] = {}


def slots_of(kind: type) -> tuple[str, ...]:
    """The slots of a class and of those it is derived from."""
    known = _slots.get(kind)
    if known is None:
        names: list[str] = []
        for base in kind.__mro__:
            own = base.__dict__.get("__slots__", ())
            names += [own] if isinstance(own, str) else own
        known = _slots[kind] = tuple(n for n in names if n not in ("__dict__", "__weakref__"))
    return known
