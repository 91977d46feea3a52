"""Tensor maps that a kernel makes itself: the buffers that they are maps of.

What is copied is what the bytes of a map say when it is used. The buffers that it may be one of
have to be known before: those of which an address was put into the map at the same place, or was
copied there. That this is so is checked when a copy uses the map.
"""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import TypeAlias

from tilesim.ir.expr import Base, Binary, Const, Expr
from tilesim.ptx.bind import Launched
from tilesim.ptx.constants import Constants
from tilesim.ptx.inline import At, Flat, Register, Step, Symbol
from tilesim.records import dataclass

#: opcodes that hand a number on
_MOVES = ("mov", "cvta", "cvt")
_DEEPEST = 64
_POINTER = 8

#: what is in a sum: a register whose value is not followed, or the address of a buffer
_Term: TypeAlias = "Flat | Base | str"


@dataclass(frozen=True)
class _Sum:
    """A number: how often each term is in it, and what is added."""

    terms: tuple[tuple[_Term, int], ...]
    plus: int = 0

    def __add__(self, other: _Sum) -> _Sum:
        counted = Counter(dict(self.terms))
        for term, times in other.terms:
            counted[term] += times
        kept = sorted(((t, n) for t, n in counted.items() if n), key=repr)
        return _Sum(tuple(kept), self.plus + other.plus)

    def __mul__(self, factor: int) -> _Sum:
        return _Sum(tuple((t, n * factor) for t, n in self.terms), self.plus * factor)


class MadeMaps:
    """The maps that ``tensormap.replace`` and ``tensormap.cp_fenceproxy`` make in a kernel."""

    def __init__(self, launched: Launched, constants: Constants) -> None:
        self._launched = launched
        self._constants = constants
        self._sums: dict[str, _Sum] = {}
        #: by the place of a map: the buffers; None: they are not known
        self._buffers: dict[_Sum, frozenset[str] | None] = {}
        #: fields that the kernel sets in some map
        self.fields: set[str] = set()
        copies = []
        for step in launched.kernel.code:
            if step.base != "tensormap":
                continue
            if step.opcode.startswith("tensormap.replace"):
                self.fields.add(step.qualifiers[2])
                if step.qualifiers[2] == "global_address":
                    self._note(self._place(step.operands[0]), self._owners(step.operands[1]))
            elif step.opcode.startswith("tensormap.cp_fenceproxy"):
                copies.append((self._place(step.operands[0]), self._place(step.operands[1])))
        for to, source in copies:
            if source in self._buffers:
                self._note(to, self._buffers[source])

    def _note(self, place: _Sum, buffers: frozenset[str] | None) -> None:
        before = self._buffers.get(place, frozenset())
        self._buffers[place] = None if before is None or buffers is None else before | buffers

    def buffers(self, operand: At) -> tuple[str, ...]:
        """The buffers of which the map at an address may be one: all, if that is not known."""
        found = self._buffers.get(self._place(operand))
        return tuple(name for name in self._launched.tensors if found is None or name in found)

    # ------------------------------------------------------------------ addresses

    def _place(self, operand: Flat) -> _Sum:
        """An address as what it is computed of."""
        if not isinstance(operand, At):
            return _Sum(((operand, 1),))
        if isinstance(operand.base, int):
            return _Sum((), operand.base + operand.offset)
        return self._sum(operand.base) + _Sum((), operand.offset)

    def _sum(self, operand: Flat, depth: int = 0) -> _Sum:
        """What a number is the sum of. That it may wrap around is left to the use of the map."""
        number = self._constants.number(operand)
        if number is not None:
            return _Sum((), number)
        if not isinstance(operand, Register):
            return _Sum(((operand, 1),))
        if operand.name not in self._sums:
            self._sums[operand.name] = _Sum(((operand, 1),))  # while it is looked for
            step = self._constants.setter(operand)
            found = None if step is None or depth > _DEEPEST else self._computed(step, depth + 1)
            self._sums[operand.name] = found or self._sums[operand.name]
        return self._sums[operand.name]

    def _computed(self, step: Step, depth: int) -> _Sum | None:
        sources = step.operands[1:]
        match step.base:
            case "ld" if "param" in step.qualifiers:
                return self._parameter(step)
            case _ if step.base in _MOVES and len(sources) == 1:
                return self._sum(sources[0], depth)
            case "add":
                return self._sum(sources[0], depth) + self._sum(sources[1], depth)
            case "mul" | "mad":
                product = self._product(sources[0], sources[1], depth)
                return product if len(sources) == 2 else product + self._sum(sources[2], depth)
            case "shl" if (count := self._constants.number(sources[1])) is not None:
                return self._sum(sources[0], depth) * (1 << count)
            case _:
                return None

    def _product(self, a: Flat, b: Flat, depth: int) -> _Sum:
        factors = self._constants.number(a), self._constants.number(b)
        if factors[1] is not None:
            return self._sum(a, depth) * factors[1]
        if factors[0] is not None:
            return self._sum(b, depth) * factors[0]
        return _Sum(((f"{a} times {b}", 1),))

    def _parameter(self, step: Step) -> _Sum | None:
        """The address that is loaded from a parameter, or from a field of one."""
        place = step.operands[1]
        if not isinstance(place, At) or isinstance(place.base, int):
            return None
        known = (
            place.base if isinstance(place.base, Symbol) else self._constants.parameter(place.base)
        )
        if known is None or not isinstance(step.operands[0], Register):
            return None
        offset = known.offset + place.offset
        return _address(self._launched.value(known.variable.name, offset, _POINTER))

    # ------------------------------------------------------------------ buffers

    def _owners(self, operand: Flat) -> frozenset[str] | None:
        """The buffers that an address may be in; None if not known."""
        bases = [term for term, times in self._sum(operand).terms if times == 1]
        found = [own for own in map(self._owner, bases) if own]
        return found[0] if len(found) == 1 else None

    def _owner(self, term: _Term) -> frozenset[str]:
        if isinstance(term, Base):
            return frozenset((term.name,))
        step = None if isinstance(term, str) else self._constants.setter(term)
        if step is None or step.base != "ld" or not isinstance(step.operands[0], Register):
            return frozenset()
        return self._pointed(self._place(step.operands[1]))

    def _pointed(self, place: _Sum) -> frozenset[str]:
        """The buffers of which an address lies at a place, or at one so many bytes from it."""
        tables = [term for term, times in place.terms if isinstance(term, Base) and times == 1]
        if len(tables) != 1 or tables[0].name not in self._launched.tensors:
            return frozenset()
        apart = gcd(*(times for term, times in place.terms if term != tables[0]))
        at = self._launched.tensors[tables[0].name].pointers
        return frozenset(
            one.to for one in at
            if (one.at == place.plus if not apart else (one.at - place.plus) % apart == 0)
        )  # fmt: skip


def _address(value: Expr | None) -> _Sum | None:
    match value:
        case Base():
            return _Sum(((value, 1),))
        case Binary("+", Base() as base, Const(int() as offset)):
            return _Sum(((base, 1),), offset)
        case _:
            return None
