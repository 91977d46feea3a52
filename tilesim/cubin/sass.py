"""Instructions of machine code (SASS), with their lines in the source and in the embedded PTX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilesim.records import dataclass

#: bytes of an instruction
WIDTH = 16


@dataclass(frozen=True)
class SourceLine:
    """A line of the source from which an instruction comes."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    ``pc`` counts bytes from the function's beginning. ``guard`` is a predicate (``P0``, ``!UP1``),
    empty without one. ``opcode`` has all its modifiers (``BAR.SYNC.DEFER_BLOCKING``), ``operands``
    are their texts without ``.reuse``; a label is the place that it names (``0x1a0``), or its name
    if it is in another function. ``lines``: where it is in the source, then the calls that were
    inlined, the outermost last. ``ptx``: its line in the PTX that the cubin embeds. ``target``:
    the place that a branch, a call or ``BSSY`` names.
    """

    pc: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    lines: tuple[SourceLine, ...] = ()
    ptx: int | None = None
    target: int | None = None

    @property
    def base(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the base, in order."""
        return tuple(self.opcode.split(".")[1:])

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class Function:
    """The code of a kernel, and what can follow what.

    ``address``: where it lies on the device, 0 in a cubin that is not relocated. ``code`` is in the
    order of places. ``successors`` and ``predecessors`` are places by places, and hold at least
    what can happen: a call goes on at the place that is called if that is in the function, a return
    after each call that can have led there (`reached` goes by calls). Where a branch leads is known
    of all but those in ``unknown``.
    """

    name: str
    address: int
    size: int
    code: Mapping[int, Instruction]
    successors: Mapping[int, tuple[int, ...]]
    predecessors: Mapping[int, tuple[int, ...]]
    unknown: frozenset[int] = frozenset()

    def reached(self, places: Iterable[int]) -> frozenset[int]:
        """The places that can be reached from others, in any number of steps, with these. What is
        called comes back to the call by which it was reached, or to each if it began there."""
        todo = [(pc, True) for pc in places if pc in self.code]
        seen: set[tuple[int, bool]] = set()
        while todo:
            place = todo.pop()
            if place in seen:
                continue
            seen.add(place)
            pc, outermost = place
            one = self.code[pc]
            if one.base == "CALL" and one.target is not None:
                todo.append((one.target, False))
                if pc + WIDTH in self.code:
                    todo.append((pc + WIDTH, outermost))
            elif one.base != "RET" or outermost:
                todo += [(after, outermost) for after in self.successors[pc]]
            elif one.guard and pc + WIDTH in self.code:
                todo.append((pc + WIDTH, outermost))
        return frozenset(pc for pc, _ in seen)
