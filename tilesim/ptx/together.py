"""Instructions that compute data of the same data are one, which has the results of all.

    cvt r1, f1, f2
    cvt r2, f3, f4    ->    ptx.data "cvt", {r1, r2}, {tile}

A variable stands for all registers of a tile (`tilesim.ptx.tiles`), and a compiler does to each of
them what it does to the others. Nobody knows what comes out, only what it is made of; that is the
same for all, and one instruction is to be analysed, loaded and run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from tilesim.analysis.uses_defs import mentioned, mentions_of, registers_set
from tilesim.ir.expr import Expr, Var
from tilesim.ir.mir import Instruction
from tilesim.ir.op import Computation, Op
from tilesim.ir.ops.compute import AccessTile, Data
from tilesim.ir.ops.scalar import Assign


class Together:
    """The instructions of a kernel while it is lowered, one behind the other: ``code``."""

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        #: by what they are and what they work on, those that others may still come to
        self._begun: dict[Hashable, _Begun] = {}
        #: by register: the last instruction that has set it, or read it, since `end`
        self._set: dict[str, int] = {}
        self._read: dict[str, int] = {}

    def add(self, instruction: Instruction) -> None:
        """The next instruction of the kernel."""
        match instruction.what:
            case Data(warp=False, group=None) as data if instruction.guard is None:
                self._data(data, instruction)
            case Assign() | Computation() | Data() | AccessTile() as op:
                self._append(op, instruction)
            case _:
                self.end()
                self.code.append(instruction)

    def end(self) -> None:
        """What follows does more than to compute registers, or may be reached otherwise."""
        if self._begun:
            for begun in self._begun.values():
                begun.put_into(self.code)
            self._begun.clear()
            self._set.clear()
            self._read.clear()

    def _append(self, op: Op, instruction: Instruction) -> None:
        if self._begun:
            number, (tested, used, _) = len(self.code), mentions_of(instruction)
            _note(self._read, tested | used, number)
            _note(self._set, (var.name for var in registers_set(op)), number)
        self.code.append(instruction)

    def _data(self, data: Data, instruction: Instruction) -> None:
        on = data.results if data.partly else data.sources
        key = (data.opcode, data.why, data.partly, on, data.loc)
        begun = self._begun.get(key)
        if begun is not None and self._may_join(begun.number, data):
            begun.join(data)
            _note(self._read, _mentioned(data.sources), begun.number)
            _note(self._set, (var.name for var in data.results), begun.number)
            return
        if begun is not None:
            begun.put_into(self.code)
        self._begun[key] = _Begun(len(self.code), data)
        self._append(data, instruction)

    def _may_join(self, number: int, data: Data) -> bool:
        """Whether this may be computed by instruction ``number``, before it, already: all registers
        that its operands are made of are set there as they are here, and nothing in between sets
        or reads what it sets.

        One that sets a register of a tile may follow another that does, though it may work on what
        that one has set: the two together make the same of the same.
        """
        results = {var.name for var in data.results}
        of_tile = results if data.partly else ()
        return all(
            self._set.get(name, -1) <= number and self._read.get(name, -1) <= number
            for name in results
        ) and all(
            self._set.get(name, -1) < number
            for name in _mentioned(data.sources)
            if name not in of_tile
        )


@dataclass
class _Begun:
    """An instruction, and what others add to it."""

    number: int
    first: Data
    results: dict[Var, None] = field(default_factory=dict)
    sources: dict[Expr, None] = field(default_factory=dict)
    others: int = 0

    def join(self, data: Data) -> None:
        """Another one is computed with it."""
        self.others += 1
        self.results.update(dict.fromkeys(data.results))
        if data.partly:  # it keeps what the variable holds, which the first one has set
            self.sources.update(dict.fromkeys(s for s in data.sources if s not in data.results))

    def put_into(self, code: list[Instruction]) -> None:
        """Puts what it has become in its place."""
        if not self.others:
            return
        first, old = self.first, code[self.number]
        what = replace(
            first, results=tuple(dict.fromkeys((*first.results, *self.results))),
            sources=tuple(dict.fromkeys((*first.sources, *self.sources))),
            loc=replace(first.loc, behind=None),
        )  # fmt: skip
        more = old.left_out + self.others * first.cycles
        code[self.number] = replace(old, what=what, left_out=more)


def _mentioned(operands: Iterable[Expr]) -> frozenset[str]:
    """The registers that operands are made of: one may be an expression."""
    return frozenset[str]().union(*map(mentioned, operands))


def _note(places: dict[str, int], names: Iterable[str], number: int) -> None:
    """Each of ``names`` is set, or read, at ``number``; the last place is what counts."""
    for name in names:
        places[name] = max(number, places.get(name, -1))
